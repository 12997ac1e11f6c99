"""The other side: the same queries on plain Spark, ``local[2]`` with AQE, in a process of its own.

Run by the benchmark as ``python -m benchmarks.tpch.plain_spark DATA OUT RUNS QUERY...``; leaves ``qN.arrow`` and
``times.json`` in OUT.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.tpch import query_text
from benchmarks.tpch.data import views


def main(data: Path, out: Path, runs: int, numbers: Sequence[int]) -> None:
    """Run each query once to warm up and then *runs* times, and write its result and its best time."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.adaptive.enabled", "true")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    for name, path in views(data).items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    best_s = {}
    for number in numbers:
        text = query_text(number)
        result = spark.sql(text).toArrow()
        with pa.OSFile(str(out / f"q{number}.arrow"), "wb") as sink, pa.ipc.new_file(sink, result.schema) as writer:
            writer.write_table(result)
        best_s[number] = min(_timed(spark, text) for _ in range(runs))
    (out / "times.json").write_text(json.dumps({"spark": spark.version, "best_s": best_s}))
    spark.stop()


def _timed(spark: SparkSession, text: str) -> float:
    start_s = time.perf_counter()
    spark.sql(text).toArrow()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [int(number) for number in sys.argv[4:]])
