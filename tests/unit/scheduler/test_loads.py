"""The load of executors: written now and then under the executor's lease, and reported alike by every scheduler."""

import asyncio

import pytest

from onager.protocol import onager_pb2 as pb
from onager.scheduler import timing
from onager.scheduler.executors.loads import ExecutorLoadRecord
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.support.waiting import eventually
from tests.unit.scheduler.executor_managers import made, nothing, request

LOAD = pb.ExecutorLoad(
    heap_used_bytes=100 << 20,
    heap_max_bytes=1 << 30,
    rss_bytes=2 << 30,
    cpu_percent=150,
    gc_ms=40,
    python_workers=2,
    running=3,
    free_slots=1,
)


def load(**changes):
    changed = pb.ExecutorLoad()
    changed.CopyFrom(LOAD)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


@pytest.fixture
async def managers(store, clock):
    async def on_lost(event):
        del event
        await nothing()

    return [made(MemoryBackend(store), clock, on_lost) for _ in range(2)]


@pytest.fixture
async def session(managers):
    for manager in managers:
        await manager.start()
    return await managers[0].register(request())


async def say(manager, session, reported):
    session.load = reported
    await manager.loads.write_due()


async def stored(store):
    return await MemoryBackend(store).get(Keyspace.ExecutorLoads, "e1")


async def shown_load(manager):
    await manager.refresh()
    await manager.loads.known.refresh()
    (info,) = manager.infos()
    return info.running, info.load


async def test_every_scheduler_tells_the_load_that_one_has_received(managers, session):
    session.held = {"one": 0.0}
    await say(managers[0], session, LOAD)
    assert [await shown_load(manager) for manager in managers] == [(3, LOAD), (3, LOAD)]


async def test_without_a_load_a_scheduler_tells_what_it_knows(managers, session):
    session.held = {"one": 0.0}
    (info,) = managers[0].infos()
    assert (info.running, info.HasField("load")) == (1, False)


async def test_loads_are_written_now_and_then_and_only_if_they_differ(managers, session, store, clock):
    await say(managers[0], session, LOAD)
    first = await stored(store)

    await say(managers[0], session, load(running=0))
    assert await stored(store) == first, "too soon"

    clock.advance(round(timing.LOAD_WRITTEN_EVERY_S * 1000))
    await managers[0].loads.write_due()
    second = await stored(store)
    assert ExecutorLoadRecord.decoded(second.value, "").running == 0

    await managers[0].leases.renew(session)
    clock.advance(round(timing.LOAD_WRITTEN_EVERY_S * 1000))
    await say(managers[0], session, load(running=0, cpu_percent=153, rss_bytes=(2 << 30) + 1))
    assert await stored(store) == second, "not noticeable"
    await say(managers[0], session, load(running=0, cpu_percent=155))
    assert await stored(store) != second


async def test_a_load_ends_with_its_life(managers, session, store):
    await say(managers[0], session, LOAD)
    again = await managers[0].register(request(incarnation="two"))
    assert await stored(store) is None
    assert await shown_load(managers[1]) == (0, pb.ExecutorLoad())

    await say(managers[0], again, LOAD)
    assert await shown_load(managers[1]) == (3, LOAD)
    await managers[0].deregister("e1", "two", "")
    assert await stored(store) is None
    assert await shown_load(managers[1]) == (0, pb.ExecutorLoad())


async def test_a_load_is_not_written_under_a_lease_that_has_ended(managers, session, store):
    await MemoryBackend(store).revoke(session.record.lease_id)
    await say(managers[0], session, LOAD)
    assert await stored(store) is None


async def test_a_load_that_cannot_be_read_is_none(managers, session, store):
    await say(managers[0], session, LOAD)
    await MemoryBackend(store).put(Keyspace.ExecutorLoads, "e2", b"{")
    assert await shown_load(managers[1]) == (3, LOAD)


async def test_changes_are_followed(managers, session, store):
    following = asyncio.create_task(managers[1].loads.run())
    await managers[1].refresh()
    (record,) = managers[1].registry
    try:
        await say(managers[0], session, LOAD)
        await eventually(lambda: managers[1].loads.find(record) is not None)
        await MemoryBackend(store).delete(Keyspace.ExecutorLoads, "e1")
        await eventually(lambda: managers[1].loads.find(record) is None)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def test_a_record_has_all_that_executors_tell():
    names = {field.name for field in pb.ExecutorLoad.DESCRIPTOR.fields}
    assert names == ExecutorLoadRecord.model_fields.keys() - {"schema_version", "executor_id", "incarnation", "at_ms"}
