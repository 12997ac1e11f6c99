"""Injected faults happen as requested, and only as the port allows."""

import asyncio
import random  # noqa: TID251 seeded
from collections import Counter

import pytest

from onager.clock import ManualClock
from onager.errors import (
    LeaseExpiredError,
    LockTimeoutError,
    OutcomeUnknownError,
    StateUnavailableError,
    WatchCompactedError,
)
from onager.state_backend import Committed, Conflict, Keyspace, OutcomeUnknown, Put
from onager.state_backend.faulty import APPLIES_TO, FaultKind, FaultyBackend, scripted, seeded
from onager.state_backend.memory import MemoryBackend, MemoryStore
from onager.state_backend.model import Fenced

HEADS = Keyspace.JobHeads
UNKNOWN = [FaultKind.UNKNOWN_UNWRITTEN, FaultKind.UNKNOWN_WRITTEN, FaultKind.UNKNOWN_LATE]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def honest(clock):
    async with MemoryBackend(MemoryStore(clock)) as backend:
        yield backend


def faulty(honest, clock, **faults):
    return FaultyBackend(honest, scripted(faults), clock)


async def test_without_faults_it_is_the_store(honest, clock):
    backend = faulty(honest, clock)
    assert await backend.put(HEADS, "a", b"1") == 1
    assert await honest.get(HEADS, "a") == await backend.get(HEADS, "a")
    assert backend.met == Counter()


@pytest.mark.parametrize("operation", ["get", "get_from_prefix", "scan_keys", "put_txn", "lease", "watch"])
async def test_unavailable_sends_nothing_and_the_next_call_works(honest, clock, operation):
    backend = faulty(honest, clock, **{operation: [FaultKind.UNAVAILABLE]})

    async def watch():
        async with backend.watch(HEADS):
            pass

    call = {
        "get": lambda: backend.get(HEADS, "a"),
        "get_from_prefix": lambda: backend.get_from_prefix(HEADS, ""),
        "scan_keys": lambda: backend.scan_keys(HEADS, limit=1),
        "put_txn": lambda: backend.put(HEADS, "a", b""),
        "lease": lambda: backend.lease(10),
        "watch": watch,
    }[operation]
    with pytest.raises(StateUnavailableError):
        await call()
    assert (await honest.get_from_prefix(HEADS, "")).revision == 0
    await call()


@pytest.mark.parametrize("kind", UNKNOWN)
async def test_an_unknown_outcome_was_or_was_not_or_is_yet_to_be(honest, clock, kind):
    backend = faulty(honest, clock, put_txn=[kind])
    assert isinstance(await backend.put_txn([Put(HEADS, "a", b"1")]), OutcomeUnknown)
    assert (await honest.get(HEADS, "a") is not None) == (kind is FaultKind.UNKNOWN_WRITTEN)
    await backend.settle()
    assert (await honest.get(HEADS, "a") is not None) == (kind is not FaultKind.UNKNOWN_UNWRITTEN)


async def test_a_single_write_of_unknown_outcome_raises(honest, clock):
    backend = faulty(honest, clock, put_txn=[FaultKind.UNKNOWN_WRITTEN] * 2)
    with pytest.raises(OutcomeUnknownError):
        await backend.put(HEADS, "a", b"1")
    with pytest.raises(OutcomeUnknownError):
        await backend.delete_range(HEADS, "")
    assert await honest.get(HEADS, "a") is None


async def test_a_late_request_that_was_overtaken_changes_nothing(honest, clock):
    backend = FaultyBackend(honest, scripted({"put_txn": [FaultKind.UNKNOWN_LATE]}), clock, delay_s=lambda: 5.0)
    await backend.put_txn([Put(HEADS, "a", b"late")], expect={(HEADS, "a"): 0})
    assert isinstance(await backend.put_txn([Put(HEADS, "a", b"again")], expect={(HEADS, "a"): 0}), Committed)
    clock.advance(5_000)
    await backend.settle()
    assert (await honest.get(HEADS, "a")).value == b"again"


@pytest.mark.virtual_time
async def test_a_slow_request_lets_others_go_first(honest, clock):
    backend = FaultyBackend(honest, scripted({"put_txn": [FaultKind.SLOW_REQUEST]}), clock, delay_s=lambda: 2.0)
    slow = asyncio.ensure_future(backend.put_txn([Put(HEADS, "a", b"slow")], expect={(HEADS, "a"): 0}))
    await asyncio.sleep(0.02)
    assert await honest.get(HEADS, "a") is None
    await honest.put(HEADS, "a", b"quick")
    clock.advance(2_000)
    assert isinstance(await slow, Conflict)


@pytest.mark.virtual_time
async def test_a_slow_answer_is_late_but_the_deed_is_done(honest, clock):
    backend = FaultyBackend(honest, scripted({"put_txn": [FaultKind.SLOW_ANSWER]}), clock, delay_s=lambda: 2.0)
    slow = asyncio.ensure_future(backend.put(HEADS, "a", b""))
    await asyncio.sleep(0.02)
    assert await honest.get(HEADS, "a") is not None
    assert not slow.done()
    clock.advance(2_000)
    assert await slow == 1


async def test_a_lost_lease_takes_its_keys_and_locks(honest, clock):
    lost = FaultKind.LEASE_LOST
    backend = faulty(honest, clock, keep_alive=[lost], put_txn=[lost, None, lost])
    lease = await backend.lease(10)
    await honest.put(HEADS, "mine", b"", lease=lease.id)
    with pytest.raises(LeaseExpiredError):
        await backend.keep_alive(lease.id)
    assert await honest.get(HEADS, "mine") is None
    lease = await backend.lease(10)
    with pytest.raises(LeaseExpiredError):
        async with backend.lock(HEADS, "sweep", lease.id):
            pass
    lease = await backend.lease(10)
    async with backend.lock(HEADS, "sweep", lease.id) as token:
        assert await backend.put_txn([Put(HEADS, "a", b"")], fence=[token]) == Fenced(token)


@pytest.mark.parametrize("kind", UNKNOWN)
async def test_a_lock_of_unknown_outcome_is_taken_once(honest, clock, kind):
    backend = faulty(honest, clock, put_txn=[kind, FaultKind.UNKNOWN_WRITTEN, None, kind])
    lease, other = await backend.lease(10), await backend.lease(60)
    async with backend.lock(HEADS, "sweep", lease.id) as token:
        await backend.settle()
        with pytest.raises(LockTimeoutError):
            async with honest.lock(HEADS, "sweep", other.id, timeout_s=0):
                pass
        assert isinstance(await honest.put_txn([Put(HEADS, "a", b"")], fence=[token]), Committed)
    async with honest.lock(HEADS, "sweep", other.id, timeout_s=0):
        pass


async def test_a_lock_given_up_with_its_outcome_unknown_is_held_until_its_lease_ends(honest, clock):
    backend = faulty(honest, clock, put_txn=[FaultKind.UNKNOWN_WRITTEN, FaultKind.UNAVAILABLE])
    lease, other = await backend.lease(10), await backend.lease(60)
    with pytest.raises(OutcomeUnknownError):
        async with backend.lock(HEADS, "sweep", lease.id):
            pass
    with pytest.raises(LockTimeoutError):
        async with backend.lock(HEADS, "sweep", other.id, timeout_s=0):
            pass
    clock.advance(11_000)
    async with backend.lock(HEADS, "sweep", other.id, timeout_s=0):
        pass


async def test_watches_lose_events_and_break_off(honest, clock):
    backend = faulty(honest, clock, watch=[FaultKind.COMPACTED], watch_event=[None, FaultKind.COMPACTED, FaultKind.CUT])
    with pytest.raises(WatchCompactedError):
        async with backend.watch(HEADS, from_revision=1):
            pass
    for n in range(4):
        await honest.put(HEADS, f"{n}", b"")
    async with backend.watch(HEADS, from_revision=1) as events:
        assert (await anext(events)).key == "0"
        with pytest.raises(WatchCompactedError):
            await anext(events)
        with pytest.raises(StateUnavailableError):
            await anext(events)
        assert (await anext(events)).key == "3"


async def test_the_same_seed_gives_the_same_faults(clock):
    rates = {FaultKind.UNAVAILABLE: 0.1, FaultKind.UNKNOWN_LATE: 0.3, FaultKind.COMPACTED: 0.5}

    def drawn(seed):
        plan = seeded(random.Random(seed).random, rates)
        return [plan(operation) for _ in range(200) for operation in APPLIES_TO]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    plan = seeded(random.Random(3).random, rates)
    for operation, kinds in APPLIES_TO.items():
        met = Counter(plan(operation) for _ in range(2_000))
        assert {kind for kind in met if kind is not None} == kinds & set(rates)
        assert all(abs(met[kind] / 2_000 - rates[kind]) < 0.05 for kind in kinds & set(rates))


def test_a_script_with_a_fault_that_cannot_happen_is_refused():
    with pytest.raises(ValueError, match="unknown_written cannot happen to get"):
        scripted({"get": [FaultKind.UNKNOWN_WRITTEN]})
