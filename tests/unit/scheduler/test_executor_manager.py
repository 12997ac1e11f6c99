import asyncio
import os
import subprocess
import sys
from unittest import mock

import pytest
from structlog.testing import capture_logs

from onager.clock import ManualClock
from onager.errors import (
    ExecutorReplacedError,
    InvalidRequestError,
    StateUnavailableError,
    UnknownExecutorError,
    VersionMismatchError,
)
from onager.execution_graph import JvmDeath, SuspectTask
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler import timing
from onager.scheduler.cluster.members import Members
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.records import ExecutorRecord, Loss
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend
from tests.support.waiting import eventually

MACHINE = "this-machine"


def request(executor_id="e1", incarnation="one", **changes):
    given = {
        "executor_id": executor_id,
        "incarnation": incarnation,
        "host": "h",
        "slots": 2,
        "protocol_version": PROTOCOL_VERSION,
        "spark_version": "4.3.0",
        "python_version": "3.11",
    }
    return pb.RegisterExecutorRequest(**{**given, **changes})


ALONE = Precedence(Members(MemoryBackend(), ManualClock(), scheduler_id="s", address="", lease_ttl_s=1))


async def nothing():
    pass


@pytest.fixture
def lost():
    return []


def made(backend, clock, on_lost):
    manager = ExecutorManager(
        backend,
        clock,
        lease_ttl_s=6,
        connection_grace_s=1,
        lost_retention_s=600,
        precedence=ALONE,
        machine=MACHINE,
    )
    manager.serve(on_lost=on_lost, on_take_over=nothing)
    return manager


@pytest.fixture
async def manager(backend, clock, lost):
    async def on_lost(event):
        lost.append(event)

    manager = made(backend, clock, on_lost)
    await manager.start()
    return manager


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


async def test_silence_after_a_broken_connection_is_a_loss(manager, clock, lost):
    session = await manager.register(request())
    manager.suspect(session)
    await watched(manager, clock, 2_900)
    assert not lost
    manager.heard(session)
    await watched(manager, clock, 5_000)
    assert not lost
    manager.suspect(session)
    await watched(manager, clock, 3_000)
    assert [event.executor_id for event in lost] == ["e1"]
    assert "connection broke" in lost[0].reason
    with pytest.raises(UnknownExecutorError):
        manager.require("e1", "one")


async def test_a_dead_process_on_this_machine_is_a_loss_at_once(manager, lost):
    process = subprocess.Popen(  # noqa: ASYNC220 - it only sleeps
        [
            sys.executable,
            "-c",
            "import time; time.sleep(60)",
        ]
    )
    await manager.register(request(pid=process.pid, machine=MACHINE))
    await manager.watch.look()
    assert not lost
    process.kill()
    process.wait()
    await manager.watch.look()
    assert "died" in lost[0].reason


async def test_a_process_of_another_machine_is_not_looked_for_on_this_one(manager, lost):
    """A proxy beside the scheduler passes the calls of all machines on from a loopback address."""
    for name, machine in (("remote", "another-machine"), ("older", "")):
        session = await manager.register(request(name, pid=os.getpid(), machine=machine))
        assert session.local_process is None
    manager.end_session(manager.session("remote"))
    assert (await manager.take_over("remote", "one")).local_process is None
    await manager.watch.look()
    assert not lost


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


async def watched(manager, clock, ms):
    """Let time pass, and the manager look as often as it should."""
    step_ms = int(1000 * timing.EXECUTORS_LOOK_S)
    while ms > 0:
        clock.advance(min(step_ms, ms))
        await manager.watch.look()
        ms -= step_ms


async def notice(manager, backend):
    """Let the store expire leases by its clock, and the manager notice."""
    await backend.put(Keyspace.Sessions, "any", b"")
    await manager.refresh()
    await manager.watch.expire_lost()


async def test_silence_past_the_lease_is_a_loss(manager, clock, backend, lost):
    session = await manager.register(request())
    await watched(manager, clock, 7_000)
    await notice(manager, backend)
    assert "lease" in lost[0].reason
    assert session.is_gone
    with pytest.raises(UnknownExecutorError):
        manager.require("e1", "one")


async def test_a_scheduler_that_was_held_up_takes_no_silence_of_its_own_for_a_loss(manager, clock, backend, lost):
    await manager.register(request())
    clock.advance(60_000)
    await notice(manager, backend)
    await watched(manager, clock, 5_000)
    assert not lost, "what it sent in that minute may be read only now"
    await watched(manager, clock, 1_500)
    assert [event.executor_id for event in lost] == ["e1"]


async def test_a_silent_executor_is_lost_a_lease_after_its_last_call(manager, clock, backend, lost):
    """Though the store was not asked to renew the lease by that call, as it had just renewed it."""
    session = await manager.register(request())
    await watched(manager, clock, 2_000)
    manager.heard(session)
    await manager.leases.renew(session, is_heartbeat=True)
    await watched(manager, clock, 900)
    manager.heard(session)
    await manager.leases.renew(session)
    await watched(manager, clock, 5_200)
    await notice(manager, backend)
    assert await backend.get(Keyspace.Heartbeats, "e1") is None
    assert not lost, "its lease has ended, a lease after its last call has not"
    await watched(manager, clock, 1_000)
    assert "lease" in lost[0].reason


async def test_a_scheduler_that_comes_late_all_the_time_still_finds_the_dead(manager, clock, backend, lost):
    await manager.register(request())
    while not lost:
        clock.advance(1_000)
        await notice(manager, backend)
        await manager.watch.look()
        assert clock.monotonic_s() < 60
    assert clock.monotonic_s() > 12


async def test_an_executor_that_reports_after_its_lease_expired_unnoticed_continues(manager, clock, backend, lost):
    session = await manager.register(request())
    clock.advance(7_000)
    await manager.leases.renew(session)
    assert await backend.get(Keyspace.Heartbeats, "e1") is not None
    assert not lost


async def test_an_executor_that_another_replica_declared_lost_is_told_to_register(manager, clock, backend):
    session = await manager.register(request())

    async def on_lost(event):
        pass

    other = made(backend, clock, on_lost)
    await other.start()
    await watched(other, clock, 7_000)
    await notice(other, backend)
    with pytest.raises(UnknownExecutorError):
        await manager.leases.renew(session)
    assert (await manager.register(request())).record.state == "alive"


async def test_renewing_keeps_the_lease(manager, clock, backend, lost):
    session = await manager.register(request())
    for _ in range(5):
        clock.advance(2_500)
        await manager.leases.renew(session)
    assert await backend.get(Keyspace.Heartbeats, "e1") is not None
    assert not lost


async def test_a_heartbeat_that_the_store_has_not_taken_is_not_acknowledged(manager, backend, clock, lost):
    """Else a scheduler that is cut off from the store would keep an executor from turning to another one."""
    session = await manager.register(request())
    clock.advance(2_500)
    for _ in range(2):
        with mock.patch.object(backend, "keep_alive", side_effect=StateUnavailableError("cut off")):
            with pytest.raises(StateUnavailableError):
                await manager.leases.renew(session, is_heartbeat=True)
            with pytest.raises(StateUnavailableError):
                await manager.leases.renew(session)
    stuck = asyncio.Event()

    async def hang(_):
        await stuck.wait()

    with mock.patch.object(backend, "keep_alive", hang):
        asking = asyncio.create_task(manager.leases.renew(session))
        await asyncio.sleep(0)
        await manager.leases.renew(session)  # a report need not wait for it
        beating = asyncio.create_task(manager.leases.renew(session, is_heartbeat=True))
        await asyncio.sleep(0)
        assert not beating.done()
        stuck.set()
        await asyncio.gather(asking, beating)
    await manager.leases.renew(session, is_heartbeat=True)
    assert not lost


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
    told = {line["executor_id"]: line["event"] for line in logged if line["event"].startswith("executor_l")}
    assert told == {"idle": "executor_left", "busy": "executor_lost"}


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


async def test_after_a_restart_executors_have_their_lease_to_report(manager, backend, clock):
    await manager.register(request())
    told = []

    async def on_lost(event):
        told.append(event)

    successor = made(backend, clock, on_lost)
    await successor.start()
    await successor.watch.look()
    assert successor.is_alive("e1", "one")
    assert not told
    with pytest.raises(UnknownExecutorError):
        successor.require("e1", "one")
    await successor.register(request())
    assert not told


async def test_a_lease_that_expired_while_no_scheduler_ran_is_renewed_once(manager, backend, clock):
    for executor_id in ("e1", "e2"):
        await manager.register(request(executor_id))
    clock.advance(60_000)
    told = []

    async def on_lost(event):
        told.append((event.executor_id, event.reason))

    successor = made(backend, clock, on_lost)
    await successor.start()
    await notice(successor, backend)
    clock.advance(5_900)
    await successor.watch.look()
    assert told == []
    session = await successor.take_over("e1", "one")
    await successor.leases.renew(session)
    clock.advance(100)
    await successor.watch.look()
    assert told == [("e2", "executor e2: its lease ran out: it was not heard of in time")]
    assert await backend.get(Keyspace.Heartbeats, "e1") is not None


async def test_an_executor_just_taken_over_is_not_lost_before_its_lease_is_renewed(manager, backend, clock, lost):
    await manager.register(request())
    clock.advance(7_000)
    await manager.watch.look()
    manager.end_session(manager.session("e1"))
    session = await manager.take_over("e1", "one")
    await notice(manager, backend)
    assert not lost
    await manager.leases.renew(session, is_heartbeat=True)
    assert await backend.get(Keyspace.Heartbeats, "e1") is not None


async def test_a_loss_that_could_not_be_stored_is_told_again(backend, clock):
    told = []

    async def on_lost(event):
        told.append(event)
        if len(told) == 1:
            raise UnknownExecutorError("the store is away")

    manager = made(backend, clock, on_lost)
    await manager.register(request())
    await manager.deregister("e1", "one", "bye")
    await manager.watch.look()
    await manager.watch.look()
    assert len(told) == 2


async def test_executors_lost_long_ago_are_forgotten(manager, backend, clock):
    await manager.register(request())
    await manager.deregister("e1", "one", "bye")
    clock.advance(601_000)
    await manager.watch.look()
    assert manager.infos() == []
    assert await backend.get(Keyspace.Executors, "e1") is None


async def test_a_listing_has_pages_and_tells_how_many_there_are(manager):
    for number in range(7):
        await manager.register(request(f"e{number}"))
    await manager.deregister("e3", "one", "bye")
    first = manager.listed(pb.ListExecutorsRequest(limit=2))
    assert [info.executor_id for info in first.executors] == ["e0", "e1"]
    assert first.more
    assert dict(first.states) == {"alive": 6, "lost": 1}
    rest = manager.listed(pb.ListExecutorsRequest(after="e1", state="alive"))
    assert [info.executor_id for info in rest.executors] == ["e2", "e4", "e5", "e6"]
    assert not rest.more
    assert len(manager.listed(pb.ListExecutorsRequest()).executors) == 7


async def test_how_a_jvm_ended_is_kept_and_told_by_every_scheduler(manager, backend, clock, lost):
    told_there = []

    async def on_lost(event):
        told_there.append(event)

    there = made(backend, clock, on_lost)
    await manager.register(request())
    await there.start()
    task = SuspectTask("job-1", 1, 0, 7, 2)
    death = JvmDeath(is_memory=True, was_alone=True, tasks=1, suspects=(task,))
    await manager.deregister("e1", "one", "its JVM ended with exit code 3", death)
    assert [event.death for event in lost] == [death]
    stored = await backend.get(Keyspace.Executors, "e1")
    assert ExecutorRecord.decoded(stored.value, "e1").death == death
    await there.refresh()
    await there.tell_losses()
    assert [event.death for event in told_there] == [death]
    await manager.register(request(incarnation="two"))
    assert manager.require("e1", "two").record.death is None
    (info,) = manager.infos()
    assert (info.state, info.reason) == ("alive", "started again: its JVM ended with exit code 3")


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
