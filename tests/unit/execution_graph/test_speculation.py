"""Speculation: which tasks are stragglers, what happens with two attempts, and that the loser is harmless."""

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    Cancelled,
    ExecutorSlot,
    FailureKind,
    FetchFailure,
    HeldTask,
    JobCancelled,
    JobState,
    LaunchesRepeated,
    SpeculationPolicy,
    StageWork,
    TasksLost,
    TasksSpeculated,
    available_tasks,
    can_judge,
    find_stragglers,
    has_runnable_work,
    is_held,
    lost_launches,
    not_held,
    pop_next_tasks,
    running_count,
)
from onager.execution_graph.events import StragglersFound
from tests.unit.execution_graph.builder import Job, chain, output, planned, stage, wanted_tasks, with_sink

POLICY = SpeculationPolicy(min_task_runtime_ms=10)


def three_of_four_done(**given: bool) -> Job:
    """Stage 1 of 4 partitions on executor a: the last is still running, stage 2 waits."""
    job = planned(stage(1, 4), stage(2, 2, reads=(1,)), speculation=POLICY, **given)
    job.launch("a")
    job.succeed(1, 0, 1, 2)
    return job


def with_second_attempt(**given: bool) -> Job:
    """As before, with a second attempt of partition 3 on executor s."""
    job = three_of_four_done(**given)
    assert job.speculate("s").tasks == ((3, 1),)
    return job


# ---------------------------------------------------------------- stragglers


def test_a_task_much_slower_than_the_median_is_a_straggler() -> None:
    job = three_of_four_done()
    median_ms = sorted(job.stage(1).ledger.durations_ms.values())[1]
    launched_ms = job.held(1, 3).launched_ms
    policy = SpeculationPolicy(multiplier=100, min_task_runtime_ms=0)
    graph = replace(job.graph, speculation=policy)

    assert find_stragglers(graph, ["a", "b"], launched_ms + 100 * median_ms) == ()
    (found,) = find_stragglers(graph, ["a", "b"], launched_ms + 100 * median_ms + 1)
    assert found.tasks == ((3, 0),)


def test_a_task_has_to_run_for_a_while_first() -> None:
    job = three_of_four_done()
    launched_ms = job.held(1, 3).launched_ms
    graph = replace(job.graph, speculation=SpeculationPolicy(min_task_runtime_ms=5_000))
    assert find_stragglers(graph, ["a", "b"], launched_ms + 5_000) == ()
    assert find_stragglers(graph, ["a", "b"], launched_ms + 5_001)


def test_enough_of_the_stage_has_to_be_done() -> None:
    job = planned(stage(1, 4), speculation=POLICY)
    job.launch("a")
    assert not find_stragglers(job.graph, ["b"], job.now_ms + 99_999), "there is nothing to compare with"
    job.succeed(1, 0, 1)
    assert not find_stragglers(job.graph, ["b"], job.now_ms + 99_999)
    job.succeed(1, 2)
    assert find_stragglers(job.graph, ["b"], job.now_ms + 99_999)


def test_no_other_executor_no_second_attempt() -> None:
    job = three_of_four_done()
    assert not find_stragglers(job.graph, ["a"], job.now_ms + 99_999)
    assert not find_stragglers(job.graph, [], job.now_ms + 99_999)


def test_jobs_that_do_not_want_it_have_no_stragglers_and_no_durations() -> None:
    job = planned(stage(1, 4))
    job.launch("a")
    job.succeed(1, 0, 1, 2)
    assert not find_stragglers(job.graph, ["b"], job.now_ms + 99_999)
    assert not job.stage(1).ledger.durations_ms
    forced = StragglersFound(stage_id=1, stage_attempt=0, tasks=((3, 0),), at_ms=job.tick())
    assert not job.feed(forced)


def test_what_changes_a_target_or_plans_is_never_run_twice_at_once() -> None:
    job = planned(*with_sink(stage(1, 1)), speculation=POLICY)
    job.run(1, "a")
    for stage_id, work in ((2, StageWork.PUBLISH_PLAN), (3, StageWork.PUBLISH)):
        job.launch("a")
        assert job.stage(stage_id).spec.work is work
        forced = StragglersFound(stage_id=stage_id, stage_attempt=0, tasks=((0, 0),), at_ms=job.tick())
        assert not job.feed(forced)
        job.succeed(stage_id, 0)
    fused = planned(stage(1, 2, plan_digest=None), speculation=POLICY)
    fused.launch("a")
    assert not fused.feed(StragglersFound(stage_id=1, stage_attempt=0, tasks=((0, 0),), at_ms=fused.tick()))


# ---------------------------------------------------------------- handing out


def test_a_second_attempt_goes_to_another_executor_when_nothing_else_waits() -> None:
    job = planned(stage(1, 4), stage(2, 2), stage(3, 1, reads=(1, 2)), speculation=POLICY)
    job.launch("a", 4)
    job.succeed(1, 0, 1, 2)
    job.now_ms += 1_000
    (found,) = find_stragglers(job.graph, ["a", "b"], job.now_ms)
    assert job.feed(found)
    assert not job.feed(found), "said once is enough"
    assert available_tasks(job.graph) == 3
    assert job.launch("b", 2).stage_id == 2, "first what nobody runs yet"

    assert pop_next_tasks(job.graph, ExecutorSlot("a", "a1", 0), 5, job.tick()) is None, "it runs there"
    assert has_runnable_work(job.graph)
    second = job.launch("b")
    assert isinstance(second, TasksSpeculated)
    assert second.tasks == ((3, 1),)
    assert not has_runnable_work(job.graph)
    assert running_count(job.graph) == 4
    assert job.stage(1).ledger.speculated[3] == 1


def test_a_second_attempt_does_not_go_where_the_task_has_failed() -> None:
    job = planned(stage(1, 4), speculation=POLICY)
    job.launch("b", 4)
    job.succeed(1, 0, 1, 2)
    job.fail(1, 3, FailureKind.IO_ERROR)
    job.launch("a")
    assert not find_stragglers(job.graph, ["a", "b"], job.now_ms + 9_999)
    (found,) = find_stragglers(job.graph, ["a", "b", "c"], job.now_ms + 9_999)
    job.feed(found)
    assert pop_next_tasks(job.graph, ExecutorSlot("b", "b1", 0), 5, job.tick()) is None
    assert job.launch("c").tasks == ((3, 2),)


def test_both_attempts_are_wanted_judged_and_in_hand() -> None:
    job = with_second_attempt()
    first, second = HeldTask(1, 0, 3, 0), HeldTask(1, 0, 3, 1)
    assert wanted_tasks(job.graph, "a", "a1") == {first}
    assert wanted_tasks(job.graph, "s", "s1") == {second}
    assert can_judge(job.graph, first)
    assert can_judge(job.graph, second)
    assert not can_judge(job.graph, HeldTask(1, 0, 3, 2))
    assert is_held(job.graph, first, "a")
    assert is_held(job.graph, second, "s")
    assert not is_held(job.graph, second, "a")
    in_hand = job.graph.stages[1].in_hand()
    assert sorted((t.executor_id, partition, t.attempt) for partition, t in in_hand) == [("a", 3, 0), ("s", 3, 1)]


def test_what_an_executor_does_not_hold_is_found_for_many_at_once() -> None:
    graph = with_second_attempt().graph
    tasks = [HeldTask(1, a, p, n) for a in (0, 1) for p in range(5) for n in range(3)] + [HeldTask(7, 0, 0, 0)]
    lives = {(t.executor_id, t.incarnation) for s in graph.stages if s.state == "running" for _, t in s.in_hand()}
    for executor_id, incarnation in [*lives, (next(iter(lives))[0], "another life"), ("nobody", "x")]:
        found = not_held(graph, tasks, executor_id, incarnation)
        assert found == [t for t in tasks if not is_held(graph, t, executor_id, incarnation)]
    assert all(len(not_held(graph, tasks, *life)) < len(tasks) for life in lives)
    assert not_held(replace(graph, outcome=Cancelled(ended_ms=1, reason="r")), tasks, *lives.pop()) == tasks


def test_at_most_one_second_attempt() -> None:
    job = with_second_attempt()
    assert not find_stragglers(job.graph, ["a", "b", "s"], job.now_ms + 99_999)
    job.fail_second(3, FailureKind.TASK_KILLED)
    assert not find_stragglers(job.graph, ["a", "b", "s"], job.now_ms + 99_999), "nor another after that"


# ---------------------------------------------------------------- who wins


@pytest.mark.parametrize("is_second", [True, False])
def test_the_first_success_wins_and_the_loser_is_unwanted(*, is_second: bool) -> None:
    job = with_second_attempt()
    first, second = job.success(1, 3), job.success(1, 3, job.second(1, 3))
    winner, loser = (second, first) if is_second else (first, second)
    loses = job.failed(1, 3, FailureKind.IO_ERROR, task=job.second(1, 3) if not is_second else None)

    assert job.feed(winner)

    assert job.states()[0] == "successful"
    found = job.stage(1).ledger.outputs[3]
    assert (found.nonce, found.executor_id, found.task_attempt) == (
        winner.output.nonce,
        winner.executor_id,
        winner.task_attempt,
    )
    assert not wanted_tasks(job.graph, "a", "a1")
    assert not wanted_tasks(job.graph, "s", "s1")
    assert can_judge(job.graph, HeldTask(1, 0, 3, 1)), "so that the loser is cancelled"
    before = job.graph
    assert not job.feed(loser), "its late success is dropped"
    assert not job.feed(loses), "its failure is not counted"
    assert job.graph is before
    assert job.stage(1).ledger.metrics.rows_out == 40
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


def test_after_a_win_the_numbers_of_both_are_used_up() -> None:
    job = with_second_attempt(is_shared=False)
    job.feed(job.success(1, 3))
    job.lose("a")
    assert job.launch("b").tasks == ((0, 1), (1, 1), (2, 1), (3, 2))


# ---------------------------------------------------------------- what becomes of one of two


@pytest.mark.parametrize("kind", [FailureKind.IO_ERROR, FailureKind.TASK_KILLED, FailureKind.LAUNCH_LOST])
def test_a_failed_first_attempt_leaves_the_partition_to_the_second(kind: FailureKind) -> None:
    job = with_second_attempt()
    job.fail(1, 3, kind)

    assert job.held(1, 3).executor_id == "s"
    assert not job.running(1).speculative
    assert job.running(1).pending_count == 0
    assert not job.stage(1).ledger.failures
    job.fail(1, 3, FailureKind.IO_ERROR)
    assert dict(job.stage(1).ledger.failures) == {3: 1}, "the last one that ran counts"
    assert job.launch("b").tasks == ((3, 2),)


@pytest.mark.parametrize("kind", [FailureKind.IO_ERROR, FailureKind.TASK_KILLED, FailureKind.LAUNCH_LOST])
def test_a_failed_second_attempt_leaves_the_first_alone(kind: FailureKind) -> None:
    job = with_second_attempt()
    job.fail_second(3, kind)

    assert (job.held(1, 3).executor_id, job.held(1, 3).attempt) == ("a", 0)
    assert not job.stage(1).ledger.failures
    assert job.graph.is_active
    job.fail(1, 3, FailureKind.IO_ERROR)
    assert job.launch("b").tasks == ((3, 2),), "the number of the second attempt is used up"


def test_a_promoted_attempt_may_have_a_second_one_beside_it() -> None:
    job = with_second_attempt()
    job.fail(1, 3, FailureKind.TASK_KILLED)
    assert job.speculate("b").tasks == ((3, 2),)


def test_a_user_error_of_either_fails_the_job() -> None:
    job = with_second_attempt()
    job.feed(job.failed(1, 3, FailureKind.USER_ERROR, task=job.second(1, 3)))
    assert job.graph.state is JobState.FAILED


def test_an_input_that_is_missing_rolls_both_back() -> None:
    job = planned(stage(1, 1), stage(2, 4, reads=(1,)), speculation=POLICY)
    job.run(1, "a")
    job.launch("a")
    job.succeed(2, 0, 1, 2)
    job.speculate("s")
    fetch = FetchFailure(1, 0, job.nonce(1, 0))
    job.feed(job.failed(2, 3, FailureKind.FETCH_FAILED, fetch=fetch, task=job.second(2, 3)))

    assert job.states() == ["running", "unresolved"]
    job.run(1, "b")
    assert job.launch("b").tasks == ((3, 2),)


@pytest.mark.parametrize("executor", ["a", "s"])
def test_a_lost_executor_leaves_the_other_attempt(executor: str) -> None:
    job = with_second_attempt()
    job.lose(executor)
    other = {"a": "s", "s": "a"}[executor]
    assert job.held(1, 3).executor_id == other
    assert not job.running(1).speculative


def test_lost_executors_take_both() -> None:
    job = with_second_attempt()
    job.lose("s")
    job.lose("a")
    assert job.launch("b").tasks == ((3, 2),)


def test_a_second_attempt_that_never_arrived_is_sent_again_and_then_given_up() -> None:
    job = with_second_attempt()
    (again,) = lost_launches(job.graph, ExecutorSlot("s", "s1", 1), frozenset(), job.tick())
    assert isinstance(again, LaunchesRepeated)
    assert again.tasks == ((3, 1),)
    job.feed(again)
    (gone,) = lost_launches(job.graph, ExecutorSlot("s", "s1", 2), frozenset(), job.tick())
    assert isinstance(gone, TasksLost)
    job.feed(gone)
    assert not job.running(1).speculative
    assert job.held(1, 3).attempt == 0


def test_cancelling_the_job_makes_both_unwanted() -> None:
    job = with_second_attempt()
    job.feed(JobCancelled(reason="enough", at_ms=job.tick()))
    assert not wanted_tasks(job.graph, "a", "a1")
    assert not wanted_tasks(job.graph, "s", "s1")


def test_a_straggler_that_ends_needs_no_second_attempt() -> None:
    job = three_of_four_done()
    (found,) = find_stragglers(job.graph, ["b"], job.now_ms + 9_999)
    job.feed(found)
    job.fail(1, 3, FailureKind.IO_ERROR)
    assert job.running(1).speculatable == ()
    assert job.launch("b").tasks == ((3, 1),)
    job.feed(found)
    assert job.running(1).speculatable == (), "it spoke of another attempt"


def test_staged_files_of_a_sink_may_be_written_twice_and_count_once() -> None:
    job = planned(*with_sink(stage(1, 4)), speculation=POLICY)
    job.launch("a")
    job.succeed(1, 0, 1, 2)
    job.speculate("s")
    job.feed(job.success(1, 3, job.second(1, 3)))
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL
    assert output("x").nonce not in [o.nonce for o in job.stage(1).ledger.outputs.values()]


def test_chains_go_on_after_speculation() -> None:
    job = planned(*chain(3, partitions=4), speculation=POLICY, is_shared=False)
    job.launch("a")
    job.succeed(1, 0, 1, 2)
    job.speculate("s")
    job.feed(job.success(1, 3, job.second(1, 3)))
    job.lose("s")
    assert job.launch("b").tasks == ((3, 2),)
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL
