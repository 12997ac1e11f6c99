"""Reports that are stale, repeated, late or nonsense: `apply` answers each with the very same graph."""

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    Event,
    ExecutorLost,
    ExecutorSlot,
    FailureKind,
    HeldTask,
    JobCancelled,
    JobState,
    LaunchesRepeated,
    TaskFailed,
    TasksLost,
    TaskSucceeded,
    apply,
    apply_all,
    can_judge,
    lost_launches,
)
from tests.unit.execution_graph.builder import Job, chain, planned, stage, wanted_tasks, with_sink


def test_a_repeated_success_adds_nothing() -> None:
    """2.1 (1): its locations were appended again, which doubled rows."""
    job = planned(*chain(2))
    job.launch()
    event = job.success(1, 0)
    assert job.feed(event)

    assert not job.feed(event)
    assert not job.feed(replace(event, output=replace(event.output, nonce="another")))
    assert job.nonce(1, 0) == event.output.nonce
    assert job.stage(1).ledger.metrics.rows_out == 10


def test_a_repeated_launch_of_a_finished_task_does_not_run_it_again() -> None:
    job = planned(*chain(2))
    launch = job.launch()
    job.succeed(1, 0)

    assert not job.feed(launch)
    assert sorted(job.running(1).running) == [1]


def test_a_success_after_the_failure_of_the_same_attempt_is_refused() -> None:
    """2.1 (2)."""
    job = planned(*chain(2))
    job.launch()
    event = job.success(1, 0)
    job.fail(1, 0, FailureKind.IO_ERROR)

    assert not job.feed(event)


def test_a_success_from_an_executor_that_no_longer_owns_the_task_is_refused() -> None:
    """2.1 (2)."""
    job = planned(*chain(2))
    job.launch("a")
    late = job.success(1, 0)
    job.lose("a")
    job.launch("b")

    assert not job.feed(late)
    assert not job.feed(replace(job.success(1, 0), executor_id="a"))
    assert job.feed(job.success(1, 0))


def test_a_late_report_never_brings_an_ended_job_back() -> None:
    """2.1 (4, 5): a late status put a completed job among the active ones again."""
    for end in ("success", "failure", "cancel"):
        job = planned(stage(1, 2))
        job.launch("a")
        late: list[Event] = [job.success(1, 1), job.failed(1, 1, FailureKind.IO_ERROR)]
        match end:
            case "success":
                job.succeed(1, 0, 1)
            case "failure":
                job.fail(1, 0, FailureKind.USER_ERROR)
            case _:
                job.feed(JobCancelled(reason="enough", at_ms=5))
        assert not job.graph.is_active
        for event in (*late, ExecutorLost(executor_id="a", incarnation="a1", reason="", at_ms=9), *job.log):
            assert not job.feed(event)


def test_a_cancelled_job_stays_cancelled() -> None:
    job = planned(stage(1, 2))
    assert job.feed(JobCancelled(reason="enough", at_ms=5))
    assert not job.feed(JobCancelled(reason="more than enough", at_ms=6))
    assert job.graph.state is JobState.CANCELLED
    assert job.graph.ended_ms == 5


def test_a_publication_that_has_begun_is_not_cancelled_half_way() -> None:
    job = planned(*with_sink(stage(1, 1)))
    job.run(1)
    job.run(2)
    job.start()
    cancel = JobCancelled(reason="enough", at_ms=5)
    assert apply(job.graph, cancel) is not job.graph, "nobody has touched the target yet"

    job.launch("a")
    assert not job.feed(cancel)
    job.lose("a")
    assert not job.feed(cancel), "the lost executor may have moved files"
    job.run(3, "b")
    assert job.graph.state is JobState.SUCCESSFUL


@pytest.mark.parametrize("partition", [2, 3, -1, 10**12])
def test_a_partition_that_is_not_there_is_ignored(partition: int) -> None:
    """7.2 (X16): ``partition > partitions`` let the number of partitions itself through, and an index panicked."""
    job = planned(stage(1, 2))
    launch = job.launch()

    assert not job.feed(replace(launch, tasks=((partition, 0),)))
    assert not job.feed(replace(job.success(1, 0), partition=partition))
    assert not job.feed(replace(job.failed(1, 0, FailureKind.IO_ERROR), partition=partition))
    assert not job.feed(replace(job.failed(1, 0, FailureKind.FETCH_FAILED), partition=partition, stage_attempt=-1))


@pytest.mark.parametrize("stage_id", [2, 99, -1])
def test_a_stage_that_is_not_there_or_not_running_is_ignored(stage_id: int) -> None:
    job = planned(*chain(2))
    launch = job.launch()
    tasks_lost = TasksLost(
        stage_id=stage_id, stage_attempt=0, executor_id="a", tasks=((0, 0),), reason=FailureKind.TASK_KILLED, at_ms=1
    )

    assert not job.feed(replace(launch, stage_id=stage_id))
    assert not job.feed(replace(job.success(1, 0), stage_id=stage_id))
    assert not job.feed(replace(job.failed(1, 0, FailureKind.USER_ERROR), stage_id=stage_id))
    assert not job.feed(tasks_lost)
    assert not job.feed(
        LaunchesRepeated(stage_id=stage_id, stage_attempt=0, executor_id="a", list_number=9, tasks=((0, 0),), at_ms=1)
    )


def test_a_report_of_a_task_that_was_reset_is_ignored() -> None:
    """7.2 (X20): the slot of a reset task was unwrapped, and its panic ended the event loop."""
    job = planned(stage(1, 2))
    job.launch()
    reports: list[TaskSucceeded | TaskFailed] = [
        job.success(1, 0),
        job.failed(1, 0, FailureKind.IO_ERROR),
        job.failed(1, 0, FailureKind.USER_ERROR),
    ]
    job.take_back(1, 0, FailureKind.TASK_KILLED)

    for report in reports:
        assert not job.feed(report)
    assert not job.feed(replace(reports[0], partition=1, task_attempt=1)), "an attempt that was never handed out"


def test_task_update_after_reset_stage() -> None:
    """Reports of an earlier stage attempt, while the next one runs."""
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    job.launch("b")
    late: list[Event] = [job.success(2, 0), job.failed(2, 1, FailureKind.USER_ERROR)]
    job.lose("a")
    assert job.states() == ["running", "unresolved"]
    assert [job.feed(event) for event in late] == [False, False]

    job.run(1, "b")
    job.launch("b")
    assert job.stage(2).attempt == 1
    assert [job.feed(event) for event in late] == [False, False]


def test_do_not_retry_killed_task() -> None:
    """A late report that a task was killed does not launch again a task that was already taken back."""
    job = planned(stage(1, 1))
    job.launch("a")
    late = job.failed(1, 0, FailureKind.TASK_KILLED)
    job.take_back(1, 0, FailureKind.TASK_KILLED)
    job.launch("b")

    assert not job.feed(late)
    assert job.held(1, 0).executor_id == "b"
    assert job.held(1, 0).attempt == 1


def test_a_batch_may_name_a_task_twice() -> None:
    job = planned(stage(1, 2))
    launch = job.launch("a", 1)
    event = TasksLost(
        stage_id=1, stage_attempt=0, executor_id="a", tasks=launch.tasks * 2, reason=FailureKind.TASK_KILLED, at_ms=1
    )
    assert job.feed(event)
    assert not job.feed(event)
    assert job.stage(1).ledger.tasks_lost == 1


def test_an_output_is_recorded_as_of_the_attempt_that_was_held() -> None:
    """A report that contradicts itself cannot disturb the numbering of attempts."""
    job = planned(stage(1, 2), is_shared=False)
    job.launch("a")
    job.take_back(1, 0, FailureKind.TASK_KILLED)
    job.launch("a", life="2")
    event = job.success(1, 0)
    job.feed(replace(event, output=replace(event.output, task_attempt=77, executor_id="b", incarnation="b9")))

    found = job.stage(1).ledger.outputs[0]
    assert (found.task_attempt, found.executor_id, found.incarnation) == (1, "a", "a2")


def test_planning_succeeds_by_its_own_event_alone() -> None:
    job = Job()
    job.launch("planner")
    assert not job.feed(job.success(0, 0))

    event = job.plan(stage(1, 1))
    assert not job.feed(replace(event, task_attempt=1))
    assert not job.feed(replace(event, executor_id="b"))
    assert job.feed(event)
    assert not job.feed(event)


# ---------------------------------------------------------------- launches that never arrived


def test_a_launch_that_never_arrived_is_repeated_once_and_then_taken_back() -> None:
    """2.1 (6, 8): a lost launch left its task running for ever."""
    job = planned(stage(1, 1))
    job.launch("a", list_number=4)
    nothing: frozenset[HeldTask] = frozenset()
    assert lost_launches(job.graph, ExecutorSlot("a", "a1", 4), nothing, 9) == (), "this list is older than the launch"

    (repeated,) = lost_launches(job.graph, ExecutorSlot("a", "a1", 5), nothing, 10)
    assert isinstance(repeated, LaunchesRepeated)
    assert job.feed(repeated)
    assert not job.feed(repeated)
    assert job.held(1, 0).attempt == 0
    assert lost_launches(job.graph, ExecutorSlot("a", "a1", 5), nothing, 10) == ()

    (lost,) = lost_launches(job.graph, ExecutorSlot("a", "a1", 6), nothing, 11)
    assert isinstance(lost, TasksLost)
    assert lost.reason is FailureKind.LAUNCH_LOST
    assert job.feed(lost)
    assert not job.feed(lost)
    assert job.launch("b").tasks == ((0, 1),)
    assert not job.running(1).ledger.failures


def test_a_list_of_another_life_disproves_nothing() -> None:
    job = planned(stage(1, 1))
    job.launch("a", list_number=4)
    assert lost_launches(job.graph, ExecutorSlot("a", "a2", 9), frozenset(), 10) == ()
    assert lost_launches(job.graph, ExecutorSlot("b", "b1", 9), frozenset(), 10) == ()


def test_what_an_executor_holds_is_not_lost() -> None:
    job = planned(stage(1, 2))
    job.launch("a", list_number=4)
    held = frozenset({HeldTask(1, 0, 0, 0)})
    (repeated,) = lost_launches(job.graph, ExecutorSlot("a", "a1", 5), held, 10)
    assert repeated.tasks == ((1, 0),)


def test_wanted_tasks_are_those_of_this_life() -> None:
    job = planned(stage(1, 4))
    job.launch("a", 2)
    job.launch("a", 1, life="2")
    job.launch("b", 1)

    assert wanted_tasks(job.graph, "a", "a1") == {HeldTask(1, 0, 0, 0), HeldTask(1, 0, 1, 0)}
    assert wanted_tasks(job.graph, "a", "a2") == {HeldTask(1, 0, 2, 0)}
    job.feed(JobCancelled(reason="enough", at_ms=5))
    assert wanted_tasks(job.graph, "a", "a1") == frozenset()


# ---------------------------------------------------------------- many at once


def test_many_at_once_are_the_same_as_one_after_the_other() -> None:
    job = planned(*chain(2, partitions=3))
    job.launch("a")
    first, second, third = (job.success(1, p) for p in range(3))
    stale = replace(third, stage_attempt=7)
    events: list[Event] = [first, first, job.failed(1, 1, FailureKind.IO_ERROR), second, stale, third, third, first]

    one_by_one = job.graph
    for event in events:
        one_by_one = apply(one_by_one, event)

    assert apply_all(job.graph, events) == one_by_one
    assert one_by_one.stages[1].ledger.metrics.rows_out == 20
    assert apply_all(one_by_one, events) is one_by_one
    assert apply_all(one_by_one, ()) is one_by_one


def test_a_graph_can_judge_the_tasks_that_it_has_learned_of_and_no_later_ones() -> None:
    job = planned(*chain(2, 1))
    task = HeldTask(1, 0, 0, 0)
    assert not can_judge(job.graph, task)
    job.launch(limit=1)
    assert can_judge(job.graph, task)
    assert not can_judge(job.graph, task._replace(partition=1))
    assert not can_judge(job.graph, task._replace(task_attempt=1))
    assert not can_judge(job.graph, task._replace(stage_attempt=1))
    assert not can_judge(job.graph, HeldTask(9, 0, 0, 0))
    job.fail(1, 0, FailureKind.IO_ERROR)
    assert can_judge(job.graph, task)
    assert not can_judge(job.graph, task._replace(task_attempt=1))
    job.launch(limit=1)
    job.succeed(1, 0)
    assert can_judge(job.graph, task._replace(task_attempt=1))
    job.feed(JobCancelled(reason="enough", at_ms=job.tick()))
    assert can_judge(job.graph, HeldTask(9, 0, 0, 0))
