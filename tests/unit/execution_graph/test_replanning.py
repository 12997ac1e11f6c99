"""The rest of a query is planned again: when that is due, what it changes, and what ends it."""

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    EventBatch,
    Failure,
    FailureKind,
    HeldTask,
    StageInput,
    StageSpec,
    StageWork,
    SupersededStage,
    TaskSucceeded,
    apply,
    apply_all,
    can_judge,
    decode_batch,
    decode_graph,
    encode_batch,
    find_replan,
    held_tasks,
    is_held,
    lay_out,
    revive,
    violations,
)
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.events import ReplanGivenUp
from onager.execution_graph.replan_rules import FORCED_LIMIT_MS, LIMIT_MS
from onager.execution_graph.settling import failed
from onager.execution_graph.stages import RunningStage, StageLayout, TaskRead
from tests.unit.execution_graph.builder import METRICS, SINK, Job, new_graph, output, stage, wanted_tasks, with_sink
from tests.unit.execution_graph.replanned_jobs import (
    TWO_SIDES,
    adaptive,
    begun,
    done,
    joining,
    replanned,
    swapped,
    with_due_replan,
)


def test_a_stage_whose_inputs_come_meanwhile_is_neither_started_nor_laid_out() -> None:
    job = adaptive(stage(1), replace(stage(2, reads=(1,)), may_fuse=True), replace(stage(3, reads=(2,)), may_fuse=True),
                   mode="force")  # fmt: skip
    job.graph = replace(job.graph, adaptive=replace(job.graph.adaptive, fuse_bytes=10_000))
    done(job, 1)
    event = begun(job)
    assert job.stage(2).state == "resolved"
    assert revive(job.graph, event.at_ms) is None
    assert lay_out(job.graph, 2, event.at_ms) == ()
    assert held_tasks(job.graph, event.at_ms) == (2, event.at_ms + FORCED_LIMIT_MS)
    assert revive(job.graph, event.at_ms + FORCED_LIMIT_MS) is not None
    assert lay_out(job.graph, 2, event.at_ms + FORCED_LIMIT_MS) != ()


def test_a_re_plan_that_takes_too_long_is_given_up() -> None:
    job = with_due_replan()
    event = begun(job)
    assert find_replan(job.graph, event.at_ms + LIMIT_MS - 1) is None
    over = find_replan(job.graph, event.at_ms + LIMIT_MS)
    assert isinstance(over, ReplanGivenUp)
    assert job.feed(over)
    assert not job.feed(over)
    replan = job.graph.replans[0]
    assert (replan.is_taken, replan.decisions) == (False, ("it took more than 2 s",))
    assert isinstance(job.stage(5), SupersededStage)
    job.finish()
    assert job.graph.state == "successful"


def test_a_re_plan_whose_basis_has_changed_is_given_up_at_once() -> None:
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    job.graph = replace(job.graph, stages=tuple(
        replace(s, attempt=1) if s.spec.stage_id == 1 else s for s in job.graph.stages))  # fmt: skip
    over = find_replan(job.graph, job.tick())
    assert isinstance(over, ReplanGivenUp)
    assert "has changed" in over.reason


# ---------------------------------------------------------------- what a new plan changes


def test_a_new_plan_drops_stages_and_appends_others() -> None:
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    event = replanned(job, *swapped(6), dropped=(2, 3, 4), result=7)
    assert job.feed(event)
    assert not job.feed(event)
    assert job.states() == [
        "successful",
        "superseded",
        "superseded",
        "superseded",
        "successful",
        "resolved",
        "unresolved",
    ]
    assert job.graph.plan is not None
    assert (job.graph.plan.result_stage_id, job.graph.plan.frame_digest) == (7, "frame 2")
    replan = job.graph.replans[0]
    assert (replan.is_taken, replan.dropped, replan.decisions) == (True, (2, 3, 4), ("stage 1 is broadcast",))
    job.finish()
    assert job.graph.state == "successful"
    assert job.graph.result_stage is job.graph.stages[7]
    assert [s.state for s in job.graph.stages[2:5]] == ["superseded"] * 3


def test_a_stage_that_was_laid_out_can_be_dropped() -> None:
    job = adaptive(*TWO_SIDES)
    done(job, 1)
    begun(job)
    layout = StageLayout(planned_partitions=2, reads=(TaskRead(first_bucket=0, end_bucket=2),))
    laid_out = job.stage(3)
    spec = replace(laid_out.spec, partitions=1, layout=layout)
    job.graph = replace(
        job.graph, stages=tuple(replace(s, spec=spec) if s is laid_out else s for s in job.graph.stages)
    )
    job.launch("b", 1)
    assert job.feed(replanned(job, *swapped(6), dropped=(2, 3, 4), result=7))
    assert isinstance(job.stage(3), SupersededStage)
    assert job.stage(3).spec.layout == layout, "how it was laid out is still reported"
    assert violations(job.graph) == ()


def test_a_dataset_is_published_by_stages_that_come_anew() -> None:
    stages = with_sink(*TWO_SIDES)
    job = Job(graph=new_graph(adaptive=AdaptivePolicy(fuse_bytes=0, replan="on")))
    job.launch("planner")
    plan = job.plan(*stages, sink=SINK)
    job.feed(replace(plan, summary=replace(plan.summary, frame_digest="frame", broadcast_bytes=1_000)))
    done(job, 1)
    begun(job)
    job.launch("b", 1)
    new = swapped(8)
    publishing = (
        stage(10, 1, reads=(9,), work=StageWork.PUBLISH_PLAN),
        stage(11, 1, reads=(10,), work=StageWork.PUBLISH),
    )
    assert job.feed(replanned(job, *new, *publishing, dropped=(2, 3, 4, 5, 6), result=9))
    assert job.graph.replans[0].is_taken
    job.finish()
    assert job.graph.state == "successful"
    assert job.graph.last_stage is job.graph.stages[11]


def test_a_late_report_of_a_superseded_stage_counts_for_nothing() -> None:
    """As in Ballista 2315, where it hung."""
    job = adaptive(*TWO_SIDES, most=0)
    job.launch("a", 2)
    job.launch("b", 1)
    held = job.held(2, 0)
    late = job.success(2, 0)
    failed = job.failed(2, 0, FailureKind.USER_ERROR)
    for partition in (0, 1):
        success = job.success(1, partition)
        job.feed(replace(success, output=replace(success.output, rows=0)))
    begun(job)
    job.launch("c", 1)
    empty = replace(stage(6, 0), output=stage(4, kind="result").output)
    task = HeldTask(2, 0, 0, held.attempt)
    assert wanted_tasks(job.graph, "b", "b1") == {task}
    assert job.feed(replanned(job, empty, dropped=(2, 3, 4), result=6))
    assert job.graph.state == "successful", "nothing is left to do"
    for report in (late, failed):
        assert not job.feed(report)
    assert wanted_tasks(job.graph, "b", "b1") == frozenset()

    job = adaptive(*TWO_SIDES)
    done(job, 1)
    begun(job)
    job.launch("c", 1)
    job.feed(replanned(job, *swapped(6), dropped=(2, 3, 4), result=7))
    assert can_judge(job.graph, task), "it is known that nobody wants it"
    assert not is_held(job.graph, task, "b")
    assert not job.feed(late)


def test_what_a_superseded_stage_has_done_was_in_vain_and_is_reported() -> None:
    job = adaptive(*TWO_SIDES, most=0)
    job.launch("a", 2)
    job.launch("b", 2)
    job.succeed(2, 0)
    for partition in (0, 1):
        success = job.success(1, partition)
        job.feed(replace(success, output=replace(success.output, rows=0)))
    begun(job)
    job.launch("c", 1)
    join = replace(stage(6, 1), inputs=(StageInput(1, "all"),), output=stage(4, kind="result").output)
    job.feed(replanned(job, join, dropped=(2, 3, 4), result=6))
    gone = job.stage(2)
    assert gone.ledger.wasted == METRICS
    assert not gone.ledger.outputs


@pytest.mark.parametrize(
    ("reported", "stages", "dropped", "result"),
    [
        ("stage 1 cannot be dropped", swapped(6), (1, 2, 3, 4), 7),
        ("stage 99 cannot be dropped", swapped(6), (2, 3, 4, 99), 7),
        ("stage 7 stands where stage 6", swapped(7), (2, 3, 4), 8),
        ("nothing reads [2, 3, 4]", swapped(6), (), 7),
        ("cannot be the one with the result", swapped(6), (2, 3, 4), 4),
        ("cannot be the one with the result", swapped(6), (2, 3, 4), 6),
        ("reads stage 2, which is not there", (swapped(6)[0], joining(7, 6, 2, kind="result")), (2, 3, 4), 7),
        ("reads stage 8, which is not there", (swapped(6)[0], joining(7, 6, 8, kind="result")), (2, 3, 4), 7),
    ],
)
def test_a_plan_that_does_not_fit_is_not_taken(
    reported: str, stages: tuple[StageSpec, ...], dropped: tuple[int, ...], result: int
) -> None:
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    assert job.feed(replanned(job, *stages, dropped=dropped, result=result))
    assert reported in job.graph.replans[0].decisions[0]
    assert job.states() == ["successful", "running", "unresolved", "unresolved", "superseded"]
    job.finish()
    assert job.graph.state == "successful"


def test_a_changed_basis_changes_nothing() -> None:
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    event = replanned(job, *swapped(6), dropped=(2, 3, 4), result=7)
    other = replace(event, basis=((1, 1),))
    after = apply(job.graph, other)
    assert after.replans[0].decisions == ("what it was based on has changed meanwhile",)
    assert len(after.stages) == 6


def test_outputs_that_are_lost_meanwhile_change_the_basis() -> None:
    job = with_due_replan()
    job.is_shared = False
    job = adaptive(*TWO_SIDES)
    job.is_shared = False
    done(job, 1)
    begun(job)
    job.launch("b", 1)
    event = replanned(job, *swapped(6), dropped=(2, 3, 4), result=7)
    assert job.lose("a")
    assert job.stage(1).attempt == 1
    job.feed(event)
    assert not job.graph.replans[0].is_taken
    job.finish()
    assert job.graph.state == "successful"


def test_only_the_attempt_that_is_held_can_plan_again() -> None:
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    event = replanned(job, *swapped(6), dropped=(2, 3, 4), result=7)
    assert not job.feed(replace(event, executor_id="c"))
    assert not job.feed(replace(event, task_attempt=1))
    assert not job.feed(replace(event, replan_id=4))
    success = TaskSucceeded(stage_id=5, stage_attempt=0, partition=0, task_attempt=0, executor_id="b",
                            output=output("n"), metrics=METRICS, at_ms=9)  # fmt: skip
    assert not job.feed(success), "it succeeds by its own event alone"


# ---------------------------------------------------------------- what ends it


@pytest.mark.parametrize("kind", [FailureKind.IO_ERROR, FailureKind.USER_ERROR, FailureKind.TASK_KILLED])
def test_a_failure_keeps_the_plan(kind: FailureKind) -> None:
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    job.fail(5, 0, kind)
    assert job.graph.is_active
    assert job.graph.replans[0].decisions == ("it failed: it broke",)
    job.finish()
    assert job.graph.state == "successful"


def test_a_lost_executor_and_a_lost_launch_keep_the_plan() -> None:
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    assert job.lose("b")
    assert "its executor was lost" in job.graph.replans[0].decisions[0]
    job.finish()
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    job.take_back(5, 0, FailureKind.LAUNCH_LOST)
    assert "did not arrive" in job.graph.replans[0].decisions[0]
    job.finish()
    assert job.graph.state == "successful"


def test_a_job_that_fails_by_its_re_plan_has_no_re_plan_under_way() -> None:
    job = with_due_replan()
    replan = job.stage(begun(job).replan_id)
    assert isinstance(replan, RunningStage)
    graph = failed(job.graph, replan, Failure(kind=FailureKind.USER_ERROR, message="no"), job.tick())
    assert violations(graph) == ()
    assert graph.replan is None
    assert graph.replans[0].decisions == ("the job failed",)


def test_a_re_plan_that_finds_nothing_better_keeps_the_plan() -> None:
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    assert job.feed(replanned(job))
    assert job.stage(5).state == "successful"
    assert not job.graph.replans[0].is_taken
    assert job.graph.plan is not None
    assert job.graph.plan.frame_digest == "frame", "it can be planned again later"
    job.finish()
    assert job.graph.result_stage is job.graph.stages[4]


# ---------------------------------------------------------------- records


def test_records_with_re_plans_survive_the_round_trip() -> None:
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    for _ in range(2):
        assert decode_graph(encode_graph(job.graph)) == job.graph
        job.feed(replanned(job, *swapped(6), dropped=(2, 3, 4), result=7)) if job.graph.replan else None
    for event in job.log:
        if event.type in ("replan_begun", "stage_replanned"):
            assert decode_batch(encode_batch(EventBatch(batch_id="b", events=(event,)))).events == (event,)


def test_the_log_gives_the_graph() -> None:
    job = with_due_replan()
    start = Job(graph=new_graph(adaptive=AdaptivePolicy(fuse_bytes=0, replan="on"))).graph
    begun(job)
    job.launch("b", 1)
    job.feed(replanned(job, *swapped(6), dropped=(2, 3, 4), result=7))
    job.finish()
    assert apply_all(start, job.log) == job.graph


def test_only_the_last_stage_of_the_job_is_needed_by_itself_and_not_whatever_came_last() -> None:
    job = with_due_replan()
    begun(job)
    job.launch("r", 1)
    assert job.feed(replanned(job))
    *others, replan = job.graph.stages
    assert (replan.spec.work, job.graph.last_stage.spec.stage_id) == (StageWork.REPLAN, 4)
    output = replace(replan.ledger.outputs[0], is_shared=False, incarnation="r1")
    ledger = replace(replan.ledger, outputs=replan.ledger.outputs.set(0, output))
    job.graph = replace(job.graph, stages=(*others, replace(replan, ledger=ledger)))
    assert job.lose("r")
    assert (job.graph.lost_lives, job.stage(5).state) == ((output.life,), "successful")
    job.run(2, "b")
    job.launch("c")
    assert job.feed(job.cannot_fetch(3, 0, 1, 0))
    assert (job.stage(1).state, job.stage(5).state) == ("running", "successful")
