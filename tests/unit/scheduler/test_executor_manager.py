import asyncio
from unittest import mock

import pytest
from structlog.testing import capture_logs

from onager.errors import (
    ExecutorReplacedError,
    InvalidRequestError,
    UnknownExecutorError,
    VersionMismatchError,
)
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.scheduler.executors.executor_list import list_executors
from onager.scheduler.executors.records import Loss
from onager.state_backend import Keyspace
from tests.support.waiting import eventually
from tests.unit.scheduler.executor_managers import MACHINE, made, nothing, request


async def test_a_registered_executor_is_known_and_in_the_store(manager, backend):
    await manager.register(request())
    assert manager.require("e1", "one").record.slots == 2
    assert manager.total_slots == 2
    assert await backend.get(Keyspace.Heartbeats, "e1") is not None
    with pytest.raises(UnknownExecutorError):
        manager.require("e1", "two")
    with pytest.raises(UnknownExecutorError):
        manager.require("e2", "one")


async def test_registering_again_in_the_same_life_loses_nothing(manager, lost):
    session = await manager.register(request())
    session.list_number = 7
    running = [pb.TaskId(job_id="j", stage_id=1)]
    again = await manager.register(request(running=running))
    assert again.list_number == 7
    assert len(again.held) == 1
    assert not lost


async def test_a_new_life_ends_the_old_one_at_once(manager, lost):
    await manager.register(request())
    await manager.register(request(incarnation="two"))
    assert [event.incarnation for event in lost] == ["one"]
    assert manager.is_alive("e1", "two")
    assert not manager.is_alive("e1", "one")


async def test_two_processes_under_one_id_do_not_throw_each_other_out_for_ever(manager, lost):
    await manager.register(request(incarnation="one"))
    await manager.register(request(incarnation="two"))
    with pytest.raises(ExecutorReplacedError, match="another executor registered as e1"):
        await manager.register(request(incarnation="one"))
    assert manager.require("e1", "two").incarnation == "two"
    assert len(lost) == 1


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"protocol_version": 99}, VersionMismatchError, "version 99 of the protocol"),
        ({"spark_version": "4.2.1"}, VersionMismatchError, "runs Spark 4.2.1"),
        ({"python_version": "3.12"}, VersionMismatchError, "Python 3.12"),
        ({"slots": 0}, InvalidRequestError, "0 slots"),
        ({"executor_id": "a/b"}, InvalidRequestError, "executor id"),
        ({"executor_id": ""}, InvalidRequestError, "executor id"),
        ({"incarnation": ""}, InvalidRequestError, "incarnation"),
    ],
)
async def test_an_incompatible_executor_is_refused(manager, changes, error, text):
    await manager.register(request("other"))
    with pytest.raises(error, match=text):
        await manager.register(request(**changes))


async def test_another_version_is_welcome_once_all_others_are_gone(manager):
    await manager.register(request("old"))
    await manager.deregister("old", "one", "upgraded")
    await manager.register(request(spark_version="4.4.0"))


async def test_streams_of_loopback_are_read_on_one_machine_only(manager):
    await manager.register(request("a", machine=MACHINE, stream_address="127.0.0.1:7"))
    assert manager.streaming() == {"a"}
    assert manager.stream_address("a", "one") == "127.0.0.1:7"
    await manager.register(request("b", machine="another-machine", stream_address="10.0.0.1:7"))
    assert manager.streaming() == {"b"}
    assert manager.stream_address("a", "one") == ""
    await manager.deregister("b", "one", "bye")
    assert manager.streaming() == {"a"}


async def test_a_push_executor_of_another_machine_needs_an_address_that_leads_there(manager):
    with pytest.raises(InvalidRequestError, match="another machine"):
        await manager.register(request(machine="another-machine", address="127.0.0.1:7", mode="push"))
    await manager.register(request("e2", machine="another-machine", address="10.0.0.1:7", mode="push"))
    await manager.register(request("e3", machine=MACHINE, address="127.0.0.1:7", mode="push"))


async def test_a_drained_executor_is_no_suspect(manager, lost):
    session = await manager.register(request())
    await manager.drain(session)
    assert manager.total_slots == 0
    assert [info.state for info in manager.infos()] == ["draining"]
    await manager.deregister("e1", "one", "drained")
    await manager.deregister("e1", "one", "drained")
    assert len(lost) == 1
    assert [(info.state, info.reason) for info in manager.infos()] == [("left", "drained")]


async def test_a_drained_executor_without_tasks_has_left_even_without_a_goodbye(manager):
    with capture_logs() as logged:
        for name, held in (("idle", {}), ("busy", {TaskKey("job", 1, 0, 0, 0): 0.0})):
            session = await manager.register(request(name))
            session.held = held
            await manager.drain(session)
            await manager.lose(session.record, Loss.PROCESS, "its process 7 died")
    assert {info.executor_id: info.state for info in manager.infos()} == {"idle": "left", "busy": "lost"}
    events = {line["executor_id"]: line["event"] for line in logged if line["event"].startswith("executor_l")}
    assert events == {"idle": "executor_left", "busy": "executor_lost"}


async def test_an_executor_that_died_has_not_left_whatever_it_said(manager):
    await manager.register(request())
    await manager.deregister("e1", "one", "the executor's JVM died")
    assert [info.state for info in manager.infos()] == ["lost"]


async def test_an_executor_without_space_takes_no_work_until_it_reports_space(manager, backend):
    session = await manager.register(request())
    assert not await manager.note_space(session, "")
    assert await manager.note_space(session, "exchange directory /x is full")
    assert not await manager.note_space(session, "exchange directory /x is full")
    assert manager.total_slots == 0
    assert not manager.takes_work(session)
    assert manager.taking_work() == frozenset()
    (info,) = manager.infos()
    assert (info.state, info.reason) == ("no_space", "exchange directory /x is full")
    stored = await backend.get(Keyspace.Executors, "e1")
    assert b'"no_space":"exchange directory /x is full"' in stored.value, "all schedulers are to know"
    assert await manager.note_space(session, "")
    assert manager.total_slots > 0
    assert [info.state for info in manager.infos()] == ["alive"]


async def test_a_listing_has_pages_and_tells_how_many_there_are(manager):
    for number in range(7):
        await manager.register(request(f"e{number}"))
    await manager.deregister("e3", "one", "bye")
    first = list_executors(manager, pb.ListExecutorsRequest(limit=2), 0)
    assert [info.executor_id for info in first.executors] == ["e0", "e1"]
    assert first.more
    assert dict(first.states) == {"alive": 6, "lost": 1}
    rest = list_executors(manager, pb.ListExecutorsRequest(after="e1", state="alive"), 0)
    assert [info.executor_id for info in rest.executors] == ["e2", "e4", "e5", "e6"]
    assert not rest.more
    assert len(list_executors(manager, pb.ListExecutorsRequest(), 0).executors) == 7
    with pytest.raises(InvalidRequestError, match="'asleep' is not an executor's state; use alive, quarantined"):
        list_executors(manager, pb.ListExecutorsRequest(state="asleep"), 0)


async def test_what_another_scheduler_does_costs_the_same_however_many_executors_there_are(manager, backend, clock):
    there = made(backend, clock, lambda _: nothing())
    await there.start()
    names = [f"e{number}" for number in range(50)]
    with mock.patch.object(backend, "get_from_prefix", wraps=backend.get_from_prefix) as listed:
        # The heartbeats of registrations come before the records.
        watching = asyncio.create_task(there.registry._watch_hearts())
        await eventually(lambda: listed.call_count, "the watch has begun")
        for name in names:
            await manager.register(request(name))
        await eventually(lambda: there.total_slots == 100, "the other scheduler knows all")
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        records = [there.registry.find(name) for name in names]
        for record in records:
            await manager.deregister(record.executor_id, "one", "it left")
            await there.lose(record, Loss.LEASE, "its lease ran out")
        assert not there.total_slots
        assert not any(map(there.registry.is_beating, names))
        assert listed.call_count < 10
