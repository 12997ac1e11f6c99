"""Schedulers that find each other in one store."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from onager.clock import SystemClock
from onager.errors import StateUnavailableError
from onager.scheduler.cluster.live_schedulers import LiveSchedulers, SchedulerRecord
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.support.waiting import eventually


@pytest.fixture
def store():
    return MemoryStore(SystemClock())


def schedulers_of(store, name):
    return LiveSchedulers(MemoryBackend(store), SystemClock(), scheduler_id=name, address=f"{name}:1", lease_ttl_s=30)


@asynccontextmanager
async def running(store, name):
    schedulers = schedulers_of(store, name)
    loops = asyncio.create_task(schedulers.run())
    try:
        yield schedulers
    finally:
        loops.cancel()
        await asyncio.gather(loops, return_exceptions=True)


async def stored(store):
    page = await MemoryBackend(store).get_from_prefix(Keyspace.Schedulers, "")
    return {item.key: SchedulerRecord.decoded(item.value, item.key) for item in page}


async def test_all_see_each_other_and_one_that_leaves_is_gone_at_once(store):
    received = []
    async with running(store, "a") as a, running(store, "b") as b, running(store, "c") as c:
        await eventually(lambda: all(len(one.live) == 3 for one in (a, b, c)))
        a.listen(lambda: received.append(sorted(a.live)))
        assert [(info.address, info.answering) for info in b.infos()] == [("a:1", False), ("b:1", True), ("c:1", False)]
        await b.leave(20)
        assert sorted(await stored(store)) == ["a", "c"]
        await eventually(lambda: sorted(a.live) == sorted(c.live) == ["a", "c"])
        assert received == [["a", "c"]]
        assert sorted(b.live) == ["a", "c"]
    assert await stored(store) == {}


@pytest.mark.parametrize("how", ["its lease ended", "an admin removed its record"])
async def test_a_scheduler_that_is_not_listed_any_more_registers_anew_and_runs_on(store, how):
    received = []
    async with running(store, "a") as a, running(store, "b") as b:
        await eventually(lambda: a.is_registered and len(b.live) == 2)
        b.listen(lambda: received.append(sorted(b.live)))
        before = a.lease
        if how == "its lease ended":
            await MemoryBackend(store).revoke(before.id)
        else:
            await MemoryBackend(store).delete(Keyspace.Schedulers, "a")
        await eventually(lambda: received == [["b"], ["a", "b"]])
        assert (await stored(store))["a"] == a.record
        assert (a.lease is before) == (how != "its lease ended")
        await a.leave(20)
        assert sorted(await stored(store)) == ["b"]


async def test_a_store_that_is_away_for_longer_than_the_lease_is_registered_with_again(store):
    class Away(MemoryBackend):
        is_away = False

        async def _run(self, command):
            if self.is_away:
                raise StateUnavailableError("away")
            return await super()._run(command)

    backend = Away(store)
    schedulers = LiveSchedulers(backend, SystemClock(), scheduler_id="a", address="a:1", lease_ttl_s=0.3)
    loops = asyncio.create_task(schedulers.run())
    await eventually(lambda: schedulers.is_registered)
    before = schedulers.lease
    backend.is_away = True
    await before.wait_lost()
    assert not loops.done()
    backend.is_away = False
    await eventually(lambda: schedulers.lease not in (None, before) and schedulers.is_registered)
    assert (await stored(store))["a"] == schedulers.record
    loops.cancel()
    await asyncio.gather(loops, return_exceptions=True)


async def test_an_earlier_life_is_replaced_and_its_end_takes_nothing_away(store):
    async with running(store, "a") as before:
        await eventually(lambda: before.is_registered)
        async with running(store, "a") as after:
            await eventually(lambda: after.is_registered and not before.is_registered)
            await before.leave(20)
            assert (await stored(store))["a"] == after.record
            assert [info.incarnation for info in after.infos()] == [after.record.incarnation]


async def test_one_whose_id_another_has_is_listed_again_when_that_is_gone(store):
    async with running(store, "a") as first:
        await eventually(lambda: first.is_registered)
        async with running(store, "a") as second:
            await eventually(lambda: second.is_registered and not first.is_registered)
            assert first.live == {"a"}
            await second.leave(20)
            await eventually(lambda: first.is_registered)
        assert (await stored(store))["a"] == first.record


async def test_a_record_that_cannot_be_read_hides_no_other(store):
    async with running(store, "a") as a:
        await MemoryBackend(store).put(Keyspace.Schedulers, "z", b"{")
        async with running(store, "b"):
            await eventually(lambda: len(a.live) == 2)


class SlowStore(MemoryBackend):
    """A store whose writes of schedulers' records can be held up."""

    def __init__(self, store):
        super().__init__(store)
        self.began, self.answers = asyncio.Event(), asyncio.Event()
        self.answers.set()

    async def put(self, *args, **kwargs):
        self.began.set()
        await self.answers.wait()
        return await super().put(*args, **kwargs)


@pytest.mark.parametrize("is_registered", [False, True])
async def test_a_change_while_an_earlier_one_is_written_is_written_too(store, is_registered):
    backend = SlowStore(store)
    a = LiveSchedulers(backend, SystemClock(), scheduler_id="a", address="a:1", lease_ttl_s=30)
    if not is_registered:
        backend.answers.clear()
    loops = asyncio.create_task(a.run())
    if is_registered:
        await eventually(lambda: a.is_registered)
        backend.began.clear()
        backend.answers.clear()
        a.change(mark="one")
    await backend.began.wait()
    a.change(mark="two")
    backend.answers.set()
    async with running(store, "b") as b:
        await eventually(lambda: a.id in b.live and b.find(a.id).mark == "two")
        assert b.find(a.id).registered > 0
    loops.cancel()
    await asyncio.gather(loops, return_exceptions=True)


async def test_who_is_the_eldest_does_not_change_with_what_records_say(store):
    async with running(store, "b") as b:
        await eventually(lambda: b.is_registered)
        async with running(store, "a") as a:
            await eventually(lambda: a.is_registered and len(b.live) == 2)
            for mark in ("one", "two"):
                b.change(mark=mark)
                await eventually(lambda mark=mark: a.others()[0].mark == mark)
            async with running(store, "c") as c:
                await eventually(lambda: c.is_registered and len(b.live) == len(a.live) == len(c.live) == 3)
                assert [[r.scheduler_id for r in schedulers.elders()] for schedulers in (b, a, c)] == [
                    [],
                    ["b"],
                    ["b", "a"],
                ]
