"""What a cached join saves: ``python -m benchmarks.caches [--rows 5000000] [--rounds 10] --json FILE``.

A join of a table of *--rows* rows with a smaller one, and a sum by key and kind, are cached. Then *--rounds* rounds
read the rows, each with another filter. Spark's own Connect server (``local[2]``) and a cluster of Onager's (one
scheduler, one executor of two slots) do so on the same machine, by one unmodified client, round by round in turns. The
same rounds without a cache come before. All rows are compared. A ratio is Onager's time by Spark's.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from pyspark.sql.connect import functions as sf
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.session import SparkSession

from benchmarks.adaptive import generate
from benchmarks.cluster import Cluster
from benchmarks.connect_server import SparkConnectServer

_PARTITIONS: Final = "4"
_WARM_UPS: Final = 3


class _Side:
    """One server, and what was measured of it."""

    def __init__(self, session: SparkSession, tables: Path) -> None:
        session.conf.set("spark.sql.shuffle.partitions", _PARTITIONS)
        facts, keys = (session.read.parquet(str(tables / name)) for name in ("facts", "keys"))
        self.joined: DataFrame = (
            facts.join(keys, "key").groupBy("key", "kind").agg(sf.sum("value").alias("total"), sf.count("*").alias("n"))
        )
        self.plain_s: list[float] = []
        self.first_s = 0.0
        self.cached_s: list[float] = []
        self.rows: list[list[Any]] = []

    def round(self, number: int) -> tuple[float, list[Any]]:
        """Read the rows; return the seconds, and what was found."""
        start_s = time.perf_counter()
        read = self.joined.where(sf.col("key") % 10 != number % 10).groupBy("kind")
        rows = read.agg(sf.sum("total").alias("total"), sf.sum("n").alias("n"), sf.count("*")).orderBy("kind").collect()
        return time.perf_counter() - start_s, [list(row) for row in rows]

    def facts(self) -> dict[str, float]:
        """Return the figures."""
        return {
            "plain_s_p50": round(statistics.median(self.plain_s), 3),
            "first_s": round(self.first_s, 3),
            "cached_s_p50": round(statistics.median(self.cached_s), 3),
            "cached_s_sum": round(sum(self.cached_s), 3),
        }


def measured(sides: dict[str, _Side], rounds: int) -> dict[str, Any]:
    """Return the figures of all rounds, which the sides do in turns."""
    for number in range(_WARM_UPS + rounds):
        for side in sides.values():
            taken_s, rows = side.round(number)
            if number >= _WARM_UPS:
                side.plain_s.append(taken_s)
                side.rows.append(rows)
    for side in sides.values():
        side.joined.cache()
        side.first_s, rows = side.round(0)
        side.rows.append(rows)
    for number in range(rounds):
        for side in sides.values():
            taken_s, rows = side.round(number)
            side.cached_s.append(taken_s)
            side.rows.append(rows)
    found: dict[str, Any] = {name: side.facts() for name, side in sides.items()}
    keys = found["spark"]
    ratios = {
        key.removesuffix("_s_p50"): round(found["onager"][key] / keys[key], 2) for key in keys if "sum" not in key
    }
    return found | {"ratio": ratios, "equal": sides["spark"].rows == sides["onager"].rows}


def main() -> int:
    """Measure, print, write the JSON; exit code 1 unless all rows are the same."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as scratch, ExitStack() as stack:
        generate(Path(scratch), options.rows)
        address = stack.enter_context(Cluster((2,))).address
        servers = {"spark": stack.enter_context(SparkConnectServer()).remote, "onager": f"sc://{address}"}
        sessions = {side: SparkSession.builder.remote(remote).create() for side, remote in servers.items()}
        # Before their servers: a client tries for long to tell one that is gone of its end.
        for session in sessions.values():
            stack.callback(session.stop)
        sides = {side: _Side(session, Path(scratch)) for side, session in sessions.items()}
        found = measured(sides, options.rounds)
    report = {"cores": os.cpu_count(), "load_at_end": round(os.getloadavg()[0], 2), "rows": options.rows} | found
    print(json.dumps(report, indent=1))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if report["equal"] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.caches", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the larger table")
    parser.add_argument("--rounds", type=int, default=10, help="rounds over the cached rows")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
