"""Spark's classes as the JVM lays them out in memory, in a file that the tests' JVMs map instead of loading 15,000.

    python -m tests.support.spark.classes   make the file below var/, unless it is there; takes a minute

A JVM that the file does not fit, because jars changed or it has other ones, loads classes as ever, and says nothing.
"""

import os
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf

from onager.clock import SystemClock
from onager.executor.spark.kernel_jar import kernel_jar
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.session import start_session, warm_up
from tests.support.spark.jvm_options import CLASSES, QUICK, SILENT
from tests.support.spark.runner import PLANNING_CONF, JobRun, cut
from tests.support.waiting import HANGS_S

SLOTS = 2


def make() -> None:
    """Let a JVM that has done what executors do write its classes as it ends."""
    file = CLASSES / f"{kernel_jar().stem}.jsa"
    if file.exists():
        return
    CLASSES.mkdir(parents=True, exist_ok=True)
    for old in CLASSES.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        unfinished = CLASSES / "unfinished"
        options = f"-XX:ArchiveClassesAtExit={unfinished} {SILENT}"
        session = start_session(SLOTS, {**PLANNING_CONF, "spark.driver.extraJavaOptions": options}, scratch)
        do_what_executors_do(session, scratch)
        gateway = session.sparkContext._gateway
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(HANGS_S)
        unfinished.replace(file)


def do_what_executors_do(session: SparkSession, scratch: str) -> None:
    """Warm up, and run a query over files in stages, with a join, an aggregate, a Python function and an order."""
    warm_up(session)
    session.range(200).selectExpr("id", "id % 7 AS k", "cast(id AS string) AS s").write.parquet(f"{scratch}/t")
    left = session.read.parquet(f"{scratch}/t")
    right = left.groupBy("k").count().repartition(2, "k")
    joined = left.join(right, "k").select("k", "s", udf(lambda x: x + 1, "long")(col("count")).alias("n"))
    stages = cut(session, joined.groupBy("k").sum("n").orderBy("k"))
    runner = StageRunner(session, executor_id="e", exchange_dir=scratch, slots=SLOTS, clock=SystemClock())
    rows = JobRun(runner, "job", scratch).result(stages).to_pylist()
    assert [row["k"] for row in rows] == list(range(7)), rows
    runner.close()


if __name__ == "__main__":
    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK)
    make()
