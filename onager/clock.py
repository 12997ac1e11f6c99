"""The source of time: every part that needs time gets a `Clock`, so that tests can control it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records and a monotonic time for deadlines."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch; may jump when an operator sets the machine's clock."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds from an arbitrary start; never goes back. Deadlines use only this."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds from an arbitrary start."""
        return time.monotonic()


class ManualClock:
    """A clock that stands still until `advance` moves it; both readings move together."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Return the milliseconds that were set."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Return the seconds advanced since this clock was made."""
        return self._monotonic_ms / 1000

    def advance(self, ms: int) -> None:
        """Move both readings *ms* forward."""
        self._now_ms += ms
        self._monotonic_ms += ms
