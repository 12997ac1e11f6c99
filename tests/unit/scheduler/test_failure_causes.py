"""Reports of failures with a cause: read so that they count rightly, and reported by the cause."""

from types import SimpleNamespace

import pytest

from onager.execution_graph import ExecutorSlot, Failure, FailureCause, FailureKind
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import by_key
from onager.scheduler import wire
from onager.scheduler.engine.reports import ReportReader
from tests.unit.execution_graph.builder import Job, planned, stage
from tests.unit.scheduler.parts import executors

SLOT = ExecutorSlot("a", "a1", 1)


@pytest.mark.parametrize(
    ("kind", "cause", "read_as"),
    [
        ("io_error", "internal_error", (FailureKind.IO_ERROR, FailureCause.INTERNAL_ERROR)),
        ("io_error", "no_space", (FailureKind.TASK_KILLED, FailureCause.NO_SPACE)),
        ("io_error", "other_version", (FailureKind.TASK_KILLED, FailureCause.OTHER_VERSION)),
        ("io_error", "no_place", (FailureKind.TASK_KILLED, FailureCause.NO_PLACE)),
        ("io_error", "invented_later", (FailureKind.IO_ERROR, None)),
        ("user_error", "", (FailureKind.USER_ERROR, None)),
        ("invented_later", "", (FailureKind.IO_ERROR, FailureCause.INTERNAL_ERROR)),
    ],
)
def test_a_cause_says_whether_a_report_counts_and_is_what_people_see(kind, cause, read_as):
    read = wire.failure_from(pb.Failure(kind=kind, cause=cause, message="m"))
    assert (read.kind, read.cause) == read_as
    assert wire.failure_message(read).kind == (read.cause or read.kind).value


def reader(*taking_work):
    return ReportReader(None, None, SimpleNamespace(now_ms=lambda: 9), executors(*taking_work))


async def read(made: ReportReader, job: Job, failure: pb.Failure, partition: int = 0) -> Failure:
    task = pb.TaskId(job_id="job-1", stage_id=1, partition=partition, task_attempt=job.held(1, partition).attempt)
    (event,) = await made.read_reports(job.graph, SLOT, by_key([pb.TaskReport(task=task, failure=failure)]))
    return event.failure


UNREADABLE = pb.Failure(kind="io_error", cause="other_version", message="it was planned by Spark 4.3.1, this has 4.3.0")


async def test_a_plan_that_one_of_several_cannot_read_is_for_the_others():
    job = planned(stage(1, 2))
    job.launch("a")
    assert (await read(reader("a", "b"), job, UNREADABLE)).cause is FailureCause.OTHER_VERSION
    assert (await read(reader(), job, UNREADABLE)).cause is FailureCause.OTHER_VERSION, "nobody takes work just now"


async def test_a_plan_that_no_executor_can_read_fails_the_job_and_says_what_to_do():
    job = planned(stage(1, 2))
    job.launch("a")
    failure = await read(reader("a"), job, UNREADABLE)
    assert failure.kind is FailureKind.USER_ERROR
    assert failure.message.startswith(UNREADABLE.message)
    assert "submit the query again" in failure.message


def unseen(error_class):
    return pb.Failure(kind="io_error", cause="no_place", message="/w is not seen here", error_class=error_class)


def reader_where(*, place, may_see):
    found = executors("a", may_see={place: may_see}.__getitem__)
    return ReportReader(None, None, SimpleNamespace(now_ms=lambda: 9), found)


@pytest.mark.parametrize(
    ("error_class", "place"),
    [
        ("PLACE_NOT_SEEN.root-0123456789abcdef", "root-0123456789abcdef"),
        ("PLACE_NOT_SEEN", "warehouse"),
    ],
)
async def test_a_directory_that_an_executor_may_come_to_see_is_waited_for_and_if_none_may_the_job_fails(
    error_class, place
):
    error = unseen(error_class)
    job = planned(stage(1, 2))
    job.launch("a")
    for _ in range(3):
        assert (await read(reader_where(place=place, may_see=True), job, error)).cause is FailureCause.NO_PLACE
    failure = await read(reader_where(place=place, may_see=False), job, error)
    assert failure.kind is FailureKind.USER_ERROR
    assert failure.message == "/w is not seen here; no executor sees it: mount it, and submit again"


async def test_without_the_exchange_directory_a_job_waits_since_its_executor_takes_no_more_work():
    job = planned(stage(1, 2))
    job.launch("a")
    lost = pb.Failure(kind="io_error", cause="no_place", message="it was lost", error_class="EXCHANGE_NOT_SEEN")
    assert (await read(reader("a"), job, lost)).cause is FailureCause.NO_PLACE


async def test_it_goes_on_where_another_executor_failed_for_another_reason():
    job = planned(stage(1, 2))
    job.launch("b")
    job.fail(1, 0, FailureKind.IO_ERROR)
    job.launch("a", limit=1)
    assert (await read(reader("a", "b"), job, UNREADABLE)).cause is FailureCause.OTHER_VERSION


async def test_a_failure_carries_what_the_attempt_cost():
    job = planned(stage(1, 2))
    job.launch("a")
    cost = pb.TaskMetrics(run_ms=70, queued_ms=5)
    task = pb.TaskId(job_id="job-1", stage_id=1)
    report = pb.TaskReport(task=task, failure=pb.Failure(kind="io_error", message="it broke"), failed_metrics=cost)
    (event,) = await reader("a").read_reports(job.graph, SLOT, by_key([report]))
    assert (event.metrics.run_ms, event.metrics.queued_ms) == (70, 5)


async def test_a_success_that_cannot_be_used_is_not_the_users_error():
    job = planned(stage(1, 1))
    job.launch("a")
    output = pb.TaskOutput(nonce="n", executor_id="a", inline=True)
    task = pb.TaskId(job_id="job-1", stage_id=1)
    report = pb.TaskReport(task=task, success=pb.TaskSuccess(output=output))
    (event,) = await reader("a").read_reports(job.graph, SLOT, by_key([report]))
    assert (event.failure.kind, event.failure.cause) == (FailureKind.IO_ERROR, FailureCause.INTERNAL_ERROR)
