"""``python -m benchmarks.tpch --sf 0.1 [--queries 1,3] [--forced] [--runs 2] [--compare-exchanges] --json FILE``."""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

import onager
from benchmarks.cluster import Cluster
from benchmarks.side_by_side import Answered, Asked, run_plain
from benchmarks.tpch import QUERY_NUMBERS, query_text
from benchmarks.tpch.breakdown import Breakdown, breakdown
from benchmarks.tpch.comparison import difference
from benchmarks.tpch.data import generate, views
from benchmarks.tpch.exchanges import EXCHANGES, compare
from benchmarks.tpch.exchanges import report as report_exchanges
from onager.errors import OnagerError
from onager.job_settings import ADAPTIVE_DEFAULT

FORCED_CONF = {"onager.fusion.maxBytes": "0"}
"""Nothing is run as a single stage: every exchange is cut."""
TOGETHER = (8, 8)
"""Slots of executors that stages are to run together on."""


@dataclass(slots=True)
class Measured:
    """One query: seconds and where they went are the best run's, the rest belongs to the last of them."""

    query: int
    equal: bool = False
    onager_s: float = 0.0
    spark_s: float = 0.0
    stages: int = 0
    tasks: int = 0
    exchange_bytes: int = 0
    parts: Breakdown | None = None
    """Where Onager's seconds went; None when the query failed."""


def main() -> None:
    """Measure, print a table, write the JSON; exit code 1 unless every result was equal."""
    options = _options()
    data = generate(options.sf)
    if options.compare_exchanges:
        slots = options.slots or TOGETHER
        conf = FORCED_CONF | {"onager.adaptive": options.adaptive}
        found = compare(options.queries, data, slots=slots, runs=options.runs, conf=conf)
        sys.exit(0 if report_exchanges(found, sf=options.sf, slots=slots, path=options.json) else 1)
    queries = {number: Measured(number) for number in options.queries}
    results = _run_onager(options, data, queries)
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as out:
        plain = _run_spark(options, data, Path(out), queries)
        for number, mine in results.items():
            why = difference(mine, plain.results[f"q{number}"], query_text(number))
            queries[number].equal = why is None
            if why is not None:
                print(f"q{number} differs: {why}", file=sys.stderr)
    report = _report(options, plain.spark, list(queries.values()))
    _print(report)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if report["equal"] == len(queries) else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tpch", description=__doc__)
    parser.add_argument("--sf", type=float, default=0.1, help="scale factor; 1 is about 1 GB as text")
    parser.add_argument("--queries", type=_numbers, default=QUERY_NUMBERS, help="numbers, with commas between them")
    parser.add_argument("--forced", action="store_true", help="cut every exchange; two executors of one slot")
    parser.add_argument("--runs", type=int, default=2, help="timed runs of each query, after one to warm up")
    parser.add_argument("--exchange", choices=EXCHANGES, default="durable", help="how rows go from stage to stage")
    parser.add_argument(
        "--adaptive", choices=("on", "off"), default=ADAPTIVE_DEFAULT, help="lay stages out by what was measured"
    )
    parser.add_argument("--slots", type=_slots_of, help="slots of each executor, with commas between them")
    parser.add_argument(
        "--compare-exchanges",
        action="store_true",
        help="run every query over both exchanges, with every exchange cut; plain Spark is left out",
    )
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if not set(numbers) <= set(QUERY_NUMBERS):
        raise argparse.ArgumentTypeError("queries are numbered 1 to 22")
    return numbers


def _slots_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _run_onager(options: argparse.Namespace, data: Path, queries: dict[int, Measured]) -> dict[int, pa.Table]:
    results = {}
    with Cluster(_slots(options)) as cluster, onager.connect(cluster.address) as client:
        for number, measured in queries.items():
            try:
                results[number] = _measure(client, data, measured, options)
            except OnagerError as error:
                print(f"q{number} failed: {error}", file=sys.stderr)
                continue
            print(f"onager q{number}: {measured.onager_s:.2f} s, {measured.stages} stages", file=sys.stderr)
    return results


def _slots(options: argparse.Namespace) -> tuple[int, ...]:
    """Return the slots of each executor."""
    return options.slots or ((1, 1) if options.forced else (2,))


def _measure(client: onager.OnagerClient, data: Path, measured: Measured, options: argparse.Namespace) -> pa.Table:
    text, conf = query_text(measured.query), {"onager.exchange": options.exchange, "onager.adaptive": options.adaptive}
    conf |= FORCED_CONF if options.forced else {}
    for run in range(1 + options.runs):
        start_s = time.perf_counter()
        job = client.sql(text, views=views(data), conf=conf, name=f"q{measured.query}")
        result = job.to_arrow()
        seconds = time.perf_counter() - start_s
        progress = job.detail().progress
        if run == 1 or (run > 1 and seconds < measured.onager_s):
            measured.onager_s = seconds
            measured.parts = breakdown(progress, seconds, sum(_slots(options)))
    stages = [stage for stage in progress.stages if stage.work == "query"]
    read = {producer for stage in stages for producer in stage.input_stage_ids}
    measured.stages = len(stages)
    measured.tasks = sum(stage.partitions for stage in stages)
    measured.exchange_bytes = sum(stage.metrics.bytes_out for stage in stages if stage.stage_id in read)
    return result


def _run_spark(options: argparse.Namespace, data: Path, out: Path, queries: dict[int, Measured]) -> Answered:
    texts = {f"q{number}": query_text(number) for number in queries}
    answered = run_plain(Asked(views(data), texts, options.runs), out)
    for number, measured in queries.items():
        measured.spark_s = answered.best_s(f"q{number}")
    return answered


def _report(options: argparse.Namespace, spark_version: str, queries: list[Measured]) -> dict[str, Any]:
    onager_s = sum(query.onager_s for query in queries)
    spark_s = sum(query.spark_s for query in queries)
    stages = sum(query.stages for query in queries)
    return {
        "sf": options.sf,
        "forced": options.forced,
        "exchange": options.exchange,
        "adaptive": options.adaptive,
        "spark": spark_version,
        "cores": os.cpu_count(),
        "queries": [_row(query) for query in queries],
        "equal": sum(query.equal for query in queries),
        "onager_total_s": round(onager_s, 3),
        "spark_total_s": round(spark_s, 3),
        "ratio": round(onager_s / spark_s, 3),
        "parts": {
            field.name: round(sum(getattr(query.parts, field.name) for query in queries if query.parts), 3)
            for field in fields(Breakdown)
        },
        "overhead_ms_per_stage": round((onager_s - spark_s) * 1000 / stages, 1) if stages else 0.0,
    }


def _row(query: Measured) -> dict[str, Any]:
    row = asdict(query)
    row |= row.pop("parts") or {}
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}


def _print(report: dict[str, Any]) -> None:
    print("query  equal  onager_s  spark_s  stages  tasks  exchange_bytes")
    for q in report["queries"]:
        print(
            f"{q['query']:5}  {'yes' if q['equal'] else 'NO':>5}  {q['onager_s']:8.2f}  {q['spark_s']:7.2f}"
            f"  {q['stages']:6}  {q['tasks']:5}  {q['exchange_bytes']:14,}"
        )
    print(
        f"{report['equal']} of {len(report['queries'])} equal; onager {report['onager_total_s']:.1f} s,"
        f" spark {report['spark_total_s']:.1f} s, ratio {report['ratio']:.2f},"
        f" {report['overhead_ms_per_stage']:.0f} ms a stage beyond its data"
    )
    print("; ".join(f"{name.removesuffix('_s')} {seconds:.1f} s" for name, seconds in report["parts"].items()))


if __name__ == "__main__":
    main()
