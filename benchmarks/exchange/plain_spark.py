"""The other side: Spark's own shuffle, ``local[2]``, in a process of its own.

Run by the benchmark as ``python -m benchmarks.exchange.plain_spark SOURCE RUNS PROBES OUT``.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame

from benchmarks.exchange.memory import PeakMemory
from benchmarks.exchange.stages import CONF, frame_of
from onager.executor.spark.session import start_session, warm_up


def main(source: str, runs: int, probes: int, out: Path) -> None:
    """Measure, and write what was measured."""
    spark = start_session(2, CONF | {"spark.driver.memory": "2g"}, "")
    warm_up(spark)
    jvm: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark keeps it nowhere else
    with PeakMemory([psutil.Process(jvm.proc.pid)]) as memory:
        seconds = min([_timed(frame_of(spark, source)) for _ in range(1 + runs)][1:])
    few = [[_timed(frame_of(spark, "", has_exchange=has)) for _ in range(probes)] for has in (True, False)]
    rows = spark.read.parquet(source).count()
    out.write_text(json.dumps({"rows": rows, "seconds": seconds, "few_s": few, "peak_mb": memory.grown_mb}))
    spark.stop()


def _timed(frame: DataFrame) -> float:
    frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - planned before, as the other side's stages are
    start_s = time.perf_counter()
    frame.collect()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
