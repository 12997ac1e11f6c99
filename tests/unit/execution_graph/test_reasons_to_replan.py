"""When the rest of a query is planned again, and what waits for that."""

from typing import Literal

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    StageWork,
    find_replan,
    held_tasks,
    pop_next_tasks,
    revive,
)
from onager.execution_graph.events import ReplanBegun
from onager.execution_graph.replan_changes import MAX_REPLANS
from onager.execution_graph.replan_rules import LIMIT_MS, held_stages
from onager.execution_graph.stages import ExecutorSlot
from tests.unit.execution_graph.builder import Job, stage
from tests.unit.execution_graph.replanned_jobs import (
    TWO_SIDES,
    Side,
    adaptive,
    begun,
    done,
    joining,
    replanned,
    with_due_replan,
)

# ---------------------------------------------------------------- due


def test_a_small_side_of_a_shuffled_join_is_a_reason_while_the_other_one_has_not_begun() -> None:
    job = with_due_replan()
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
def test_nothing_is_due(why_not: str, job: object) -> None:
    made = job()  # type: ignore[operator]
    done(made, 1)
    assert find_replan(made.graph, made.tick()) is None, why_not


@pytest.mark.parametrize(("in_memory", "is_due"), [(500, True), (501, False)])
def test_a_side_is_small_if_it_is_in_memory(in_memory: int, is_due: bool) -> None:  # noqa: FBT001
    job = adaptive(*TWO_SIDES)
    done(job, 1, size=2, in_memory=in_memory)
    assert (find_replan(job.graph, job.tick()) is not None) == is_due


def test_a_broadcast_that_is_larger_in_memory_than_its_file_is_a_reason() -> None:
    small = replace(stage(1), expected_rows=5)
    job = adaptive(small, replace(joining(2, 1, side="broadcast"), output=stage(2, kind="result").output))
    done(job, 1, size=2, in_memory=600)
    assert "20 rows in 1,200 bytes, too many to broadcast" in begun(job).why


def test_nothing_is_due_once_the_other_side_has_begun() -> None:
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
    job = with_due_replan()
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
