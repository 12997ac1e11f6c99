"""Rendezvous hashing: all schedulers agree, keys are spread evenly, and few keys move."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onager.clock import ManualClock
from onager.scheduler.cluster.live_schedulers import LiveSchedulers, SchedulerRecord
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.policy import rendezvous
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore


def first(key, schedulers):
    return next(scheduler for scheduler in schedulers if not rendezvous.rank(key, scheduler, schedulers))


NAMES = st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=8)
KEYS = st.lists(st.text(max_size=12), max_size=20)


@given(NAMES, KEYS)
def test_every_scheduler_has_a_place_of_its_own(schedulers, keys):
    for key in keys:
        places = {rendezvous.rank(key, scheduler, schedulers): scheduler for scheduler in schedulers}
        assert sorted(places) == list(range(len(schedulers)))
        assert places[0] == first(key, schedulers)


@given(NAMES, st.text(min_size=1, max_size=8), KEYS)
def test_a_scheduler_that_joins_or_leaves_moves_only_its_own_keys(schedulers, other, keys):
    more, less = schedulers | {other}, schedulers - {other}
    for key in keys:
        if first(key, more) != other:
            assert first(key, more) == first(key, less)
        places = [rendezvous.rank(key, scheduler, less) for scheduler in sorted(less)]
        moved = [rendezvous.rank(key, scheduler, more) for scheduler in sorted(less)]
        assert all(0 <= after - before <= 1 for before, after in zip(places, moved, strict=True))


def test_keys_are_spread_evenly_and_alike_in_every_process():
    schedulers = [f"scheduler-{n}" for n in range(4)]
    found = Counter(first(f"job-{n}", schedulers) for n in range(4_000))
    assert all(850 < found[scheduler] < 1_150 for scheduler in schedulers)
    assert [first(f"job-{n}", ["a", "b", "c"]) for n in range(12)] == list("bbcbacbacccb")


@pytest.fixture
async def precedence():
    clock = ManualClock()
    store = MemoryStore(clock)
    made = []
    for name in ("a", "b", "c"):
        schedulers = LiveSchedulers(MemoryBackend(store), clock, scheduler_id=name, address="", lease_ttl_s=1)
        record = SchedulerRecord.decoded(schedulers.record.encoded(), name)
        await MemoryBackend(store).put(Keyspace.Schedulers, name, record.encoded())
        made.append(schedulers)
    for schedulers in made:
        await schedulers.refresh()
    return {schedulers.id: (schedulers, Precedence(schedulers)) for schedulers in made}


async def test_a_scheduler_that_leaves_comes_last(precedence):
    key = next(f"job-{n}" for n in range(99) if first(f"job-{n}", "abc") == "a")
    places = {name: one.place(key) for name, (_, one) in precedence.items()}
    assert sorted(places.values()) == [0, 1, 2]
    assert places["a"] == 0
    second = next(name for name, place in places.items() if place == 1)
    assert not precedence[second][1].has_come(key, 0.9, 1.0)
    assert precedence[second][1].has_come(key, 1.0, 1.0)
    await MemoryBackend(precedence["a"][0]._backend._store).delete(Keyspace.Schedulers, "a")
    await precedence[second][0].refresh()
    assert precedence[second][1].has_come(key, 0.0, 1.0)
    await precedence[second][0].leave(0.01)
    assert precedence[second][1].place(key) == 1


async def test_a_single_scheduler_waits_for_nobody():
    one = Precedence(LiveSchedulers(MemoryBackend(), ManualClock(), scheduler_id="a", address="", lease_ttl_s=1))
    assert one.is_alone
    assert all(one.has_come(f"job-{n}", 0, 1) for n in range(20))
