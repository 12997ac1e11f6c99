"""What becomes of a job that would have ended well, and whose end cannot be committed."""

from onager.execution_graph import (
    ExecutorSlot,
    Failed,
    FailureCause,
    FailureKind,
    JobFailed,
    JobPlanned,
    JobState,
    Streaming,
    TaskFailed,
    apply,
    pop_next_tasks,
    refusal,
)
from tests.unit.execution_graph.builder import Job, planned, stage

WHY = "table default.t was changed"


def refused(job: Job, *events: object, is_conflict: bool = True) -> JobFailed | TaskFailed:
    """Return the event in place of *events*, applied to the job."""
    event = refusal(job.graph, events, WHY, job.tick(), is_conflict=is_conflict)  # type: ignore[arg-type]
    assert isinstance(event, JobFailed | TaskFailed)
    assert job.feed(event)  # checks the invariants
    return event


def message(job: Job) -> str:
    assert isinstance(job.graph.outcome, Failed)
    return job.graph.outcome.failure.message


def test_the_task_whose_success_would_be_the_end_fails() -> None:
    job = planned(stage(1, 1, kind="result"))
    job.launch()
    success = job.success(1, 0)
    assert apply(job.graph, success).state is JobState.SUCCESSFUL
    assert isinstance(refused(job, success), TaskFailed)
    assert message(job) == f"{WHY}: submit it again"


def test_a_plan_that_only_changes_the_catalog_is_made_anew_on_a_conflict_alone() -> None:
    for is_conflict, kind, cause in (
        (True, FailureKind.IO_ERROR, FailureCause.CATALOG_CHANGED),
        (False, FailureKind.USER_ERROR, None),
    ):
        job = Job()
        job.launch("planner")
        ends = job.plan(stage(1, 0, kind="result"))
        assert isinstance(ends, JobPlanned)
        assert apply(job.graph, ends).state is JobState.SUCCESSFUL
        event = refused(job, ends, is_conflict=is_conflict)
        assert (event.failure.kind, event.failure.cause) == (kind, cause)
        assert job.graph.is_active is is_conflict


def test_where_no_task_is_to_blame_the_job_fails() -> None:
    """The stage that runs has only an empty one to write for, so its launch is the end."""
    job = planned(stage(1, 1), stage(2, 0, reads=(1,), kind="result"), streaming=Streaming())
    job.start()
    launched = pop_next_tasks(job.graph, ExecutorSlot("a", "a1", 0, can_stream=True), 1, job.tick())
    assert launched is not None
    assert apply(job.graph, launched).state is JobState.SUCCESSFUL
    assert isinstance(refused(job, launched), JobFailed)
    assert message(job) == f"{WHY}: submit it again"
