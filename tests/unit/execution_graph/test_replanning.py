"""The rest of a query is planned again: when that is owed, what it changes, and what ends it."""

from typing import Literal

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    EventBatch,
    Failure,
    FailureKind,
    HeldTask,
    StageInput,
    StageReplanned,
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
    pop_next_tasks,
    revive,
    violations,
)
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.events import ReplanBegun, ReplanGivenUp
from onager.execution_graph.replan_changes import MAX_REPLANS
from onager.execution_graph.replan_rules import FORCED_LIMIT_MS, LIMIT_MS, held_stages
from onager.execution_graph.settling import failed
from onager.execution_graph.stages import ExecutorSlot, RunningStage, StageLayout, TaskRead
from tests.unit.execution_graph.builder import METRICS, SINK, Job, new_graph, output, stage, wanted_tasks, with_sink

Side = Literal["", "shuffled", "broadcast"]


def joining(stage_id: int, *reads: int, side: Side = "shuffled", kind: Literal["exchange", "result"] = "exchange"):
    """Return a stage that joins what it reads."""
    return replace(
        stage(stage_id, reads=reads, kind=kind), inputs=tuple(StageInput(i, "bucket", side=side) for i in reads)
    )


def adaptive(
    *stages: StageSpec, mode: Literal["", "on", "force"] = "on", frame: str = "frame", most: int = 1_000
) -> Job:
    """Return a job that may be planned again; up to *most* bytes are broadcast."""
    job = Job(graph=new_graph(adaptive=AdaptivePolicy(fuse_bytes=0, replan=mode)))
    job.launch("planner")
    planned = job.plan(*stages)
    assert job.feed(replace(planned, summary=replace(planned.summary, frame_digest=frame, broadcast_bytes=most)))
    return job


TWO_SIDES = (stage(1), stage(2, 4), joining(3, 1, 2), stage(4, reads=(3,), kind="result"))


def done(job: Job, stage_id: int, *, rows: int = 10, size: int = 100, in_memory: int = 0, executor: str = "a") -> None:
    """Run all tasks of a stage, each of which gives so many rows and bytes, which take more in memory where told."""
    count = job.stage(stage_id).spec.partitions
    launched = job.launch(executor, count)
    assert launched.stage_id == stage_id
    for partition in range(count):
        success = job.success(stage_id, partition)
        cost = replace(success.metrics, rows_out=rows, bytes_out=size, plain_bytes_out=in_memory)
        job.feed(replace(success, output=replace(success.output, rows=rows, bytes=size), metrics=cost))


def begun(job: Job) -> ReplanBegun:
    """Begin the re-plan that the job owes."""
    event = find_replan(job.graph, job.tick())
    assert isinstance(event, ReplanBegun)
    assert job.feed(event)
    assert not job.feed(event), "it begins once"
    return event


def replanned(
    job: Job, *stages: StageSpec, dropped: tuple[int, ...] = (), result: int = 0, **more: object
) -> StageReplanned:
    """Return the report of the running re-plan."""
    replan = job.graph.replan
    assert replan is not None
    task = job.held(replan.replan_id, 0)
    return StageReplanned(
        replan_id=replan.replan_id,
        task_attempt=task.attempt,
        executor_id=task.executor_id,
        basis=replan.basis,
        dropped=dropped,
        stages=stages,
        result_stage_id=result,
        frame_digest="frame 2" if stages else "",
        decisions=("stage 1 is broadcast",),
        metrics=METRICS,
        at_ms=job.tick(),
        **more,  # type: ignore[arg-type]
    )


def swapped(first: int) -> tuple[StageSpec, ...]:
    """Return the stages of a plan that broadcasts stage 1: a broadcast join over the other side, and the rest."""
    join = replace(stage(first, 4), inputs=(StageInput(1, "all"),))
    return join, replace(stage(first + 1, reads=(first,)), output=stage(4, kind="result").output)


def owing() -> Job:
    """Return a job of which one side is done and small, and the other has not begun."""
    job = adaptive(*TWO_SIDES)
    done(job, 1)
    return job


# ---------------------------------------------------------------- owed


def test_a_small_side_of_a_shuffled_join_is_a_reason_while_the_other_one_has_not_begun() -> None:
    job = owing()
    event = begun(job)
    assert (event.replan_id, event.basis, event.finished, event.held) == (5, ((1, 0),), (1,), (2, 3, 4))
    assert "stage 1 has 20 rows in 200 bytes" in event.why
    spec = job.running(5).spec
    assert (spec.work, spec.partitions, spec.inputs) == (StageWork.REPLAN, 1, ())


@pytest.mark.parametrize(
    ("why_not", "job"),
    [
        ("too large", lambda: adaptive(*TWO_SIDES, most=199)),
        ("no frame", lambda: adaptive(*TWO_SIDES, frame="")),
        ("not asked for", lambda: adaptive(*TWO_SIDES, mode="")),
        ("no join", lambda: adaptive(stage(1), stage(2), stage(3, reads=(1, 2)), stage(4, reads=(3,)))),
        ("planned so", lambda: adaptive(stage(1), stage(2), joining(3, 1, 2, side="broadcast"), stage(4, reads=(3,)))),
    ],
)
def test_nothing_is_owed(why_not: str, job: object) -> None:
    made = job()  # type: ignore[operator]
    done(made, 1)
    assert find_replan(made.graph, made.tick()) is None, why_not


@pytest.mark.parametrize(("in_memory", "is_owed"), [(500, True), (501, False)])
def test_a_side_is_small_if_it_is_in_memory(in_memory: int, is_owed: bool) -> None:  # noqa: FBT001
    job = adaptive(*TWO_SIDES)
    done(job, 1, size=2, in_memory=in_memory)
    assert (find_replan(job.graph, job.tick()) is not None) == is_owed


def test_a_broadcast_that_is_larger_in_memory_than_its_file_is_a_reason() -> None:
    small = replace(stage(1), expected_rows=5)
    job = adaptive(small, replace(joining(2, 1, side="broadcast"), output=stage(2, kind="result").output))
    done(job, 1, size=2, in_memory=600)
    assert "20 rows in 1,200 bytes, too many to broadcast" in begun(job).why


def test_nothing_is_owed_once_the_other_side_has_begun() -> None:
    job = adaptive(*TWO_SIDES)
    job.launch("a", 2)
    job.launch("b", 1)  # of stage 2
    job.succeed(1, 0, 1)
    assert find_replan(job.graph, job.tick()) is None


def test_a_side_without_rows_is_a_reason_even_if_the_other_one_runs() -> None:
    job = adaptive(*TWO_SIDES, most=0)
    job.launch("a", 2)
    job.launch("b", 1)
    for partition in (0, 1):
        success = job.success(1, partition)
        job.feed(replace(success, output=replace(success.output, rows=0)))
    assert begun(job).why == "stage 1 has no rows"
    assert job.graph.replans[0].basis == ((1, 0), (2, 0))


def test_no_rows_are_no_reason_if_another_run_may_give_some() -> None:
    job = adaptive(stage(1, is_deterministic=False), *TWO_SIDES[1:], most=0)
    done(job, 1, rows=0)
    assert find_replan(job.graph, job.tick()) is None


def test_a_broadcast_that_is_much_larger_than_expected_is_a_reason_before_its_join_begins() -> None:
    small = replace(stage(1), expected_rows=5)
    job = adaptive(small, replace(joining(2, 1, side="broadcast"), output=stage(2, kind="result").output), most=100)
    done(job, 1, rows=10, size=100)
    assert "5 were expected" in begun(job).why
    job = adaptive(replace(small, expected_rows=6), joining(2, 1, side="broadcast"), most=100)
    done(job, 1, rows=10, size=100)
    assert find_replan(job.graph, job.tick()) is None, "20 rows for 6 are not off by four"


def test_a_stage_is_a_reason_once_and_a_job_is_planned_again_a_few_times() -> None:
    sources = range(1, 12)
    job = adaptive(
        *(stage(i, 1) for i in sources), replace(stage(12, reads=tuple(sources)), may_merge=False), mode="force"
    )
    for i in sources:
        done(job, i)
        found = find_replan(job.graph, job.tick())
        if i > MAX_REPLANS:
            assert found is None
            continue
        assert begun(job).finished == tuple(range(1, i + 1))
        assert find_replan(job.graph, job.tick()) is None, "one at a time"
        job.launch("a", 1)
        assert job.feed(replanned(job))
        assert find_replan(job.graph, job.tick()) is None


# ---------------------------------------------------------------- what waits


def test_what_has_not_begun_waits_for_the_re_plan_but_not_for_long() -> None:
    job = owing()
    event = begun(job)
    at_ms = event.at_ms
    assert held_stages(job.graph, at_ms) == {2, 3, 4}
    assert held_tasks(job.graph, at_ms) == (4, at_ms + LIMIT_MS)
    slot = ExecutorSlot("b", "b1", 0)
    launched = pop_next_tasks(job.graph, slot, 9, at_ms)
    assert launched is not None
    assert launched.stage_id == 5, "the re-plan comes first"
    assert job.feed(launched)
    assert pop_next_tasks(job.graph, slot, 9, at_ms + LIMIT_MS - 1) is None
    late = pop_next_tasks(job.graph, slot, 9, at_ms + LIMIT_MS)
    assert late is not None
    assert late.stage_id == 2
    assert held_tasks(job.graph, at_ms + LIMIT_MS) == (0, 0)
    assert held_stages(job.graph, at_ms - LIMIT_MS) == frozenset(), "a clock that is behind makes nobody wait"


def of_sizes(small: int, large: int, *, side: Side = "shuffled", mode: Literal["", "on"] = "on", **more: object) -> Job:
    """Return a planned job that joins two leaves, of which nothing has begun."""
    first, second, *rest = TWO_SIDES[:2]
    leaves = (replace(first, leaf_bytes=large), replace(second, leaf_bytes=small), *rest)
    return adaptive(*leaves, joining(3, 1, 2, side=side), TWO_SIDES[3], mode=mode, **more)  # type: ignore[arg-type]


def test_the_large_side_waits_for_one_that_may_turn_out_small_but_not_for_long() -> None:
    job = of_sizes(100, 400)
    at_ms = job.tick()
    assert held_stages(job.graph, at_ms) == {1}
    started = revive(job.graph, at_ms)
    assert started is not None
    assert started.stage_ids == (2,)
    held, until_ms = held_tasks(job.graph, at_ms)
    assert held == 2
    assert held_stages(job.graph, until_ms - 1) == {1}
    assert held_stages(job.graph, until_ms) == frozenset()
    assert held_stages(job.graph, until_ms - 2 * LIMIT_MS) == frozenset(), "a clock that is behind makes nobody wait"
    assert job.feed(started)
    assert job.launch("a", 9).stage_id == 2
    assert pop_next_tasks(job.graph, ExecutorSlot("b", "b1", 0), 9, at_ms) is None


@pytest.mark.parametrize(("rows", "size"), [(10, 100), (10, 100_000)])
def test_the_large_side_begins_when_the_small_one_has_ended_unless_that_changes_the_plan(rows: int, size: int) -> None:
    job = of_sizes(100, 400)
    done(job, 2, rows=rows, size=size)
    at_ms = job.tick()
    assert held_stages(job.graph, at_ms) == frozenset()
    event = find_replan(job.graph, at_ms)
    if size > 1_000:
        assert event is None
        assert job.launch("a", 9).stage_id == 1
    else:
        assert isinstance(event, ReplanBegun)
        assert 1 in event.held


@pytest.mark.parametrize(
    "job",
    [
        of_sizes(101, 400),
        of_sizes(400, 400),
        of_sizes(0, 400),
        of_sizes(100, 400, side="broadcast"),
        of_sizes(100, 400, mode=""),
        of_sizes(100, 400, frame=""),
    ],
    ids=["not much smaller", "as large", "no leaf", "broadcast anyway", "off", "nothing to plan from"],
)
def test_no_side_waits_where_that_saves_nothing(job: Job) -> None:
    assert held_stages(job.graph, job.tick()) == frozenset()
    assert job.launch("a", 9).stage_id == 1


def test_a_side_small_enough_to_be_fused_waits_for_nothing() -> None:
    job = of_sizes(100, 400)
    job.graph = replace(job.graph, adaptive=AdaptivePolicy(fuse_bytes=400, replan="on"))
    assert held_stages(job.graph, job.tick()) == frozenset()


def test_a_side_that_has_begun_goes_on() -> None:
    job = of_sizes(100, 400)
    late_ms = held_tasks(job.graph, job.tick())[1]
    started = revive(job.graph, late_ms)
    assert started is not None
    assert job.feed(started)
    launched = pop_next_tasks(job.graph, ExecutorSlot("a", "a1", 0), 1, late_ms)
    assert launched is not None
    assert launched.stage_id == 1
    assert job.feed(launched)
    assert held_stages(job.graph, job.tick()) == frozenset()


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
    job = owing()
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
    job = owing()
    begun(job)
    job.launch("b", 1)
    job.graph = replace(job.graph, stages=tuple(
        replace(s, attempt=1) if s.spec.stage_id == 1 else s for s in job.graph.stages))  # fmt: skip
    over = find_replan(job.graph, job.tick())
    assert isinstance(over, ReplanGivenUp)
    assert "has changed" in over.reason


# ---------------------------------------------------------------- what a new plan changes


def test_a_new_plan_drops_stages_and_appends_others() -> None:
    job = owing()
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
    assert job.stage(3).spec.layout == layout, "how it was laid out is still told"
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


def test_what_a_superseded_stage_has_done_was_in_vain_and_is_told() -> None:
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
    ("told", "stages", "dropped", "result"),
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
    told: str, stages: tuple[StageSpec, ...], dropped: tuple[int, ...], result: int
) -> None:
    job = owing()
    begun(job)
    job.launch("b", 1)
    assert job.feed(replanned(job, *stages, dropped=dropped, result=result))
    assert told in job.graph.replans[0].decisions[0]
    assert job.states() == ["successful", "running", "unresolved", "unresolved", "superseded"]
    job.finish()
    assert job.graph.state == "successful"


def test_a_changed_basis_changes_nothing() -> None:
    job = owing()
    begun(job)
    job.launch("b", 1)
    event = replanned(job, *swapped(6), dropped=(2, 3, 4), result=7)
    other = replace(event, basis=((1, 1),))
    after = apply(job.graph, other)
    assert after.replans[0].decisions == ("what it was based on has changed meanwhile",)
    assert len(after.stages) == 6


def test_outputs_that_are_lost_meanwhile_change_the_basis() -> None:
    job = owing()
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
    job = owing()
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
    job = owing()
    begun(job)
    job.launch("b", 1)
    job.fail(5, 0, kind)
    assert job.graph.is_active
    assert job.graph.replans[0].decisions == ("it failed: it broke",)
    job.finish()
    assert job.graph.state == "successful"


def test_a_lost_executor_and_a_lost_launch_keep_the_plan() -> None:
    job = owing()
    begun(job)
    job.launch("b", 1)
    assert job.lose("b")
    assert "its executor was lost" in job.graph.replans[0].decisions[0]
    job.finish()
    job = owing()
    begun(job)
    job.launch("b", 1)
    job.take_back(5, 0, FailureKind.LAUNCH_LOST)
    assert "did not arrive" in job.graph.replans[0].decisions[0]
    job.finish()
    assert job.graph.state == "successful"


def test_a_job_that_fails_by_its_re_plan_has_no_re_plan_under_way() -> None:
    job = owing()
    replan = job.stage(begun(job).replan_id)
    assert isinstance(replan, RunningStage)
    graph = failed(job.graph, replan, Failure(kind=FailureKind.USER_ERROR, message="no"), job.tick())
    assert violations(graph) == ()
    assert graph.replan is None
    assert graph.replans[0].decisions == ("the job failed",)


def test_a_re_plan_that_finds_nothing_better_keeps_the_plan() -> None:
    job = owing()
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
    job = owing()
    begun(job)
    job.launch("b", 1)
    for _ in range(2):
        assert decode_graph(encode_graph(job.graph)) == job.graph
        job.feed(replanned(job, *swapped(6), dropped=(2, 3, 4), result=7)) if job.graph.replan else None
    for event in job.log:
        if event.type in ("replan_begun", "stage_replanned"):
            assert decode_batch(encode_batch(EventBatch(batch_id="b", events=(event,)))).events == (event,)


def test_the_log_gives_the_graph() -> None:
    job = owing()
    start = Job(graph=new_graph(adaptive=AdaptivePolicy(fuse_bytes=0, replan="on"))).graph
    begun(job)
    job.launch("b", 1)
    job.feed(replanned(job, *swapped(6), dropped=(2, 3, 4), result=7))
    job.finish()
    assert apply_all(start, job.log) == job.graph


def test_only_the_last_stage_of_the_job_is_needed_by_itself_and_not_whatever_came_last() -> None:
    job = owing()
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
