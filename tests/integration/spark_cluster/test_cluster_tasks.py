"""Tasks in a cluster's processes: what Spark starts again there, and what it must not."""

import threading
import time
from pathlib import Path

from pyspark.sql.functions import udf

from onager.clock import ManualClock
from onager.executor.spark.cluster import SparkCluster as Connection
from onager.executor.spark.cluster import executor_count
from onager.ids import JobId, TaskKey
from tests.integration.spark_cluster.conftest import INCARNATION
from tests.support.spark.runner import JobRun, cut
from tests.support.trees import below
from tests.support.waiting import HANGS_S, until

ROWS = 100_000


def held_exchange(spark, gate: Path):
    """Two tasks that write an exchange, and each wait at *gate* before their last row."""
    directory = str(gate)

    def passes(number):
        import os
        import pathlib
        import time

        gate = pathlib.Path(directory)
        while (number + 1) % 100_000 == 0 and not (gate / "open").exists():
            (gate / f"held-{number // 100_000}-{os.getpid()}").touch()
            time.sleep(0.02)
        return "x" * 100  # Python hands on what it gives in buffers: much of it, so that rows flow

    frame = spark.range(0, 2 * ROWS, 1, 2).select("id", udf(passes, "string")("id"))
    first, *_ = cut(spark, frame.repartition(3, "id"))
    return first


class Started:
    """Both tasks of the stage, under way."""

    def __init__(self, runner, job: JobRun, plan) -> None:
        self.reports = []
        self.ended = threading.Semaphore(0)
        self.task_set = job.task_set(1, plan, [0, 1])
        runner.run(self.task_set, plan, self._on_report)

    def _on_report(self, report) -> None:
        self.reports.append(report)
        self.ended.release()

    def key(self, partition: int) -> TaskKey:
        return TaskKey(JobId(self.task_set.job_id), 1, 0, partition, 0)


def held(gate: Path, partition: int) -> list[Path]:
    return list(gate.glob(f"held-{partition}-*"))


def unfinished(exchange_dir: Path, job: JobRun) -> list[str]:
    return sorted(path.name for path in below(exchange_dir / job.job_id, "*.tmp"))


def test_one_of_two_tasks_is_stopped_and_does_not_come_back(spark, runner, exchange_dir, tmp_path):
    job = JobRun(runner, "job-partial", str(exchange_dir))
    started = Started(runner, job, held_exchange(spark, tmp_path).plan)
    until(lambda: held(tmp_path, 0) and held(tmp_path, 1), "two tasks at the gate")
    until(lambda: len(unfinished(exchange_dir, job)) == 2, "two unfinished files")
    assert all(name.endswith(f".{INCARNATION}.tmp") for name in unfinished(exchange_dir, job))
    runner.cancel([started.key(0)])
    assert started.ended.acquire(timeout=HANGS_S)
    assert started.reports[0].failure.kind == "task_killed"
    until(lambda: len(unfinished(exchange_dir, job)) == 1, "the end of its file")
    for mark in held(tmp_path, 0):
        mark.unlink()
    time.sleep(1.5)
    assert not held(tmp_path, 0), "Spark started a task again that nobody wants"
    (tmp_path / "open").touch()
    assert started.ended.acquire(timeout=HANGS_S)
    output = started.reports[1].success.output
    assert output.rows == ROWS
    directory = exchange_dir / job.job_id / "1"
    assert [path.name for path in directory.iterdir()] == [f"1-{output.nonce}.rows"]
    runner.close_job(job.job_id)


def test_what_spark_starts_again_writes_under_a_name_of_its_own(spark, runner, cluster, exchange_dir, tmp_path):
    job = JobRun(runner, "job-lost", str(exchange_dir))
    started = Started(runner, job, held_exchange(spark, tmp_path).plan)
    until(lambda: len(unfinished(exchange_dir, job)) == 2, "two unfinished files")
    before = unfinished(exchange_dir, job)
    for process in cluster.executors():
        process.kill()
    until(lambda: len(unfinished(exchange_dir, job)) == 4, "two more unfinished files")
    assert set(before) < set(unfinished(exchange_dir, job))
    (tmp_path / "open").touch()
    for _ in range(2):
        assert started.ended.acquire(timeout=HANGS_S)
    outputs = [report.success.output for report in started.reports]
    assert [output.rows for output in outputs] == [ROWS, ROWS]
    directory = exchange_dir / job.job_id / "1"
    for report in started.reports:
        assert (directory / f"{report.task.partition}-{report.success.output.nonce}.rows").exists()
    runner.close_job(job.job_id)


def test_a_cluster_without_processes_is_given_up_after_a_minute(spark, runner, cluster):
    clock = ManualClock()
    connection = Connection(spark, runner.kernel, cluster.master, 2, clock)
    assert connection.is_reached()
    cluster.processes[1].kill()
    cluster.processes[1].wait()
    context = spark.sparkContext._jsc.sc()
    until(lambda: executor_count(context) == 0, "no process of the cluster")
    clock.advance(59_000)
    assert connection.is_reached()
    clock.advance(2_000)
    assert not connection.is_reached()
