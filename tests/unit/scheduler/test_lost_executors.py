"""When a scheduler counts an executor as lost, and when it does not."""

import asyncio
import os
import subprocess
import sys
from unittest import mock

import pytest

from onager.errors import (
    StateUnavailableError,
    UnknownExecutorError,
)
from onager.execution_graph import JvmDeath, SuspectTask
from onager.scheduler.executors.records import ExecutorRecord
from onager.state_backend import Keyspace
from tests.unit.scheduler.executor_managers import MACHINE, made, request, watched


async def test_silence_after_a_broken_connection_is_a_loss(manager, clock, lost):
    session = await manager.register(request())
    manager.suspect(session)
    await watched(manager, clock, 2_900)
    assert not lost
    manager.note_call(session)
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


async def test_an_executor_whose_record_changes_while_it_is_silent_is_lost_all_the_same(manager, clock, backend, lost):
    session = await manager.register(request())
    await watched(manager, clock, 5_000)
    manager.note_call(session)
    await watched(manager, clock, 2_000)
    await backend.put(Keyspace.Sessions, "any", b"")
    await manager.refresh()
    await manager.watch.look()
    assert not lost, "it called less than a lease ago"
    await manager.note_space(session, "the disk is full")
    await watched(manager, clock, 7_000)
    assert "lease" in lost[0].reason


async def test_a_record_written_while_heartbeats_are_read_is_no_heartbeat(manager, clock, backend):
    session, registry = await manager.register(request()), manager.registry
    clock.advance(7_000)
    await backend.put(Keyspace.Sessions, "any", b"")
    read = backend.get_from_prefix

    async def read_before_a_write(keyspace, prefix):
        found = await read(keyspace, prefix)
        if keyspace is Keyspace.Heartbeats:
            await manager.note_space(session, "the disk is full")
        return found

    with mock.patch.object(backend, "get_from_prefix", read_before_a_write):
        await registry.refresh()
    assert registry.find("e1").no_space
    assert not registry.is_beating("e1")


async def test_a_heartbeat_that_begins_while_others_are_read_stays(manager, backend):
    registry, read = manager.registry, backend.get_from_prefix

    async def read_before_a_registration(keyspace, prefix):
        found = await read(keyspace, prefix)
        if keyspace is Keyspace.Heartbeats:
            await manager.register(request())
        return found

    with mock.patch.object(backend, "get_from_prefix", read_before_a_registration):
        await registry.refresh()
    assert registry.is_beating("e1")


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
    manager.note_call(session)
    await manager.leases.renew(session, is_heartbeat=True)
    await watched(manager, clock, 900)
    manager.note_call(session)
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


async def test_an_executor_that_another_scheduler_declared_lost_is_asked_to_register(manager, clock, backend):
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


async def test_after_a_restart_executors_have_their_lease_to_report(manager, backend, clock):
    await manager.register(request())
    received = []

    async def on_lost(event):
        received.append(event)

    successor = made(backend, clock, on_lost)
    await successor.start()
    await successor.watch.look()
    assert successor.is_alive("e1", "one")
    assert not received
    with pytest.raises(UnknownExecutorError):
        successor.require("e1", "one")
    await successor.register(request())
    assert not received


async def test_a_lease_that_expired_while_no_scheduler_ran_is_renewed_once(manager, backend, clock):
    for executor_id in ("e1", "e2"):
        await manager.register(request(executor_id))
    clock.advance(60_000)
    received = []

    async def on_lost(event):
        received.append((event.executor_id, event.reason))

    successor = made(backend, clock, on_lost)
    await successor.start()
    await notice(successor, backend)
    clock.advance(5_900)
    await successor.watch.look()
    assert received == []
    session = await successor.take_over("e1", "one")
    await successor.leases.renew(session)
    clock.advance(100)
    await successor.watch.look()
    assert received == [("e2", "executor e2: its lease ran out: it did not call in time")]
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


async def test_a_loss_that_could_not_be_stored_is_reported_again(backend, clock):
    received = []

    async def on_lost(event):
        received.append(event)
        if len(received) == 1:
            raise UnknownExecutorError("the store is away")

    manager = made(backend, clock, on_lost)
    await manager.register(request())
    await manager.deregister("e1", "one", "bye")
    await manager.watch.look()
    await manager.watch.look()
    assert len(received) == 2


async def test_executors_lost_long_ago_are_forgotten(manager, backend, clock):
    await manager.register(request())
    await manager.deregister("e1", "one", "bye")
    clock.advance(601_000)
    await manager.watch.look()
    assert manager.infos() == []
    assert await backend.get(Keyspace.Executors, "e1") is None


async def test_how_a_jvm_ended_is_kept_and_reported_by_every_scheduler(manager, backend, clock, lost):
    reported_there = []

    async def on_lost(event):
        reported_there.append(event)

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
    assert [event.death for event in reported_there] == [death]
    await manager.register(request(incarnation="two"))
    assert manager.require("e1", "two").record.death is None
    (info,) = manager.infos()
    assert (info.state, info.reason) == ("alive", "started again: its JVM ended with exit code 3")
