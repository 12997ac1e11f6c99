"""The time that all schedulers agree on, so that what one has dated is a duration for the others."""

from typing import Final

import structlog

from onager.clock import Clock

log = structlog.get_logger(__name__)

_EXACT_MS: Final = 100
"""Differences up to this are the time that the answer took."""
_LOGGED_MS: Final = 1_000


class ClusterClock:
    """The clock by which schedulers date deadlines, pauses and retention: it is set by the one that is here longest.

    It need not be right. Whoever joins takes over the time that is there, so it goes on when the eldest leaves. From
    the moment when there is another scheduler it advances with the monotonic clock: then nobody can set it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set: tuple[int, float] | None = None
        """The cluster's time at a moment of the monotonic clock; None while there was no other scheduler yet."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch, as all schedulers of the cluster count them."""
        if self._set is None:
            return self._clock.now_ms()
        now_ms, at_s = self._set
        return now_ms + int(1000 * (self._clock.monotonic_s() - at_s))

    def monotonic_s(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        return self._clock.monotonic_s()

    @property
    def machine_ms(self) -> int:
        """Return the time of this machine's own clock."""
        return self._clock.now_ms()

    @property
    def ahead_ms(self) -> int:
        """Return by how much this machine's clock is ahead of the cluster's time."""
        return self._clock.now_ms() - self.now_ms()

    def share(self) -> None:
        """Note that there is another scheduler."""
        if self._set is None:
            self._set = self._clock.now_ms(), self._clock.monotonic_s()

    def follow(self, now_ms: int) -> None:
        """Take *now_ms* as the cluster's time."""
        self.share()
        differs_ms = now_ms - self.now_ms()
        if abs(differs_ms) < _EXACT_MS:
            return
        self._set = now_ms, self._clock.monotonic_s()
        if abs(differs_ms) >= _LOGGED_MS:
            log.warning(
                "clock_differs",
                ahead_s=round(self.ahead_ms / 1000, 1),
                advice="this machine's clock is not that of the cluster: run NTP on all of them",
            )
