"""What a recorded call of a program takes: ``python -m benchmarks.program_replay --json FILE``.

A program that collects 100 rows again and again is killed at its end, and goes on in the next attempt: the same
calls, answered from the record. A ``collect()`` is two calls, since PySpark reads a setting with each query. Both
attempts measure in PySpark; the figures are milliseconds a call, half of a ``collect()``. ``going_on_s`` is the time
from the kill until the program is where it was, with the start of Python and of PySpark. On a machine that does other
work, the first decile says most. One scheduler and one executor of two slots run on the same machine, over LevelDB,
or *--backend*.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import Cluster

SIZES: Final = (10, 1_000, 10_000)
_PROGRAM: Final = """
import json, os, signal, sys, time
from pyspark.sql import SparkSession
calls, report = int(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.getOrCreate()
times_ms = []
for _ in range(calls // 2):
    began_s = time.perf_counter()
    assert len(spark.range(100).collect()) == 100
    times_ms.append((time.perf_counter() - began_s) * 1e3 / 2)
is_first = not os.path.exists(report)
with open(report, "a") as file:
    print(json.dumps({"at_s": time.time(), "times_ms": times_ms}), file=file)
if is_first:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def row(calls: int, attempts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of a program of so many *calls*, by what its two attempts have measured."""
    found: dict[str, Any] = {"calls": calls}
    for name, attempt in zip(("first", "replayed"), attempts, strict=True):
        taken = attempt["times_ms"]
        deciles = statistics.quantiles(taken, n=10, method="inclusive")
        found[f"{name}_ms_mean"] = round(statistics.fmean(taken), 2)
        found |= {f"{name}_ms_p{10 * at}": round(deciles[at - 1], 2) for at in (1, 5, 9)}
    found["going_on_s"] = round(attempts[1]["at_s"] - attempts[0]["at_s"], 2)
    return found


def measured(address: str, calls: int) -> dict[str, Any]:
    """Return the figures of a program of so many *calls* at a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        program, report = Path(folder) / "app.py", Path(folder) / "report"
        program.write_text(_PROGRAM)
        command = [sys.executable, "-m", "onager", "run", "--local", "--scheduler", address, str(program)]
        subprocess.run([*command, str(calls), str(report)], check=True, stderr=subprocess.DEVNULL)
        return row(calls, [json.loads(line) for line in report.read_text().splitlines()])


def main() -> int:
    """Measure, print the figures, write the JSON."""
    options = _options()
    rows = []
    with Cluster((2,), backend=options.backend) as cluster:
        measured(cluster.address, 300)  # a JVM compiles what it is asked for often
        for calls in options.calls:
            rows.append(measured(cluster.address, calls))
            print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    report = {"cores": os.cpu_count(), "load_at_end": round(os.getloadavg()[0], 2), "rows": rows}
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.program_replay", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--calls", type=int, nargs="+", default=SIZES, help="how many calls each program makes")
    parser.add_argument("--backend", metavar="URL", help="where the state is, by default in LevelDB")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
