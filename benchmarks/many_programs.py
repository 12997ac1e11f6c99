"""Programs that are in their loops at once: ``python -m benchmarks.many_programs [--programs 100] --json FILE``.

Three schedulers on etcd, and two executors of one slot for tasks that take half of the programs each. Every program
asks Spark something, waits some seconds, and asks again, until a file appears. Queries of a client run beside them.

| figure | what it is |
|---|---|
| ``begun_s`` | from the first submission until all programs were in their loops |
| ``schedulers_before_mb`` | what each scheduler holds of the machine's memory once one program has run |
| ``schedulers_mb``, ``growth`` | the same at its most while all were in their loops, and by how much that is more |
| ``program_mb_max`` | the largest process of a program (RSS) |
| ``program_own_mb_max`` | what it shares with no other one (USS) |
| ``query_s_p50`` | a small query of the client beside them |
| ``ended_s`` | from the word to end until the last one has ended |
| ``exit_codes`` | how many programs ended with which |
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil

import onager
from benchmarks.bare_cluster import rss_mb
from benchmarks.cluster import free_address
from deploy.local_cluster import LocalCluster
from onager.client.program import ProgramHandle

_PAUSE_S: Final = 5
_IN_LOOP: Final = 6
"""Calls that a program has made once it is in its loop."""
_PROGRAM: Final = f"""
import os, sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rounds = 0
while not os.path.exists(sys.argv[1]):
    rounds += spark.range(100).count() == 100
    time.sleep({_PAUSE_S})
print("rounds", rounds)
"""
_LONG_S: Final = 1800.0


class _Programs:
    """Programs of one cluster, which end on one word."""

    def __init__(self, client: onager.OnagerClient, folder: Path) -> None:
        self._client = client
        self._path = folder / "loop.py"
        self._path.write_text(_PROGRAM)
        self._word = folder / "end"
        self.started: list[ProgramHandle] = []

    def start(self, programs: int) -> None:
        """Submit so many, and return once all are in their loops."""
        self._word.unlink(missing_ok=True)
        self.started = [self._client.run(self._path, args=[str(self._word)]) for _ in range(programs)]
        waiting, end_s = list(self.started), time.monotonic() + _LONG_S
        while waiting:
            waiting = [program for program in waiting if program.info().calls < _IN_LOOP]
            if time.monotonic() > end_s:
                raise TimeoutError(f"{len(waiting)} programs are not in their loops after {_LONG_S:g} s")
            time.sleep(0.5)

    def end(self) -> dict[str, int]:
        """Have all end; return how many ended with which exit code."""
        self._word.touch()
        codes = Counter(str(program.wait(_LONG_S)) for program in self.started)
        return dict(codes)


def measured(programs: int, seconds: float) -> dict[str, Any]:
    """Return the figures of so many *programs* that are in their loops for some *seconds*."""
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as folder:
        cluster = LocalCluster(
            Path(folder) / "cluster",
            free_address(),
            2,
            1,
            has_proxy=False,
            environment={"ONAGER_EXECUTOR_PROGRAM_SLOTS": str(-(-programs // 2))},
        )
        try:
            cluster.start()
            with onager.connect(cluster.addresses) as client:
                return _figures(cluster, client, Path(folder), programs, seconds)
        finally:
            cluster.stop()


def _figures(
    cluster: LocalCluster, client: onager.OnagerClient, folder: Path, programs: int, seconds: float
) -> dict[str, Any]:
    mine = _Programs(client, folder)
    mine.start(1)
    mine.end()
    before = _schedulers(cluster)
    began_s = time.monotonic()
    mine.start(programs)
    begun_s = time.monotonic() - began_s
    most, queries = list(before), list[float]()
    processes: list[tuple[float, float]] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        asked_s = time.monotonic()
        client.sql("SELECT count(*) FROM range(1000)").to_arrow()
        queries.append(time.monotonic() - asked_s)
        most = [max(pair) for pair in zip(most, _schedulers(cluster), strict=True)]
        processes += _processes(cluster)
        time.sleep(1.0)
    ending_s = time.monotonic()
    codes = mine.end()
    return {
        "programs": programs,
        "begun_s": round(begun_s, 1),
        "schedulers_before_mb": before,
        "schedulers_mb": most,
        "growth": round(max(now / then for now, then in zip(most, before, strict=True)) - 1, 3),
        "program_mb_max": max(rss for rss, _ in processes),
        "program_own_mb_max": max(own for _, own in processes),
        "query_s_p50": round(statistics.median(queries), 3),
        "ended_s": round(time.monotonic() - ending_s, 1),
        "exit_codes": codes,
    }


def _schedulers(cluster: LocalCluster) -> list[float]:
    return [rss_mb(part.pid) for part in cluster.named("scheduler")]


def _processes(cluster: LocalCluster) -> Sequence[tuple[float, float]]:
    """Return the memory of each process of a program, in MB: all of it, and what is its own alone."""
    found = []
    for part in cluster.named("executor"):
        for process in psutil.Process(part.pid).children(recursive=True):
            try:
                if Path(process.cwd()).name == "work":
                    memory = process.memory_full_info()
                    found.append((round(memory.rss / 1e6, 1), round(memory.uss / 1e6, 1)))
            except psutil.Error:
                continue  # it has ended meanwhile
    return found


def main() -> int:
    """Measure, print the figures, write the JSON; exit code 1 if a program has failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_programs", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--programs", type=int, default=100, help="how many are in their loops at once")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long they are watched")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    report = {
        "cores": os.cpu_count(),
        **measured(options.programs, options.seconds),
        "load_at_end": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(report, indent=1))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(report["exit_codes"] != {"0": options.programs})


if __name__ == "__main__":
    sys.exit(main())
