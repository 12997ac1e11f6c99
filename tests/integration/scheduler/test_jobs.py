"""Whole jobs over real gRPC and LevelDB, with scripted executors."""

import asyncio
from collections import Counter

import grpc
import pytest

from onager.errors import JobConflictError, JobFailedError, ResultExpiredError
from onager.protocol import onager_pb2 as pb
from onager.protocol.status import from_rpc_error
from onager.state_backend import Keyspace
from tests.integration.scheduler.conftest import serving
from tests.support.fakes.scripted_executor import (
    Client,
    ScriptedExecutor,
    arrow_stream,
    executor,
    failure,
    identity,
    plan_outcome,
    success,
)
from tests.support.selection import IS_ALL
from tests.support.waiting import eventually


def planned(task_set, task, outcome):
    report = pb.TaskReport(task=identity(task_set, task))
    report.success.plan.CopyFrom(outcome)
    return report


def two_stages(executor_id="e1", *, width=4):
    """A job of two stages: *width* tasks that write, 3 that return what they are."""

    def run(task_set, task):
        if task_set.work == pb.PLAN:
            return planned(task_set, task, plan_outcome([(width, 3, "exchange"), (3, 1, "result")]))
        if task_set.output.kind == "result":
            n = task.partition
            return success(task_set, task, executor_id, inline=arrow_stream([10 * n, 10 * n + 1], batches=2), rows=2)
        return success(task_set, task, executor_id)

    return run


RESULT = [0, 1, 10, 11, 20, 21]


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value, "test")


async def test_a_job_is_planned_run_and_fetched(scheduler, client):
    assert not (await client.submit("job-1")).existed
    async with executor(scheduler.address, "e1", two_stages()) as e1:
        ended = await client.wait("job-1")
        assert ended.state == pb.SUCCESSFUL
        assert ended.result_rows == 6
        assert [s.state for s in ended.stages] == ["successful"] * 3
        assert await client.fetch("job-1") == RESULT
        assert await client.fetch("job-1", partition=1, batch=1) == [11, 20, 21]
        assert Counter(e1.ran).most_common(1)[0][1] == 1
    detail = await client.detail("job-1")
    assert detail.plan == "the plan"
    assert detail.progress.stages[1].plan == "text 1"
    assert [t.successes for t in detail.progress.stages[1].tasks] == [1, 1, 1, 1]
    assert detail.spec.sql.text == "SELECT 1"


async def test_consumers_learn_where_every_input_lies(scheduler, client):
    seen = []

    def run(task_set, task):
        if task_set.stage_id == 2:
            seen.append([o.nonce for o in task_set.inputs[0].outputs])
        return two_stages()(task_set, task)

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", run):
        await client.wait("job-1")
    assert all(len(nonces) == 4 and all(nonces) for nonces in seen)


async def test_submitting_again_is_the_same_job_and_another_spec_a_conflict(scheduler, client):
    assert not (await client.submit("job-1")).existed
    assert (await client.submit("job-1")).existed
    assert isinstance(await refused(client.submit("job-1", "SELECT 2")), JobConflictError)
    async with executor(scheduler.address, "e1", two_stages()):
        await client.wait("job-1")
    assert (await client.submit("job-1")).existed
    assert isinstance(await refused(client.submit("job-1", "SELECT 2")), JobConflictError)


async def test_progress_says_that_no_executor_is_there(client):
    await client.submit("job-1")
    detail = await client.detail("job-1")
    assert detail.progress.state == pb.QUEUED
    assert detail.progress.waiting_for == "no executor is registered"


async def test_a_user_error_fails_the_job_at_once_in_the_users_words(scheduler, client):
    def run(task_set, task):
        if task_set.work == pb.PLAN:
            return two_stages()(task_set, task)
        return failure(task_set, task, "user_error", "[DIVIDE_BY_ZERO] Division by zero", error_class="DIVIDE_BY_ZERO")

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", run) as e1:
        ended = await client.wait("job-1")
        assert ended.state == pb.FAILED
        assert ended.failure.error_class == "DIVIDE_BY_ZERO"
        assert "Division by zero" in ended.failure.message
        error = await refused(client.fetch("job-1"))
        assert isinstance(error, JobFailedError)
        assert error.error_class == "DIVIDE_BY_ZERO"
        await eventually(lambda: [c.job_id for c in e1.cleaned] == ["job-1"])
        assert not e1.cleaned[0].keep_result


async def test_io_errors_are_tried_again_and_the_fourth_fails_the_job(scheduler, client):
    broken = {"job-1": 3, "job-2": 99}

    def run(task_set, task):
        if task_set.stage_id == 1 and task.partition == 2 and broken[task_set.job_id]:
            broken[task_set.job_id] -= 1
            return failure(task_set, task, "io_error", "disk on fire")
        return two_stages()(task_set, task)

    async with executor(scheduler.address, "e1", run):
        await client.submit("job-1")
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        await client.submit("job-2")
        ended = await client.wait("job-2")
        assert ended.state == pb.FAILED
        assert "failed 4 times" in ended.failure.message


async def test_a_plan_that_does_not_fit_together_fails_the_job(scheduler, client):
    def run(task_set, task):
        outcome = plan_outcome([(4, 3, "exchange"), (3, 1, "result")])
        outcome.stages[1].inputs[0].stage_id = 2
        return planned(task_set, task, outcome)

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", run):
        ended = await client.wait("job-1")
    assert ended.state == pb.FAILED
    assert "do not fit together" in ended.failure.message


async def test_a_fused_query_ends_with_its_planning(scheduler, client):
    def run(task_set, task):
        outcome = plan_outcome([(1, 1, "result")])
        outcome.fused_output.CopyFrom(pb.TaskOutput(nonce="n", executor_id="e1", shared=True, rows=2, inline=True))
        outcome.fused_inline_result = arrow_stream([7, 8])
        return planned(task_set, task, outcome)

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", run) as e1:
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert await client.fetch("job-1") == [7, 8]
        assert len(e1.ran) == 1
        assert not e1.cleaned  # nothing lies in the exchange


async def test_a_sink_is_published_by_two_more_stages(scheduler, client):
    works = []

    def run(task_set, task):
        works.append((task_set.work, task_set.sink.path, len(task_set.inputs)))
        if task_set.work == pb.PLAN:
            return planned(task_set, task, plan_outcome([(2, 1, "sink")], is_sink="/data/out"))
        return success(task_set, task, "e1")

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", run, slots=1) as e1:
        ended = await client.wait("job-1")
        assert ended.state == pb.SUCCESSFUL
        assert ended.sink_path == "/data/out"
        await eventually(lambda: e1.cleaned)
        assert e1.cleaned[0].sink.path == "/data/out"
    assert works[1:] == [
        (pb.QUERY, "/data/out", 0),
        (pb.QUERY, "/data/out", 0),
        (pb.PUBLISH_PLAN, "/data/out", 1),
        (pb.PUBLISH, "/data/out", 1),
    ]


async def test_repeated_reports_are_acknowledged_and_change_nothing(scheduler, client):
    await client.submit("job-1")
    e1 = ScriptedExecutor(scheduler.address, "e1", lambda *_: None)
    await e1.register()
    await e1.poll()
    task_id = next(iter(e1.held.values()))
    report = pb.TaskReport(task=task_id)
    report.success.plan.CopyFrom(plan_outcome([(2, 1, "result")]))
    request = pb.ReportTasksRequest(executor_id="e1", incarnation=e1.incarnation, reports=[report], freed_slots=0)
    first = await e1.stub.ReportTasks(request)
    again = await e1.stub.ReportTasks(request)
    assert list(first.acknowledged) == list(again.acknowledged) == [task_id]
    unknown = pb.TaskReport(task=pb.TaskId(job_id="nobody"), failure=pb.Failure(kind="io_error"))
    request.reports.append(unknown)
    assert len((await e1.stub.ReportTasks(request)).acknowledged) == 2
    assert (await client.detail("job-1")).progress.stages[0].successful == 1
    await e1.close()


async def test_a_lost_answer_to_a_poll_is_repeated_under_the_same_attempt(scheduler, client):
    await client.submit("job-1")
    e1 = ScriptedExecutor(scheduler.address, "e1", two_stages())
    e1.lose_answers = 1
    e1.wait_ms = 300
    e1.start()
    assert (await client.wait("job-1")).state == pb.SUCCESSFUL
    assert e1.ran[0] == ("job-1", 0, 0, 0, 0)
    await e1.close()


async def test_a_launch_that_is_lost_twice_is_handed_out_anew(scheduler, client):
    await client.submit("job-1")
    e1 = ScriptedExecutor(scheduler.address, "e1", two_stages())
    e1.lose_answers = 2
    e1.wait_ms = 300
    e1.start()
    assert (await client.wait("job-1")).state == pb.SUCCESSFUL
    assert e1.ran[0] == ("job-1", 0, 0, 0, 1)
    await e1.close()


async def test_an_executor_that_dies_loses_only_its_running_tasks(scheduler, client):
    stuck = asyncio.Event()

    def hangs(task_set, task):
        if task_set.stage_id == 1 and task.partition >= 2:
            stuck.set()
            return None
        return two_stages("e1")(task_set, task)

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", hangs):
        await stuck.wait()
    async with executor(scheduler.address, "e2", two_stages("e2")) as e2:
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert sorted(ran[3] for ran in e2.ran if ran[1] == 1) == [2, 3]
    detail = await client.detail("job-1")
    assert {t.successes for s in detail.progress.stages for t in s.tasks} == {1}
    assert await client.fetch("job-1") == RESULT


async def test_a_new_life_of_an_executor_ends_the_old_one_at_once(store, tmp_path):
    """Long before the old one's lease ends."""
    stuck = asyncio.Event()

    def hangs(task_set, task):
        stuck.set()

    async with serving(store, tmp_path, executor_lease_ttl_ms=600_000) as scheduler:
        client = Client(scheduler.address)
        await client.submit("job-1")
        first = ScriptedExecutor(scheduler.address, "e1", hangs)
        first.start()
        await stuck.wait()
        await first.stop()
        async with executor(scheduler.address, "e1", two_stages()):
            assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        await first.close()
        await client.close()


async def test_a_farewell_hands_out_again_what_was_running(scheduler, client):
    await client.submit("job-1")
    leaver = ScriptedExecutor(scheduler.address, "e1", lambda *_: None)
    await leaver.register()
    await leaver.poll()
    request = pb.DeregisterExecutorRequest(executor_id="e1", incarnation=leaver.incarnation, reason="the JVM died")
    await leaver.stub.DeregisterExecutor(request)
    await leaver.stub.DeregisterExecutor(request)
    listed = (await client.stub.ListExecutors(pb.ListExecutorsRequest())).executors
    assert [e.state for e in listed] == ["lost"]
    async with executor(scheduler.address, "e2", two_stages("e2")):
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
    await leaver.close()


async def test_cancelling_frees_the_slots(scheduler, client):
    def hangs(task_set, task):
        return two_stages()(task_set, task) if task_set.job_id != "job-1" or task_set.work == pb.PLAN else None

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", hangs) as e1:
        await eventually(lambda: len(e1.held) == 2)
        answer = await client.stub.CancelJob(pb.CancelJobRequest(job_id="job-1", reason="enough"))
        assert answer.cancelled
        ended = await client.wait("job-1")
        assert ended.state == pb.CANCELLED
        assert ended.failure.message == "enough"
        await eventually(lambda: not e1.held)
        assert {task.partition for task in e1.cancelled} == {0, 1}
        await client.submit("job-2")
        assert (await client.wait("job-2")).state == pb.SUCCESSFUL
        again = await client.stub.CancelJob(pb.CancelJobRequest(job_id="job-1"))
        assert not again.cancelled


async def test_many_jobs_end_in_fair_order(scheduler, client):
    jobs = [f"job-{n:03}" for n in range(100 if IS_ALL else 40)]
    clients = [Client(scheduler.address) for _ in range(10)]

    async def submit_all(client, mine):
        for job_id in mine:
            await client.submit(job_id)

    await asyncio.gather(*(submit_all(c, jobs[n::10]) for n, c in enumerate(clients)))
    async with executor(scheduler.address, "e1", two_stages()):
        ended = await asyncio.gather(*(client.wait(job_id) for job_id in jobs))
    assert {e.state for e in ended} == {pb.SUCCESSFUL}
    by_submission = sorted(ended, key=lambda e: (e.submitted_ms, e.job_id))
    by_end = {e.job_id: place for place, e in enumerate(sorted(ended, key=lambda e: e.ended_ms))}
    assert max(abs(by_end[e.job_id] - place) for place, e in enumerate(by_submission)) <= 10
    for c in clients:
        await c.close()
    listed = (await client.stub.ListJobs(pb.ListJobsRequest(limit=5))).jobs
    newest = sorted(ended, key=lambda e: (e.submitted_ms, e.job_id), reverse=True)
    assert [j.job_id for j in listed] == [e.job_id for e in newest[:5]]


async def test_a_damaged_record_stops_its_own_job_only(store, tmp_path):
    async with serving(store, tmp_path) as first:
        client = Client(first.address)
        for job_id in ("good", "bad-chunk", "bad-header", "bad-head"):
            await client.submit(job_id)
        backend = first.app._backend
        chunk = (await backend.get_from_prefix(Keyspace.GraphChunks, "bad-chunk/")).items[0]
        await backend.put(Keyspace.GraphChunks, chunk.key, b'{"schema_version":"11.0","oops')
        await backend.put(Keyspace.ActiveJobs, "bad-header", b"rubbish")
        await backend.put(Keyspace.JobHeads, "bad-head", b"\x01rubbish")
        await client.close()
    async with serving(store, tmp_path, sweep_interval_ms=100) as second:
        client = Client(second.address)
        async with executor(second.address, "e1", two_stages()):
            assert (await client.wait("good")).state == pb.SUCCESSFUL
            for job_id in ("bad-chunk", "bad-header"):
                ended = await client.wait(job_id)
                assert ended.state == pb.FAILED
                assert "cannot be read" in ended.failure.message
            assert (await client.detail("bad-chunk")).progress.failure.error_class == "ONAGER_RECORD_DAMAGED"
            listed = (await client.stub.ListJobs(pb.ListJobsRequest())).jobs
            assert {j.job_id for j in listed} == {"good", "bad-chunk", "bad-header", "bad-head"}
        await client.close()


async def test_results_and_then_records_go_after_their_retention(store, tmp_path):
    async with serving(store, tmp_path, sweep_interval_ms=100, result_retention_s=1, record_retention_s=3) as running:
        client = Client(running.address)
        async with executor(running.address, "e1", two_stages()):
            await client.submit("job-1")
            await client.submit("job-2")
            await client.wait("job-1")
            await client.wait("job-2")
            assert await client.fetch("job-1") == RESULT

            async def has_expired():
                try:
                    await client.fetch("job-1")
                except grpc.aio.AioRpcError as error:
                    return isinstance(from_rpc_error(error, "test"), ResultExpiredError)
                return False

            await eventually(has_expired)
            backend = running.app._backend

            async def keys():
                return [
                    f"{ks}/{key}"
                    for ks in Keyspace
                    if ks not in (Keyspace.Schedulers, Keyspace.Executors, Keyspace.Heartbeats, Keyspace.Locks)
                    for key in await backend.scan_keys(ks, limit=100)
                ]

            left = []

            async def is_empty():
                left[:] = await keys()
                return not left

            await eventually(is_empty, what=lambda: f"an empty store, which has {left}")
        await client.close()
