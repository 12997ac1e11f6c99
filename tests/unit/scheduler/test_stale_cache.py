"""An executor turns from one scheduler to another, which has not seen what the first one gave it."""

import pytest

from onager.execution_graph import JobState
from onager.ids import ExecutorId, Incarnation, JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler.app import SchedulerApp
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend.memory import MemoryBackend, MemoryStore

JOB = JobId("job-1")
TASK = pb.TaskId(job_id=JOB)


class Context:
    def peer(self):
        return "elsewhere"


@pytest.fixture
async def schedulers(clock):
    """Return two schedulers whose loops do not run: neither learns of what the other does."""
    memory = MemoryStore(clock)
    made = [SchedulerApp(SchedulerSettings(exchange_dir="/x"), MemoryBackend(memory), clock) for _ in range(2)]
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))
    await made[0].service.SubmitJob(pb.SubmitJobRequest(job_id=JOB, spec=spec), Context())
    for scheduler in made:
        await scheduler.start()
        await scheduler.gateway.RegisterExecutor(
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


async def test_a_report_of_a_task_that_another_scheduler_launched_counts(schedulers):
    _, behind = schedulers
    assert not behind.jobs.cached(JOB).graph.stages[0].running
    report = pb.TaskReport(task=TASK, failure=pb.Failure(kind="user_error", message="no"))
    request = pb.ReportTasksRequest(executor_id="e1", incarnation="life", reports=[report])
    answer = await behind.gateway.ReportTasks(request, Context())
    assert list(answer.acknowledged) == [TASK]
    assert (await behind.jobs.load(JOB)).graph.state is JobState.FAILED


async def test_a_task_that_another_scheduler_launched_is_not_cancelled(schedulers):
    _, behind = schedulers
    request = pb.PollWorkRequest(executor_id="e1", incarnation="life", list_number=1, running=[TASK], wait_ms=1)
    assert not (await behind.gateway.PollWork(request, Context())).cancel
    beat = pb.HeartbeatRequest(executor_id="e1", incarnation="life")
    assert not (await behind.gateway.Heartbeat(beat, Context())).cancel


async def test_tasks_of_an_ended_job_are_cancelled_by_a_scheduler_that_has_not_learned_of_the_end(schedulers):
    first, behind = schedulers
    request = pb.PollWorkRequest(executor_id="e1", incarnation="life", list_number=1, running=[TASK], wait_ms=1)
    await behind.gateway.PollWork(request, Context())
    await first.service.CancelJob(pb.CancelJobRequest(job_id=JOB, reason="enough"), Context())
    await behind.jobs.load(JOB)
    beat = pb.HeartbeatRequest(executor_id="e1", incarnation="life")
    assert list((await behind.gateway.Heartbeat(beat, Context())).cancel) == [TASK]


async def test_the_result_of_a_job_that_another_scheduler_ended_can_be_fetched_at_once(schedulers):
    first, behind = schedulers
    plan = pb.PlanOutcome(arrow_schema=b"schema", schema_json="{}", plan="nothing to do")
    plan.stages.add(stage_id=1, work=pb.QUERY, plan_digest=digest_of(b"p"), output=pb.OutputLayout(kind="result"))
    plan.blobs.add(digest=digest_of(b"p"), content=b"p")
    report = pb.TaskReport(task=TASK, success=pb.TaskSuccess(plan=plan))
    request = pb.ReportTasksRequest(executor_id="e1", incarnation="life", reports=[report])
    await first.gateway.ReportTasks(request, Context())
    assert first.jobs.cached(JOB).graph.state is JobState.SUCCESSFUL
    assert behind.jobs.cached(JOB).graph.is_active
    chunks = [c async for c in behind.service.FetchResult(pb.FetchResultRequest(job_id=JOB), Context())]
    assert [c.schema for c in chunks] == [b"schema"]
