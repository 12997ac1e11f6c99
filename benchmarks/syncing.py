"""What it costs that outputs outlive a loss of power: ``python -m benchmarks.syncing --json FILE``.

TPC-H's queries, and a copy of its largest table, write datasets on two clusters in turns: on one as always, on the
other with a library before the C library that makes every `fsync` do nothing (Debian's ``libeatmydata1``).

| figure | what it is |
|---|---|
| ``synced_s``, ``unsynced_s`` | the best run of a statement, and the sums of these |
| ``ratio`` | of the two |
| ``round_ratios`` | of the sums of each round: how far they differ from each other is noise |
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

import onager
from benchmarks.cluster import Cluster
from benchmarks.state.machine import describe
from benchmarks.tpch import QUERY_NUMBERS, query_text
from benchmarks.tpch.data import generate, views

WAYS: Final = ("synced", "unsynced")
_NAME: Final = "libeatmydata.so"
_PLACES: Final = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib")


def main() -> None:
    """Measure, print, write the JSON."""
    options = _options()
    tables = views(generate(options.sf))
    statements = {f"q{number}": query_text(number) for number in QUERY_NUMBERS}
    statements["lineitem"] = "SELECT * FROM lineitem"
    with tempfile.TemporaryDirectory(prefix="onager-syncing-", dir=options.directory) as directory:
        machine = describe(Path(directory))
        times_s = _measured(statements, tables, Path(directory), options.library, options.runs)
    report = {"machine": machine, "sf": options.sf, "runs": options.runs, **summary(times_s)}
    print(json.dumps({key: value for key, value in report.items() if key != "statements"}, indent=1))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")


def summary(times_s: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """Return the figures of statements, of which each has a time for every way and round."""
    rows: list[dict[str, Any]] = []
    for name, by_way in times_s.items():
        synced_s, unsynced_s = (round(min(by_way[way]), 3) for way in WAYS)
        ratio = round(synced_s / unsynced_s, 2)
        rows.append({"name": name, "synced_s": synced_s, "unsynced_s": unsynced_s, "ratio": ratio})
    rounds = {way: [sum(each) for each in zip(*(by[way] for by in times_s.values()), strict=True)] for way in WAYS}
    synced_s, unsynced_s = (round(sum(row[f"{way}_s"] for row in rows), 2) for way in WAYS)
    return {
        "synced_s": synced_s,
        "unsynced_s": unsynced_s,
        "ratio": round(synced_s / unsynced_s, 3),
        "round_ratios": [round(s / u, 3) for s, u in zip(rounds["synced"], rounds["unsynced"], strict=True)],
        "statements": rows,
    }


def _measured(
    statements: Mapping[str, str], tables: Mapping[str, str], directory: Path, library: Path, runs: int
) -> dict[str, dict[str, list[float]]]:
    times_s: dict[str, dict[str, list[float]]] = {}
    with (
        Cluster(directory=directory) as synced,
        Cluster(directory=directory, environment={"LD_PRELOAD": str(library)}) as unsynced,
        onager.connect(synced.address) as of_synced,
        onager.connect(unsynced.address) as of_unsynced,
    ):
        _check_loaded(unsynced, library)
        clients = {"synced": of_synced, "unsynced": of_unsynced}
        for name, text in statements.items():
            taken_s: dict[str, list[float]] = {way: [] for way in WAYS}
            for number in range(1 + runs):
                for way in WAYS if number % 2 else reversed(WAYS):
                    target = directory / f"{name}-{way}"
                    start_s = time.perf_counter()
                    clients[way].sql(text, views=tables, output=target, name=name).wait()
                    taken_s[way].append(time.perf_counter() - start_s)
                    shutil.rmtree(target)
            times_s[name] = {way: taken[1:] for way, taken in taken_s.items()}
            print(f"{name}: {times_s[name]}", file=sys.stderr)
    return times_s


def _check_loaded(cluster: Cluster, library: Path) -> None:
    """Exit unless all processes that write have loaded *library*."""
    for name, pid in cluster.pids.items():
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            if each.name() in {"java", process.name()} and str(library.resolve()) not in _loaded(each.pid):
                sys.exit(f"{name} has a process, {each.pid} ({each.name()}), that did not load {library}")


def _loaded(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.syncing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found = next((path for place in _PLACES if (path := Path(place, _NAME)).exists()), None)
    parser.add_argument("--sf", type=float, default=1, help="scale factor of TPC-H's tables; 1 is about 1 GB as text")
    parser.add_argument("--runs", type=int, default=2, help="timed runs of each way, after one to warm up")
    parser.add_argument("--directory", type=Path, help="on the disk to measure (default: that of temporary files)")
    parser.add_argument("--library", type=Path, default=found, help=f"{_NAME}, where it is not in {_PLACES[0]}")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    options = parser.parse_args()
    if options.library is None or not options.library.exists():
        parser.error(f"there is no {options.library or _NAME}: apt-get install libeatmydata1, or give --library")
    return options


if __name__ == "__main__":
    main()
