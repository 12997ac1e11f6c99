"""``python -m benchmarks.adaptive [--rows 20000000] [--runs 2] --json FILE``: what re-planning gains.

Two statements, with `onager.adaptive` off and on, on two executors of one slot each with every exchange cut, and on
plain Spark's ``local[2]`` with AQE; the best of *--runs* after one to warm up. The rows are compared.

- ``skew``: a join of a table whose keys follow Zipf's law, one of them in 30 % of *--rows* rows, with all keys. Of the
  stage that joins, the JSON tells the longest task and the median, and their ratio.
- ``few``: a join of that table with a filter that leaves one row of a million, which no statistics foretell. The JSON
  tells the bytes that went through exchanges, and the time from each re-plan's begin to its outcome in the log.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import onager
from benchmarks.cluster import Cluster
from benchmarks.side_by_side import Asked, run_plain
from benchmarks.tpch.comparison import difference
from onager.client import JobHandle

_KEYS: Final = 1_000_000
_ZIPF: Final = 1.37
"""With this exponent the most frequent key has 30 % of the rows."""
_FILES: Final = 8
_PAYLOAD_BYTES: Final = 48
_SLOTS: Final = (1, 1)
STATEMENTS: Final = {
    "skew": """
        SELECT k.kind, count(*) AS n, sum(f.value) AS total, max(f.payload) AS last, max(k.name) AS name
        FROM facts f JOIN keys k ON f.key = k.key GROUP BY k.kind ORDER BY kind""",
    "few": """
        SELECT k.kind, count(*) AS n, sum(f.value) AS total, max(f.payload) AS last
        FROM facts f JOIN (SELECT * FROM keys WHERE pmod(hash(name), 1000003) = 77) k ON f.key = k.key
        GROUP BY k.kind ORDER BY kind""",
}
_CONF: Final = {"onager.fusion.maxBytes": "0"}


def main() -> None:
    """Measure, print, write the JSON; exit code 1 unless all rows are the same."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as scratch:
        data = Path(scratch, "data")
        generate(data, options.rows)
        tables = {name: str(data / name) for name in ("facts", "keys")}
        found = _run_onager(tables, options.runs)
        plain = run_plain(Asked(tables, STATEMENTS, options.runs), Path(scratch, "plain"))
    report: dict[str, Any] = {"rows": options.rows, "spark": plain.spark}
    for name, text in STATEMENTS.items():
        report[name] = {"spark_s": plain.best_s(name)}
        for way, (result, measured) in found[name].items():
            why = difference(result, plain.results[name], text)
            report[name][way] = measured | {
                "equal": why is None,
                "ratio": round(measured["best_s"] / plain.best_s(name), 2),
            }
            if why is not None:
                print(f"{name}, {way}: {why}", file=sys.stderr)
    print(json.dumps(report, indent=1))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if all(report[name][way]["equal"] for name in STATEMENTS for way in found[name]) else 1)


def generate(below: Path, rows: int) -> None:
    """Write the facts, and the keys with a name of 40 characters each, too large to be broadcast; always the same."""
    drawn = np.random.default_rng(1)
    (below / "facts").mkdir(parents=True)
    (below / "keys").mkdir()
    for file in range(_FILES):
        count = rows // _FILES
        key = np.minimum(drawn.zipf(_ZIPF, count), _KEYS) - 1
        payload = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(_PAYLOAD_BYTES), count, [None, pa.py_buffer(drawn.bytes(_PAYLOAD_BYTES * count))]
        ).cast(pa.binary())
        facts = pa.table({"key": key, "value": drawn.integers(0, 1000, count), "payload": payload})
        pq.write_table(facts, below / "facts" / f"part-{file}.parquet", use_dictionary=False)
    keys = np.arange(_KEYS)
    names = pa.array([drawn.bytes(20).hex() for _ in keys])
    pq.write_table(pa.table({"key": keys, "kind": keys % 7, "name": names}), below / "keys" / "part-0.parquet")


def _run_onager(tables: dict[str, str], runs: int) -> dict[str, dict[str, tuple[pa.Table, dict[str, Any]]]]:
    """Return the rows and the figures of each statement, with adaptive planning off and on, in turns."""
    found: dict[str, dict[str, tuple[pa.Table, dict[str, Any]]]] = {}
    with Cluster(_SLOTS) as cluster, onager.connect(cluster.address) as client:
        for name, text in STATEMENTS.items():
            times: dict[str, list[float]] = {"off": [], "on": []}
            last: dict[str, tuple[pa.Table, JobHandle]] = {}
            for _ in range(1 + runs):
                for way, taken in times.items():
                    start_s = time.perf_counter()
                    job = client.sql(text, views=tables, conf=_CONF | {"onager.adaptive": way}, name=name)
                    last[way] = job.to_arrow(), job
                    taken.append(time.perf_counter() - start_s)
            found[name] = {
                way: (result, _measured(job) | {"best_s": round(min(times[way][1:]), 2)})
                for way, (result, job) in last.items()
            }
    return found


def _measured(job: JobHandle) -> dict[str, Any]:
    """Return what a job's tasks and events tell of how it ran."""
    costs = job.task_costs()
    read = max(costs, key=lambda stage_id: sum(task.bytes_in for task in costs[stage_id]))
    run_ms = [task.run_ms for task in costs[read]]
    happened = list(job.events())
    begun_ms = {e.fields["replan_id"]: e.at_ms for e in happened if e.type == "replan_begun"}
    events = [event.type for event in happened]
    return {
        "stages": len(costs),
        "exchange_mb": round(sum(task.bytes_in for tasks in costs.values() for task in tasks) / 1e6, 1),
        "join_tasks": len(run_ms),
        "longest_to_median": round(max(run_ms) / median(run_ms), 2),
        "laid_out": events.count("stage_laid_out"),
        "replanned": events.count("stage_replanned"),
        "replans_ms": [e.at_ms - begun_ms[e.fields["replan_id"]] for e in happened if e.type == "stage_replanned"],
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.adaptive", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the skewed table")
    parser.add_argument("--runs", type=int, default=2, help="timed runs, after one to warm up")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
