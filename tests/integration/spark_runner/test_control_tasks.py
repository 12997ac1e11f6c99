"""Planning that is cancelled: nothing starts afterwards, and the slot is free once the work has ended."""

import math
import os
import threading
from collections.abc import Callable

import pytest

from benchmarks.exchange.runner_process import busy_threads
from onager.clock import SystemClock
from onager.errors import PlanningTimeoutError
from onager.executor.spark.control_tasks import ControlTasks
from onager.executor.spark.deadlines import Deadlines
from onager.executor.work import Assignment
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_keys
from tests.support.waiting import HANGS_S, until


class Controlled:
    """Control tasks of one action each, and what was reported of them."""

    def __init__(self, runner, deadlines: Deadlines | None = None) -> None:
        self.reports: list[pb.TaskReport] = []
        self.reported = threading.Event()
        self.begun = threading.Event()
        self._work: Callable = print
        self.tasks = ControlTasks(runner.kernel, {pb.PLAN: self._act}, SystemClock(), deadlines=deadlines)

    def _act(self, *given) -> pb.TaskSuccess:
        self.begun.set()
        self._work(given[-1])
        return pb.TaskSuccess()

    def start(self, job_id: str, work: Callable) -> pb.TaskSet:
        self._work = work
        task_set = pb.TaskSet(job_id=job_id, work=pb.PLAN, tasks=[pb.TaskAttempt()])
        self.tasks.start(Assignment(task_set, {}), self._on_report)
        assert self.begun.wait(HANGS_S)
        return task_set

    def _on_report(self, report: pb.TaskReport) -> None:
        self.reports.append(report)
        self.reported.set()

    def kind(self) -> str:
        """Return what became of the task, once that is reported."""
        assert self.reported.wait(HANGS_S)
        (report,) = self.reports
        return report.failure.kind if report.HasField("failure") else "success"


@pytest.fixture
def controlled(runner) -> Controlled:
    return Controlled(runner)


def test_no_spark_job_starts_after_planning_was_cancelled(controlled, spark, tmp_path):
    goes_on = threading.Event()
    mark = tmp_path / "ran"

    def touch(_):
        mark.touch()

    def work(_cancellation) -> None:
        assert goes_on.wait(HANGS_S)
        spark.sparkContext.parallelize([1], 1).foreach(touch)

    task_set = controlled.start("job-cancelled", work)
    controlled.tasks.cancel(task_keys(task_set))
    assert not controlled.reported.wait(0.3), "its thread still works, so its slot is not free"
    goes_on.set()
    assert controlled.kind() == "task_killed"
    assert not mark.exists()
    spark.sparkContext.parallelize([1], 1).foreach(touch)
    assert mark.exists(), "other jobs of the same Spark run"


def test_planning_that_waits_within_the_jvm_is_woken(controlled, spark):
    sleeping = threading.Event()

    def work(_cancellation) -> None:
        thread = spark.sparkContext._jvm.java.lang.Thread
        sleeping.set()
        thread.sleep(600_000)

    task_set = controlled.start("job-asleep", work)
    assert sleeping.wait(HANGS_S)
    controlled.tasks.cancel(task_keys(task_set))
    assert controlled.kind() == "task_killed"


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_a_slot_is_in_use_until_the_tasks_of_a_job_that_ended_have_ended(controlled, spark, how):
    """Spark ends a job without waiting for its tasks, and nothing looks for a cancellation within an expression."""
    slow, slower, sooner = (
        f"levenshtein(repeat('ab', cast({length} + id AS int)), repeat('ba', cast({length} + id AS int)))"
        for length in (5000, 7000, 1500)
    )
    two = {"cancelled": slower, "failed": f"IF(id = 0, {slow}, raise_error(CAST({sooner} AS string)))"}[how]

    def work(_cancellation) -> None:
        spark.range(0, 2, 1, 2).selectExpr(two).collect()

    task_set = controlled.start(f"job-slow-{how}", work)
    if how == "cancelled":
        until(lambda: len(busy_threads(spark._jvm)) == 2, "two tasks at work")
        controlled.tasks.cancel(task_keys(task_set))
    assert controlled.kind() != "success"
    assert not busy_threads(spark._jvm), "a task goes on of which the slot is free"


def test_what_is_to_be_done_at_a_cancellation_is_done_once_also_when_it_comes_late(controlled):
    goes_on = threading.Event()
    stops: list[str] = []

    def work(cancellation) -> None:
        with cancellation.stopping(lambda: stops.append("early")):
            assert goes_on.wait(HANGS_S)
        with cancellation.stopping(lambda: stops.append("late")):
            cancellation.check()

    task_set = controlled.start("job-stops", work)
    controlled.tasks.cancel(task_keys(task_set))
    goes_on.set()
    assert controlled.kind() == "task_killed"
    assert stops == ["early", "late"]


def test_a_job_is_closed_when_what_runs_of_it_has_ended(controlled):
    goes_on = threading.Event()
    controlled.start("job-closed", lambda _cancellation: goes_on.wait(HANGS_S))
    threading.Timer(0.3, goes_on.set).start()
    assert controlled.tasks.close_job("job-closed")
    assert controlled.reported.is_set()
    assert controlled.tasks.close_job("job-closed")


def test_an_error_whose_text_is_no_unicode_is_reported(controlled):
    def work(_cancellation) -> None:
        error = ValueError(os.fsdecode(b"no such file: \xff"))
        error.add_note(os.fsdecode(b"see \xfe"))
        raise error

    controlled.start("job-unclean", work)
    assert controlled.kind() == "io_error"
    assert controlled.reports[0].failure.message.endswith("ValueError: no such file: ?\nsee ?")


def test_an_error_that_cannot_say_what_it_is_is_reported(controlled):
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ConnectionError("the JVM is gone")

    def work(_cancellation) -> None:
        raise MuteError

    controlled.start("job-mute", work)
    assert controlled.kind() == "io_error"
    assert "MuteError" in controlled.reports[0].failure.message


TOO_LONG = PlanningTimeoutError(0.05, "the.setting")


def test_planning_that_takes_too_long_is_stopped_and_fails_of_that(runner, spark):
    deadlines = Deadlines(SystemClock(), math.inf)
    controlled = Controlled(runner, deadlines)

    def work(cancellation) -> None:
        with cancellation.limited(0.05, TOO_LONG):
            spark.sparkContext._jvm.java.lang.Thread.sleep(600_000)

    controlled.start("job-late", work)
    until(lambda: deadlines.enforce() or controlled.reported.is_set(), "the end of planning")
    (report,) = controlled.reports
    assert report.failure.message == str(TOO_LONG)


def test_planning_that_does_not_stop_is_reported_all_the_same_once(runner):
    deadlines = Deadlines(SystemClock(), 0.05)
    controlled = Controlled(runner, deadlines)
    goes_on = threading.Event()

    def work(cancellation) -> None:
        with cancellation.limited(0.05, TOO_LONG):
            assert goes_on.wait(HANGS_S)

    controlled.start("job-deaf", work)
    stuck = until(deadlines.enforce, "the end of its grace")
    assert "job-deaf" in stuck
    assert controlled.reports[0].failure.message == str(TOO_LONG)
    goes_on.set()
    until(lambda: not deadlines.enforce(), "its end")
    assert len(controlled.reports) == 1
