"""``python -m benchmarks.connect_kill [--schedulers 3] [--runs 50] [--rows 300000] [--seed 1] --json FILE``."""

import argparse
import json
import os
import random  # noqa: TID251 seeded
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.asked_client import AskedClient
from benchmarks.connect_cluster import ConnectCluster, Jobs
from benchmarks.connect_kill import KINDS, READING, UNDISTURBED_RUNS
from deploy.parts import StartError

_CLIENT: Final = "benchmarks.connect_kill.client"


@dataclass(slots=True)
class Run:
    """One kill and what came of it."""

    kind: str
    killed: list[str] = field(default_factory=list)
    pause_s: float = 0.0
    wrong: str = ""
    not_once: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Return whether nothing was lost, wrong, or done twice."""
        return not (self.wrong or self.not_once or self.lost)


class Kills:
    """The runs, on one cluster with one session."""

    def __init__(self, cluster: ConnectCluster, client: AskedClient, jobs: Jobs, seed: int) -> None:
        self._cluster = cluster
        self._client = client
        self._jobs = jobs
        self._rng = random.Random(seed)  # noqa: S311 - no secret
        self.undisturbed: dict[str, float] = {}

    def warm_up(self) -> None:
        """Run both queries without faults, for the medians that kills are compared with."""
        reads = [self._undisturbed("read") for _ in range(UNDISTURBED_RUNS)]
        runs = [self._undisturbed("run") for _ in range(UNDISTURBED_RUNS)]
        troubles = [answer["wrong"] for answer in (*reads, *runs) if answer["wrong"]] + self._client.ask("check")[
            "lost"
        ]
        if troubles:
            raise RuntimeError(f"before any kill: {'; '.join(troubles)}")
        self.undisturbed["pause_s"] = statistics.median(answer["pause_s"] for answer in reads)
        self.undisturbed["run_s"] = statistics.median(answer["seconds"] for answer in runs)

    def _undisturbed(self, line: str) -> dict[str, Any]:
        answer = self._client.ask(line)
        while "end" not in answer:
            answer = self._client.ask("") if answer["at"] else self._client.read_answer()
        return answer

    def run(self, kind: str) -> Run:
        """Kill once."""
        run = Run(kind)
        self._client.say("read" if kind in READING else "run")
        answer = self._client.read_answer()
        if "end" not in answer:
            if kind not in READING:
                time.sleep(self.undisturbed["run_s"] * self._rng.uniform(0.1, 0.8))
            run.killed = self._victims(kind)
            if kind in READING:
                self._client.say("")
            self._cluster.kill(*run.killed)
            self._cluster.start(*run.killed)
            answer = self._client.read_answer()
        run.wrong = answer["wrong"]
        run.pause_s = round(answer.get("pause_s") or max(0.0, answer["seconds"] - self.undisturbed["run_s"]), 3)
        run.lost = self._client.ask("check")["lost"]
        self._cluster.await_ready()
        run.not_once = self._jobs.look()
        return run

    def _victims(self, kind: str) -> list[str]:
        if kind == "executor":
            return [self._rng.choice(self._cluster.executors)]
        if kind == "all":
            return self._cluster.schedulers
        serving = self._cluster.serving(self._client.pid)
        if not serving:
            raise RuntimeError("HAProxy knows of no scheduler that serves the client")
        if kind == "another":
            others = [name for name in self._cluster.schedulers if name not in serving]
            return others[:1] or serving[:1]
        return serving


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the figures of each kind and of all."""
    found = {}
    for kind in (*KINDS, "any"):
        mine = [run for run in runs if kind in (run.kind, "any")]
        if not mine:
            continue
        found[kind] = {
            "runs": len(mine),
            "pause_s_p50": round(statistics.median(run.pause_s for run in mine), 3),
            "pause_s_max": max(run.pause_s for run in mine),
            "wrong": sum(bool(run.wrong) for run in mine),
            "not_once": sum(len(run.not_once) for run in mine),
            "lost": sum(len(run.lost) for run in mine),
        }
    return found


def main() -> int:
    """Kill, print each run, write the JSON; exit code 1 unless all is clean."""
    options = _options()
    directory = Path(tempfile.mkdtemp(prefix="onager-connect-kill-"))
    runs: list[Run] = []
    try:
        with (
            ConnectCluster(directory, schedulers=options.schedulers) as cluster,
            cluster.client() as admin,
            AskedClient(_CLIENT, cluster.remote, str(options.rows), log=directory / "client.log") as client,
        ):
            client.read_answer()
            kills = Kills(cluster, client, Jobs(admin), options.seed)
            kills.warm_up()
            text = " ".join(f"{name} {seconds:.3f}" for name, seconds in kills.undisturbed.items())
            print(f"undisturbed: {text}", flush=True)
            for number in range(options.runs):
                runs.append(run := kills.run(KINDS[number % len(KINDS)]))
                what = "; ".join(filter(None, [run.wrong, *run.not_once, *run.lost]))
                print(
                    f"{number + 1:3} {run.kind:22} {'+'.join(run.killed):35} {run.pause_s:7.3f} s  {what}", flush=True
                )
                _write(options, runs, kills.undisturbed)
    except (RuntimeError, StartError) as error:
        print(f"benchmarks.connect_kill: {error}\nlogs: {directory}", file=sys.stderr)
        return 1
    for kind, row in summary(runs).items():
        print(f"{kind:22} " + " ".join(f"{name}={value}" for name, value in row.items()))
    if not all(run.is_clean for run in runs):
        print(f"logs: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


def _write(options: argparse.Namespace, runs: Sequence[Run], undisturbed: dict[str, float]) -> None:
    if options.json is None:
        return
    report = {
        "schedulers": options.schedulers,
        "rows": options.rows,
        "seed": options.seed,
        "cores": os.cpu_count(),
        "load_at_end": round(os.getloadavg()[0], 2),
        "undisturbed": undisturbed,
        "summary": summary(runs),
        "list": [asdict(run) for run in runs],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.connect_kill", description=__doc__)
    parser.add_argument("--schedulers", type=int, choices=(1, 2, 3), default=3, help="schedulers")
    parser.add_argument("--runs", type=int, default=50, help="kills; the kinds take turns")
    parser.add_argument("--rows", type=int, default=300_000, help="of the result that is read")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and of which executor")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
