"""``python -m benchmarks.broadcasts [--memory 1g] --json FILE``: two dozen broadcast joins, twice in one statement.

A table of facts is joined with two dozen small tables, each of which Spark broadcasts, in a common table expression
that is joined with itself, and every exchange is cut. Executors have one slot and *--memory* each, plain Spark
``local[2]`` has ``--plain-memory``; both sides run the statement once to warm up, then *--runs* times, and the best
counts.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import onager
from benchmarks.cluster import Cluster
from benchmarks.large_result import Memory
from benchmarks.side_by_side import Asked, run_plain
from benchmarks.tpch.comparison import difference

TABLES: Final = 24
_FACT_FILES: Final = 4
_YEARS: Final = 4
_NAME: Final = "broadcasts"
_CONF: Final = {"onager.fusion.maxBytes": "0"}


def main() -> None:
    """Measure, print, write the JSON; exit code 1 unless the rows are the same and the ratio is kept."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as scratch:
        data = Path(scratch, "data")
        generate(data, facts=options.facts, rows=options.rows)
        theirs, plain = _run_plain(data, Path(scratch, "plain"), options)
        report: dict[str, Any] = {"memory": options.memory, "plain_memory": options.plain_memory, "plain": plain}
        mine, report["onager"] = _run_onager(data, options)
    why = None if mine is None else difference(mine, theirs, statement())
    report["rows"] = theirs.num_rows
    report["equal"] = mine is not None and why is None
    if report["equal"]:
        report["ratio"] = round(report["onager"]["best_s"] / plain["best_s"], 2)
    elif why:
        print(why, file=sys.stderr)
    print(json.dumps(report, indent=1))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if report["equal"] and report["ratio"] <= options.most_ratio else 1)


def generate(below: Path, *, facts: int, rows: int) -> None:
    """Write the facts, and small tables of *rows* rows: every other one has text as its key."""
    sales = below / "sales"
    sales.mkdir(parents=True)
    each = facts // _FACT_FILES
    for file in range(_FACT_FILES):
        numbers = range(file * each, (file + 1) * each)
        columns = {f"k{i:02}": _keys(i, ((n * (2 * i + 7919) + i) % rows for n in numbers)) for i in range(TABLES)}
        columns["amount"] = pa.array([n % 1000 for n in numbers], pa.int64())
        pq.write_table(pa.table(columns), sales / f"part-{file}.parquet")
    for i in range(TABLES):
        columns = {
            "k": _keys(i, range(rows)),
            "year": pa.array([n % _YEARS for n in range(rows)], pa.int64()),
            "kind": pa.array([n % 5 for n in range(rows)], pa.int64()),
            "name": pa.array([f"name {n} of a row in table {i}, as long as names are" for n in range(rows)]),
        }
        pq.write_table(pa.table(columns), below / f"dim{i:02}.parquet")


def _keys(table: int, numbers: Any) -> pa.Array:
    if table % 2:
        return pa.array([f"K{n:010}" for n in numbers])
    return pa.array(list(numbers), pa.int64())


def views(data: Path) -> dict[str, str]:
    """Return the tables below *data* as views by name."""
    return {"sales": str(data / "sales")} | {f"dim{i:02}": str(data / f"dim{i:02}.parquet") for i in range(TABLES)}


def statement() -> str:
    """Return the statement."""
    joins = "\n".join(f"  JOIN dim{i:02} ON k{i:02} = dim{i:02}.k" for i in range(TABLES))
    texts = " + ".join(f"length(dim{i:02}.name)" for i in range(TABLES))
    return f"""
WITH joined AS (
  SELECT dim00.year AS year, dim01.kind AS kind, dim02.kind AS sort,
    count(*) AS c, sum(amount) AS total, sum({texts}) AS t
  FROM sales
{joins}
  GROUP BY dim00.year, dim01.kind, dim02.kind
)
SELECT a.kind AS kind, a.sort AS sort, a.c AS c, b.c AS d, a.total AS total, b.total AS other, a.t AS t, b.t AS u
FROM joined a JOIN joined b ON a.kind = b.kind AND a.sort = b.sort
WHERE a.year = 1 AND b.year = 2
ORDER BY kind, sort
"""  # noqa: S608 - all of it is ours


def _run_onager(data: Path, options: argparse.Namespace) -> tuple[pa.Table | None, dict[str, Any]]:
    conf = {"spark.driver.memory": options.memory}
    if options.java_options:
        conf["spark.driver.extraJavaOptions"] = options.java_options
    with Cluster((1,) * options.executors, spark_conf=conf) as cluster, onager.connect(cluster.address) as client:
        result, times = None, []
        with Memory(cluster.pids) as memory, memory.phase("run"):
            for _ in range(1 + options.runs):
                start_s = time.perf_counter()
                job = client.sql(statement(), views=views(data), conf=_CONF, name=_NAME)
                try:
                    result = job.to_arrow()
                except onager.errors.OnagerError as error:
                    return None, {"failed": str(error)[:2000], "after_s": round(time.perf_counter() - start_s, 2)}
                times.append(time.perf_counter() - start_s)
        return result, {
            "best_s": round(min(times[1:]), 2),
            "times_s": [round(seconds, 2) for seconds in times],
            "stages": len(job.detail().progress.stages),
            "peak_mb": memory.peaks["run"],
        }


def _run_plain(data: Path, scratch: Path, options: argparse.Namespace) -> tuple[pa.Table, dict[str, Any]]:
    conf = {"spark.driver.memory": options.plain_memory}
    answered = run_plain(Asked(views(data), {_NAME: statement()}, options.runs, conf), scratch)
    return answered.results[_NAME], {"best_s": answered.best_s(_NAME), "times_s": answered.times_s[_NAME]}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broadcasts", description=__doc__)
    parser.add_argument("--facts", type=int, default=400_000, help="rows of the large table")
    parser.add_argument("--rows", type=int, default=40_000, help="rows of each of the small tables")
    parser.add_argument("--executors", type=int, default=2, help="executors, of one slot each")
    parser.add_argument("--memory", default="2g", help="heap of each executor's JVM")
    parser.add_argument("--java-options", default="", help="further ones of each executor's JVM")
    parser.add_argument("--plain-memory", default="1g", help="heap of plain Spark's JVM")
    parser.add_argument("--runs", type=int, default=2, help="timed runs, after one to warm up")
    parser.add_argument("--most-ratio", type=float, default=1.5, help="to plain Spark's time, for exit code 0")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
