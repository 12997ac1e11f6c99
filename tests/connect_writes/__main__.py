"""``python -m tests.connect_writes [--calls 500] [--seed N]``.

Gives drawn calls of DataFrame writers, and statements of SQL with an action behind them, to Spark's own Connect server
and to a cluster of Onager's, and compares what comes of each: rows, errors, and the tables afterwards. Exit code 1 when
something differs.
"""

import argparse
import logging
import secrets
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.connect import functions

from benchmarks.cluster import Cluster
from benchmarks.connect_server import SparkConnectServer
from tests.connect_writes.calls import Drawn
from tests.connect_writes.sides import Comparison, Side


def main() -> int:
    options = _options()
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    print(f"{options.calls} calls, --seed {options.seed}", flush=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onager-writes-")))
        spark = options.spark or stack.enter_context(SparkConnectServer()).remote
        onager = options.onager or f"sc://{stack.enter_context(Cluster((2,))).address}"
        sides = [_side(name, remote, directory) for name, remote in (("Spark", spark), ("Onager", onager))]
        for side in sides:
            stack.callback(side.spark.stop)
        return compare(Comparison(*sides), options.seed, options.calls)


def _side(name: str, remote: str, directory: Path) -> Side:
    (directory / name).mkdir()
    session = SparkSession.builder.remote(remote).create()
    session.sql("DROP DATABASE IF EXISTS shop CASCADE").collect()
    session.sql("CREATE DATABASE shop").collect()
    for row in session.sql("SHOW TABLES").collect():
        Side(name, session, functions, directory).forget(row.tableName)
    return Side(name, session, functions, directory / name)


def compare(comparison: Comparison, seed: int, calls: int) -> int:
    """Give *calls* calls of *seed*; print what differs, and the counts; return the exit code."""
    drawn, began_s = Drawn(seed), time.monotonic()
    for number in range(calls):
        call = drawn.call()
        if found := comparison.give(call):
            print(f"call {number}: {found}", flush=True)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(comparison.counts.items()))
    print(f"{calls} calls in {time.monotonic() - began_s:.0f} s: {counts}")
    return 1 if comparison.differences else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.connect_writes", description=__doc__)
    parser.add_argument("--calls", type=int, default=500, help="how many")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="what they are drawn from")
    parser.add_argument(
        "--spark", metavar="sc://…", help="a server of Spark's that runs, instead of one that is started"
    )
    parser.add_argument("--onager", metavar="sc://…", help="a cluster that runs, instead of one that is started")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
