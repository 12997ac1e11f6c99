"""The expected result of each kind of job, computed by plain Spark in a separate process before any fault.

`python -m tests.chaos.expected DATA OUT` leaves one ``NAME.arrow`` for each kind in OUT.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.tpch import query_text
from benchmarks.tpch.data import views
from tests.chaos import jobs

ROOT: Final = Path(__file__).resolve().parents[2]
QUERIES: Final = (1, 3, 5, 6, 10, 12, 13, 14, 18, 19, 21, 22)
SINK_QUERY: Final = """
SELECT '{tag}' AS tag, o_orderpriority, o_custkey % 40 AS bucket, count(*) AS n, sum(l_quantity) AS quantity
FROM orders JOIN lineitem ON o_orderkey = l_orderkey
GROUP BY o_orderpriority, o_custkey % 40
"""
DIGESTS: Final = "digests"
SINK: Final = "sink"


def name_of(query: int) -> str:
    """Return the name of a TPC-H query among the expected results."""
    return f"q{query}"


def expected(data: Path, below: Path) -> dict[str, pa.Table]:
    """Return every expected result by name, computed unless the same was computed before."""
    texts = [SINK_QUERY, Path(jobs.__file__).read_text(), data.name, *map(query_text, QUERIES)]
    out = below / f"expected-{hashlib.sha256(repr(texts).encode()).hexdigest()[:16]}"
    if not out.is_dir():
        below.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=below, prefix="making-") as scratch:
            made = Path(scratch) / "results"
            made.mkdir()
            command = [sys.executable, "-m", "tests.chaos.expected", str(data), str(made)]
            subprocess.run(command, check=True, cwd=ROOT)
            made.rename(out)
    return {file.stem: pa.ipc.open_file(file).read_all() for file in sorted(out.glob("*.arrow"))}


def main(data: Path, out: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "768m")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    for name, path in views(data).items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    frames = {name_of(query): spark.sql(query_text(query)) for query in QUERIES}
    frames |= {SINK: spark.sql(SINK_QUERY.format(tag="TAG")), DIGESTS: jobs.digests(spark)}
    for name, frame in frames.items():
        table = frame.toArrow()
        with pa.OSFile(str(out / f"{name}.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
