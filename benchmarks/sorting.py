"""``python -m benchmarks.sorting --sf 1 [--runs 3] --json FILE``: a sort of TPC-H's lineitem, written as a dataset.

By one task, by several, and by plain Spark, which writes it as several ranges, too. What was written is looked through.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import onager
from benchmarks.cluster import Cluster
from benchmarks.tpch.data import generate
from onager.job_settings import FUSION_MAX_BYTES, SORT_PARALLEL_FROM_BYTES

QUERY = "SELECT l_extendedprice, l_orderkey, l_shipdate, l_comment FROM lineitem ORDER BY l_extendedprice, l_orderkey"
WAYS = {"by one task": str(1 << 60), "by several": "0"}


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sorting", description=__doc__)
    parser.add_argument("--sf", type=float, default=0.1, help="scale factor; 1 is 6 million rows")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each way, after one to warm up")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    options = parser.parse_args()
    table = generate(options.sf) / "lineitem.parquet"
    rows = pq.read_metadata(table).num_rows
    report: dict[str, Any] = {"sf": options.sf, "rows": rows}
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as scratch:
        out = Path(scratch) / "out"
        with Cluster((2,)) as cluster, onager.connect(cluster.address) as client:
            for name, threshold in WAYS.items():
                conf = {FUSION_MAX_BYTES: "0", SORT_PARALLEL_FROM_BYTES: threshold}

                def run(conf: dict[str, str] = conf) -> None:
                    client.sql(QUERY, views={"lineitem": str(table)}, conf=conf, output=out).wait()

                report[name] = _timed(run, options.runs, out, rows)
        report["plain Spark"] = _plain_spark(table, options.runs, out, rows)
    for name in (*WAYS, "plain Spark"):
        print(f"{name}: {', '.join(f'{seconds:.2f}' for seconds in report[name])} s")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")


def _plain_spark(table: Path, runs: int, out: Path, rows: int) -> list[float]:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    spark.read.parquet(str(table)).createOrReplaceTempView("lineitem")
    try:
        return _timed(lambda: spark.sql(QUERY).write.parquet(str(out)), runs, out, rows)
    finally:
        spark.stop()


def _timed(run: Callable[[], None], runs: int, out: Path, rows: int) -> list[float]:
    """Return the seconds of each run but the first, whose dataset is looked through."""
    seconds = []
    for number in range(1 + runs):
        shutil.rmtree(out, ignore_errors=True)
        start_s = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start_s)
        if number == 0:
            _check(out, rows)
    return seconds[1:]


def _check(out: Path, rows: int) -> None:
    """Exit unless the files of *out*, one after another, are *rows* rows in order."""
    prices = [pq.read_table(file, columns=["l_extendedprice"]).column(0) for file in sorted(out.glob("*.parquet"))]
    ends = [end for column in prices if len(column) for end in (column[0].as_py(), column[-1].as_py())]
    is_sorted = all(pc.all(pc.less_equal(column[:-1], column[1:])).as_py() is not False for column in prices)
    if sum(map(len, prices)) != rows or not is_sorted or ends != sorted(ends):
        sys.exit(f"what was written is not {rows} rows in order")


if __name__ == "__main__":
    main()
