"""``python -m benchmarks.state [--backends leveldb,etcd] [--seconds 4] [--quick] [--dir DIR] --json FILE``."""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.state import CALLERS, OPERATIONS
from benchmarks.state.backends import BACKENDS
from benchmarks.state.machine import describe
from benchmarks.state.side import Sample, Side

ROUNDS: Final = 8
"""Rounds of each side in a cell: A B B A A B B A …"""
_WARM_UP: Final = 0.25
"""The part of a round that is run before, uncounted."""


def main() -> None:
    """Measure, print a table as it grows, write the JSON."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="onager-bench-", dir=options.dir) as directory:
        try:
            header = describe(Path(directory))
        except ValueError as error:
            sys.exit(f"benchmarks.state: {error}")
        print(" ".join(f"{name}={value}" for name, value in header.items()))
        print(_line("backend", "operation", "callers", "per_s", "p50_ms", "p99_ms", "raw_per_s", "cost"))
        rows = asyncio.run(_measure_all(options, Path(directory)))
    medians = {name: _median_cost(rows, name) for name in options.backends}
    for name, cost in medians.items():
        print(f"{name}: the port costs {cost:.2f} times the raw driver (median of the cells)")
    report = {
        "machine": {**header, "load_at_end": round(os.getloadavg()[0], 2)},
        "seconds": options.seconds,
        "rows": rows,
        "median_cost": medians,
    }
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state", description=__doc__)
    parser.add_argument("--backends", type=_names(BACKENDS), default=list(BACKENDS), help="with commas between them")
    parser.add_argument("--operations", type=_names(OPERATIONS), default=list(OPERATIONS), help="only these")
    parser.add_argument("--callers", type=_numbers, default=CALLERS, help="only these; numbers with commas")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each side of each cell")
    parser.add_argument("--quick", action="store_true", help="a glance: 0.4 seconds")
    parser.add_argument("--dir", type=Path, default=None, help="a directory on the disk to measure on")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    if options.quick:
        options.seconds = 0.4
    return options


def _names(known: Sequence[str] | dict[str, Any]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if not set(names) <= set(known):
            raise argparse.ArgumentTypeError(f"choose from {', '.join(known)}")
        return names

    return parse


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


async def _measure_all(options: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    rows = []
    for name in options.backends:
        async with BACKENDS[name](directory / name) as sides:
            for side in sides:
                await side.fill()
            for operation in options.operations:
                for callers in options.callers:
                    ours, raw = await _cell(sides, operation, callers, options.seconds)
                    rows.append(_row(name, operation, callers, ours, raw))
                    print(_line(*rows[-1].values()), flush=True)
    return rows


async def _cell(sides: tuple[Side, Side], operation: str, callers: int, seconds: float) -> tuple[Sample, Sample]:
    """Measure both sides in rounds that alternate."""
    samples = (Sample(), Sample())
    for side in sides:
        await side.measure(operation, callers, _WARM_UP * seconds / ROUNDS)
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            samples[which].add(await sides[which].measure(operation, callers, seconds / ROUNDS))
    return samples


def _row(name: str, operation: str, callers: int, ours: Sample, raw: Sample) -> dict[str, Any]:
    return {
        "backend": name,
        "operation": operation,
        "callers": callers,
        "per_s": round(ours.per_s, 1),
        "p50_ms": round(ours.quantile_ms(0.5), 3),
        "p99_ms": round(ours.quantile_ms(0.99), 3),
        "raw_per_s": round(raw.per_s, 1),
        "cost": round(raw.per_s / ours.per_s, 3),
    }


def _median_cost(rows: list[dict[str, Any]], name: str) -> float:
    costs: list[float] = [row["cost"] for row in rows if row["backend"] == name]
    return round(statistics.median(costs), 3)


def _line(*cells: object) -> str:
    widths = (8, 11, 8, 10, 9, 9, 10, 7)
    return "".join(f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True))


if __name__ == "__main__":
    main()
