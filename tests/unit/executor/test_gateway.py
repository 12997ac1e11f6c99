"""Which scheduler an executor's calls go to when one of them hangs."""

import asyncio

import grpc
import pytest

from onager.errors import DiskError, SchedulerUnreachableError
from onager.executor.agent.gateway import SchedulerGateway
from onager.protocol import onager_pb2 as pb
from onager.protocol.status import abort
from tests.support.fakes.scripted_gateway import ScriptedGateway, serve, task_set
from tests.support.waiting import HANGS_S, eventually


async def test_a_poll_is_not_left_with_a_scheduler_that_does_not_answer_heartbeats() -> None:
    hung, sound = ScriptedGateway(), ScriptedGateway()

    async def hang(request: object, context: object) -> None:
        await asyncio.sleep(60)

    hung.before = {"poll": hang, "heartbeat": hang}
    sound.launches.put_nowait(task_set(1))
    served = [await serve(gateway) for gateway in (hung, sound)]
    try:
        async with SchedulerGateway(tuple(f"127.0.0.1:{port}" for _, port in served)) as gateway:
            poll = asyncio.create_task(gateway.poll(pb.PollWorkRequest(wait_ms=100), 30.0))
            await eventually(lambda: hung.polls)
            await gateway.heartbeat(pb.HeartbeatRequest(), 0.2)
            async with asyncio.timeout(HANGS_S):
                answer = await poll
    finally:
        for server, _ in served:
            await server.stop(None)
    assert [s.job_id for s in answer.task_sets] == ["job-1"]
    assert len(hung.heartbeats) == len(sound.heartbeats) == 1


async def test_a_poll_goes_on_waiting_when_no_scheduler_answers_heartbeats() -> None:
    slow = [ScriptedGateway(), ScriptedGateway()]
    answers = asyncio.Event()

    async def hang(request: object, context: object) -> None:
        await asyncio.sleep(60)

    async def wait(request: object, context: object) -> None:
        await answers.wait()

    for scheduler in slow:
        scheduler.before = {"poll": wait, "heartbeat": hang}
    served = [await serve(scheduler) for scheduler in slow]
    try:
        async with SchedulerGateway(tuple(f"127.0.0.1:{port}" for _, port in served)) as gateway:
            poll = asyncio.create_task(gateway.poll(pb.PollWorkRequest(wait_ms=100), HANGS_S))
            await eventually(lambda: slow[0].polls)
            for _ in range(3):
                with pytest.raises(SchedulerUnreachableError):
                    await gateway.heartbeat(pb.HeartbeatRequest(), 0.1)
            answers.set()
            await poll
    finally:
        for server, _ in served:
            await server.stop(None)
    assert (len(slow[0].polls), len(slow[1].polls)) == (1, 0)


async def test_slots_that_a_scheduler_may_have_filled_are_not_offered_to_another() -> None:
    dying, sound = ScriptedGateway(), ScriptedGateway()

    async def die(request: object, context: grpc.aio.ServicerContext) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")

    dying.before = {"report": die}
    served = [await serve(gateway) for gateway in (dying, sound)]
    request = pb.ReportTasksRequest(reports=[pb.TaskReport(task=pb.TaskId(job_id="job-1"))], freed_slots=1)
    try:
        async with SchedulerGateway(tuple(f"127.0.0.1:{port}" for _, port in served)) as gateway:
            await gateway.report(request, 5.0)
            await gateway.report(request, 5.0)
    finally:
        for server, _ in served:
            await server.stop(None)
    assert [r.freed_slots for r in dying.reports] == [1]
    assert [(r.freed_slots, len(r.reports)) for r in sound.reports] == [(0, 1), (1, 1)]


async def test_reports_for_which_a_scheduler_needs_a_disk_that_fails_there_go_to_another() -> None:
    sick, sound = ScriptedGateway(), ScriptedGateway()

    async def fail(request: object, context: grpc.aio.ServicerContext) -> None:
        await abort(context, DiskError("the directory of an output does not answer"))

    sick.before = {"report": fail}
    served = [await serve(gateway) for gateway in (sick, sound)]
    request = pb.ReportTasksRequest(reports=[pb.TaskReport(task=pb.TaskId(job_id="job-1"))])
    try:
        async with SchedulerGateway(tuple(f"127.0.0.1:{port}" for _, port in served)) as gateway:
            await gateway.report(request, HANGS_S)
    finally:
        for server, _ in served:
            await server.stop(None)
    assert (len(sick.reports), len(sound.reports)) == (1, 1)
