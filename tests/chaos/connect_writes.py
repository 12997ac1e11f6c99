"""``python -m tests.chaos.connect_writes [--runs 100] [--seed 1] [--json FILE]``: `kill -9` under writes.

Three members of etcd, three schedulers behind HAProxy, two executors, and an unmodified client of Spark Connect that
writes into paths and tables, one write after the other, in every way that it has (`tests.chaos.connect_writes_client`).
Under each write something is killed: a scheduler, an executor with its JVM, or the JVM alone, at an event of the
write's job that the seed draws, or before there is a job. What must hold: the rows of each place are those of before
and of the write, each once; where the write raised, those of before will do. Exit code 1 else.
"""

import argparse
import json
import random  # noqa: TID251 seeded
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import onager
from benchmarks.asked_client import AskedClient
from benchmarks.connect_cluster import ConnectCluster, Jobs
from tests.chaos.steps import Followed
from tests.chaos.victims import EXECUTOR, JVM, SCHEDULER

_CLIENT: Final = "tests.chaos.connect_writes_client"
_MAX_EVENTS: Final = 24
"""Of a write's job; one that has fewer is killed at its end, or after it."""
_PATIENCE_S: Final = 300.0


@dataclass(slots=True)
class Tally:
    """What was done, and what came of it."""

    runs: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    raised: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)


class Killer(threading.Thread):
    """Kills once, under the next job of a client, at the event number *due*; 0: at once."""

    def __init__(self, cluster: ConnectCluster, admin: onager.OnagerClient, victim: tuple[str, str], due: int) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._admin = admin
        self._victim = victim
        self._due = due
        self._known = {job.job_id for job in admin.jobs(limit=20)}
        self.ended = threading.Event()

    def run(self) -> None:
        followed: Followed | None = None
        until_s = time.monotonic() + _PATIENCE_S
        while self._due and not self.ended.is_set() and time.monotonic() < until_s:
            if followed is None:
                new = [job for job in self._admin.jobs(limit=5) if job.job_id not in self._known]
                followed = Followed(self._admin.job(new[-1].job_id)) if new else None
            elif followed.events >= self._due:
                break
            time.sleep(0.01)
        kind, name = self._victim
        if kind == JVM:
            self._cluster.kill_jvm(name)
            return
        self._cluster.kill(name)
        self._cluster.start(name)


def run(runs: int, seed: int, directory: Path, environment: dict[str, str]) -> Tally:
    """Write so many times, with a kill each."""
    rng, tally = random.Random(seed), Tally()
    with (
        ConnectCluster(directory, environment=environment) as cluster,
        cluster.client() as admin,
        AskedClient(_CLIENT, cluster.remote, str(directory), log=directory / "client.log") as client,
    ):
        jobs, ways = Jobs(admin), client.read_answer()["ways"]
        for number in range(runs):
            way, kind = ways[number % len(ways)], rng.choice((SCHEDULER, EXECUTOR, JVM))
            name = rng.choice(cluster.schedulers if kind == SCHEDULER else cluster.executors)
            cluster.local.await_ready(name)
            killer = Killer(cluster, admin, (kind, name), rng.randrange(_MAX_EVENTS))
            killer.start()
            answer = client.ask(way)
            killer.ended.set()
            killer.join()
            tally.runs[way] += 1
            tally.killed[kind] += 1
            tally.raised += [f"{way}: {answer['raised']}"] if answer["raised"] else []
            tally.trouble += [f"{way}: {answer['wrong']}"] if answer["wrong"] else []
            tally.trouble += jobs.look()
            print(
                f"{number + 1:4} {way:18} {kind} {name}: {answer['wrong'] or answer['raised'] or 'whole'}",
                flush=True,
            )
    return tally


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="onager-connect-writes-"))
    # What is killed more often than a task may fail is none of the task's fault here.
    tally = run(arguments.runs, arguments.seed, directory, {"ONAGER_SCHEDULER_TASK_MAX_FAILURES": "1000"})
    counts = {"seed": arguments.seed, "runs": tally.runs, "killed": tally.killed, "raised": tally.raised}
    counts["trouble"] = tally.trouble
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(counts, indent=2))
    print(json.dumps(counts))
    if tally.trouble:
        print(f"logs and data: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
