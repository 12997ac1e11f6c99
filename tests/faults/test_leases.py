"""How a lease is lost, how its holder learns of it, and what the holder can still do."""

import asyncio

import pytest

from onager.clock import ManualClock, SystemClock
from onager.errors import LeaseExpiredError, LockTimeoutError
from onager.state_backend import Committed, Keyspace, Put, keep_lease
from onager.state_backend.etcd import EtcdBackend
from onager.state_backend.model import Fenced
from tests.support.etcd import EtcdCluster
from tests.support.processes.tcp_proxy import TcpProxy
from tests.support.waiting import HANGS_S

BEATS, HEADS = Keyspace.Heartbeats, Keyspace.JobHeads
_TTL_S = 2.0  # etcd's shortest


@pytest.fixture
async def holder(proxy: TcpProxy, etcd: EtcdCluster, namespace: str):
    """Return a client that goes through the proxy."""
    async with await EtcdBackend.open(etcd.url(namespace, endpoints=[proxy.address], timeout="3s")) as backend:
        yield backend


@pytest.fixture
async def other(etcd: EtcdCluster, namespace: str):
    """Return a client that goes straight to the store."""
    async with await EtcdBackend.open(etcd.url(namespace, timeout=f"{HANGS_S:g}s")) as backend:
        yield backend


async def gone(backend: EtcdBackend, key: str) -> None:
    """Return when the key of heartbeats is deleted."""
    page = await backend.get_from_prefix(BEATS, "")
    async with backend.watch(BEATS, from_revision=page.revision + 1) as events, asyncio.timeout(HANGS_S):
        if any(item.key == key for item in page):
            async for event in events:
                if event.key == key and not event.value:
                    return


async def test_a_lease_that_an_admin_revokes_is_lost_at_the_next_beat(etcd, other):
    async with keep_lease(other, _TTL_S, SystemClock()) as kept, asyncio.timeout(HANGS_S):
        await other.put(BEATS, "e1", b"alive", lease=kept.id)
        assert not kept.is_lost
        etcd.etcdctl("lease", "revoke", f"{kept.id:x}")
        assert await other.get(BEATS, "e1") is None
        await kept.wait_lost()
        with pytest.raises(LeaseExpiredError):
            await other.put(BEATS, "e1", b"alive", lease=kept.id)


async def test_a_holder_that_is_cut_off_for_good_learns_it_from_its_own_clock(holder, other, proxy):
    async with keep_lease(holder, _TTL_S, SystemClock()) as kept, asyncio.timeout(HANGS_S):
        await holder.put(BEATS, "e1", b"alive", lease=kept.id)
        proxy.up.hold()
        proxy.down.hold()
        await kept.wait_lost()
        await gone(other, "e1")
        await proxy.heal()
        with pytest.raises(LeaseExpiredError):
            await holder.put(BEATS, "e1", b"alive", lease=kept.id)


async def test_a_holder_that_is_cut_off_for_a_moment_keeps_its_lease(holder, proxy):
    """The lease is long enough to reconnect, even on a busy machine."""
    async with keep_lease(holder, 15, SystemClock()) as kept, asyncio.timeout(HANGS_S):
        revision = await holder.put(BEATS, "e1", b"alive", lease=kept.id)
        for _ in range(3):
            proxy.cut()
            proxy.refuse()
            await asyncio.sleep(0.3)
            await proxy.accept()
            await holder.keep_alive(kept.id)
        assert not kept.is_lost
        assert (await holder.get(BEATS, "e1")).mod_revision == revision


async def test_a_clock_that_jumps_past_the_leases_time_ends_it_for_its_holder(other):
    clock = ManualClock()
    async with keep_lease(other, _TTL_S, clock) as kept, asyncio.timeout(HANGS_S):
        await other.put(BEATS, "e1", b"alive", lease=kept.id)
        clock.advance(round(_TTL_S * 1000) + 1)
        await kept.wait_lost()
    # The store goes by its own clock, and took no notice; the end of the block revoked it.
    assert await other.get(BEATS, "e1") is None


async def test_a_clock_that_stands_still_or_jumps_a_little_ends_nothing(other, monkeypatch):
    clock = ManualClock()
    beat = asyncio.Event()
    keep_alive = other.keep_alive

    async def keep_alive_and_tell(lease):
        await keep_alive(lease)
        beat.set()

    monkeypatch.setattr(other, "keep_alive", keep_alive_and_tell)
    async with keep_lease(other, 6, clock) as kept, asyncio.timeout(HANGS_S):
        await other.put(BEATS, "e1", b"alive", lease=kept.id)
        await beat.wait()
        for _ in range(2):
            # More than its time in all, but not since the last beat that was answered.
            clock.advance(4_000)
            beat.clear()
            await beat.wait()
        assert not kept.is_lost
        assert await other.get(BEATS, "e1") is not None


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_a_lease_outlives_the_leader_that_granted_it(three, namespace, fault):
    async with (
        await EtcdBackend.open(three.url(namespace, timeout="4s")) as backend,
        keep_lease(backend, 20, SystemClock()) as kept,
    ):
        revision = await backend.put(BEATS, "e1", b"alive", lease=kept.id)
        leader = await asyncio.to_thread(three.leader)
        await asyncio.to_thread(getattr(three, fault), leader)
        await asyncio.to_thread(three.leader)
        await backend.keep_alive(kept.id)
        await asyncio.to_thread(three.heal)
        await backend.keep_alive(kept.id)
        assert not kept.is_lost
        assert (await backend.get(BEATS, "e1")).mod_revision == revision


async def test_a_lock_holder_whose_connection_is_cut_still_holds_it(holder, other, proxy):
    lease, others = await holder.lease(10 * HANGS_S), await other.lease(10 * HANGS_S)
    async with holder.lock(HEADS, "sweep", lease.id) as token:
        for _ in range(3):
            proxy.cut()
            with pytest.raises(LockTimeoutError):
                async with other.lock(HEADS, "sweep", others.id, timeout_s=0.2):
                    pass
            await holder.get(HEADS, "connected")
            assert isinstance(await holder.put_txn([Put(HEADS, "job", b"")], fence=[token]), Committed)
        proxy.cut()
    async with other.lock(HEADS, "sweep", others.id, timeout_s=HANGS_S):
        pass


async def test_a_lock_holder_that_is_cut_off_past_its_lease_is_fenced(holder, other, proxy):
    async with asyncio.timeout(HANGS_S), keep_lease(holder, _TTL_S, SystemClock()) as kept:
        others = await other.lease(10 * HANGS_S)
        async with holder.lock(HEADS, "sweep", kept.id) as stale:
            assert isinstance(await holder.put_txn([Put(HEADS, "job", b"holder")], fence=[stale]), Committed)
            proxy.up.hold()
            async with other.lock(HEADS, "sweep", others.id) as token:
                assert token.revision > stale.revision
                written = await other.put_txn([Put(HEADS, "job", b"successor")], fence=[token])
                assert isinstance(written, Committed)
                await kept.wait_lost()
                await proxy.heal()
                await holder.get(HEADS, "connected")
                assert await holder.put_txn([Put(HEADS, "job", b"late")], fence=[stale]) == Fenced(stale)
                assert (await holder.get(HEADS, "job")).value == b"successor"


async def test_a_waiter_gets_the_lock_despite_connection_cuts(holder, other, proxy):
    lease, others = await holder.lease(10 * HANGS_S), await other.lease(10 * HANGS_S)
    async with other.lock(HEADS, "sweep", others.id):

        async def wait():
            async with holder.lock(HEADS, "sweep", lease.id) as token:
                return token

        waiting = asyncio.create_task(wait())
        for fault in (proxy.cut, proxy.drop_next_answer, proxy.cut):
            await asyncio.sleep(0.2)
            fault()
        assert not waiting.done()
    assert (await asyncio.wait_for(waiting, HANGS_S)).lease == lease.id
