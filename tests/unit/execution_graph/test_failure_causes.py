"""The causes of failures: their effect, and how versions that do not know them read them."""

import json

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    EventBatch,
    ExecutorSlot,
    Failed,
    FailureCause,
    FailureKind,
    RetryLimits,
    decode_batch,
    encode_batch,
    has_failed_somewhere,
    paused_tasks,
    pop_next_tasks,
)
from onager.execution_graph.failures import UNCOUNTED_PAUSE_MS
from tests.unit.execution_graph.builder import Job, planned, stage

KIND = {
    FailureCause.INTERNAL_ERROR: FailureKind.IO_ERROR,
    FailureCause.NO_SPACE: FailureKind.TASK_KILLED,
    FailureCause.OTHER_VERSION: FailureKind.TASK_KILLED,
    FailureCause.NO_PLACE: FailureKind.TASK_KILLED,
    FailureCause.CATALOG_CHANGED: FailureKind.IO_ERROR,
}


def fail(job: Job, partition: int, cause: FailureCause, *, second: bool = False) -> None:
    task = job.second(1, partition) if second else None
    event = job.failed(1, partition, KIND[cause], task=task)
    job.feed(replace(event, failure=replace(event.failure, cause=cause)))


def pop(job: Job, executor: str, at_ms: int, executors: tuple[str, ...] = ("a", "b")) -> list[int]:
    launched = pop_next_tasks(job.graph, ExecutorSlot(executor, f"{executor}1", 0), 9, at_ms, executors)
    return [] if launched is None else [p for p, _ in launched.tasks]


def test_an_error_of_ours_is_tried_elsewhere_and_counted_and_reported_as_such() -> None:
    job = planned(stage(1, 1))
    for attempt in range(4):
        assert job.graph.is_active
        job.launch("ab"[attempt % 2])
        fail(job, 0, FailureCause.INTERNAL_ERROR)
        if not attempt:
            assert pop(job, "a", job.now_ms) == []
            assert pop(job, "b", job.now_ms) == [0]
    assert isinstance(job.graph.outcome, Failed)
    assert job.graph.outcome.failure.shown_kind == "internal_error"
    assert job.graph.outcome.failure.message.startswith("Task 0 in stage 1 failed 4 times")


def test_a_catalog_that_has_changed_is_no_reason_to_leave_an_executor_and_counts() -> None:
    job = planned(stage(1, 1))
    for attempt in range(4):
        assert job.graph.is_active
        if attempt:
            assert pop(job, "a", job.now_ms) == [0]
        job.launch("a")
        fail(job, 0, FailureCause.CATALOG_CHANGED)
    assert isinstance(job.graph.outcome, Failed)


def test_a_task_that_found_no_space_waits_and_is_tried_for_ever() -> None:
    job = planned(stage(1, 1), limits=RetryLimits(task_max_failures=2))
    for _ in range(20):
        job.launch("a")
        fail(job, 0, FailureCause.NO_SPACE)
        assert pop(job, "a", job.now_ms) == []
        (waits,) = paused_tasks(job.graph, job.now_ms)
        assert (waits.partition, waits.failures, waits.message) == (0, 0, "it broke")
        job.now_ms += UNCOUNTED_PAUSE_MS
        assert pop(job, "a", job.now_ms) == [0], "there as well: it may be the only one with space now"
    assert job.graph.is_active
    assert (job.stage(1).ledger.tasks_lost, job.stage(1).ledger.tasks_failed) == (20, 0)


@pytest.mark.parametrize("cause", [FailureCause.OTHER_VERSION, FailureCause.NO_PLACE])
def test_what_one_executor_cannot_read_or_see_goes_to_another_at_once_and_does_not_count(cause: FailureCause) -> None:
    job = planned(stage(1, 2), limits=RetryLimits(task_max_failures=1))
    job.launch("a")
    fail(job, 0, cause)
    assert has_failed_somewhere(job.graph)
    assert pop(job, "a", job.now_ms) == []
    assert pop(job, "b", job.now_ms) == [0]
    assert not job.running(1).ledger.failures


def test_one_that_comes_back_to_such_an_executor_waits() -> None:
    job = planned(stage(1, 1))
    for is_second in (False, True):
        job.launch("a")
        fail(job, 0, FailureCause.OTHER_VERSION)
        assert bool(paused_tasks(job.graph, job.now_ms)) == is_second


@pytest.mark.parametrize("cause", FailureCause)
def test_a_cause_survives_the_log_and_is_ignored_by_versions_that_do_not_know_it(cause: FailureCause) -> None:
    job = planned(stage(1, 1))
    job.launch("a")
    event = job.failed(1, 0, KIND[cause])
    batch = EventBatch(batch_id="b", events=(replace(event, failure=replace(event.failure, cause=cause)),))
    data = encode_batch(batch)
    assert decode_batch(data) == batch
    record = json.loads(data)
    assert record["events"][0]["failure"].pop("cause") == cause.value
    assert decode_batch(json.dumps(record, separators=(",", ":")).encode()).events == (event,)
