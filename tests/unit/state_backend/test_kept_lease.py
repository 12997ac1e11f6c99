import asyncio

import pytest

from onager.clock import ManualClock, SystemClock
from onager.errors import LeaseExpiredError, StateUnavailableError
from onager.state_backend import Keyspace, keep_lease
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.simulation.loop import VirtualClock
from tests.support.waiting import HANGS_S

BEATS = Keyspace.Heartbeats
pytestmark = pytest.mark.virtual_time


async def test_a_kept_lease_outlives_its_ttl_and_is_revoked_at_the_end():
    clock = VirtualClock(asyncio.get_running_loop())
    async with MemoryBackend(MemoryStore(clock)) as backend:
        async with keep_lease(backend, 30, clock) as kept:
            await backend.put(BEATS, "e1", b"", lease=kept.id)
            await asyncio.sleep(100)
            assert await backend.get(BEATS, "e1") is not None
            assert not kept.is_lost
        assert await backend.get(BEATS, "e1") is None


async def test_a_lease_that_was_ended_elsewhere_is_reported_as_lost():
    async with MemoryBackend() as backend, keep_lease(backend, 0.15, SystemClock()) as kept:
        await backend.revoke(kept.id)
        async with asyncio.timeout(HANGS_S):
            await kept.wait_lost()
        assert kept.is_lost


async def test_a_silent_store_loses_the_lease_by_the_holders_own_clock():
    clock = ManualClock()
    store = MemoryStore(clock)
    backend = MemoryBackend(store)
    async with keep_lease(backend, 0.03, clock) as kept:
        await backend.close()  # from here on: StateUnavailableError
        await asyncio.sleep(0.05)
        assert not kept.is_lost
        clock.advance(31)
        async with asyncio.timeout(HANGS_S):
            await kept.wait_lost()


async def test_the_error_of_the_block_comes_out_as_it_is():
    async with MemoryBackend() as backend:
        with pytest.raises(ZeroDivisionError):
            async with keep_lease(backend, 1, SystemClock()) as kept:
                raise ZeroDivisionError
        with pytest.raises(LeaseExpiredError):
            await backend.keep_alive(kept.id)
    with pytest.raises(StateUnavailableError):
        await backend.keep_alive(kept.id)


async def test_a_lease_that_nobody_keeps_any_more_is_lost_whatever_it_was(monkeypatch):
    async def fail(_):
        raise ValueError("a defect")

    async with MemoryBackend() as backend, keep_lease(backend, 0.15, SystemClock()) as kept:
        monkeypatch.setattr(backend, "keep_alive", fail)
        async with asyncio.timeout(HANGS_S):
            await kept.wait_lost()
