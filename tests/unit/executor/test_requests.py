"""An executor answers requests for logs, and leaves when a scheduler requests it."""

import asyncio

from onager.executor.agent.endings import Ending
from onager.executor.attempt_logs import AttemptLogs
from onager.protocol import onager_pb2 as pb
from tests.support.fakes.scripted_gateway import key, lose, rig, task_set
from tests.support.waiting import eventually

ASK = pb.LogsAsk(job_id="job-1", tail_bytes=100)


async def run_a_task(run):
    await run.gateway.launches.put(task_set(0))
    await eventually(lambda: run.worker.started, "a task")


async def test_logs_that_are_asked_for_come_with_the_next_call():
    logs = AttemptLogs()
    logs.add(key(0), "hello")
    async with rig(logs=logs) as run:
        await run.gateway.requests.put(pb.AwaitRequestsResponse(requests=[pb.ExecutorRequest(number=3, logs=ASK)]))
        await eventually(lambda: len(run.gateway.awaited) == 2, "the next call")
        (answer,) = run.gateway.awaited[1].answers
        assert (answer.number, answer.logs.logs[0].text) == (3, b"hello\n")
        assert not run.outcome.done()


async def test_a_drain_lets_tasks_finish_however_long_they_take():
    async with rig(drain_grace_ms=0) as run:
        await run_a_task(run)
        await run.gateway.requests.put(pb.AwaitRequestsResponse(drain=True))
        await eventually(lambda: run.gateway.awaited[-1].draining, "a call that says so")
        await eventually(lambda: run.gateway.heartbeats[-1].draining, "word of the drain")
        count = len(run.gateway.heartbeats)
        await eventually(lambda: len(run.gateway.heartbeats) > count + 1, "some time")
        assert not run.worker.cancelled
        run.worker.succeed(key(0))
        outcome = await run.outcome
        assert (outcome.ending, outcome.was_leaving) == (Ending.DRAINED, True)
        assert run.gateway.goodbyes


async def test_a_drain_has_programs_go_on_elsewhere_at_once():
    async with rig(drain_grace_ms=0, runs_programs=True) as run:
        await run_a_task(run)
        await run.gateway.requests.put(pb.AwaitRequestsResponse(drain=True))
        outcome = await run.outcome
        assert (outcome.ending, outcome.was_leaving) == (Ending.STOPPED, True)
        assert run.worker.cancelled == [key(0)]
        assert run.gateway.goodbyes


async def test_a_signal_after_a_drain_sets_the_grace_and_a_second_one_ends_it():
    async with rig(drain_grace_ms=60_000) as run:
        await run_a_task(run)
        await run.gateway.requests.put(pb.AwaitRequestsResponse(drain=True))
        await eventually(lambda: run.gateway.heartbeats[-1].draining, "word of the drain")
        run.agent.request_drain()
        await asyncio.sleep(0)
        assert not run.worker.cancelled
        run.agent.request_drain()
        assert (await run.outcome).ending is Ending.STOPPED


async def test_the_end_of_a_failed_attempts_log_goes_with_its_report():
    logs = AttemptLogs()
    async with rig(logs=logs) as run:
        await run_a_task(run)
        logs.add(key(0), "token=abc")
        run.worker.fail(key(0), "user_error")
        await eventually(lambda: run.gateway.reports, "a report")
        (report,) = run.gateway.reports[0].reports
        assert report.failure.log_tail == "token=*********(redacted)\n"


async def test_a_call_that_breaks_is_made_again():
    async with rig() as run:
        run.gateway.before["requests"] = lose(2)
        await eventually(lambda: len(run.gateway.awaited) == 3, "a third call")
