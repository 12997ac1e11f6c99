"""Statements on plain Spark, ``local[2]`` with AQE, in a process of its own: the other side of a benchmark.

Or through Spark Connect, by a client that is a process of its own.

Its heap is that of executors with two slots, unless a benchmark says otherwise.

Run by benchmarks as ``python -m benchmarks.side_by_side ASKED OUT`` with the JSON of an `Asked` in a file; leaves
``NAME.arrow`` for each statement, and ``times.json``, in OUT.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from onager.executor.spark.session import default_heap

_SLOTS: Final = 2


@dataclass(frozen=True, slots=True)
class Asked:
    """What plain Spark is to run: each statement once to warm up, then *runs* times."""

    views: Mapping[str, str]
    """The path of each view's Parquet files."""
    statements: Mapping[str, str]
    """The text of each statement, by a name that may be that of a file."""
    runs: int
    conf: Mapping[str, str] = field(default_factory=dict)
    remote: str = ""
    """``sc://…``, for what is served there instead of plain Spark."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What plain Spark did."""

    spark: str
    """Its version."""
    times_s: dict[str, list[float]]
    """The seconds of each statement's timed runs."""
    results: dict[str, pa.Table]

    def best_s(self, name: str) -> float:
        """Return the seconds of the best run of a statement."""
        return min(self.times_s[name])


def run_plain(asked: Asked, scratch: Path) -> Answered:
    """Run statements on plain Spark, with files in *scratch*; raises `CalledProcessError` if one fails."""
    scratch.mkdir(parents=True, exist_ok=True)
    spec = scratch / "asked.json"
    spec.write_text(json.dumps(asdict(asked)))
    subprocess.run([sys.executable, "-m", "benchmarks.side_by_side", str(spec), str(scratch)], check=True)
    answer = json.loads((scratch / "times.json").read_text())
    results = {name: pa.ipc.open_file(scratch / f"{name}.arrow").read_all() for name in asked.statements}
    return Answered(answer["spark"], answer["times_s"], results)


def main(asked: Asked, out: Path) -> None:
    """Run the statements, and write results and times."""
    spark = _connected(asked) if asked.remote else _local(asked)
    for name, path in asked.views.items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    times_s = {}
    for name, text in asked.statements.items():
        result = spark.sql(text).toArrow()
        with pa.OSFile(str(out / f"{name}.arrow"), "wb") as sink, pa.ipc.new_file(sink, result.schema) as writer:
            writer.write_table(result)
        times_s[name] = [round(_timed_s(spark, text), 3) for _ in range(asked.runs)]
    (out / "times.json").write_text(json.dumps({"spark": spark.version, "times_s": times_s}))
    spark.stop()


def _connected(asked: Asked) -> SparkSession:
    spark = SparkSession.builder.remote(asked.remote).getOrCreate()
    for key, value in asked.conf.items():
        spark.conf.set(key, value)
    return spark


def _local(asked: Asked) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{_SLOTS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.adaptive.enabled", "true")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", f"{default_heap(_SLOTS) >> 20}m")
    )
    for key, value in asked.conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _timed_s(spark: SparkSession, text: str) -> float:
    start_s = time.perf_counter()
    spark.sql(text).toArrow()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main(Asked(**json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2]))
