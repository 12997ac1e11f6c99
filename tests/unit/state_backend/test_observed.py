"""The metrics of a store, which otherwise behaves the same."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from onager.clock import ManualClock
from onager.errors import LeaseExpiredError, LockTimeoutError, StateUnavailableError, WatchCompactedError
from onager.state_backend import ABSENT, Conflict, KeyRange, Keyspace, OutcomeUnknown, Put
from onager.state_backend.faulty import FaultKind, FaultyBackend, scripted
from onager.state_backend.local import WatchHub
from onager.state_backend.memory import MemoryBackend, MemoryStore
from onager.state_backend.model import Fenced
from onager.state_backend.observed import ObservedBackend, StateMetrics

HEADS, LOG = Keyspace.JobHeads, Keyspace.JobLog


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
async def store(clock):
    return MemoryStore(clock)


@pytest.fixture
async def backend(store, clock, registry):
    async with ObservedBackend(MemoryBackend(store), StateMetrics(registry), clock) as backend:
        yield backend


def requests(registry):
    """Return how many calls there were of each operation and outcome."""
    return {
        (sample.labels["operation"], sample.labels["outcome"]): int(sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "onager_state_request_seconds_count"
    }


async def test_each_operation_is_counted_by_its_outcome(backend, registry):
    lease = await backend.lease(10)
    await backend.keep_alive(lease.id)
    revision = await backend.put(HEADS, "a", b"12345")
    await backend.get(HEADS, "a")
    await backend.get_from_prefix(HEADS, "")
    await backend.scan(HEADS, limit=1)
    await backend.scan_keys(HEADS, limit=1)
    await backend.read_txn([(HEADS, "a")], [KeyRange(HEADS)])
    await backend.put_txn([Put(LOG, "a/1", b"")], expect={(HEADS, "a"): revision})
    assert isinstance(await backend.put_txn([Put(LOG, "a/1", b"")], expect={(HEADS, "a"): ABSENT}), Conflict)
    async with backend.lock(HEADS, "sweep", lease.id) as token:
        await backend.put_txn([Put(LOG, "a/2", b"")], fence=[token])
        [lock] = await backend.inner.get_from_prefix(Keyspace.Locks, "")
    assert isinstance(await backend.put_txn([Put(LOG, "a/3", b"")], fence=[token]), Fenced)
    await backend.delete(HEADS, "a")
    await backend.delete_range(LOG, "a/")
    await backend.revoke(lease.id)
    with pytest.raises(LeaseExpiredError):
        await backend.keep_alive(lease.id)
    assert requests(registry) == {
        ("lease", "ok"): 1,
        ("keep_alive", "ok"): 1,
        ("keep_alive", "lease_expired"): 1,
        ("put", "ok"): 1,
        ("get", "ok"): 1,
        ("get_from_prefix", "ok"): 1,
        ("scan", "ok"): 1,
        ("scan_keys", "ok"): 1,
        ("read_txn", "ok"): 1,
        ("put_txn", "ok"): 4,  # two of the lock
        ("put_txn", "conflict"): 1,
        ("put_txn", "fenced"): 1,
        ("delete", "ok"): 1,
        ("delete_range", "ok"): 1,
        ("revoke", "ok"): 1,
    }
    assert registry.get_sample_value("onager_state_bytes_total", {"direction": "written"}) == 5 + len(lock.value)
    # get, get_from_prefix, scan, and twice in read_txn
    assert registry.get_sample_value("onager_state_bytes_total", {"direction": "read"}) == 25


async def test_time_is_the_clocks(store, clock, registry):
    class SlowBackend(MemoryBackend):
        async def _read(self, keys, ranges):
            clock.advance(40)
            return await super()._read(keys, ranges)

    backend = ObservedBackend(SlowBackend(store), StateMetrics(registry), clock)
    await backend.get(HEADS, "a")
    labels = {"operation": "get", "outcome": "ok"}
    assert registry.get_sample_value("onager_state_request_seconds_sum", labels) == pytest.approx(0.04)
    assert registry.get_sample_value("onager_state_request_seconds_bucket", labels | {"le": "0.025"}) == 0
    assert registry.get_sample_value("onager_state_request_seconds_bucket", labels | {"le": "0.05"}) == 1
    await backend.close()


async def test_faults_are_distinguished(store, clock, registry):
    faults = scripted(
        {
            "get": [FaultKind.UNAVAILABLE],
            "put_txn": [FaultKind.UNKNOWN_WRITTEN, FaultKind.UNAVAILABLE],
        }
    )
    backend = ObservedBackend(FaultyBackend(MemoryBackend(store), faults, clock), StateMetrics(registry), clock)
    with pytest.raises(StateUnavailableError):
        await backend.get(HEADS, "a")
    ops = [Put(HEADS, "a", b""), Put(HEADS, "b", b"")]
    assert isinstance(await backend.put_txn(ops), OutcomeUnknown)
    with pytest.raises(StateUnavailableError):
        await backend.put_txn(ops)
    assert requests(registry) == {
        ("get", "unavailable"): 1,
        ("put_txn", "unknown"): 1,
        ("put_txn", "unavailable"): 1,
    }
    await backend.close()


async def test_a_cancelled_call_is_counted_as_such(backend, registry):
    call = asyncio.ensure_future(backend.get(HEADS, "a"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert requests(registry) == {("get", "cancelled"): 1}


async def test_waits_for_locks_are_counted_apart(backend, registry):
    one, other = await backend.lease(10), await backend.lease(10)
    async with backend.lock(HEADS, "sweep", one.id):
        with pytest.raises(LockTimeoutError):
            async with backend.lock(HEADS, "sweep", other.id, timeout_s=0):
                pass
    for outcome in ("ok", "timeout"):
        assert registry.get_sample_value("onager_state_lock_wait_seconds_count", {"outcome": outcome}) == 1


async def test_watches_their_events_and_breaks_are_counted(store, clock, registry):
    hub = WatchHub(store.revision, history_events=2)
    backend = ObservedBackend(MemoryBackend(store, hub=hub), StateMetrics(registry), clock)
    async with backend.watch(HEADS) as events:
        assert registry.get_sample_value("onager_state_watches") == 1
        await backend.put(HEADS, "a", b"")
        assert (await anext(events)).key == "a"
        for _ in range(3):
            await backend.put(HEADS, "b", b"")
        with pytest.raises(WatchCompactedError):
            await anext(events)
    assert registry.get_sample_value("onager_state_watches") == 0
    with pytest.raises(WatchCompactedError):
        async with backend.watch(HEADS, from_revision=1):
            pass
    assert registry.get_sample_value("onager_state_watch_events_total", {"keyspace": "JobHeads"}) == 1
    assert registry.get_sample_value("onager_state_watch_breaks_total", {"reason": "compacted"}) == 1
    assert requests(registry)["watch", "compacted"] == 1
    async with backend.watch(LOG) as events:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        await backend.close()
        with pytest.raises(StateUnavailableError):
            await waiting
    assert registry.get_sample_value("onager_state_watch_breaks_total", {"reason": "unavailable"}) == 1


async def test_several_clients_of_a_process_share_metrics(store, clock, registry):
    metrics = StateMetrics(registry)
    for _ in range(2):
        async with ObservedBackend(MemoryBackend(store), metrics, clock) as backend:
            await backend.get(HEADS, "a")
    assert requests(registry) == {("get", "ok"): 2}
