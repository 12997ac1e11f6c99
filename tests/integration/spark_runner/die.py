"""Kills the JVM under a running task, and prints the runner's report; run by test_jvm_death."""

import os
import queue
import signal
import sys
import time
from pathlib import Path

from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from onager.clock import SystemClock
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.session import start_session
from tests.support.spark.runner import PLANNING_CONF, JobRun, cut
from tests.support.waiting import HANGS_S, until

directory = sys.argv[1]
began = Path(directory, "began")


@udf(LongType())
def sleeps(x):
    began.touch()
    time.sleep(100)
    return x


spark = start_session(1, PLANNING_CONF, directory)
runner = StageRunner(spark, executor_id="e", exchange_dir=directory, slots=1, clock=SystemClock())
(stage,) = cut(spark, spark.range(0, 1, 1, 1).select(sleeps("id")))
reports = queue.Queue()
runner.run(JobRun(runner, "job-1", directory).task_set(1, stage.plan, [0]), stage.plan, reports.put)
until(began.exists)
before = runner.is_alive()
os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
failure = reports.get(timeout=HANGS_S).failure
print(before, runner.is_alive())  # noqa: T201
print(failure.kind, failure.message.split(":")[0])  # noqa: T201
sys.stdout.flush()
os._exit(0)
