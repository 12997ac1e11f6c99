"""Executors that fail all tasks, leave, or die: jobs avoid them, wait with a reason, and continue."""

import asyncio
import json

import pytest

from onager.protocol import onager_pb2 as pb
from tests.integration.scheduler.conftest import serving
from tests.integration.scheduler.state_commands import onager
from tests.integration.scheduler.test_jobs import RESULT, planned, two_stages
from tests.support.fakes.scripted_executor import Client, arrow_stream, executor, failure, plan_outcome, success
from tests.support.waiting import eventually


def broken(executor_id):
    """An executor that plans, and fails every other task."""
    works = two_stages(executor_id)

    def run(task_set, task):
        if task_set.work == pb.PLAN:
            return works(task_set, task)
        return failure(task_set, task, "io_error", "no space left on device")

    return run


@pytest.fixture
async def ward(store, tmp_path):
    """A scheduler that quarantines executors soon, for ten minutes."""
    async with serving(
        store, tmp_path, sweep_interval_ms=200, executor_lease_ttl_ms=1_500, quarantine_failures=2, quarantine_s=600
    ) as running:
        yield running


@pytest.fixture
async def visitor(ward):
    client = Client(ward.address)
    yield client
    await client.close()


async def executors_reported(address):
    out, _ = await onager("executors", "-o", "json", "--scheduler", address)
    return {each["executor_id"]: each for each in json.loads(out)}


async def job_reported(address, job_id):
    out, _ = await onager("job", job_id, "--scheduler", address)
    return out


async def until_quarantined(visitor, e_bad):
    for number in range(100):
        if e_bad.quarantine:
            return
        await visitor.submit(f"job-{number}")
        assert (await visitor.wait(f"job-{number}")).state == pb.SUCCESSFUL, "the good one did its part"


async def test_an_executor_that_fails_everything_gets_no_work_and_learns_why(ward, visitor):
    address = ward.address
    async with executor(address, "bad", broken("bad")) as e_bad, executor(address, "good", two_stages("good")):
        await until_quarantined(visitor, e_bad)
        executors = await executors_reported(address)
        assert executors["good"]["state"] == "alive"
        assert executors["bad"]["state"] == "quarantined"
        assert "different tasks failed there" in executors["bad"]["reason"]
        assert e_bad.quarantine[-1].reason == executors["bad"]["reason"]
        assert e_bad.quarantine[-1].until_ms == int(executors["bad"]["quarantined_until_ms"])
        out, _ = await onager("executors", "--scheduler", address)
        assert "quarantined until" in out
        ran = len(e_bad.ran)
        await visitor.submit("meanwhile")
        assert (await visitor.wait("meanwhile")).state == pb.SUCCESSFUL
        assert len(e_bad.ran) == ran, "it got no work"


async def test_an_executor_that_was_quarantined_comes_back_by_itself(store, tmp_path):
    async with serving(store, tmp_path, sweep_interval_ms=200, quarantine_failures=2, quarantine_s=1) as running:
        client, address = Client(running.address), running.address
        async with executor(address, "bad", broken("bad")) as e_bad, executor(address, "good", two_stages("good")):
            await until_quarantined(client, e_bad)
            e_bad.run_task = two_stages("bad")
            await eventually(lambda: [e.state for e in running.app.executors.infos()] == ["alive", "alive"])
            ran = len(e_bad.ran)
            for number in range(100):
                if len(e_bad.ran) > ran:
                    break
                await client.submit(f"after-{number}")
                assert (await client.wait(f"after-{number}")).state == pb.SUCCESSFUL
            assert len(e_bad.ran) > ran, "it works again"
        await client.close()


async def test_a_task_that_failed_on_one_executor_goes_to_another(ward, visitor):
    async with (
        executor(ward.address, "bad", broken("bad"), slots=8) as e_bad,
        executor(ward.address, "good", two_stages("good"), slots=1),
    ):
        await visitor.submit("next")
        assert (await visitor.wait("next")).state == pb.SUCCESSFUL
        tried = [(stage, partition) for job, stage, _, partition, _ in e_bad.ran if job == "next" and stage]
        assert len(tried) == len(set(tried)), "no task failed twice on the same executor"
        assert await visitor.fetch("next") == RESULT


async def test_jobs_wait_and_say_why_when_all_executors_are_gone(ward, visitor):
    await visitor.submit("job")
    assert "waiting for: no executor is registered" in await job_reported(ward.address, "job")
    keep = asyncio.Event()

    def holds(task_set, task):
        return two_stages("e1")(task_set, task) if task_set.work == pb.PLAN else keep.set()

    async with executor(ward.address, "e1", holds):
        await keep.wait()
    await eventually(lambda: [e.state for e in ward.app.executors.infos()] == ["lost"])
    await eventually(lambda: _waits(ward, "job"))
    assert "waiting for: no executor is there any more: e1 is lost" in await job_reported(ward.address, "job")
    async with executor(ward.address, "e2", two_stages("e2")):
        assert (await visitor.wait("job")).state == pb.SUCCESSFUL
        assert await visitor.fetch("job") == RESULT


async def test_jobs_wait_and_say_why_when_all_executors_are_leaving(ward, visitor):
    async with executor(ward.address, "e1", two_stages("e1")) as leaving:
        leaving.is_draining = True
        await eventually(lambda: [e.state for e in ward.app.executors.infos()] == ["draining"])
        await visitor.submit("job")
        assert "waiting for: every executor is leaving: start another one" in await job_reported(ward.address, "job")
        assert (await executors_reported(ward.address))["e1"]["state"] == "draining"
        async with executor(ward.address, "e2", two_stages("e2")):
            assert (await visitor.wait("job")).state == pb.SUCCESSFUL


async def test_jobs_wait_and_say_why_when_those_left_are_quarantined(ward, visitor):
    """The executor that was good when another was quarantined has left since."""
    async with executor(ward.address, "bad", broken("bad")) as e_bad:
        async with executor(ward.address, "good", two_stages("good")) as good:
            await until_quarantined(visitor, e_bad)
            await good.stop()
            farewell = pb.DeregisterExecutorRequest(executor_id="good", incarnation=good.incarnation, reason="it left")
            await good.stub.DeregisterExecutor(farewell)
        await visitor.submit("last")
        printed = await job_reported(ward.address, "last")
        assert "waiting for: no executor takes work: bad is quarantined; bad until " in printed
        assert "different tasks failed there" in printed
        async with executor(ward.address, "fresh", two_stages("fresh")):
            assert (await visitor.wait("last")).state == pb.SUCCESSFUL
            assert await visitor.fetch("last") == RESULT


def _waits(ward, job_id):
    job = ward.app.jobs.cached(job_id)
    return job is not None and job.graph.is_active and not any(getattr(s, "running", None) for s in job.graph.stages)


async def test_a_straggler_is_run_a_second_time_and_the_loser_is_stopped(ward, visitor):
    conf = {
        "onager.speculation": "true",
        "onager.speculation.quantile": "0.5",
        "onager.speculation.min-task-runtime-ms": "200",
    }

    def run(executor_id):
        def one(task_set, task):
            if task_set.work == pb.PLAN:
                return planned(task_set, task, plan_outcome([(4, 1, "exchange"), (1, 1, "result")]))
            if task_set.output.kind == "result":
                return success(task_set, task, executor_id, inline=arrow_stream([7]))
            hangs = task.partition == 3 and not task.task_attempt
            return None if hangs else success(task_set, task, executor_id)

        return one

    async with executor(ward.address, "e1", run("e1"), slots=4) as e1:
        await visitor.submit("job", **conf)
        await eventually(lambda: any(stage == 1 and partition == 3 for _, stage, _, partition, _ in e1.ran))
        await asyncio.sleep(0.5)  # a few looks for what is slow, of which nobody tells
        assert (await visitor.detail("job")).progress.stages[1].tasks_speculated == 0, "there is no other executor"
        async with executor(ward.address, "e2", run("e2"), slots=1) as e2:
            assert (await visitor.wait("job")).state == pb.SUCCESSFUL
            assert ("job", 1, 0, 3, 1) in e2.ran
            # By the answer to a poll, to a heartbeat, or to both.
            await eventually(lambda: {t.partition for t in e1.cancelled} == {3})
    assert await visitor.fetch("job") == [7]
    stage = (await visitor.detail("job")).progress.stages[1]
    assert stage.tasks_speculated == 1
    assert (stage.tasks[3].executor_id, stage.tasks[3].speculated, stage.tasks[3].speculative_won) == ("e2", True, True)
    assert "SPECULATED" in await job_reported(ward.address, "job")
