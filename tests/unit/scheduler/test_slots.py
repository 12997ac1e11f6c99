"""The pool of push executors' slots: several replicas over one store, and a store that does not say what it did."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from onager.ids import TaskKey
from onager.scheduler.executors.slots import SlotPool, SlotsRecord
from onager.scheduler.policy.slot_books import SlotBooks
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.small_graphs import UnsureBackend

LIFE = "life"


class Holder:
    """A replica's books and its view of the pool."""

    def __init__(self, backend, name):
        self.backend, self.ledger = backend, SlotBooks()
        self.pool = SlotPool(backend, name, self.ledger.held)
        self.ledger.listen(self.pool.settle)

    async def take(self, slots, life=LIFE):
        return await self.pool.take("e1", life, slots, lambda n: self.ledger.take_in_hand("e1", life, n))

    def give_back(self, slots):
        self.ledger.give_back("e1", LIFE, slots)


@asynccontextmanager
async def holder(store, name, kind=MemoryBackend):
    async with kind(store) as backend:
        made = Holder(backend, name)
        await made.pool.refresh()
        running = asyncio.create_task(made.pool.run())
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def store(clock):
    store = MemoryStore(clock)
    async with MemoryBackend(store) as backend:
        record = SlotsRecord(executor_id="e1", incarnation=LIFE, total=4)
        await backend.put(Keyspace.Slots, "e1", record.encoded())
        yield store


async def stored(backend):
    found = await backend.get(Keyspace.Slots, "e1")
    return None if found is None else SlotsRecord.decoded(found.value, "e1")


async def holders(backend):
    return (await stored(backend)).holders


async def becomes(backend, expected):
    async with asyncio.timeout(5):
        while await holders(backend) != expected:  # noqa: ASYNC110 - a store has no event for a test
            await asyncio.sleep(0.001)


async def test_as_many_are_taken_as_are_free(store):
    async with holder(store, "a") as a, holder(store, "b") as b:
        assert await a.take(3) == 3
        assert await b.take(3) == 1
        assert await b.take(1) == 0
        assert await holders(a.backend) == {"a": 3, "b": 1}
        a.give_back(2)
        await becomes(a.backend, {"a": 1, "b": 1})
        assert await b.take(5) == 2


async def test_who_does_not_know_of_the_others_yet_takes_no_slot_twice(store):
    async with holder(store, "a") as a, holder(store, "b") as b:
        taken = await asyncio.gather(*(one.take(1) for one in (a, b) * 4))
        assert sum(taken) == 4
        assert sum((await holders(a.backend)).values()) == 4


async def test_none_are_taken_of_another_life_or_of_nobody(store):
    async with holder(store, "a") as a:
        assert await a.take(1, life="before") == 0
        await a.backend.delete(Keyspace.Slots, "e1")
        await a.pool.refresh()
        assert await a.take(1) == 0


@pytest.mark.parametrize("what", ["lost", "done"])
async def test_a_write_of_which_nobody_knows_takes_nothing_twice(store, what):
    async with holder(store, "a", UnsureBackend) as a:
        a.backend.script = [what]
        taken = await a.take(3)
        await becomes(a.backend, {"a": a.ledger.held("e1", LIFE)})
        assert taken == a.ledger.held("e1", LIFE) == 3


async def test_what_is_given_up_for_others_goes_and_no_more_than_they_have(store):
    async with holder(store, "a") as a, holder(store, "b") as b:
        await b.take(3)
        await a.pool.refresh()
        a.ledger.adopt("e1", LIFE, [TaskKey("job", 1, 0, 0, 0)], 0.0)
        a.pool.settle("e1", Counter({"b": 1}))
        await becomes(a.backend, {"a": 1, "b": 2})
        a.pool.settle("e1", Counter({"b": 7, "nobody": 1}))
        await becomes(a.backend, {"a": 1})
        # Whoever lives has the last word on what is its own.
        b.pool.settle("e1")
        await becomes(a.backend, {"a": 1, "b": 3})


async def test_what_is_held_is_written_even_if_others_have_taken_it_meanwhile(store):
    async with holder(store, "a") as a, holder(store, "b") as b:
        await b.take(4)
        a.ledger.adopt("e1", LIFE, [TaskKey("job", 1, 0, 0, 0)], 0.0)
        await becomes(a.backend, {"a": 1, "b": 4})
        assert (await stored(a.backend)).free == 0


async def test_slots_that_become_free_are_told(store):
    async with holder(store, "a") as a, holder(store, "b") as b:
        await a.take(4)
        await b.pool.refresh()
        told = asyncio.Event()
        b.pool.listen(told.set)
        a.give_back(1)
        async with asyncio.timeout(5):
            await told.wait()
        assert b.pool.free("e1", LIFE) == 1


async def test_slots_are_removed_only_as_they_were_seen_and_created_only_where_there_are_none(store):
    async with holder(store, "a") as a, holder(store, "b") as b:
        seen = a.pool.find("e1")
        await b.take(1)
        a.pool._records["e1"] = (1, seen)
        await a.pool.remove("e1")
        assert await holders(a.backend) == {"b": 1}
        await a.pool.remove("e1")
        assert await stored(a.backend) is None
        await b.pool.refresh()
        await b.pool.create("e1", "next", 2)
        await a.pool.create("e1", "other", 3)
        assert (await stored(a.backend)).incarnation == "next"
