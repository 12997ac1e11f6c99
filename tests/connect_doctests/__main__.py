"""``python -m tests.connect_doctests [--modules conf,column] [--kill-every 5] [--json FILE]``.

Runs the doctests of PySpark's modules against Spark's own Connect server and against a cluster of Onager's, and
compares what passes. With ``--kill-every``, one of three schedulers behind HAProxy is killed by ``kill -9`` every so
many seconds meanwhile. Exit code 1 when something passes with Spark's server and neither passes here nor is refused by
name.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import Cluster
from benchmarks.connect_cluster import ConnectCluster
from benchmarks.connect_server import SparkConnectServer
from tests.connect_doctests import CONNECT, SQL

ROOT: Final = Path(__file__).resolve().parents[2]
_MODULE_TIMEOUT_S: Final = 1_200.0
_REFUSALS: Final = ("Onager does not", "can call any Java method")
"""What messages have in them with which requests are refused by name."""

_SLOTS: Final = 2
"""Of the executor, as in the other server's Spark: the order of rows that nobody has sorted depends on it."""

Results = dict[str, dict[str, Any]]
"""By the name of a doctest: its examples, how many failed, and why."""


def run_module(name: str, remote: str, directory: Path) -> Results:
    """Run the doctests of a module; what did not come to its end is called ``(end)``."""
    out = directory / f"{name}.jsonl"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.connect_doctests.child", name, remote, str(out)]
    trouble = ""
    with (directory / f"{name}.log").open("w") as log:
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                timeout=_MODULE_TIMEOUT_S,
                check=False,
            )
            if done.returncode:
                trouble = f"ended with code {done.returncode}: {(directory / f'{name}.log').read_text()[-600:].strip()}"
        except subprocess.TimeoutExpired:
            trouble = f"did not end within {_MODULE_TIMEOUT_S:g} s"
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    found: Results = {line.pop("test"): line for line in lines}
    if trouble:
        found["(end)"] = {"examples": 1, "failed": 1, "reasons": [trouble]}
    return found


@contextmanager
def killing(cluster: ConnectCluster, every_s: float, killed: Counter[str]) -> Iterator[None]:
    """Kill a scheduler every *every_s* seconds, one after the other, and start it again."""
    ended = threading.Event()

    def kill() -> None:
        names = cluster.schedulers
        while not ended.wait(every_s):
            name = names[killed.total() % len(names)]
            cluster.kill(name)
            cluster.start(name)
            killed[name] += 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def compare(spark: Results, mine: Results) -> dict[str, Any]:
    """Return how the doctests of a module went here, beside how they went with Spark's server."""
    passes = {name for name, reported in spark.items() if not reported["failed"]}
    failing = {name: reported for name, reported in mine.items() if reported["failed"] and name in passes | {"(end)"}}
    failing |= {name: {"reasons": ["it did not run"]} for name in passes - set(mine)}
    refused = {name: reported for name, reported in failing.items() if any(map(_is_refusal, reported["reasons"]))}
    return {
        "doctests": len(spark),
        "pass_with_spark": len(passes),
        "pass": len([name for name in passes if name in mine and not mine[name]["failed"]]),
        "examples": sum(page["examples"] for page in mine.values()),
        "examples_failed": sum(page["failed"] for page in mine.values()),
        "refused": {name: reported["reasons"][0] for name, reported in refused.items()},
        "differ": {name: reported["reasons"][0] for name, reported in failing.items() if name not in refused},
    }


def _is_refusal(reason: str) -> bool:
    return any(refusal in reason for refusal in _REFUSALS)


def main() -> int:
    options = _options()
    directory = Path(tempfile.mkdtemp(prefix="onager-doctests-"))
    report: dict[str, Any] = {"kill_every_s": options.kill_every, "modules": {}, "spark": {}, "onager": {}}
    if options.baseline:
        report["spark"] = json.loads(options.baseline.read_text())["spark"]
    wanted = [name for name in options.modules if name not in report["spark"]]
    if wanted:
        with SparkConnectServer() as server:
            _run(wanted, server.remote, directory / "spark", report, "spark", options.json)
    if not options.only_spark:
        killed: Counter[str] = Counter()
        with ExitStack() as stack:
            remote = options.remote
            if options.kill_every:
                cluster = stack.enter_context(ConnectCluster(directory, executors=1, slots=_SLOTS))
                remote = cluster.remote
                stack.enter_context(killing(cluster, options.kill_every, killed))
            elif not remote:
                remote = f"sc://{stack.enter_context(Cluster((2,))).address}"
            _run(options.modules, remote, directory / "onager", report, "onager", options.json)
        report["killed"] = dict(killed)
        for name in options.modules:
            report["modules"][name] = compare(report["spark"][name], report["onager"][name])
        _write(options.json, report)
        _print(report["modules"])
    if any(found["differ"] for found in report["modules"].values()):
        print(f"logs: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


def _run(modules: list[str], remote: str, directory: Path, report: dict[str, Any], side: str, to: Path | None) -> None:
    directory.mkdir(parents=True)
    for name in modules:
        began_s = time.monotonic()
        found = report[side][name] = run_module(name, remote, directory)
        bad = [test for test, reported in found.items() if reported["failed"]]
        share = f"{len(found) - len(bad)} of {len(found)}"
        print(f"{side:6} {name:22} {share:>12} {time.monotonic() - began_s:6.0f} s  {', '.join(bad)[:150]}", flush=True)
        _write(to, report)


def _write(to: Path | None, report: dict[str, Any]) -> None:
    if to is not None:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(json.dumps(report, indent=1) + "\n")


def _print(modules: dict[str, dict[str, Any]]) -> None:
    for name, found in modules.items():
        print(f"{name}: {found['pass']} of the {found['pass_with_spark']} doctests that pass with Spark's server")
        for kind in ("refused", "differ"):
            for test, why in found[kind].items():
                print(f"  {kind:8} {test}: {why[:200]}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.connect_doctests", description=__doc__)
    parser.add_argument("--modules", type=lambda text: text.split(","), default=[*CONNECT, *SQL], help="with commas")
    parser.add_argument("--kill-every", type=float, metavar="S", help="seconds from kill to kill")
    parser.add_argument("--remote", help="sc://… of a cluster that runs, instead of one that is started")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="a report that has the results of Spark's server")
    parser.add_argument("--only-spark", action="store_true", help="make such a report")
    parser.add_argument("--json", type=Path, help="where the results go")
    options = parser.parse_args()
    if unknown := [name for name in options.modules if name not in (*CONNECT, *SQL)]:
        parser.error(f"--modules: there is no {', '.join(unknown)}; there are {', '.join((*CONNECT, *SQL))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
