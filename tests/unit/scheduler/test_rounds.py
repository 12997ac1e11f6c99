"""Rounds of work that one scheduler does for all."""

import itertools
import random  # noqa: TID251 seeded

import pytest

from onager.clock import ManualClock
from onager.errors import StateUnavailableError
from onager.scheduler.cluster.rounds import HELD_S, Rounds
from onager.state_backend import Keyspace, transactions
from onager.state_backend.faulty import FaultKind, FaultyBackend, scripted
from onager.state_backend.memory import MemoryBackend, MemoryStore

ROUND_S = 600.0


def three(store, clock):
    return [Rounds(MemoryBackend(store), clock) for _ in range(3)]


async def winners(rounds):
    return [n for n, one in enumerate(rounds) if one.has_begun("sweep", ROUND_S) and await one.claim("sweep", ROUND_S)]


async def done(seed, rounds=12):
    """Let schedulers look every few seconds, in any order; return how often each round was done."""
    clock, draw = ManualClock(int(1_000 * ROUND_S) * 1_000_000), random.Random(seed)
    made = three(MemoryStore(clock), clock)
    counts = [len(await winners(made))]
    for _ in range(rounds):
        count = 0
        for _ in range(int(ROUND_S / 5)):
            clock.advance(5_000)
            draw.shuffle(made)
            count += len(await winners(made))
        counts.append(count)
    return counts


@pytest.mark.parametrize("seed", range(3))
async def test_each_round_is_done_by_one_and_none_is_left_out(seed):
    assert set(await done(seed)) == {1}


async def test_schedulers_that_start_at_any_time_begin_the_same_rounds_soon():
    clock, store = ManualClock(int(1_000 * ROUND_S) * 1_000_000), None
    store = MemoryStore(clock)
    made, counts = [], []
    for look in range(int(8 * ROUND_S / 5)):
        if look % 24 == 0 and len(made) < 4:  # one every two minutes
            made.append(Rounds(MemoryBackend(store), clock))
        if look % int(ROUND_S / 5) == 0:
            counts.append(0)
        counts[-1] += len(await winners(made))
        clock.advance(5_000)
    assert counts[0] == 4, "each does one as it starts"
    assert counts[1] <= 1
    assert set(counts[2:]) == {1}


async def test_without_the_lock_each_round_is_done_by_all(monkeypatch):
    async def taken(*_):
        return None

    monkeypatch.setattr("onager.scheduler.cluster.rounds.acquire_lock", taken)
    assert set(await done(1)) == {3}


async def test_a_round_of_one_that_dies_in_it_is_over_and_the_next_is_anothers():
    clock = ManualClock()
    dead, *others = three(MemoryStore(clock), clock)
    assert await winners([dead, *others]) == [0]
    clock.advance(int(1000 * ROUND_S))
    assert len(await winners(others)) == 1


async def test_a_late_scheduler_gets_the_lock_once_its_lease_has_ended():
    clock = ManualClock()
    one, other, _ = three(MemoryStore(clock), clock)
    assert await one.claim("sweep", ROUND_S)
    assert await other.claim("another", ROUND_S)
    clock.advance(int(1000 * HELD_S) - 1)
    assert not await other.claim("sweep", ROUND_S)
    clock.advance(2)
    assert await other.claim("sweep", ROUND_S)


async def test_two_rounds_that_one_scheduler_sees_are_most_of_an_interval_apart():
    clock = ManualClock(int(1_000 * ROUND_S) * 1_000_000 - 1_000)
    (one,) = three(MemoryStore(clock), clock)[:1]
    begun_s = []
    for _ in range(500):
        if one.has_begun("sweep", ROUND_S):
            begun_s.append(clock.monotonic_s())
        clock.advance(5_000)
    assert all(later - earlier >= 0.95 * ROUND_S for earlier, later in itertools.pairwise(begun_s))


@pytest.mark.parametrize("kind", [FaultKind.UNKNOWN_WRITTEN, FaultKind.UNKNOWN_UNWRITTEN, FaultKind.UNKNOWN_LATE])
async def test_a_lock_of_unknown_outcome_keeps_no_later_round_from_anybody(kind, monkeypatch):
    monkeypatch.setattr(transactions, "_TRIES", 1)
    clock, store = ManualClock(), None
    store = MemoryStore(clock)
    faulty = FaultyBackend(MemoryBackend(store), scripted({"put_txn": [kind, FaultKind.UNAVAILABLE]}), clock)
    with pytest.raises(Exception, match="settled"):
        await Rounds(faulty, clock).claim("sweep", ROUND_S)
    await faulty.settle()
    assert not await MemoryBackend(store).get_from_prefix(Keyspace.Locks, "")
    assert await Rounds(MemoryBackend(store), clock).claim("sweep", ROUND_S)


async def test_a_store_that_does_not_answer_makes_nobody_the_one():
    clock = ManualClock()
    faulty = FaultyBackend(MemoryBackend(MemoryStore(clock)), scripted({"put_txn": [FaultKind.UNAVAILABLE]}), clock)
    with pytest.raises(StateUnavailableError):
        await Rounds(faulty, clock).claim("sweep", ROUND_S)
