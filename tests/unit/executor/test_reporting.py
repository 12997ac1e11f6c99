"""The reporter, and those who wait for it."""

import asyncio
from typing import Any

import pytest

from onager.clock import ManualClock
from onager.executor.agent.attempts import AttemptTable
from onager.executor.agent.gateway import SchedulerGateway
from onager.executor.agent.reporting import _BATCH_WINDOW_S, _RARE_S, Reporter, _Batch
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id
from tests.support.waiting import HANGS_S


class Silence(SchedulerGateway):
    """A scheduler that answers only when asked to."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def report(self, *_: Any) -> Any:
        await self.answers.wait()


@pytest.mark.parametrize("steps", range(6))
async def test_a_waiter_can_be_cancelled_at_the_moment_that_the_reporter_gets_idle(steps: int) -> None:
    gateway = Silence()
    reporter = Reporter(
        AttemptTable(1, ManualClock()),
        gateway,
        executor_id="e",
        incarnation="i",
        on_answer=lambda _: None,
        on_unknown=lambda: None,
    )
    sending = asyncio.create_task(reporter._send(_Batch("")))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(reporter.wait_until_idle(timeout_s=HANGS_S))
    for _ in range(3):
        await asyncio.sleep(0)
    gateway.answers.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    is_in_time = waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled() == is_in_time
    await asyncio.gather(sending, return_exceptions=True)


class Counting(SchedulerGateway):
    """A scheduler that acknowledges all, and says how many reports came at once."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    async def report(self, request: pb.ReportTasksRequest, *_: Any, **__: Any) -> pb.ReportTasksResponse:
        self.batches.append(len(request.reports))
        return pb.ReportTasksResponse(acknowledged=[report.task for report in request.reports])


@pytest.mark.virtual_time
async def test_a_report_after_a_pause_goes_at_once_and_those_of_a_busy_time_wait_for_each_other() -> None:
    gateway, attempts = Counting(), AttemptTable(8, ManualClock())
    reporter = Reporter(
        attempts, gateway, executor_id="e", incarnation="i", on_answer=lambda _: None, on_unknown=lambda: None
    )

    def finish(partition: int) -> None:
        task_set = pb.TaskSet(job_id="j", stage_id=1, tasks=[pb.TaskAttempt(partition=partition)])
        (key,) = attempts.accept(task_set).accepted
        attempts.finish(pb.TaskReport(task=task_id(key), success=pb.TaskSuccess()))
        reporter.wake()

    attempts.accept(pb.TaskSet(job_id="j", stage_id=1, tasks=[pb.TaskAttempt(partition=7)]))
    attempts.take_startable()
    running = asyncio.create_task(reporter.run())
    await asyncio.sleep(_RARE_S)
    finish(0)
    await asyncio.sleep(_BATCH_WINDOW_S / 10)
    assert gateway.batches == [1], "it waited, and for nobody"
    finish(1)
    await asyncio.sleep(_BATCH_WINDOW_S / 10)
    assert gateway.batches == [1]
    finish(2)
    await asyncio.sleep(_BATCH_WINDOW_S)
    assert gateway.batches == [1, 2]
    attempts.finish(pb.TaskReport(task=pb.TaskId(job_id="j", stage_id=1, partition=7), success=pb.TaskSuccess()))
    reporter.wake()
    await asyncio.sleep(_BATCH_WINDOW_S / 10)
    assert gateway.batches == [1, 2, 1], "nothing else runs that it could wait for"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Refusing(SchedulerGateway):
    """A scheduler that leaves the reports of one job to others."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def next_address(self, address: str) -> str:
        return address

    async def report(self, request: pb.ReportTasksRequest, *_: Any, **__: Any) -> pb.ReportTasksResponse:
        self.calls.append([report.task.job_id for report in request.reports])
        taken = [report.task for report in request.reports if report.task.job_id != "newer"]
        return pb.ReportTasksResponse(acknowledged=taken)


async def test_a_report_that_is_left_to_others_holds_up_no_other(monkeypatch) -> None:
    monkeypatch.setattr("onager.executor.agent.reporting._AGAIN_S", 60.0)
    monkeypatch.setattr("onager.executor.agent.reporting.AGAIN_LIMIT_S", 60.0)
    gateway, attempts = Refusing(), AttemptTable(8, ManualClock())
    reporter = Reporter(
        attempts, gateway, executor_id="e", incarnation="i", on_answer=lambda _: None, on_unknown=lambda: None
    )

    def finish(job_id: str) -> None:
        (key,) = attempts.accept(pb.TaskSet(job_id=job_id, tasks=[pb.TaskAttempt()])).accepted
        attempts.finish(pb.TaskReport(task=task_id(key), success=pb.TaskSuccess()))
        reporter.wake()

    running = asyncio.create_task(reporter.run())
    for job_id in ("newer", "ours"):
        finish(job_id)
        for _ in range(10):
            await asyncio.sleep(0)
    assert gateway.calls == [["newer"], ["ours"]]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await reporter.flush(timeout_s=0.05)
    assert gateway.calls == [["newer"], ["ours"], ["newer"]], "and it is not forgotten"
