"""A job without failures from submission to end: states, launches, fused plans, invalid plans."""

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    ExecutorSlot,
    Failed,
    FailureKind,
    JobCancelled,
    JobState,
    StagesStarted,
    StageWork,
    Succeeded,
    apply,
    available_tasks,
    check_stages,
    has_runnable_work,
    pop_next_tasks,
    revive,
    running_count,
    violations,
)
from tests.unit.execution_graph.builder import METRICS, Job, chain, output, planned, stage, summary, with_sink

SLOT = ExecutorSlot("a", "a1", 0)


def test_drain_tasks() -> None:
    job = planned(*chain(3, partitions=4))

    for stage_id in (1, 2, 3):
        job.start()
        assert available_tasks(job.graph) == 4
        job.run(stage_id)

    assert available_tasks(job.graph) == 0
    assert job.states() == ["successful"] * 3


def test_finalize() -> None:
    job = planned(*chain(2))

    job.run(1)
    job.run(2)

    assert job.graph.state is JobState.SUCCESSFUL
    assert isinstance(job.graph.outcome, Succeeded)
    assert job.graph.ended_ms == job.now_ms
    result = job.graph.result_stage
    assert result is not None
    assert sorted(result.ledger.outputs) == [0, 1]
    assert job.graph.state is JobState.SUCCESSFUL


def test_states_that_a_person_sees() -> None:
    job = Job()
    states = [job.graph.state]
    job.launch("planner")
    states.append(job.graph.state)
    job.feed(job.plan(*with_sink(stage(1, 1))))
    states.append(job.graph.state)
    job.run(1)
    job.launch()
    states.append(job.graph.state)
    job.succeed(2, 0)
    job.run(3)
    states.append(job.graph.state)

    assert states == ["queued", "planning", "running", "publishing", "successful"]
    assert [s.is_terminal for s in states] == [False] * 4 + [True]


def test_planning_that_was_lost_goes_on_as_planning() -> None:
    job = Job()
    job.launch("planner")
    assert job.graph.started_ms is not None

    job.lose("planner")

    assert job.graph.state.value == "planning"
    assert job.launch("b").tasks == ((0, 1),)


def test_a_stage_is_resolved_once_every_producer_is_successful() -> None:
    job = planned(stage(1), stage(2), stage(3, reads=(1, 2)))
    assert job.states() == ["resolved", "resolved", "unresolved"]

    job.run(1)
    assert job.states() == ["successful", "running", "unresolved"]
    job.run(2)
    assert job.states() == ["successful", "successful", "resolved"]


def test_output_goes_to_every_consumer() -> None:
    """2.1 (3): a producer kept its last consumer only."""
    job = planned(stage(1), stage(2, reads=(1,)), stage(3, reads=(1,)), stage(4, reads=(2, 3)))
    job.run(1)

    assert job.states() == ["successful", "resolved", "resolved", "unresolved"]


def test_stages_and_partitions_are_handed_out_in_order() -> None:
    """2.1: the first stage in the order of a hash map was popped."""
    job = planned(stage(1, 3), stage(2, 3), stage(3, reads=(1, 2)))
    job.start()

    launches = [job.launch("a", 2) for _ in range(4)]

    assert [(e.stage_id, e.tasks) for e in launches] == [
        (1, ((0, 0), (1, 0))),
        (1, ((2, 0),)),
        (2, ((0, 0), (1, 0))),
        (2, ((2, 0),)),
    ]


def test_available_tasks_counts_every_running_stage() -> None:
    """2.1 (7): only graphs and stages that a hand-out touched were counted."""
    job = planned(stage(1, 3), stage(2, 2), stage(3, reads=(1, 2)))
    assert available_tasks(job.graph) == 0
    assert has_runnable_work(job.graph)

    job.start()
    assert available_tasks(job.graph) == 5
    job.launch("a", 2)
    assert (available_tasks(job.graph), running_count(job.graph)) == (3, 2)
    job.launch("a", 1)
    job.launch("a", 2)
    assert (available_tasks(job.graph), running_count(job.graph)) == (0, 5)
    assert not has_runnable_work(job.graph)


def test_nothing_is_popped_from_a_job_that_has_ended() -> None:
    job = planned(stage(1))
    job.start()
    job.feed(JobCancelled(reason="enough", at_ms=1))

    assert pop_next_tasks(job.graph, SLOT, 10, 2) is None
    assert revive(job.graph, 2) is None
    assert (available_tasks(job.graph), running_count(job.graph), has_runnable_work(job.graph)) == (0, 0, False)
    assert job.graph.state is JobState.CANCELLED


@pytest.mark.parametrize("limit", [0, -1])
def test_nothing_is_popped_for_no_slots(limit: int) -> None:
    job = planned(stage(1))
    job.start()
    assert pop_next_tasks(job.graph, SLOT, limit, 2) is None


def test_returned_partitions_are_handed_out_before_fresh_ones() -> None:
    """2.7: reschedule to the front."""
    job = planned(stage(1, 6))
    job.launch("a", 4)
    job.take_back(1, 2, FailureKind.TASK_KILLED)
    job.take_back(1, 1, FailureKind.TASK_KILLED)

    assert job.launch("a", 1).tasks == ((1, 1),)
    assert job.launch("a", 2).tasks == ((2, 1), (4, 0))


def test_a_launch_may_leave_fresh_partitions_out() -> None:
    job = planned(stage(1, 6))
    job.start()
    event = pop_next_tasks(job.graph, SLOT, 1, 3)
    assert event is not None

    assert job.feed(replace(event, tasks=((5, 0), (2, 0), (2, 0))))

    assert job.running(1).returned == (0, 1, 3, 4)
    assert [p for p, _ in job.launch("a", 10).tasks] == [0, 1, 3, 4]


def test_metrics_carry_their_merge_rule() -> None:
    job = planned(stage(1, 3))
    job.run(1)

    metrics = job.stage(1).ledger.metrics
    assert (metrics.run_ms, metrics.rows_out, metrics.peak_memory_bytes) == (15, 30, 7)
    assert job.stage(0).ledger.metrics == METRICS


# ---------------------------------------------------------------- stages without partitions


def test_a_stage_without_partitions_completes_at_once() -> None:
    job = planned(stage(1, 0), stage(2, 1, reads=(1,)))
    assert job.states() == ["successful", "resolved"]

    job.run(2)
    assert job.graph.state is JobState.SUCCESSFUL


def test_a_job_of_stages_without_partitions_ends_with_its_plan() -> None:
    job = planned(*chain(3, partitions=0))
    assert job.graph.state is JobState.SUCCESSFUL


# ---------------------------------------------------------------- fused plans


def test_a_fused_plan_ends_the_job() -> None:
    job = Job()
    job.launch("planner")

    assert job.feed(job.plan(stage(1, 1, plan_digest=None), fused=output("n", is_shared=False)))

    assert job.graph.state is JobState.SUCCESSFUL
    found = job.stage(1).ledger.outputs[0]
    assert (found.nonce, found.executor_id, found.incarnation) == ("n", "planner", "planner1")
    assert job.stage(1).ledger.metrics == METRICS
    assert job.stage(0).ledger.metrics.run_ms == 0


def test_a_fused_plan_with_a_sink_is_published() -> None:
    job = Job()
    job.launch("planner")
    job.feed(job.plan(*with_sink(stage(1, 1)), fused=output("n")))

    assert job.states() == ["successful", "resolved", "unresolved"]
    job.run(2)
    job.run(3)
    assert job.graph.state is JobState.SUCCESSFUL


def test_losing_what_a_fused_plan_ran_repeats_planning() -> None:
    job = Job(is_shared=False)
    job.launch("planner")
    job.feed(job.plan(*with_sink(stage(1, 1, plan_digest=None)), fused=output("n", is_shared=False)))
    job.launch("b")
    late = job.success(2, 0)

    job.lose("planner")

    assert len(job.graph.stages) == 1
    assert job.graph.state.value == "planning"
    assert job.launch("b").tasks == ((0, 1),)
    job.feed(job.plan(*with_sink(stage(1, 1, plan_digest=None)), fused=output("m", is_shared=False)))
    job.launch("b")
    assert not job.feed(late), "a task of the first plan is taken for one of the second"
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


# ---------------------------------------------------------------- plans that cannot be


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ((), "at least one stage"),
        ((stage(2),), "stage 2 stands where stage 1 was expected"),
        ((stage(1), stage(1)), "stage 1 stands where stage 2 was expected"),
        ((stage(1, -1),), "-1 partitions"),
        ((stage(1, reads=(1,)),), "which is not an earlier one"),
        ((stage(1, reads=(0,)),), "which is not an earlier one"),
        ((stage(1, reads=(2,)), stage(2)), "which is not an earlier one"),
        ((stage(1, work=StageWork.PLAN),), "another planning stage"),
        ((stage(1), stage(2)), "read by no other"),
    ],
)
def test_check_stages_says_what_is_wrong(stages: tuple, why: str) -> None:  # type: ignore[type-arg]
    found = check_stages(stages)
    assert found is not None
    assert why in found


def test_check_stages_takes_a_union_with_the_partitions_of_all_its_inputs() -> None:
    assert check_stages((stage(1), stage(2), stage(3, partitions=4, reads=(1, 2)))) is None


def test_a_plan_that_cannot_be_fails_the_job_instead_of_hanging_it() -> None:
    """2.1 (9): a broken graph looked like "no tasks" for ever."""
    job = Job()
    job.launch("planner")

    assert job.feed(job.plan(stage(1, reads=(2,))))

    assert isinstance(job.graph.outcome, Failed)
    assert "which is not an earlier one" in job.graph.outcome.failure.message


@pytest.mark.parametrize("result_stage_id", [0, 2, 3, -1])
def test_a_plan_whose_result_is_not_a_query_stage_fails_the_job(result_stage_id: int) -> None:
    job = Job()
    job.launch("planner")
    plan = job.plan(stage(1, 1), stage(2, 1, reads=(1,), work=StageWork.PUBLISH_PLAN))

    job.feed(replace(plan, summary=summary(result_stage_id)))

    assert job.graph.state is JobState.FAILED
    assert job.graph.result_stage is None


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_fused_stage_has_one_partition(partitions: int) -> None:
    job = Job()
    job.launch("planner")
    job.feed(job.plan(stage(1, partitions), fused=output("n")))
    assert job.graph.state is JobState.FAILED


# ---------------------------------------------------------------- events that say nothing (new)


def test_starting_stages_that_are_not_there_changes_nothing() -> None:
    job = planned(stage(1))
    assert not job.feed(StagesStarted(stage_ids=(-1, 0, 7), at_ms=5))
    assert job.feed(StagesStarted(stage_ids=(1, 1, 9), at_ms=5))
    assert not job.feed(StagesStarted(stage_ids=(1,), at_ms=6))


def test_violations_speak_of_a_broken_graph() -> None:
    job = planned(*chain(2))
    first, second = job.graph.stages[1:]
    broken = replace(
        job.graph, stages=(job.graph.stages[0], replace(first, spec=replace(first.spec, stage_id=4)), second)
    )
    assert "stage 4 stands where stage 1 was expected" in violations(broken)[0]


def test_the_log_gives_the_graph() -> None:
    job = planned(*chain(3))
    job.run(1)
    job.launch("b")
    job.lose("b")
    job.finish()

    again = Job().graph
    for event in job.log:
        again = apply(again, event)
    assert again == job.graph
