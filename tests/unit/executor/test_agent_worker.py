"""The agent, and the worker whose JVM ends, does not stop, or runs one task alone."""

import asyncio
import threading

import pytest

from onager.executor.agent.endings import Ending
from onager.executor.agent.requests import CONNECT_AT_ONCE
from onager.executor.work import WorkerEnd
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key
from tests.support.fakes.scripted_gateway import key, rig, task_set
from tests.support.waiting import HANGS_S, eventually


async def test_a_dead_worker_is_announced_and_its_failures_are_nobodys_error():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0, 1))
        await eventually(lambda: len(r.worker.started) == 2)
        r.worker.succeed(key(1))
        r.worker.alive = False
        r.worker.fail(key(0), "user_error", "connection to Java refused")
        async with asyncio.timeout(HANGS_S):
            outcome = await r.outcome
        assert outcome.ending is Ending.WORKER_DIED
        assert r.gateway.outcomes() == {key(1): "success"}
        assert [goodbye.incarnation for goodbye in r.gateway.goodbyes] == ["life-1"]
        assert "JVM" in r.gateway.goodbyes[0].reason


@pytest.mark.parametrize("tasks", [1, 2])
async def test_how_a_jvm_ended_is_reported_with_the_tasks_that_were_running_in_it(tasks):
    async with rig() as r:
        r.worker.ended = WorkerEnd("with exit code 3", is_memory=True)
        await r.gateway.launches.put(task_set(*range(tasks)))
        await eventually(lambda: len(r.worker.started) == tasks)
        r.worker.alive = False
        async with asyncio.timeout(HANGS_S):
            await r.outcome
        (goodbye,) = r.gateway.goodbyes
        assert [task_key(task) for task in goodbye.death.running] == [key(p) for p in range(tasks)]
        assert goodbye.death.memory
        assert not goodbye.death.alone
        assert goodbye.reason.startswith("its JVM ended with exit code 3; ")


async def test_a_task_that_ran_alone_is_reported_as_such_when_the_jvm_ends():
    async with rig() as r:
        r.worker.ended = WorkerEnd("by SIGKILL")
        alone = task_set(1)
        alone.tasks[0].alone = True
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started == [key(0)])
        await r.gateway.launches.put(alone)
        await eventually(lambda: len(r.agent._attempts.held()) == 2)
        assert r.worker.started == [key(0)], "it waits until the other one has ended"
        r.worker.succeed(key(0))
        await eventually(lambda: r.worker.started == [key(0), key(1)])
        r.worker.alive = False
        async with asyncio.timeout(HANGS_S):
            await r.outcome
        assert r.gateway.goodbyes[0].death.alone


async def test_requests_of_spark_connect_go_to_others_while_a_task_runs_alone():
    gate, may_reply, asked = asyncio.Event(), threading.Event(), threading.Event()

    async def wait(request, context):
        await gate.wait()

    def connect(call, _):
        asked.set()
        assert may_reply.wait(HANGS_S)
        return pb.ConnectReply()

    async with rig(poll_wait_ms=30_000) as r:
        r.worker.connect = connect
        r.gateway.connect_at = [r.agent._settings.scheduler]
        await eventually(lambda: r.gateway.connect_waiting == CONNECT_AT_ONCE)
        await r.gateway.connect_calls.put(pb.ConnectCall(analyze=b"plan"))
        await eventually(asked.is_set)
        r.gateway.before["heartbeat"] = wait
        alone = task_set(0)
        alone.tasks[0].alone = True
        await r.gateway.launches.put(alone)
        await eventually(lambda: not r.gateway.connect_waiting, "no call waits, before any heartbeat is answered")
        gate.set()
        beats = len(r.gateway.heartbeats)
        await eventually(lambda: len(r.gateway.heartbeats) >= beats + 2)
        assert not r.worker.started, "it waits until the request has its reply"
        gate.clear()
        beats = len(r.gateway.heartbeats)
        await eventually(lambda: len(r.gateway.heartbeats) > beats, "one is not answered")
        may_reply.set()
        await eventually(lambda: r.worker.started == [key(0)], "started by the end of the request")
        gate.set()
        beats = len(r.gateway.heartbeats)
        await eventually(lambda: len(r.gateway.heartbeats) >= beats + 2)
        assert not r.gateway.connect_waiting
        r.worker.succeed(key(0))
        await eventually(lambda: r.gateway.connect_waiting == CONNECT_AT_ONCE)


async def test_a_worker_that_does_not_stop_what_it_was_to_stop_is_given_up():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0, 1))
        await eventually(lambda: len(r.worker.started) == 2)
        r.worker.fail(key(1), "user_error", "planning took too long")  # as the worker does just before
        r.worker.stuck = "task 1 did not stop"
        async with asyncio.timeout(HANGS_S):
            outcome = await r.outcome
        assert outcome.ending is Ending.WORKER_GIVEN_UP
        assert r.gateway.outcomes() == {key(1): "user_error"}
        (goodbye,) = r.gateway.goodbyes
        assert goodbye.reason == "its JVM was ended, because task 1 did not stop"
        assert not goodbye.HasField("death"), "nobody is to blame for what the agent did"


async def test_an_end_of_which_nothing_is_known_is_reported_as_none():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.worker.alive = False
        async with asyncio.timeout(HANGS_S):
            await r.outcome
        assert not r.gateway.goodbyes[0].HasField("death")


async def test_a_failure_of_a_live_worker_is_reported_as_it_is():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.worker.fail(key(0), "user_error", "[DIVIDE_BY_ZERO] Division by zero.")
        await eventually(lambda: r.gateway.outcomes() == {key(0): "user_error"})
        assert r.gateway.reports[0].reports[0].failure.message.startswith("[DIVIDE_BY_ZERO]")


async def test_a_worker_that_cannot_start_tasks_fails_them():
    async with rig() as r:
        r.worker.start_error = RuntimeError("no room")
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.gateway.outcomes() == {key(0): "io_error"})
        assert "no room" in r.gateway.reports[0].reports[0].failure.message
