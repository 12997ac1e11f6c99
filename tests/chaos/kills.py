"""``python -m tests.chaos.kills [--runs 30] [--seed N] [--json FILE]``: `kill -9` where a job's plan changes.

A real cluster: three members of etcd, three schedulers, executors of Spark. For each kind of kill, *runs* jobs run, all
one after the other. The log of each is followed; when it comes to a point that the seed has drawn, a process is killed:

| kind | who | around |
|---|---|---|
| executor stage_replanned | the executor of the REPLAN task | its launch, its outcome, the next launch |
| scheduler stage_replanned | the scheduler that committed that | the same |
| executor stage_laid_out | the executor that the log names last | a success before, the layout, the next launch |
| scheduler stage_laid_out | the scheduler that committed that | the same |

Of each job must hold: it succeeds, and all schedulers tell the same of it; its rows are those of plain Spark; no
finished task runs again; each re-plan has one outcome. Exit code 1 when something else happened.
"""

import argparse
import json
import random  # noqa: TID251 seeded
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

import onager
from benchmarks.tpch.comparison import difference
from benchmarks.tpch.data import generate, views
from deploy.local_cluster import LocalCluster
from deploy.parts import HOST
from onager.client.events import JobEvent
from onager.errors import OnagerError
from tests.chaos.cluster import SMALL_SPARK
from tests.chaos.kill_points import (
    LAID_OUT,
    REPLANNED,
    SAMPLES,
    WHEN,
    Point,
    Sample,
    executor_at,
    outcomes,
    ran_again,
)
from tests.support.spark.one_spark import stop_with_its_jvm

KINDS: Final = tuple((victim, event) for event in (REPLANNED, LAID_OUT) for victim in ("executor", "scheduler"))
_EXECUTORS: Final = 2
_PATIENCE_S: Final = 120.0
_TRIES: Final = 5
"""How often a job is submitted until its log has come to the point: what begins first is up to the executors."""


@dataclass(slots=True)
class Run:
    """A job in which a process was killed."""

    kind: str
    number: int
    query: str
    when: str
    job_id: str
    killed: str = ""
    """The process; empty if the log did not come to that point."""
    seconds: float = 0.0
    outcomes: dict[int, list[str]] = field(default_factory=dict)
    """What became of each re-plan."""
    trouble: list[str] = field(default_factory=list)


class Kills:
    """Jobs on a cluster, in each of which a process is killed."""

    def __init__(self, cluster: LocalCluster, tables: Mapping[str, str], seed: int) -> None:
        self._cluster = cluster
        self._tables = tables
        self._seed = seed
        self._expected = plain_spark(tables)

    def run(self, victim: str, event: str, number: int) -> Run:
        """Submit jobs until in one of them a process could be killed."""
        rng = random.Random(f"{self._seed} {victim} {event} {number}")
        name = rng.choice(list(SAMPLES[event]))
        when = rng.choice(
            [each for each in WHEN if (name, each) != ("nothing", "after")]
        )  # its job ends with that event
        is_repeated = name == "forced" or (event == LAID_OUT and when == "before")
        point = Point(event, when, rng.randrange(3) if is_repeated else 0)
        for _ in range(_TRIES):
            run = self._one_job(victim, point, name, SAMPLES[event][name])
            run.number = number
            if run.killed or run.trouble:
                return run
        run.trouble.append(f"no log of {_TRIES} jobs came to the point where a process is killed")
        return run

    def _one_job(self, victim: str, point: Point, name: str, sample: Sample) -> Run:
        begun_s = time.monotonic()
        addresses = self._cluster.addresses
        with onager.connect(addresses, connect_timeout_s=_PATIENCE_S, retry_timeout_s=_PATIENCE_S) as client:
            handle = client.sql(sample.text, views=self._tables, conf=sample.conf)
            run = Run(f"{victim} {point.type}", 0, name, f"{point.when} {point.number}", handle.id)
            events: list[JobEvent] = []
            for event in handle.events(follow=True):
                events.append(event)
                if not run.killed and point.is_reached(events):
                    run.killed = executor_at(events) if victim == "executor" else event.scheduler_id
                    self._cluster.parts[run.killed].kill()
            try:
                handle.wait(timeout=_PATIENCE_S)
                why = difference(handle.to_arrow(), self._expected[sample.text], sample.text)
                run.trouble += [] if why is None else [why]
            except (OnagerError, TimeoutError) as error:
                run.trouble.append(f"{type(error).__name__}: {error}")
        run.seconds = round(time.monotonic() - begun_s, 1)
        self._look(run, events)
        if run.killed:
            self._cluster.parts[run.killed].start()
            self._cluster.await_ready(run.killed)
        return run

    def _look(self, run: Run, events: list[JobEvent]) -> None:
        """Note what schedulers and the log tell of the job that must not be."""
        run.outcomes = outcomes(events)
        run.trouble += [f"re-plan {i} has outcomes {ends}" for i, ends in run.outcomes.items() if len(ends) > 1]
        ends = set()
        for address, part in zip(self._cluster.addresses.split(","), self._cluster.named("scheduler"), strict=True):
            if part.is_running:
                with onager.connect(address, retry_timeout_s=_PATIENCE_S) as client:
                    progress = client.job(run.job_id).detail().progress
                ends.add((progress.state, *((s.stage_id, s.name, s.state) for s in progress.stages)))
                run.trouble += [each for each in ran_again(events, progress.stages) if each not in run.trouble]
        run.trouble += [f"schedulers tell different ends: {ends}"] if len(ends) != 1 else []


def plain_spark(tables: Mapping[str, str]) -> dict[str, pa.Table]:
    """Return what plain Spark makes of each query, by its text."""
    from pyspark.sql import SparkSession

    settings = {"spark.driver.host": HOST, "spark.driver.bindAddress": HOST, "spark.ui.enabled": "false"}
    settings |= {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        for name, path in tables.items():
            spark.read.parquet(path).createOrReplaceTempView(name)
        texts = {sample.text for samples in SAMPLES.values() for sample in samples.values()}
        return {text: spark.sql(text).toArrow() for text in texts}
    finally:
        stop_with_its_jvm(spark)


@contextmanager
def cluster(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[LocalCluster]:
    """Run schedulers that all clients know, and executors with a slot each; logs of it stay in *directory*."""
    flags = [flag for name, value in SMALL_SPARK.items() for flag in ("--spark-conf", f"{name}={value}")]
    made = LocalCluster(
        directory,
        f"{HOST}:0",
        _EXECUTORS,
        slots=1,
        has_proxy=False,
        environment={"ONAGER_SCHEDULER_EXECUTOR_LEASE_TTL_MS": "2000", **(environment or {})},
        executor_flags={f"executor-{n}": flags for n in range(1, _EXECUTORS + 1)},
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()


def main() -> int:
    """Kill, print each run, write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kills", description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="of each kind")
    parser.add_argument("--seed", type=int, default=1, help="of jobs and points")
    parser.add_argument("--only", choices=[" ".join(kind) for kind in KINDS], help="one kind")
    parser.add_argument("--json", type=Path, help="where the runs go")
    options = parser.parse_args()
    tables = views(generate(0.01))
    directory = Path(tempfile.mkdtemp(prefix="onager-kills-"))
    runs: list[Run] = []
    with cluster(directory / "cluster") as started:
        kills = Kills(started, tables, options.seed)
        for number in range(options.runs):
            for victim, event in KINDS:
                if options.only in (None, f"{victim} {event}"):
                    runs.append(kills.run(victim, event, number))
                    _say(runs[-1])
                    _write(options.json, options.seed, runs)
    troubled = [run for run in runs if run.trouble]
    print(f"{len(runs)} kills, {len(troubled)} of them with trouble; re-plans: {dict(_replans(runs))}")
    if troubled:
        print(f"logs: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


def _replans(runs: list[Run]) -> Counter[str]:
    return Counter(outcome[0] if outcome else "lost" for run in runs for outcome in run.outcomes.values())


def _say(run: Run) -> None:
    outcomes = " ".join(f"{i}:{','.join(each) or 'lost'}" for i, each in run.outcomes.items())
    print(
        f"{run.kind} {run.number + 1:3} {run.query:12} {run.when:9} killed {run.killed:12} {run.seconds:6.1f} s  "
        f"{outcomes}  {'; '.join(run.trouble)}",
        flush=True,
    )


def _write(to: Path | None, seed: int, runs: list[Run]) -> None:
    if to is not None:
        to.parent.mkdir(parents=True, exist_ok=True)
        report = {"seed": seed, "kills": Counter(run.kind for run in runs), "replans": _replans(runs)}
        to.write_text(json.dumps(report | {"runs": [asdict(run) for run in runs]}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
