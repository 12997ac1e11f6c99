"""Waits that grow with every failure in a row, waits that end at different times, and a limit on repetitions."""

import asyncio
import secrets


class Backoff:
    """Waits *first_s*, then twice as long each time up to *limit_s*, each minus a random part of up to a half."""

    def __init__(self, first_s: float, limit_s: float) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._next_s = first_s

    def reset(self) -> None:
        """Start again from the first wait."""
        self._next_s = self._first_s

    def next_s(self) -> float:
        """Return how long to wait now."""
        wait_s, self._next_s = self._next_s, min(self._limit_s, self._next_s * 2)
        return wait_s * (1 - _random_part())

    async def sleep(self) -> None:
        """Wait."""
        await asyncio.sleep(self.next_s())


def spread(wait_ms: int) -> int:
    """Return *wait_ms* minus a random part of up to a half: waits that began together end one by one."""
    return int(wait_ms * (1 - _random_part()))


def _random_part() -> float:
    return secrets.randbelow(500) / 1000


class Pace:
    """Lets a few actions happen at once, and after that one every *interval_s*."""

    def __init__(self, interval_s: float, at_once: int) -> None:
        self._interval_s = interval_s
        self._at_once = at_once
        self._due_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Return how long an action at *now_s*, by a monotonic clock, has to wait."""
        self._due_s = max(self._due_s, now_s - self._at_once * self._interval_s) + self._interval_s
        return max(0.0, self._due_s - now_s)
