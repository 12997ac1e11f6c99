"""Scripts: steps that no executor gets, their order, their ends, and what records of them look like."""

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    EventBatch,
    ExecutionGraph,
    ExecutorSlot,
    Failed,
    FailedStage,
    Failure,
    FailureKind,
    JobPlanned,
    JobState,
    OutputLayout,
    StageInput,
    StageSpec,
    StageWork,
    StepEnded,
    TasksLaunched,
    apply,
    apply_all,
    available_tasks,
    check_stages,
    child_of,
    deadline_passed,
    decode_batch,
    decode_graph,
    encode_batch,
    has_runnable_work,
    has_task_for,
    planned_at_once,
    pop_next_tasks,
    revive,
    running_steps,
    script_summary,
    violations,
)
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.intervals import IntervalReader
from onager.execution_graph.scripts import was_planned_at_once
from onager.execution_graph.wall_time import TimeUse, WallTime
from tests.unit.execution_graph.builder import Job, new_graph, stage

SLOT = ExecutorSlot("a", "a1", 1)


def step(stage_id: int, *after: int, name: str = "") -> StageSpec:
    return StageSpec(
        stage_id=stage_id,
        name=name or f"statement {stage_id}, line {10 * stage_id}",
        work=StageWork.STEP,
        plan_digest=f"digest {stage_id}",
        partitions=1,
        inputs=tuple(StageInput(i, "all") for i in after),
        output=OutputLayout("control"),
    )


def script(*steps: StageSpec) -> Job:
    """Return a script whose steps were given with it, and have begun where nothing is before them."""
    job = Job(planned_at_once(new_graph(), steps, 1_000))
    job.start()
    return job


def ended(stage_id: int, *, rows: int = 3, failure: Failure | None = None, at_ms: int = 5_000) -> StepEnded:
    return StepEnded(stage_id=stage_id, child_id=f"j.{stage_id}", rows=rows, failure=failure, at_ms=at_ms)


def running(graph: ExecutionGraph) -> list[int]:
    return [s.spec.stage_id for s in running_steps(graph)]


def test_a_script_becomes_steps_one_after_the_other() -> None:
    job = Job()
    job.launch()
    planned = JobPlanned(
        task_attempt=0,
        executor_id="a",
        stages=(step(1), step(2, 1), step(3, 2)),
        summary=script_summary(3),
        fused_output=None,
        metrics=job.success(0, 0).metrics,
        at_ms=job.tick(),
    )
    assert job.feed(planned)
    assert not was_planned_at_once(job.graph)
    for stage_id in (1, 2, 3):
        job.start()
        assert running(job.graph) == [stage_id]
        assert job.feed(ended(stage_id, rows=stage_id))
    assert job.graph.state is JobState.SUCCESSFUL
    assert [child_of(s) for s in job.graph.stages] == ["", "j.1", "j.2", "j.3"]
    assert job.graph.result_stage is not None
    assert job.graph.result_stage.ledger.outputs[0].rows == 3


def test_no_executor_gets_a_step() -> None:
    job = script(step(1), step(2, 1))
    assert was_planned_at_once(job.graph)
    assert pop_next_tasks(job.graph, SLOT, 10, 2_000) is None
    assert not has_task_for(job.graph, SLOT, 2_000)
    assert not has_runnable_work(job.graph)
    assert available_tasks(job.graph) == 0
    launched = TasksLaunched(
        stage_id=1, stage_attempt=0, executor_id="a", incarnation="a1", list_number=0, tasks=((0, 0),), at_ms=2_000
    )
    assert not job.feed(launched)


def test_steps_without_an_order_run_together_and_all_of_them_end_the_script() -> None:
    job = script(step(1), step(2), step(3, 1))
    assert running(job.graph) == [1, 2]
    job.feed(ended(1))
    job.start()
    assert running(job.graph) == [2, 3]
    job.feed(ended(3))
    assert job.graph.state is JobState.RUNNING
    job.feed(ended(2))
    assert job.graph.state is JobState.SUCCESSFUL


def test_an_end_that_is_reported_again_or_too_early_changes_nothing() -> None:
    job = script(step(1), step(2, 1))
    assert not job.feed(ended(2))
    assert job.feed(ended(1))
    assert not job.feed(ended(1))
    assert not job.feed(ended(0))
    assert not job.feed(ended(7))


def test_a_failed_child_fails_its_script_with_the_place_before_the_message() -> None:
    job = script(step(1), step(2), step(3, 1, 2, name="load"))
    job.feed(ended(1))
    failure = Failure(kind=FailureKind.USER_ERROR, message="no such table", error_class="TABLE_OR_VIEW_NOT_FOUND")
    assert job.feed(ended(2, failure=failure))
    assert isinstance(job.graph.outcome, Failed)
    failure = job.graph.outcome.failure
    assert failure.message == "step 2 of 3 (statement 2, line 20): no such table"
    assert failure.error_class == "TABLE_OR_VIEW_NOT_FOUND"
    assert running(job.graph) == []


@pytest.mark.parametrize("done", [0, 1])
def test_a_deadline_that_passes_fails_the_job_where_it_is(done: int) -> None:
    job = script(step(1), step(2, 1))
    for stage_id in range(1, done + 1):
        job.feed(ended(stage_id))
        job.start()
    submitted_ms = job.graph.submitted_ms
    assert job.feed(deadline_passed(job.graph, submitted_ms + 90_000, submitted_ms + 90_500))
    assert isinstance(job.graph.outcome, Failed)
    assert "within 90 s, its deadline" in job.graph.outcome.failure.message
    assert f"step {done + 1} of 2" in job.graph.outcome.failure.message
    assert isinstance(job.graph.stages[done + 1], FailedStage)


def test_a_deadline_fails_a_job_that_nobody_has_begun() -> None:
    job = Job()
    assert job.feed(deadline_passed(job.graph, 60_000, 60_000))
    assert job.graph.state is JobState.FAILED


def test_records_of_scripts_survive_the_round_trip() -> None:
    job = script(step(1), step(2, 1))
    assert decode_graph(encode_graph(job.graph)) == job.graph
    for event in (ended(1), deadline_passed(job.graph, 1, 2)):
        batch = EventBatch(batch_id="b", events=(event,))
        assert decode_batch(encode_batch(batch)) == batch


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((step(1), stage(2, reads=(1,), kind="result")), "no step"),
        ((replace(step(1), partitions=2),), "not what a step must be"),
        ((replace(step(1), plan_digest=None),), "not what a step must be"),
        ((step(1, 2), step(2)), "not an earlier one"),
    ],
)
def test_what_is_no_script_is_reported(steps: tuple[StageSpec, ...], why: str) -> None:
    problems = check_stages(steps)
    assert problems is not None
    assert why in problems


def test_the_time_of_a_script_is_that_of_its_steps() -> None:
    graph = planned_at_once(new_graph(), (step(1), step(2, 1)), 1_000)
    started = revive(apply(graph, ended(1)), 0)
    assert started is not None
    log = IntervalReader(graph)
    events = ended(1, at_ms=1_600), replace(started, stage_ids=(2,), at_ms=1_600), ended(2, at_ms=2_000)
    log.read(1, EventBatch(batch_id="all", events=events))
    assert WallTime(log).shares(2_000) == ((TimeUse.RUNNING, 1_000),)


def test_a_log_gives_the_same_script_in_one_go() -> None:
    first = planned_at_once(new_graph(), (step(1), step(2), step(3, 1, 2)), 1_000)
    job = Job(first)
    job.start()
    for stage_id in (2, 1, 3):
        job.feed(ended(stage_id))
        job.start()
    assert apply_all(first, job.log) == job.graph
    assert violations(job.graph) == ()
