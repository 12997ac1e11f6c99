"""The classes of failure (2.4) and the limits at which trying again ends."""

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    ExecutorSlot,
    Failed,
    FailedStage,
    FailureKind,
    FetchFailure,
    JobState,
    RetryLimits,
    TasksLaunched,
    available_tasks,
    has_failed_somewhere,
    has_runnable_work,
    paused_tasks,
    pop_next_tasks,
)
from tests.unit.execution_graph.builder import Job, chain, planned, stage, with_sink


@pytest.mark.parametrize("kind", [k for k in FailureKind if k.is_retryable])
def test_a_retryable_failure_hands_the_task_out_again(kind: FailureKind) -> None:
    job = planned(stage(1, 2))
    job.launch("a")
    job.fail(1, 0, kind)

    assert job.graph.is_active
    assert job.launch("b").tasks == ((0, 1),)


def test_max_task_failed_count() -> None:
    job = planned(stage(1, 2))
    for _ in range(3):
        job.launch("a")
        job.fail(1, 0, FailureKind.IO_ERROR)
        assert job.graph.is_active
    job.launch("a")
    job.fail(1, 0, FailureKind.IO_ERROR)

    outcome = job.graph.outcome
    assert isinstance(outcome, Failed)
    assert outcome.failure.message == "Task 0 in stage 1 failed 4 times; the most recent failure: it broke"
    assert isinstance(job.stage(1), FailedStage)
    assert job.stage(1).ledger.tasks_failed == 4


def test_failures_are_counted_by_partition() -> None:
    job = planned(stage(1, 4))
    for partition in range(4):
        for _ in range(3):
            job.launch("a")
            job.fail(1, partition, FailureKind.IO_ERROR)
    assert job.graph.is_active


@pytest.mark.parametrize(
    "kind", [FailureKind.TASK_KILLED, FailureKind.RESULT_LOST, FailureKind.LAUNCH_LOST, FailureKind.EXECUTOR_LOST]
)
def test_an_uncounted_failure_never_reaches_the_limit(kind: FailureKind) -> None:
    """2.4: the number was raised by every retryable failure, but tested on counted ones only."""
    job = planned(stage(1, 1))
    for _ in range(10):
        job.launch("a")
        job.fail(1, 0, kind)
    for _ in range(3):
        job.launch("a")
        job.fail(1, 0, FailureKind.IO_ERROR)

    assert job.graph.is_active
    assert job.stage(1).ledger.tasks_lost == 10


def test_only_a_success_forgives_failures() -> None:
    """2.4: any status that was not a failure, "running" included, set the counter back."""
    job = planned(*chain(2, partitions=1), is_shared=False)
    for _ in range(3):
        job.launch("a")
        job.fail(1, 0, FailureKind.IO_ERROR)
    job.launch("a")
    assert dict(job.running(1).ledger.failures) == {0: 3}
    job.succeed(1, 0)
    job.lose("a")

    job.launch("b")
    job.fail(1, 0, FailureKind.IO_ERROR)
    assert job.graph.is_active


def test_a_user_error_fails_the_job_at_once_with_its_own_message() -> None:
    job = planned(stage(1, 2))
    job.launch("a")
    job.fail(1, 1, FailureKind.USER_ERROR)

    outcome = job.graph.outcome
    assert isinstance(outcome, Failed)
    assert outcome.failure.message == "it broke"
    assert (outcome.stage_id, job.graph.state) == (1, JobState.FAILED)


def test_fail_job_sets_end_time() -> None:
    job = planned(stage(1, 2))
    job.launch("a")
    event = job.failed(1, 1, FailureKind.USER_ERROR)
    job.feed(event)

    failed = job.stage(1)
    assert isinstance(failed, FailedStage)
    assert job.graph.ended_ms == failed.ended_ms == event.at_ms


def test_planning_fails_like_any_other_task() -> None:
    job = Job()
    for _ in range(3):
        job.launch("a")
        job.fail(0, 0, FailureKind.IO_ERROR)
    assert job.graph.state.value == "planning"
    job.launch("a")
    job.fail(0, 0, FailureKind.USER_ERROR)
    assert job.graph.state is JobState.FAILED


def test_limits_come_with_the_job() -> None:
    job = planned(stage(1, 1), limits=RetryLimits(task_max_failures=1))
    job.launch("a")
    job.fail(1, 0, FailureKind.IO_ERROR)
    assert job.graph.state is JobState.FAILED


# ---------------------------------------------------------------- fetch failures that say nothing


@pytest.mark.parametrize(
    "fetch",
    [None, FetchFailure(0, 0, "plan"), FetchFailure(2, 0, "x"), FetchFailure(99, 0, "x"), FetchFailure(-1, 0, "x"),
     FetchFailure(1, 7, "x"), FetchFailure(1, 0, "made up")],
)  # fmt: skip
def test_a_fetch_failure_that_names_no_output_counts_like_any_io(fetch: FetchFailure | None) -> None:
    """Nothing would be made again, so it could come back for ever."""
    job = planned(*chain(2, partitions=1))
    job.run(1)
    for _ in range(4):
        assert job.graph.is_active
        job.launch("b")
        assert job.feed(job.failed(2, 0, FailureKind.FETCH_FAILED, fetch=fetch))
    assert job.graph.state is JobState.FAILED


def test_a_fetch_failure_while_publishing_never_makes_anything_again() -> None:
    """A second manifest would disagree with what the first one has moved already."""
    job = planned(*with_sink(stage(1, 1)))
    job.run(1)
    job.run(2)
    job.launch("a")
    job.feed(job.cannot_fetch(3, 0, 2, 0))

    assert job.states() == ["successful", "successful", "running"]
    job.run(3, "b")
    assert job.graph.state is JobState.SUCCESSFUL


# ---------------------------------------------------------------- where a task is tried again


def test_a_task_is_tried_again_where_it_has_not_failed() -> None:
    job = planned(stage(1, 3))
    job.launch("a", 1)
    job.fail(1, 0, FailureKind.IO_ERROR)
    everybody = ["a", "b"]

    def popped(executor: str, executors: list[str], limit: int = 9) -> list[int]:
        event = pop_next_tasks(job.graph, ExecutorSlot(executor, executor + "1", 0), limit, job.now_ms, executors)
        return [] if event is None else [partition for partition, _ in event.tasks]

    assert popped("a", everybody) == [1, 2]
    assert popped("a", everybody, limit=1) == [1]
    assert popped("b", everybody) == [0, 1, 2]
    assert popped("a", ["a"]) == [0, 1, 2], "there is no other"
    assert popped("a", []) == [0, 1, 2]
    job.launch("b", 1)
    job.fail(1, 0, FailureKind.IO_ERROR)
    assert popped("a", everybody) == [0, 1, 2], "it failed everywhere"
    assert popped("a", [*everybody, "c"]) == [1, 2]
    job.launch("c", 1)
    job.succeed(1, 0)
    assert not has_failed_somewhere(job.graph)


def test_failures_that_do_not_count_are_no_reason_to_go_elsewhere() -> None:
    job = planned(stage(1, 1))
    job.launch("a")
    job.fail(1, 0, FailureKind.TASK_KILLED)
    event = pop_next_tasks(job.graph, ExecutorSlot("a", "a1", 0), 1, job.now_ms, ["a", "b"])
    assert event is not None
    assert event.tasks == ((0, 1),)


# ---------------------------------------------------------------- pauses before retries

PAUSES = RetryLimits(retry_pauses_ms=(500, 2_000, 6_000))


def pop(job: Job, at_ms: int, limit: int = 9) -> list[int]:
    event = pop_next_tasks(job.graph, ExecutorSlot("b", "b1", 0), limit, at_ms)
    return [] if event is None else [partition for partition, _ in event.tasks]


def test_a_task_that_failed_is_handed_out_again_after_a_pause_that_grows() -> None:
    job = planned(stage(1, 1), limits=PAUSES)
    waited = []
    for failures in (1, 2, 3):
        job.launch("a")
        job.fail(1, 0, FailureKind.IO_ERROR)
        (paused,) = paused_tasks(job.graph, job.now_ms)
        assert (paused.stage_id, paused.partition, paused.failures, paused.message) == (
            1,
            0,
            failures,
            "it broke",
        )
        assert available_tasks(job.graph) == 1
        assert has_runnable_work(job.graph), "some time"
        waited.append(paused.until_ms - job.now_ms)
        assert pop(job, paused.until_ms - 1) == []
        assert pop(job, paused.until_ms) == [0]
        assert paused_tasks(job.graph, paused.until_ms) == ()
        job.now_ms = paused.until_ms
    assert waited == [500, 2_000, 6_000]
    job.launch("a")
    job.fail(1, 0, FailureKind.IO_ERROR)
    assert job.graph.state is JobState.FAILED
    assert paused_tasks(job.graph, job.now_ms) == ()


def test_the_last_pause_goes_for_all_tries_that_follow_and_none_given_means_at_once() -> None:
    assert [PAUSES.pause_after(n) for n in (1, 2, 3, 4, 9)] == [500, 2_000, 6_000, 6_000, 6_000]
    assert RetryLimits().pause_after(1) == 0


def test_others_do_not_wait_for_a_task_that_failed() -> None:
    job = planned(stage(1, 4), limits=PAUSES)
    job.launch("a", 2)
    job.fail(1, 0, FailureKind.IO_ERROR)
    assert pop(job, job.now_ms) == [2, 3]
    assert pop(job, job.now_ms, limit=1) == [2]
    assert pop(job, job.now_ms + 500) == [0, 2, 3]


@pytest.mark.parametrize("kind", [k for k in FailureKind if k.is_retryable and not k.is_counted])
def test_there_is_no_pause_after_a_failure_that_does_not_count(kind: FailureKind) -> None:
    job = planned(stage(1, 1), limits=PAUSES)
    job.launch("a")
    job.fail(1, 0, kind)
    assert pop(job, job.now_ms) == [0]


def test_a_success_ends_the_growth_of_pauses() -> None:
    job = planned(stage(1, 1), stage(2, 1, reads=(1,)), is_shared=False, limits=PAUSES)
    job.launch("a")
    job.fail(1, 0, FailureKind.IO_ERROR)
    job.now_ms += 500
    job.run(1)
    job.lose("a")
    job.launch("b")
    job.fail(1, 0, FailureKind.IO_ERROR)
    assert [t.until_ms - job.now_ms for t in paused_tasks(job.graph, job.now_ms)] == [500]


def test_a_pause_is_no_longer_than_itself_for_a_clock_that_is_far_behind() -> None:
    """Otherwise a task that failed under one scheduler would wait for the clock of the next."""
    job = planned(stage(1, 1), limits=PAUSES)
    job.launch("a")
    job.fail(1, 0, FailureKind.IO_ERROR)
    assert pop(job, job.now_ms - 499) == [], "a little behind"
    assert pop(job, job.now_ms - 500) == [0]
    assert pop(job, 0) == [0]


def test_a_launch_by_a_scheduler_that_ignores_pauses_counts() -> None:
    job = planned(stage(1, 1), limits=PAUSES)
    job.launch("a")
    job.fail(1, 0, FailureKind.IO_ERROR)
    job.feed(
        TasksLaunched(
            stage_id=1,
            stage_attempt=0,
            executor_id="a",
            incarnation="a1",
            list_number=0,
            tasks=((0, 1),),
            at_ms=job.now_ms,
        )
    )
    assert job.held(1, 0).attempt == 1
    assert not job.running(1).paused
    job.succeed(1, 0)
    assert job.graph.state is JobState.SUCCESSFUL


def test_of_a_failure_only_the_beginning_of_its_message_is_kept_with_each_task() -> None:
    job = planned(stage(1, 1), limits=PAUSES)
    job.launch("a")
    event = job.failed(1, 0, FailureKind.IO_ERROR)
    job.feed(replace(event, failure=replace(event.failure, message="x" * 10_000)))
    (paused,) = paused_tasks(job.graph, job.now_ms)
    assert paused.message == "x" * 300
