"""``python -m tests.chaos.steps [--tables] [--etcd] [--kills 200] [--seed N] [--json FILE]``: `kill -9` under scripts.

A real cluster: one scheduler, or with --etcd three of them, and two executors of Spark. Scripts of six steps run, one
after the other, until as many processes were killed as wanted: a scheduler, an executor with all that it has started,
or its JVM alone, at an event that the seed draws of all those of the script and its steps. Each statement
reads what those before it wrote: datasets by INSERT OVERWRITE DIRECTORY, or with --tables a table that is made, gets
rows twice, and has some of its partitions replaced. Of each script must hold: it succeeds; each of its steps is done by
one job, which succeeded; steps begin in order; what was written once is not written again; and at the end there are the
rows that follow from all statements. Exit code 1 when something else happened.
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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from onager.client import JobHandle, JobProgress
from tests.chaos.victims import EXECUTOR, JVM, SCHEDULER, Victims, one, three

STEPS: Final = 6
ROWS: Final = 40_000
MAX_EVENTS: Final = 12
"""Between two kills; a script has some 150."""
_PATIENCE_S: Final = 180.0
CONF: Final = {"onager.fusion.maxBytes": 0, "spark.sql.shuffle.partitions": 2}


@dataclass(slots=True)
class Tally:
    """What was done, and what was wrong."""

    scripts: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    trouble: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.killed.total()


class Datasets:
    """A script whose steps each add one to the rows of the step before, and write them to a directory."""

    def __init__(self, directory: Path, _name: str) -> None:
        self._directory = directory
        first = f"SELECT id, CAST(crc32(sha2(CAST(id AS STRING), 512)) % 7 AS BIGINT) AS n FROM range(0, {ROWS}, 1, 3)"
        texts = []
        for number in range(1, STEPS + 1):
            source = first if number == 1 else f"SELECT id, n + 1 AS n FROM parquet.`{directory}/{number - 1}`"
            texts.append(f"INSERT OVERWRITE DIRECTORY '{directory}/{number}' USING parquet {source} DISTRIBUTE BY id")
        self.text = ";\n".join(texts)

    def files(self, step: str) -> dict[str, int]:
        """Return the files that a step has written, and when."""
        return {file.name: file.stat().st_mtime_ns for file in (self._directory / step).iterdir()}

    def trouble(self, _cluster: Victims, _last: JobHandle) -> Iterator[str]:
        """Yield what is wrong with the rows."""
        table = pq.read_table(self._directory / str(STEPS))
        rows = dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))
        if len(rows) != table.num_rows or set(rows) != set(range(ROWS)):
            yield f"the last dataset has {table.num_rows} rows, of which {len(rows)} differ"
        if not all(STEPS - 1 <= n < STEPS + 6 for n in rows.values()):
            yield "the last dataset has other values"


class Tables:
    """A script that makes a table with partitions, adds rows to it, replaces some, and makes another table of it."""

    def __init__(self, _directory: Path, name: str) -> None:
        self.text = f"""\
CREATE DATABASE {name};
CREATE TABLE {name}.t USING parquet PARTITIONED BY (k) AS SELECT id, id % 5 AS k FROM range(0, {ROWS}, 1, 3);
CREATE TEMPORARY VIEW few AS SELECT id + {ROWS} AS id, k FROM {name}.t WHERE k < 3;
INSERT INTO {name}.t SELECT * FROM few DISTRIBUTE BY id;
INSERT INTO {name}.t SELECT id, 9 FROM {name}.t WHERE k = 4 DISTRIBUTE BY id;
SET spark.sql.sources.partitionOverwriteMode = dynamic;
INSERT OVERWRITE {name}.t SELECT id * 2, k FROM {name}.t WHERE k IN (1, 9) DISTRIBUTE BY id;
CREATE TABLE {name}.sums AS SELECT k, count(*) AS n, sum(id) AS s FROM {name}.t GROUP BY k;
SELECT k, n, s FROM {name}.sums ORDER BY k"""
        self._name = name

    def files(self, _step: str) -> dict[str, int]:
        """Return nothing: what a step has written is seen in the rows."""
        return {}

    def trouble(self, cluster: Victims, last: JobHandle) -> Iterator[str]:
        """Yield what is wrong with the rows."""
        rows = {k: [n for n in range(ROWS) if n % 5 == k] for k in range(5)}
        for k in range(3):
            rows[k] += [n + ROWS for n in rows[k]]
        rows[9] = list(rows[4])
        rows |= {k: [n * 2 for n in rows[k]] for k in (1, 9)}
        expected = [(k, len(ids), sum(ids)) for k, ids in sorted(rows.items())]
        if (got := [tuple(row.values()) for row in last.to_arrow().to_pylist()]) != expected:
            yield f"the script gives {got}, not {expected}"
        again = cluster.client.sql(f"SELECT k, count(*) AS n, sum(id) AS s FROM {self._name}.t GROUP BY k ORDER BY k")
        if (got := [tuple(row.values()) for row in again.to_arrow().to_pylist()]) != expected:
            yield f"the table has {got}, not {expected}"


class Run:
    """One script, and how its datasets were first seen."""

    def __init__(self, cluster: Victims, script: Datasets | Tables) -> None:
        self._script = script
        self.job: JobHandle = cluster.client.sql(script.text, conf=CONF)
        self._first: dict[str, dict[str, int]] = {}
        self._cluster = cluster

    def look(self) -> JobProgress:
        """Return how far the script is; remember the files of the steps that are done."""
        progress = self.job.progress()
        for step in progress.stages[1:]:
            name = str(step.stage_id)
            if step.state == "successful" and name not in self._first:
                self._first[name] = self._script.files(name)
        return progress

    def trouble(self) -> list[str]:
        """Return what is wrong with a script that has ended."""
        progress = self.look()
        if progress.failure is not None:
            return [f"{self.job.id} {progress.state}: {progress.failure}"]
        found = []
        steps = progress.stages[1:]
        for name, files in self._first.items():
            if self._script.files(name) != files:
                found.append(f"{self.job.id}: dataset {name} was written again")
        if [step.child_job_id for step in steps] != [f"{self.job.id}.{n}" for n in range(1, STEPS + 1)]:
            found.append(f"{self.job.id}: its steps were done by {[step.child_job_id for step in steps]}")
        children = [job for job in self._cluster.client.jobs(1_000, steps=True) if job.parent == self.job.id]
        if sorted(job.job_id for job in children) != [f"{self.job.id}.{n}" for n in range(1, STEPS + 1)]:
            found.append(f"{self.job.id}: there are jobs {[job.job_id for job in children]}")
        found += [f"{job.job_id} is {job.state}" for job in children if job.state != "successful"]
        submitted = {job.job_id: job.submitted_ms for job in children}
        ends = [0, *(job.ended_ms for job in sorted(children, key=lambda job: job.job_id))]
        for number in range(1, STEPS + 1):
            if submitted.get(f"{self.job.id}.{number}", 0) < ends[number - 1]:
                found.append(f"{self.job.id}: step {number} began before step {number - 1} had ended")
        found += [f"{self.job.id}: {each}" for each in self._script.trouble(self._cluster, self.job)]
        return found


class Followed:
    """Counts what happens to a script and its steps, as their logs tell it."""

    def __init__(self, job: JobHandle) -> None:
        self.events = 0
        self._threads: list[threading.Thread] = []
        self._known: set[str] = set()
        self.follow(job)

    def follow(self, job: JobHandle) -> None:
        """Count the events of *job*, too."""
        if job.id not in self._known:
            self._known.add(job.id)
            self._threads.append(threading.Thread(target=self._count, args=(job,), daemon=True))
            self._threads[-1].start()

    def _count(self, job: JobHandle) -> None:
        for _ in job.events(follow=True):
            self.events += 1


def run(
    kills: int,
    seed: int,
    directory: Path,
    kind: type[Datasets | Tables],
    where: Callable[[Path], AbstractContextManager[Victims]] = one,
) -> Tally:
    """Run scripts of that *kind* until *kills* processes were killed."""
    rng, tally = random.Random(seed), Tally()
    with where(directory / "cluster") as cluster:
        while tally.kills < kills and not tally.trouble:
            tally.scripts += 1
            datasets = directory / f"script-{tally.scripts}"
            script = Run(cluster, kind(datasets, f"s{tally.scripts}"))
            _kill_under(script, cluster, kills, rng, tally)
            tally.trouble += script.trouble() if not tally.trouble else []
            print(f"{tally.scripts} scripts, {dict(tally.killed)}: {tally.trouble or 'sound'}", flush=True)
            shutil.rmtree(datasets, ignore_errors=True)
    return tally


def _kill_under(script: Run, cluster: Victims, kills: int, rng: random.Random, tally: Tally) -> None:
    """Kill until *script* has ended: each time as soon as its logs and those of its steps have some more events."""
    followed = Followed(script.job)
    due = rng.randint(1, MAX_EVENTS)
    moved_s, seen = time.monotonic(), 0
    while not (progress := script.look()).state.is_final:
        for step in progress.stages[1:]:
            if step.child_job_id and step.state != "successful":
                followed.follow(cluster.client.job(step.child_job_id))
        if followed.events > seen:
            moved_s, seen = time.monotonic(), followed.events
        if time.monotonic() - moved_s > _PATIENCE_S:
            tally.trouble.append(f"nothing happens to {script.job.id}: {progress}")
            return
        if seen >= due and tally.kills < kills:
            what = rng.choice((SCHEDULER, EXECUTOR, JVM))
            if cluster.kill(what, rng.choice(cluster.schedulers if what == SCHEDULER else cluster.executors)):
                tally.killed[what] += 1
            due = followed.events + rng.randint(1, MAX_EVENTS)
        time.sleep(0.02)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--etcd", action="store_true", help="three schedulers over etcd, instead of one on LevelDB")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onager-steps-") as directory:
        kind, where = Tables if arguments.tables else Datasets, three if arguments.etcd else one
        tally = run(arguments.kills, arguments.seed, Path(directory), kind, where)
    counts = {
        "seed": arguments.seed,
        "scripts": tally.scripts,
        "killed": tally.killed,
        "trouble": tally.trouble,
    }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(counts, indent=2))
    print(json.dumps(counts))
    return 1 if tally.trouble else 0


if __name__ == "__main__":
    sys.exit(main())
