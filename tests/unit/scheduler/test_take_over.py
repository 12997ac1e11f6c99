"""Executors that fail over to a scheduler that did not register them: their tasks continue."""

import asyncio

import pytest

from onager.errors import UnknownExecutorError
from onager.execution_graph import ExecutorLost
from onager.ids import ExecutorId, Incarnation, JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler.app import SchedulerApp
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.executor_managers import watched

JOB = JobId("job-1")
TASK = pb.TaskId(job_id=JOB)
BEAT = pb.HeartbeatRequest(executor_id="e1", incarnation="life")


class Context:
    def peer(self):
        return "elsewhere"


def poll(number=1, running=()):
    return pb.PollWorkRequest(
        executor_id="e1", incarnation="life", list_number=number, running=running, wait_ms=1, free_slots=1
    )


@pytest.fixture
async def schedulers(clock):
    """Return two schedulers whose loops do not run: neither learns of what the other does."""
    memory = MemoryStore(clock)
    made = [
        SchedulerApp(SchedulerSettings(exchange_dir="/x", listen="127.0.0.1:1"), MemoryBackend(memory), clock)
        for _ in range(2)
    ]
    for scheduler in made:
        await MemoryBackend(memory).put(
            Keyspace.Schedulers, scheduler.schedulers.id, scheduler.schedulers.record.encoded()
        )
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))
    await made[0].service.SubmitJob(pb.SubmitJobRequest(job_id=JOB, spec=spec), Context())
    for scheduler in made:
        await scheduler.start()
    await made[0].gateway.RegisterExecutor(
        pb.RegisterExecutorRequest(
            executor_id="e1", incarnation="life", slots=1, protocol_version=PROTOCOL_VERSION, spark_version="4.3"
        ),
        Context(),
    )
    filled = await made[0].tasks.fill_reservations([ExecutorReservation(ExecutorId("e1"), Incarnation("life"), 0)])
    assert filled.launches
    yield made
    for scheduler in made:
        await scheduler.close()


async def lost_of(scheduler):
    return [info.state for info in scheduler.executors.infos()] == ["lost"]


async def test_a_task_goes_on_and_its_report_counts(schedulers):
    _, other = schedulers
    assert not (await other.gateway.Heartbeat(BEAT, Context())).cancel
    answer = await other.gateway.PollWork(poll(running=[TASK]), Context())
    assert not answer.cancel
    assert not answer.task_sets
    report = pb.TaskReport(task=TASK, failure=pb.Failure(kind="user_error", message="no"))
    reports = pb.ReportTasksRequest(executor_id="e1", incarnation="life", reports=[report])
    assert list((await other.gateway.ReportTasks(reports, Context())).acknowledged) == [TASK]
    assert (await other.jobs.load(JOB)).graph.state.value == "failed"


async def test_a_launch_whose_answer_was_lost_with_the_scheduler_is_repeated_at_once(schedulers):
    _, other = schedulers
    answer = await other.gateway.PollWork(poll(), Context())
    (repeated,) = answer.task_sets
    assert [(task.partition, task.task_attempt) for task in repeated.tasks] == [(0, 0)]


async def test_taking_over_writes_nothing_but_renews_the_lease(schedulers, clock):
    first, other = schedulers
    backend = other._backend
    before = (await backend.get_from_prefix(Keyspace.Executors, "")).revision
    for _ in range(6):
        clock.advance(2_500)
        await other.gateway.Heartbeat(BEAT, Context())
    assert (await backend.get_from_prefix(Keyspace.Executors, "")).revision == before
    assert await backend.get(Keyspace.Heartbeats, "e1") is not None
    assert first.executors.require("e1", "life").incarnation == "life"


async def test_a_heartbeat_is_answered_once_the_store_has_the_renewal_and_a_report_before(
    schedulers, clock, monkeypatch
):
    first, _ = schedulers
    clock.advance(2_500)
    is_back, asked = asyncio.Event(), asyncio.Event()
    keep_alive = first._backend.keep_alive

    async def late(lease):
        asked.set()
        await is_back.wait()
        return await keep_alive(lease)

    monkeypatch.setattr(first._backend, "keep_alive", late)
    report = pb.ReportTasksRequest(executor_id="e1", incarnation="life")
    reporting = asyncio.create_task(first.gateway.ReportTasks(report, Context()))
    await asked.wait()
    beating = asyncio.create_task(first.gateway.Heartbeat(BEAT, Context()))
    await first.gateway.ReportTasks(report, Context())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not beating.done()
    is_back.set()
    await asyncio.gather(reporting, beating)


@pytest.mark.parametrize("incarnation", ["life", "another"])
async def test_a_lost_executor_or_another_incarnation_must_register(schedulers, incarnation):
    first, other = schedulers
    if incarnation == "life":
        await first.executors.deregister("e1", "life", "it left")
    with pytest.raises(UnknownExecutorError):
        await other.executors.take_over("e1", incarnation)
    with pytest.raises(UnknownExecutorError):
        await other.executors.take_over("nobody", "life")


async def test_an_executor_whose_lease_ended_unnoticed_gets_another(schedulers, clock):
    _, other = schedulers
    clock.advance(7_000)
    await other.gateway.Heartbeat(BEAT, Context())
    assert await other._backend.get(Keyspace.Heartbeats, "e1") is not None
    await other.executors.watch.expire_lost()
    assert not await lost_of(other)


async def test_a_broken_connection_is_no_loss_where_the_executor_may_call_another_scheduler(schedulers, clock):
    first, other = schedulers
    first.executors.suspect(first.executors.require("e1", "life"))
    await other.gateway.Heartbeat(BEAT, Context())
    await watched(first.executors, clock, 3_100)
    await other.gateway.Heartbeat(BEAT, Context())
    await first.executors.refresh()
    assert not await lost_of(first)
    with pytest.raises(UnknownExecutorError):
        first.executors.require("e1", "life")
    assert not (await first.gateway.Heartbeat(BEAT, Context())).cancel  # and it may come back


async def test_all_learn_of_a_drain(schedulers):
    first, other = schedulers
    await other.gateway.Heartbeat(BEAT, Context())
    await first.gateway.Heartbeat(pb.HeartbeatRequest(executor_id="e1", incarnation="life", draining=True), Context())
    await other.executors.refresh()
    assert other.executors.require("e1", "life").is_draining
    await first.executors.deregister("e1", "life", "it left")
    await other.executors.refresh()
    with pytest.raises(UnknownExecutorError):
        other.executors.require("e1", "life")


async def test_a_job_that_another_scheduler_has_just_ended_is_reported_as_ended(schedulers):
    first, other = schedulers
    await other.jobs.load(JOB)
    await first.service.CancelJob(pb.CancelJobRequest(job_id=JOB, reason="enough"), Context())
    assert other.jobs.cached(JOB).graph.is_active
    detail = await other.service.GetJob(pb.GetJobRequest(job_id=JOB), Context())
    assert detail.progress.state == pb.CANCELLED


async def test_only_the_tail_of_a_known_log_is_read(schedulers):
    first, other = schedulers
    before = await other.jobs.load(JOB)
    lost = ExecutorLost(executor_id="e1", incarnation="life", reason="it left", at_ms=1)
    await first.local.lose_executor(lost, jobs=[JOB])
    reads = []
    read = other._backend._read

    async def counted(keys, ranges):
        reads.append([r.keyspace for r in ranges])
        return await read(keys, ranges)

    other._backend._read = counted
    after = await other.jobs.fresh(JOB)
    assert (after.seq, after.graph) == (before.seq + 1, first.jobs.cached(JOB).graph)
    assert await other.jobs.fresh(JOB) == after
    assert reads == [[Keyspace.JobLog], [Keyspace.JobLog]]


async def test_an_executor_that_registered_again_after_a_mistaken_loss_loses_nothing_later(schedulers, clock):
    first, other = schedulers
    received = []

    async def on_lost(lost):
        received.append((lost.executor_id, lost.incarnation))

    other.executors._losses._on_lost = on_lost
    await other.executors.refresh()
    await first.executors.deregister("e1", "life", "it was silent")
    await other.executors.refresh()
    await first.gateway.RegisterExecutor(
        pb.RegisterExecutorRequest(
            executor_id="e1", incarnation="life", slots=1, protocol_version=PROTOCOL_VERSION, spark_version="4.3"
        ),
        Context(),
    )
    clock.advance(1_000)
    await other.executors.watch.look()
    assert received == []
    await first.executors.deregister("e1", "life", "it was silent")
    await other.executors.refresh()
    await other.executors.watch.look()
    assert received == [("e1", "life")]
    await other.executors.watch.look()
    assert len(received) == 1


async def test_heartbeats_bring_what_is_to_be_cleaned_up(schedulers, clock):
    """An executor in pull mode whose slots are always taken seldom polls."""
    first, _ = schedulers
    report = pb.TaskReport(task=TASK, failure=pb.Failure(kind="user_error", message="no"))
    await first.gateway.ReportTasks(
        pb.ReportTasksRequest(executor_id="e1", incarnation="life", reports=[report]), Context()
    )
    clock.advance(1_000)  # the other one may come first
    await first.clean_ups.prepare()
    assert [each.job_id for each in (await first.gateway.Heartbeat(BEAT, Context())).clean_ups] == [JOB]
    done = pb.HeartbeatRequest(executor_id="e1", incarnation="life", cleaned_up=[JOB])
    assert not (await first.gateway.Heartbeat(done, Context())).clean_ups
    assert first.heads.get(JOB).clean_up == "none"
