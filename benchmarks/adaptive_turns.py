"""``python -m benchmarks.adaptive_turns [--sf 1] [--runs 2] --json FILE``: if adaptive plans cost time.

`benchmarks.adaptive` has statements that gain by `onager.adaptive`. Here are others: TPC-H's queries as they run by
default, on one executor of two slots, and statements of `benchmarks.analytics` with every exchange cut, on two
executors of one slot. Each runs with ``off`` and ``on`` in turns, in one cluster: once to warm up, then *--runs* times.
The rows are compared.

| figure | what it is |
|---|---|
| ``off_s``, ``on_s`` | the best run of a statement, and the sum of these |
| ``ratio`` | of the two; ``worst`` is the largest ratio of a statement |
| ``round_ratios`` | of the sums of each round: how far they differ from each other is noise |
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import onager
from benchmarks import analytics
from benchmarks.cluster import Cluster
from benchmarks.tpch import QUERY_NUMBERS, query_text
from benchmarks.tpch.comparison import difference
from benchmarks.tpch.data import generate, views

WAYS: Final = ("off", "on")


def main() -> None:
    """Measure, print, write the JSON; exit code 1 unless all rows are the same."""
    options = _options()
    tables = views(generate(options.sf))
    queries = {f"q{number}": query_text(number) for number in QUERY_NUMBERS}
    drawn = {f"r{number}": analytics.statement(number) for number in range(1, options.statements + 1)}
    report = {
        "sf": options.sf,
        "runs": options.runs,
        "tpch": _measured(queries, tables, slots=(2,), conf={}, runs=options.runs),
        "analytics": _measured(drawn, tables, slots=(1, 1), conf={"onager.fusion.maxBytes": "0"}, runs=options.runs),
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if all(row["equal"] for suite in ("tpch", "analytics") for row in report[suite]["statements"]) else 1)


def summary(times_s: Mapping[str, Mapping[str, Sequence[float]]], equal: Mapping[str, bool]) -> dict[str, Any]:
    """Return the figures of statements, of which each has a time for every way and round."""
    rows: list[dict[str, Any]] = []
    for name, by_way in times_s.items():
        off_s, on_s = (round(min(by_way[way]), 3) for way in WAYS)
        row = {"name": name, "off_s": off_s, "on_s": on_s, "ratio": round(on_s / off_s, 2), "equal": equal[name]}
        rows.append(row)
    rounds = {way: [sum(each) for each in zip(*(by[way] for by in times_s.values()), strict=True)] for way in WAYS}
    off_s, on_s = (round(sum(row[f"{way}_s"] for row in rows), 2) for way in WAYS)
    return {
        "equal": sum(row["equal"] for row in rows),
        "off_s": off_s,
        "on_s": on_s,
        "ratio": round(on_s / off_s, 3),
        "round_ratios": [round(on / off, 3) for off, on in zip(rounds["off"], rounds["on"], strict=True)],
        "worst": max(row["ratio"] for row in rows),
        "statements": rows,
    }


def _measured(
    statements: Mapping[str, str],
    tables: Mapping[str, str],
    *,
    slots: Sequence[int],
    conf: Mapping[str, str],
    runs: int,
) -> dict[str, Any]:
    times_s: dict[str, dict[str, list[float]]] = {}
    equal = {}
    with Cluster(slots) as cluster, onager.connect(cluster.address) as client:
        for name, text in statements.items():
            taken_s: dict[str, list[float]] = {way: [] for way in WAYS}
            rows: dict[str, pa.Table] = {}
            for number in range(1 + runs):
                for way in WAYS if number % 2 else reversed(WAYS):
                    start_s = time.perf_counter()
                    job = client.sql(text, views=tables, conf={**conf, "onager.adaptive": way}, name=name)
                    rows[way] = job.to_arrow()
                    taken_s[way].append(time.perf_counter() - start_s)
            times_s[name] = {way: taken[1:] for way, taken in taken_s.items()}
            why = difference(rows["on"], rows["off"], text)
            equal[name] = why is None
            print(f"{name}: {times_s[name]}{f' DIFFERS: {why}' if why else ''}", file=sys.stderr)
    found = summary(times_s, equal)
    print(json.dumps({key: value for key, value in found.items() if key != "statements"}))
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.adaptive_turns",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sf", type=float, default=1, help="scale factor of TPC-H's tables; 1 is about 1 GB as text")
    parser.add_argument("--statements", type=int, default=24, help="how many statements of benchmarks.analytics")
    parser.add_argument("--runs", type=int, default=2, help="timed runs of each way, after one to warm up")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
