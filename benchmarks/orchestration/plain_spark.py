"""The other side: tasks that do nothing on plain Spark, ``local[2]``, in a process of its own.

Run by the benchmark as ``python -m benchmarks.orchestration.plain_spark REPEATS AT_LEAST TASKS...``; prints tasks a
second for each number of tasks as JSON. The tasks count the elements of empty partitions in the JVM: no Python, no SQL.
"""

import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession


def main(repeats: int, at_least: int, sizes: Sequence[int]) -> None:
    """Measure each size after a warm-up, by samples of *at_least* tasks."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    java = spark.sparkContext._jsc  # noqa: SLF001 the public ways run Python in each task
    _run(java, spark.sparkContext._jvm, at_least)  # noqa: SLF001
    found = {}
    for tasks in sizes:
        jobs = max(1, at_least // tasks)
        samples = []
        for _ in range(repeats if tasks <= 10 * at_least else 1):
            begun_s = time.perf_counter()
            for _ in range(jobs):
                _run(java, spark.sparkContext._jvm, tasks)  # noqa: SLF001
            samples.append(jobs * tasks / (time.perf_counter() - begun_s))
        found[tasks] = round(statistics.median(samples), 1)
    print(json.dumps(found))
    spark.stop()


def _run(java: Any, jvm: Any, tasks: int) -> None:
    java.parallelize(jvm.java.util.ArrayList(), tasks).count()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), [int(text) for text in sys.argv[3:]])
