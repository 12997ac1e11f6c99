"""Rounds of work that one scheduler does for all: whoever gets the round's lock without waiting."""

from contextlib import suppress
from typing import Final

from onager.clock import Clock
from onager.errors import LockTimeoutError, StateBackendError
from onager.state_backend import Keyspace, StateBackendClient, acquire_lock

HELD_S: Final = 30.0
"""How long a round's lock is held at most: longer than schedulers differ in when they see that a round begins."""


class Rounds:
    """The rounds as this scheduler sees them."""

    def __init__(self, backend: StateBackendClient, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._last: dict[str, tuple[int, float]] = {}
        """The round that each name was last in, and when that was seen to begin, by the monotonic clock."""

    def has_begun(self, name: str, interval_s: float) -> bool:
        """Return whether a round has begun since the last one that was seen to begin, 0.95 *interval_s* ago or longer.

        Rounds begin at multiples of *interval_s* on the cluster's clock, so all schedulers see that within moments. The
        first call begins one, too; a scheduler leaves out the round that begins soon after that.
        """
        number, now_s = self._clock.now_ms() // int(1000 * interval_s), self._clock.monotonic_s()
        last, last_s = self._last.get(name, (-1, -interval_s))
        if number == last:
            return False
        is_due = now_s - last_s >= 0.95 * interval_s
        self._last[name] = number, now_s if is_due else last_s
        return is_due

    async def claim(self, name: str, interval_s: float) -> bool:
        """Return whether this scheduler does the round; no other one gets it in the next `HELD_S`, or half an interval.

        The lock is not released, but ends with its lease. So the work may take longer, and hold up no other round.
        """
        lease = await self._backend.lease(min(HELD_S, interval_s / 2))
        try:
            await acquire_lock(self._backend, Keyspace.Admin, name, lease.id, 0)
        except BaseException as error:
            with suppress(StateBackendError):  # else it ends by itself
                await self._backend.revoke(lease.id)
            if isinstance(error, LockTimeoutError):
                return False
            raise
        return True
