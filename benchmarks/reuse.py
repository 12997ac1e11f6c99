"""``python -m benchmarks.reuse [--rows 20000000] [--runs 3] --json FILE``: what it saves to take outputs of other jobs.

A join of a table of *--rows* rows with a smaller one, summed up, on two executors of one slot each with every exchange
cut: without reuse, with ``onager.reuse=cluster`` where nothing is there yet, and again where it is (the best of
*--runs*). Then one of the table's files is written anew: what read it must not be taken, and the rows must be the new
ones. All rows are compared with those of jobs without reuse.
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
from benchmarks.adaptive import generate
from benchmarks.cluster import Cluster

_SLOTS: Final = (1, 1)
_CONF: Final = {"onager.fusion.maxBytes": "0"}
QUERY: Final = """
    SELECT k.kind, count(*) AS n, sum(f.value) AS total, max(f.payload) AS last, max(k.name) AS name
    FROM facts f JOIN keys k ON f.key = k.key GROUP BY k.kind ORDER BY kind"""


class _Runs:
    """Runs the query, and keeps what was measured."""

    def __init__(self, client: onager.OnagerClient, tables: dict[str, str], adaptive: str) -> None:
        self._client, self._tables = client, tables
        self._conf = _CONF | {"onager.adaptive": adaptive}

    def run(self, reuse: str) -> tuple[pa.Table, dict[str, Any]]:
        """Return the rows, and what is to be reported of the run."""
        start_s = time.perf_counter()
        job = self._client.sql(QUERY, views=self._tables, conf=self._conf | {"onager.reuse": reuse}, name=reuse)
        rows = job.to_arrow()
        taken_s = time.perf_counter() - start_s
        names = [stage.name for stage in job.progress().stages]
        row = {
            "s": round(taken_s, 2),
            "reused": sum("(reused from" in name for name in names),
            "not_needed": sum("(not needed" in name for name in names),
            "stages": len(names) - 1,
        }
        return rows, row

    def measured(self, runs: int, facts: Path) -> dict[str, Any]:
        """Return the figures of runs without reuse, of the first one with it, of those after it, and after a change."""
        found: dict[str, Any] = {}
        _change(facts / "part-0.parquet")  # nothing that earlier jobs left fits any more
        expected, _ = self.run("off")  # to warm up
        found["off"] = min((self.run("off")[1] for _ in range(runs)), key=_seconds)
        rows, found["first"] = self.run("cluster")
        equal = [rows.equals(expected)]
        again = [self.run("cluster") for _ in range(runs)]
        found["again"] = min((row for _, row in again), key=_seconds)
        _change(facts / "part-0.parquet")
        changed, found["changed"] = self.run("cluster")
        now, _ = self.run("off")
        equal += [each.equals(expected) for each, _ in again] + [changed.equals(now), not now.equals(expected)]
        return found | {"equal": all(equal)}


def main() -> None:
    """Measure, print, write the JSON; exit code 1 unless all rows are right and the repeated job took something."""
    options = _options()
    report: dict[str, Any] = {"rows": options.rows}
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as scratch:
        generate(Path(scratch), options.rows)
        tables = {name: str(Path(scratch, name)) for name in ("facts", "keys")}
        with Cluster(_SLOTS) as cluster, onager.connect(cluster.address) as client:
            for adaptive in ("off", "on"):
                runs = _Runs(client, tables, adaptive)
                report[f"adaptive {adaptive}"] = runs.measured(options.runs, Path(tables["facts"]))
    print(json.dumps(report, indent=1))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    found = [each for each in report.values() if isinstance(each, dict)]
    sys.exit(0 if all(each["equal"] and each["again"]["reused"] for each in found) else 1)


def _seconds(row: dict[str, Any]) -> float:
    return float(row["s"])


def _change(file: Path) -> None:
    """Write *file* anew with other values, of which it has as many."""
    table = pq.read_table(file)
    values = pa.array(table["value"].to_numpy() + 1)
    pq.write_table(table.set_column(1, "value", values), file, use_dictionary=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reuse", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the larger table")
    parser.add_argument("--runs", type=int, default=3, help="runs of each kind, of which the best is reported")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
