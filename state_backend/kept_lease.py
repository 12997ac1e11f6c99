"""The one lease of a process: kept alive in the background, with its loss reported at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from onager.clock import Clock
from onager.errors import OutcomeUnknownError, StateBackendError, StateUnavailableError
from onager.state_backend.model import Lease, LeaseId
from onager.state_backend.port import StateBackendClient


class KeptLease:
    """A lease that `keep_lease` keeps alive; registrations and locks of the process are bound to *id*."""

    def __init__(self, lease: Lease, asked_s: float) -> None:
        self.id: LeaseId = lease.id
        self.ttl_s = lease.ttl_s
        self.until_s = asked_s + lease.ttl_s
        """When it ends if the store does not answer any more, by the monotonic clock."""
        self._lost = asyncio.Event()

    @property
    def is_lost(self) -> bool:
        """Whether the lease is gone, or must be assumed gone: the store was silent for its whole time."""
        return self._lost.is_set()

    def lose(self) -> None:
        """Tell all waiters that the lease is lost."""
        self._lost.set()

    async def wait_lost(self) -> None:
        """Return when the lease is lost: the caller stops what depends on it, and begins again with another."""
        await self._lost.wait()


@asynccontextmanager
async def keep_lease(backend: StateBackendClient, ttl_s: float, clock: Clock) -> AsyncIterator[KeptLease]:
    """Hold a lease inside the block, kept alive every third of its time; revoke it at the end.

    A store that does not answer is asked again until the lease's time is over by *clock*, counted from before the last
    request that was answered. That only serves to stop early: the fence is what keeps a late process from writing.
    """
    asked_s = clock.monotonic_s()
    lease = await backend.lease(ttl_s)
    kept = KeptLease(lease, asked_s)
    keeper = asyncio.create_task(_keep(backend, kept, clock), name=f"keep lease {lease.id}")
    try:
        yield kept
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        # A lease that cannot be revoked ends by itself.
        with suppress(StateUnavailableError, OutcomeUnknownError):
            await backend.revoke(lease.id)


async def _keep(backend: StateBackendClient, kept: KeptLease, clock: Clock) -> None:
    period_s = kept.ttl_s / 3
    delay_s = period_s
    try:
        while True:
            await asyncio.sleep(delay_s)
            asked_s = clock.monotonic_s()
            left_s = kept.until_s - asked_s
            try:
                # With no time left the request is not even sent.
                async with asyncio.timeout(left_s):
                    await backend.keep_alive(kept.id)
            except (StateUnavailableError, TimeoutError):
                delay_s = period_s / 10
                if clock.monotonic_s() >= kept.until_s:
                    return
            except StateBackendError:  # expired, or the store cannot recover
                return
            else:
                kept.until_s = asked_s + kept.ttl_s
                delay_s = period_s
    finally:
        kept.lose()  # whatever ended this, the lease is no longer kept alive
