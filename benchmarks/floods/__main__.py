"""``python -m benchmarks.floods [--floods uploads,queries] [--runs 20] [--checkout DIR] --json FILE``."""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

import psutil
from pyspark.sql.connect.session import SparkSession

from benchmarks.asked_client import AskedClient
from benchmarks.bare_cluster import rss_mb
from benchmarks.cluster import Cluster
from benchmarks.floods import FLOODS

_OTHER, _FLOODER = "ann", "mallory"
_STREAMS: Final = {"uploads": 16, "waiting": 1_000, "queries": 1_000, "commands": 1_000, "archives": 0}
_LEAST: Final = 3
_WITHIN_S: Final = 90.0
"""How long each request is repeated beside a flood: as often as is asked for, or fewer times."""
_RECOVERED_WITHIN_S: Final = 300.0
_SELECT: Final = "select 1"

Requests = Mapping[str, Callable[[], object]]


class Memory:
    """The most memory of two processes while this context is open, in MB."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.before = {name: rss_mb(pid) for name, pid in pids.items()}
        self.most = dict(self.before)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def figures(self) -> dict[str, list[float]]:
        """Return before, most and now."""
        return {f"{name}_rss_mb": [self.before[name], self.most[name], rss_mb(pid)] for name, pid in self._pids.items()}

    def _watch(self) -> None:
        while not self._is_over.wait(0.1):
            for name, pid in self._pids.items():
                with suppress(psutil.NoSuchProcess):
                    self.most[name] = max(self.most[name], rss_mb(pid))


class Floods:
    """The measurements, on one cluster."""

    def __init__(self, cluster: Cluster, requests: Requests, runs: int, directory: Path) -> None:
        self._cluster = cluster
        self._requests = requests
        self._runs = runs
        self._log = directory / "attacker.log"
        self._scheduler, self._agent = cluster.pids["scheduler"], cluster.pids["executor-0"]
        for request in requests.values():
            for _ in range(runs):
                request()
        self.quiet = self._seconds()
        self._quick_s = 2 * self.quiet[_SELECT]["max"]

    def measure(self, flood: str) -> dict[str, Any]:
        """Return the figures of a flood."""
        token = self._cluster.token_file(_FLOODER).read_text().strip()
        processes = self._processes()
        arguments = (flood, self._cluster.address, token, str(_STREAMS[flood]))
        with Memory({"scheduler": self._scheduler, "agent": self._agent}) as memory:
            with AskedClient("benchmarks.floods.attacker", *arguments, log=self._log) as attacker:
                attacker.read_answer()
                seconds = self._seconds()
                found = attacker.ask("stop")
                recovered_s = self._recovered_s(time.monotonic())
            figures = memory.figures()
        return {
            "flood": flood,
            "asked": _STREAMS[flood] or sum(found["refused"].values()) + sum(found["ended"].values()),
            **found,
            "seconds": seconds,
            **figures,
            "executor_lived": self._processes() == processes,
            "recovered_s": recovered_s,
            "load": round(os.getloadavg()[0], 2),
        }

    def _seconds(self) -> dict[str, Any]:
        return {name: self._seconds_of(request) for name, request in self._requests.items()}

    def _seconds_of(self, request: Callable[[], object]) -> dict[str, Any]:
        taken: list[float] = []
        begun_s = time.monotonic()
        while len(taken) < self._runs and (len(taken) < _LEAST or time.monotonic() - begun_s < _WITHIN_S):
            taken.append(_timed_s(request))
        return {"p50": round(statistics.median(taken), 3), "max": round(max(taken), 3), "runs": len(taken)}

    def _recovered_s(self, since_s: float) -> float | None:
        while time.monotonic() - since_s < _RECOVERED_WITHIN_S:
            if _timed_s(self._requests[_SELECT]) <= self._quick_s:
                return round(time.monotonic() - since_s, 1)
        return None

    def _processes(self) -> set[int]:
        with suppress(psutil.NoSuchProcess):
            agent = psutil.Process(self._agent)
            return {agent.pid, *(child.pid for child in agent.children(recursive=True) if child.name() == "java")}
        return set()


def _timed_s(request: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    request()
    return time.perf_counter() - begun_s


def main() -> int:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floods", description=__doc__)
    parser.add_argument("--floods", default=",".join(FLOODS), help="which ones, with commas")
    parser.add_argument("--runs", type=int, default=20, help="how often each request is made beside each flood")
    parser.add_argument("--checkout", type=Path, help="the code of the cluster, by default this one")
    parser.add_argument("--json", type=Path, help="where the figures go as JSON")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onager-bench-")))
        cluster = stack.enter_context(Cluster((2,), clients=(_OTHER, _FLOODER), checkout=options.checkout))
        floods = Floods(cluster, _requests(cluster, directory, stack), options.runs, directory)
        report: dict[str, Any] = {"cores": os.cpu_count(), "quiet": floods.quiet, "floods": []}
        print(json.dumps(floods.quiet), flush=True)
        for flood in options.floods.split(","):
            report["floods"].append(floods.measure(flood))
            print(json.dumps(report["floods"][-1]), flush=True)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _requests(cluster: Cluster, directory: Path, stack: ExitStack) -> Requests:
    client = stack.enter_context(cluster.client(_OTHER))
    token = cluster.token_file(_OTHER).read_text().strip()
    # By this name PySpark sends a token without TLS.
    spark = SparkSession.builder.remote(f"sc://localhost:{cluster.address.rpartition(':')[2]}/;token={token}").create()
    stack.callback(spark.stop)
    added = 0

    def add_file() -> None:
        nonlocal added
        added += 1
        path = directory / f"{added}.txt"
        path.write_text(str(added))
        spark.addArtifacts(str(path), file=True)

    return {
        _SELECT: lambda: client.sql("SELECT 1 AS a").to_arrow(),
        "pyspark's select 1": lambda: spark.sql("SELECT 1 AS a").collect(),
        "pyspark's addArtifacts": add_file,
    }


if __name__ == "__main__":
    sys.exit(main())
