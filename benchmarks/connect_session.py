"""What a large session costs after a kill: ``python -m benchmarks.connect_session [--runs 4] --json FILE``.

One session of an unmodified client, in a process of its own: a hundred views, each made of the one before or of a
function, twenty Python functions, 50 MB of rows of the client's own. An executor of two is killed by ``kill -9``, by
turns, with its JVM; the session goes on at once with the other.

| figure | what it is |
|---|---|
| ``undisturbed_s`` | a query of one view and one function; the median of three |
| ``first_s`` | the same as the first query after a kill |
| ``rows_s`` | then one that reads the client's rows |
| ``all_s`` | then one of the last of the views, which are made of each other, and of all functions |
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.asked_client import AskedClient
from benchmarks.connect_cluster import ConnectCluster

VIEWS: Final = 100
FUNCTIONS: Final = 20
ROWS_BYTES: Final = 50_000_000
_CHAIN: Final = 10
"""So many views in a row are made of the one before."""
_UNDISTURBED: Final = 3


class Program:
    """The session."""

    def __init__(self, remote: str) -> None:
        self._spark = SparkSession.builder.remote(remote).getOrCreate()
        for number in range(FUNCTIONS):
            self._spark.udf.register(f"f{number}", lambda value, by=number: value + by, "bigint")
        for number in range(VIEWS):
            source = f"v{number - 1}" if number % _CHAIN else "range(100)"
            text = f"SELECT id, f{number % FUNCTIONS}(id) AS x{number} FROM {source}"  # noqa: S608
            self._spark.sql(text).createOrReplaceTempView(f"v{number}")
        rows = ROWS_BYTES // 1_000
        data = pa.table({"n": pa.array(range(rows)), "text": pa.array([os.urandom(495).hex() for _ in range(rows)])})
        self._spark.createDataFrame(data).createOrReplaceTempView("own")
        self._rows = rows

    def queries(self) -> dict[str, Callable[[], bool]]:
        """Return the queries; each tells whether its answer is right."""
        functions = " + ".join(f"f{number}(1L)" for number in range(FUNCTIONS))
        total = FUNCTIONS + sum(range(FUNCTIONS))
        one, last = FUNCTIONS // 2, VIEWS - 1
        return {
            "first_s": lambda: self._first(f"SELECT sum(x{one}) FROM v{one}") == sum(range(100)) + 100 * one,  # noqa: S608
            "rows_s": lambda: self._first("SELECT count(text) FROM own") == self._rows,
            "all_s": lambda: self._first(f"SELECT max(id) + {functions} FROM v{last}") == 99 + total,  # noqa: S608
        }

    def _first(self, text: str) -> Any:
        return self._spark.sql(text).collect()[0][0]


def answer(remote: str) -> None:
    """Make the session, and run the queries for each line of the input."""
    queries = Program(remote).queries()
    print(json.dumps({}), flush=True)
    for _ in sys.stdin:
        times_s: dict[str, float] = {}
        for name, query in queries.items():
            began_s = time.monotonic()
            if not query():
                raise SystemExit(f"{name}: a wrong answer")
            times_s[name] = round(time.monotonic() - began_s, 3)
        print(json.dumps(times_s), flush=True)


def main() -> int:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.connect_session", description=__doc__)
    parser.add_argument("--runs", type=int, default=4, help="kills; the executors take turns")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        answer(options.client)
        return 0
    directory = Path(tempfile.mkdtemp(prefix="onager-connect-session-"))
    runs: list[dict[str, Any]] = []
    with (
        ConnectCluster(directory) as cluster,
        AskedClient(
            "benchmarks.connect_session", "--json", os.devnull, "--client", cluster.remote, log=directory / "client.log"
        ) as client,
    ):
        client.read_answer()
        quiet = [client.ask("")["first_s"] for _ in range(_UNDISTURBED)]
        for number in range(options.runs):
            name = cluster.executors[number % len(cluster.executors)]
            cluster.kill(name)
            runs.append({"killed": name, **client.ask("")})
            print(json.dumps(runs[-1]), flush=True)
            cluster.start(name)
            cluster.await_ready()
    shutil.rmtree(directory)
    report = {
        "views": VIEWS,
        "functions": FUNCTIONS,
        "rows_bytes": ROWS_BYTES,
        "cores": os.cpu_count(),
        "load_at_end": round(os.getloadavg()[0], 2),
        "undisturbed_s": statistics.median(quiet),
        "first_s_max": max(run["first_s"] for run in runs),
        "runs": runs,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"undisturbed {report['undisturbed_s']:.3f} s, the first after a kill at most {report['first_s_max']:.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
