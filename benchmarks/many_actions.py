"""A program of many small actions: ``python -m benchmarks.many_actions [--actions 1000] --json FILE``.

The same unmodified program runs at Spark's own Connect server (``local[2]``) and by ``onager run`` at a cluster of one
scheduler and one executor of two slots, in turns. Each run has a session of its own. ``seconds`` are those from the
program's first action to its last one, as the program itself measures them. Both JVMs are warmed up by a run that
does not count. The two sides must have computed the same.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import Cluster
from benchmarks.connect_server import SparkConnectServer

_PROGRAM: Final = """
import json, sys, time
from pyspark.sql import SparkSession, functions as F
actions, report = int(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "4")
numbers = spark.range(0, 1000, 1, 4).select((F.col("id") % 7).alias("k"), F.col("id").alias("v"))
numbers.createOrReplaceTempView("numbers")
kinds = {
    "count": lambda n: spark.range(n).count(),
    "collect": lambda n: len(spark.range(n).collect()),
    "sql": lambda n: spark.sql(f"SELECT {n} AS a").collect()[0].a,
    "filter": lambda n: numbers.filter(F.col("v") < n).count(),
    "view": lambda n: spark.table("numbers").where(f"v = {n}").collect()[0].k,
    "aggregate": lambda n: spark.sql(f"SELECT k, sum(v) s FROM numbers WHERE v < {n} GROUP BY k ORDER BY k").first().s,
    "first": lambda n: numbers.orderBy(F.col("v").desc()).first().v,
    "take": lambda n: len(numbers.take(min(n, 5))),
    "pandas": lambda n: len(numbers.limit(min(n, 20)).toPandas()),
    "empty": lambda n: numbers.where(f"v > {1000 + n}").isEmpty(),
}
taken, found = {kind: [] for kind in kinds}, []
for number in range(actions):
    kind = list(kinds)[number % len(kinds)]
    began_s = time.perf_counter()
    found.append(kinds[kind](1 + number % 900))
    taken[kind].append(time.perf_counter() - began_s)
with open(report, "w") as file:
    json.dump({"taken": taken, "found": found}, file)
"""
_LONG_S: Final = 1800.0


def _ran(command: list[str], environment: dict[str, str], actions: int) -> dict[str, Any]:
    """Run the program, and return its report."""
    with tempfile.TemporaryDirectory() as folder:
        program, report = Path(folder) / "app.py", Path(folder) / "report"
        program.write_text(_PROGRAM)
        whole = [*command, str(program), str(actions), str(report)]
        subprocess.run(whole, check=True, env=environment, timeout=_LONG_S)
        found: dict[str, Any] = json.loads(report.read_text())
        return found


def measured(actions: int, runs: int, backend: str | None) -> dict[str, Any]:
    """Return the figures of so many *runs* of each side, in turns."""
    with SparkConnectServer() as server, Cluster((2,), backend=backend) as cluster:
        sides = {
            "spark": ([sys.executable], {**os.environ, "SPARK_REMOTE": server.remote}),
            "onager": ([sys.executable, "-m", "onager", "run", "--scheduler", cluster.address], dict(os.environ)),
        }
        for command, environment in sides.values():
            _ran(command, environment, max(actions // 2, 10))
        reports: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(runs):
            for side, (command, environment) in sides.items():
                reports[side].append(_ran(command, environment, actions))
                print(side, f"{_seconds(reports[side][-1]):.1f}", flush=True)
    found = {side: reports[side][0]["found"] for side in sides}
    return {"are_equal": found["spark"] == found["onager"], **_figures(reports)}


def _figures(reports: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for side, ran in reports.items():
        figures[f"{side}_s"] = [round(_seconds(report), 2) for report in ran]
    pairs = zip(figures["onager_s"], figures["spark_s"], strict=True)
    figures["ratios"] = [round(onager / spark, 2) for onager, spark in pairs]
    figures["ratio"] = statistics.median(figures["ratios"])
    rows = []
    for kind in reports["spark"][0]["taken"]:
        row = {"action": kind}
        for side, ran in reports.items():
            taken_s = [each for report in ran for each in report["taken"][kind]]
            row[f"{side}_ms_p50"] = round(statistics.median(taken_s) * 1e3, 1)
        rows.append({**row, "ratio": round(row["onager_ms_p50"] / row["spark_ms_p50"], 2)})
    return {**figures, "rows": rows}


def _seconds(report: dict[str, Any]) -> float:
    return float(sum(sum(taken_s) for taken_s in report["taken"].values()))


def main() -> int:
    """Measure, print the figures, write the JSON; exit code 1 if the two sides differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_actions", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--actions", type=int, default=1000, help="how many each run does")
    parser.add_argument("--runs", type=int, default=3, help="runs of each side")
    parser.add_argument("--backend", metavar="URL", help="where the state is, by default in LevelDB")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    report = {
        "cores": os.cpu_count(),
        "actions": options.actions,
        **measured(options.actions, options.runs, options.backend),
        "load_at_end": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(report, indent=1))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(not report["are_equal"])


if __name__ == "__main__":
    sys.exit(main())
