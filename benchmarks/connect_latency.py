"""What small requests of Spark Connect take: ``python -m benchmarks.connect_latency --json FILE``.

Spark's own Connect server (``local[2]``) and a cluster of Onager's (one scheduler, one executor of two slots) on the
same machine, by one unmodified client, call by call in turns. Sixty calls of each come first, since a JVM compiles
what it is asked for often.

| request | what it is |
|---|---|
| ``config`` | a setting is read |
| ``schema`` | a plan is analysed: no job |
| ``view`` | a temporary view is replaced |
| ``range(10).collect`` | the smallest job |
| ``sql().collect`` | ``SELECT 1``: a command, and a job |
| ``agg.show`` | a job with an exchange |

``select 1``, by Onager's client (`OnagerClient.sql`), is compared with ``sql().collect`` of Spark's server.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from pyspark.sql.connect import functions as sf
from pyspark.sql.connect.session import SparkSession

import onager
from benchmarks.cluster import Cluster
from benchmarks.connect_server import SparkConnectServer

_PARTITIONS: Final = "4"
_WARM_UPS: Final = 60
_OWN: Final = "select 1"
_BESIDE: Final = "sql().collect"
"""The request of Spark's server with which that of Onager's client is compared."""

Request = Callable[[], object]


def requests(spark: SparkSession) -> dict[str, Request]:
    """Return the requests by name."""
    spark.conf.set("spark.sql.shuffle.partitions", _PARTITIONS)
    numbers = spark.range(0, 1000, 1, 4).select((sf.col("id") % 7).alias("k"), sf.col("id").alias("v"))
    sums = numbers.groupBy("k").agg(sf.sum("v").alias("s")).orderBy("k")
    return {
        "config": lambda: spark.conf.get("spark.sql.session.timeZone"),
        # A new frame each time, since a frame keeps its schema.
        "schema": lambda: spark.range(10).select((sf.col("id") * 2).alias("x")).schema,
        "view": lambda: sums.createOrReplaceTempView("v"),
        "range(10).collect": lambda: spark.range(10).collect(),
        _BESIDE: lambda: spark.sql("SELECT 1 AS a").collect(),
        "agg.show": lambda: sums._show_string(20, 20, False),  # noqa: SLF001 - what show() prints
    }


def in_turns(sides: Mapping[str, Request], runs: int) -> dict[str, list[float]]:
    """Return the milliseconds of each side's calls, after some to warm up."""
    times_ms: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(_WARM_UPS + runs):
        for side, request in sides.items():
            began_s = time.perf_counter()
            request()
            if number >= _WARM_UPS:
                times_ms[side].append((time.perf_counter() - began_s) * 1e3)
    return times_ms


def row(name: str, times_ms: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the figures of a request: medians, ninth deciles, and the ratio of the medians."""
    found: dict[str, Any] = {"request": name}
    for side, taken in times_ms.items():
        found[f"{side}_ms_p50"] = round(statistics.median(taken), 2)
        found[f"{side}_ms_p90"] = round(statistics.quantiles(taken, n=10)[-1], 2)
    found["ratio"] = round(found["onager_ms_p50"] / found["spark_ms_p50"], 2)
    return found


def main() -> int:
    """Measure, print a table, write the JSON."""
    options = _options()
    rows = []
    with ExitStack() as stack:
        address = options.onager or stack.enter_context(Cluster((2,))).address
        servers = {"spark": stack.enter_context(SparkConnectServer()).remote, "onager": f"sc://{address}"}
        sessions = {side: SparkSession.builder.remote(remote).create() for side, remote in servers.items()}
        # Before their servers: a client tries for long to tell one that is gone of its end.
        for session in sessions.values():
            stack.callback(session.stop)
        sides = {side: requests(session) for side, session in sessions.items()}
        for name in sides["spark"]:
            rows.append(row(name, in_turns({side: mine[name] for side, mine in sides.items()}, options.runs)))
            print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
        client = stack.enter_context(onager.connect(address))
        own = {"spark": sides["spark"][_BESIDE], "onager": lambda: client.sql("SELECT 1 AS a").to_arrow()}
        rows.append(row(_OWN, in_turns(own, options.runs)))
        print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    report = {"cores": os.cpu_count(), "load_at_end": round(os.getloadavg()[0], 2), "runs": options.runs, "rows": rows}
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.connect_latency", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=50, help="calls of each request on each side")
    parser.add_argument("--onager", metavar="H:P", help="a cluster that runs, instead of one that is started")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
