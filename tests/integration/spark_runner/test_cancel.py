"""A cancelled task stops soon, at any point, and is reported once it has ended; other tasks continue."""

import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import functions as fn
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from benchmarks.exchange.runner_process import busy_threads
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from tests.support.selection import some
from tests.support.spark.runner import cut
from tests.support.waiting import HANGS_S, until


class Launched:
    """Tasks of a stage in flight."""

    def __init__(self, job, stage_id, plan):
        self.task_set = job.task_set(stage_id, plan, range(plan.partitions))
        self.reports: dict[int, pb.TaskReport] = {}
        self.changed = threading.Condition()
        job.runner.run(self.task_set, plan, self._on_report)

    def _on_report(self, report):
        with self.changed:
            assert report.task.partition not in self.reports
            self.reports[report.task.partition] = report
            self.changed.notify_all()

    def key(self, partition):
        return TaskKey(self.task_set.job_id, self.task_set.stage_id, 0, partition, 0)

    def ended(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.reports) >= count, HANGS_S), self.reports
            return dict(self.reports)


def slots_are_free(spark, within_s=HANGS_S):
    """Whether tasks of all slots run and end long before what was cancelled would have ended by itself."""
    began = time.monotonic()
    spark.range(0, 2, 1, 2).count()
    return time.monotonic() - began < within_s


def sleeping(spark, path):
    @udf(LongType())
    def sleeps(x):
        Path(f"{path}/{x}").touch()
        time.sleep(2 * HANGS_S)
        return x

    return spark.range(0, 2, 1, 2).select(sleeps("id"))


def looping(spark, path):
    return spark.range(0, 10**13, 1, 2).selectExpr("sum(sqrt(id) * id % 7)")


@pytest.mark.parametrize(
    ("make", "at_work"),
    [
        (sleeping, lambda _, marks: len(list(marks.iterdir()))),
        (looping, lambda spark, _: len(busy_threads(spark._jvm))),
    ],
    ids=["sleeping", "looping"],
)
def test_a_whole_share_is_cancelled(spark, job, tmp_path, make, at_work):
    slots_are_free(spark)
    stage = cut(spark, make(spark, tmp_path))[0]
    launched = Launched(job, 1, stage.plan)
    until(lambda: at_work(spark, tmp_path) >= 2, what="two tasks at work")
    job.runner.cancel([launched.key(0), launched.key(1)])
    reports = launched.ended(2)
    assert {r.failure.kind for r in reports.values()} == {"task_killed"}
    assert slots_are_free(spark)


@pytest.mark.parametrize("cancelled", some([[0], [0, 1]]), ids=some(["one", "all"]))
def test_a_slot_is_in_use_until_the_cancelled_task_has_ended(spark, job, cancelled):
    """Nothing looks for a cancellation within an expression."""
    text = [f"repeat('{two}', cast(12000 + id AS int))" for two in ("ab", "ba")]
    (stage,) = cut(spark, spark.range(0, 2, 1, 2).selectExpr(f"levenshtein({', '.join(text)})"))
    launched = Launched(job, 1, stage.plan)
    until(lambda: len(busy_threads(spark._jvm)) == 2, "two tasks at work")
    job.runner.cancel([launched.key(partition) for partition in cancelled])
    reports = launched.ended(2)
    at_work = [stack for stack in busy_threads(spark._jvm) if "levenshtein" in stack]
    assert not at_work, "a task goes on of which the slot is free"
    assert {p: r.failure.kind for p, r in reports.items() if r.HasField("failure")} == dict.fromkeys(
        cancelled, "task_killed"
    )


def test_one_partition_is_cancelled_and_its_neighbour_goes_on(spark, job, tmp_path):
    @udf(LongType())
    def waits(x):
        Path(f"{tmp_path}/began-{x}").touch()
        while not Path(f"{tmp_path}/go").exists():
            time.sleep(0.05)
        return x

    (stage,) = cut(spark, spark.range(0, 2, 1, 2).select(waits("id")))
    launched = Launched(job, 1, stage.plan)
    until(lambda: len(list(tmp_path.glob("began-*"))) == 2)
    job.runner.cancel([launched.key(0)])
    assert launched.ended(1)[0].failure.kind == "task_killed"
    (tmp_path / "go").write_text("")
    assert launched.ended(2)[1].HasField("success")
    assert slots_are_free(spark)


def test_cancelled_while_its_broadcast_is_built(spark, job, tmp_path):
    few = sleeping(spark, tmp_path).toDF("v")
    stages = cut(spark, spark.range(0, 2, 1, 2).selectExpr("id v").join(fn.broadcast(few), "v"))
    stage = stages[-1]
    if len(stages) > 1:  # the broadcast's rows come from a stage of their own
        launched = Launched(job, stages[0].stage_id, stages[0].plan)
    else:
        launched = Launched(job, stage.stage_id, stage.plan)
    until(lambda: any(tmp_path.iterdir()), what="a task that makes rows of the broadcast")
    job.runner.cancel([launched.key(0), launched.key(1)])
    assert {r.failure.kind for r in launched.ended(2).values()} == {"task_killed"}
    assert slots_are_free(spark)


def test_closing_a_job_stops_what_runs_of_it(spark, job, tmp_path):
    stage = cut(spark, sleeping(spark, tmp_path))[0]
    launched = Launched(job, 1, stage.plan)
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    assert job.runner.kept_jobs() == {job.job_id}
    job.runner.close_job(job.job_id)
    assert not job.runner.kept_jobs()
    assert {r.failure.kind for r in launched.ended(2).values()} == {"task_killed"}
    assert slots_are_free(spark)


def test_cancelling_what_is_not_there_does_nothing(job):
    job.runner.cancel([TaskKey("job-none", 1, 0, 0, 0)])
    job.runner.close_job("job-none")


def private_field(of, name):
    """Return the value of a private field of a Java object."""
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(of)


def test_a_task_whose_start_is_reported_late_is_forgotten_at_its_end(spark):
    scheduler = spark._jvm.org.apache.spark.scheduler
    tracker = spark._jvm.onager.jobs.JobGroups(spark.sparkContext._jsc.sc()).tracker()
    private_field(tracker, "runOfStage").put(7_000_007, "a run that has ended")
    local = scheduler.TaskLocality.PROCESS_LOCAL()
    task = scheduler.TaskInfo(9_000_009, 0, 0, 0, 0, "driver", "localhost", local, False)

    tracker.onTaskStart(scheduler.SparkListenerTaskStart(7_000_007, 0, task))
    assert private_field(tracker, "tasks").size() == 1
    tracker.onTaskEnd(scheduler.SparkListenerTaskEnd(7_000_007, 0, "ResultTask", None, task, None, None))

    assert private_field(tracker, "tasks").isEmpty()


def test_nothing_waits_while_a_session_is_made(runner, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    make = runner.kernel.session

    def slow(spark, conf):
        begun.set()
        assert go_on.wait(HANGS_S)
        return make(spark, conf)

    monkeypatch.setattr(runner.kernel, "session", slow)
    sessions = []
    conf = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    callers = [threading.Thread(target=lambda: sessions.append(runner.binder.session(conf))) for _ in range(2)]
    for caller in callers:
        caller.start()
    assert begun.wait(HANGS_S)
    others = threading.Thread(target=runner.binder.jobs, daemon=True)
    others.start()
    others.join(HANGS_S)
    assert not others.is_alive()
    go_on.set()
    for caller in callers:
        caller.join(HANGS_S)
    assert len(sessions) == 2
    assert sessions[0] is sessions[1], "it is made once"
