"""A job that a scheduler of a newer version has moved on, and this one cannot read: it is left to those who can."""

import hashlib

import pytest
from grpc import StatusCode
from structlog.testing import capture_logs

from onager.ids import ExecutorId, Incarnation, JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.protocol.task_keys import task_key
from onager.scheduler.app import SchedulerApp
from onager.scheduler.jobs.job_log import JobHeader
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore

JOB = JobId("job-1")
TASK = pb.TaskId(job_id=JOB)
PLAN = b"a plan"
PLAN_DIGEST = hashlib.sha256(PLAN).hexdigest()


class Refused(Exception):  # noqa: N818
    pass


class Context:
    def peer(self):
        return "elsewhere"

    async def abort(self, code, details="", trailing_metadata=()):  # noqa: ARG002
        raise Refused(code)


@pytest.fixture
def backend(clock):
    return MemoryBackend(MemoryStore(clock))


async def move_on(backend):
    """Let the job be of a newer version from now on."""
    stored = await backend.get(Keyspace.ActiveJobs, JOB)
    header = JobHeader.decoded(stored.value, "header").model_copy(update={"schema_version": "2.0"})
    await backend.put(Keyspace.ActiveJobs, JOB, header.encoded())


async def join(scheduler, backend):
    """Let the scheduler know of another scheduler."""
    other = scheduler.schedulers.record.model_copy(update={"scheduler_id": "s2", "incarnation": "other"})
    await backend.put(Keyspace.Schedulers, "s2", other.encoded())
    await scheduler.schedulers.refresh()


@pytest.fixture
async def scheduler(backend, clock):
    """Return a scheduler with a job, of which an executor has the one task."""
    made = SchedulerApp(SchedulerSettings(exchange_dir="/x", scheduler_id="s1"), backend, clock)
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))
    await made.service.SubmitJob(pb.SubmitJobRequest(job_id=JOB, spec=spec), Context())
    await made.start()
    registration = pb.RegisterExecutorRequest(
        executor_id="e1", incarnation="life", slots=1, protocol_version=PROTOCOL_VERSION, spark_version="4.3"
    )
    await made.gateway.RegisterExecutor(registration, Context())
    filled = await made.tasks.fill_reservations([ExecutorReservation(ExecutorId("e1"), Incarnation("life"), 0)])
    assert filled.launches
    yield made
    await made.close()


@pytest.fixture
async def moved_on(scheduler, backend):
    await move_on(backend)
    scheduler.jobs.forget(JOB)


@pytest.mark.usefixtures("moved_on")
async def test_a_report_is_not_acknowledged(scheduler):
    report = pb.TaskReport(task=TASK, failure=pb.Failure(kind="user_error", message="no"))
    request = pb.ReportTasksRequest(executor_id="e1", incarnation="life", reports=[report])
    assert not (await scheduler.gateway.ReportTasks(request, Context())).acknowledged


@pytest.mark.parametrize(("needs", "is_taken"), [([], True), (["later"], False)])
async def test_a_plan_of_which_it_would_drop_a_part_is_left_to_a_newer_scheduler(scheduler, needs, is_taken):
    """It was taken without what a newer version had added: the job would have ended with another result."""
    stage = pb.PlannedStage(stage_id=1, plan_digest=PLAN_DIGEST, partitions=1, output=pb.OutputLayout(kind="result"))
    outcome = pb.PlanOutcome(stages=[stage], blobs=[pb.Blob(digest=PLAN_DIGEST, content=PLAN)])
    report = pb.TaskReport(task=TASK, success=pb.TaskSuccess(plan=outcome), needs=needs)
    request = pb.ReportTasksRequest(executor_id="e1", incarnation="life", reports=[report])
    with capture_logs() as logs:
        answer = await scheduler.gateway.ReportTasks(request, Context())
    assert list(answer.acknowledged) == [TASK] * is_taken
    assert [entry["event"] for entry in logs if "left" in entry["event"]] == ["reports_left_to_others"] * (not is_taken)
    graph = (await scheduler.jobs.fresh(JOB)).graph
    assert (graph.plan is not None) == is_taken
    assert bool(await scheduler.local.unwanted("e1", "life", [task_key(TASK)])) == is_taken


@pytest.mark.usefixtures("moved_on")
async def test_its_tasks_go_on(scheduler):
    assert not await scheduler.local.unwanted("e1", "life", [task_key(TASK)])
    request = pb.PollWorkRequest(executor_id="e1", incarnation="life", list_number=1, running=[TASK], wait_ms=1)
    assert not (await scheduler.gateway.PollWork(request, Context())).cancel


@pytest.mark.parametrize(
    ("is_alone", "reported"), [(True, StatusCode.FAILED_PRECONDITION), (False, StatusCode.UNAVAILABLE)]
)
@pytest.mark.usefixtures("moved_on")
async def test_a_client_that_asks_for_it_is_sent_to_another_scheduler(scheduler, backend, is_alone, reported):
    if not is_alone:
        await join(scheduler, backend)
    for asking in (
        scheduler.service.GetJob(pb.GetJobRequest(job_id=JOB), Context()),
        scheduler.service.CancelJob(pb.CancelJobRequest(job_id=JOB), Context()),
        anext(scheduler.service.WatchJob(pb.WatchJobRequest(job_id=JOB), Context())),
        anext(scheduler.service.FetchResult(pb.FetchResultRequest(job_id=JOB), Context())),
    ):
        with pytest.raises(Refused, match=reported.name):
            await asking


async def test_a_cancellation_while_it_moves_on_is_sent_to_another_scheduler(scheduler, backend, monkeypatch):
    await join(scheduler, backend)
    fresh = scheduler.jobs.fresh

    async def fresh_for_the_last_time(job_id):
        job = await fresh(job_id)
        await move_on(backend)
        return job

    monkeypatch.setattr(scheduler.jobs, "fresh", fresh_for_the_last_time)
    with pytest.raises(Refused, match=StatusCode.UNAVAILABLE.name):
        await scheduler.service.CancelJob(pb.CancelJobRequest(job_id=JOB), Context())
