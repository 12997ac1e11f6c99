"""The cost of taking over a job of many tasks: ``python -m benchmarks.takeover --tasks 100000 --json FILE``.

A job runs, its log in a memory store as a scheduler writes it. Again and again another scheduler that has never seen it
reads it, which is what stands between a scheduler's death and the next launch: whenever the next batch would bring a
snapshot, hence the log is as long as it gets, and at the end. Meanwhile something else asks the event loop for its turn
again and again, as other jobs do.

| figure | what it is |
|---|---|
| ``reads`` | each: after how many tasks, bytes of snapshot and log, ms by the clock and of processor time, and \
``blocked_ms``, the longest that it held up the event loop, in processor time, too |
| ``snapshots`` | each that was written on the way: after how many tasks, and the same |
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.graph import SLOT, planned, success
from onager.clock import SystemClock
from onager.execution_graph import Event, ExecutionGraph, TasksLaunched, TaskSucceeded, apply, apply_all, pop_next_tasks
from onager.ids import JobId
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_store import SNAPSHOT_LOG_RATIO, SNAPSHOT_MIN_LOG_BYTES, JobStore
from onager.scheduler.main import GC_THRESHOLDS
from onager.state_backend.memory import MemoryBackend, MemoryStore

_JOB: Final = JobId("job")
_SLOTS: Final = 256
_EARLY: Final = 0.05
"""Reads before so large a part is done are not worth a row."""


@dataclass(slots=True)
class Watched:
    """How long something took, and the longest that the event loop did nothing else."""

    s: float = 0.0
    cpu_s: float = 0.0
    blocked_s: float = 0.0

    @property
    def row(self) -> dict[str, float]:
        """Return it for people."""
        found = {"ms": self.s, "cpu_ms": self.cpu_s, "blocked_ms": self.blocked_s}
        return {name: round(seconds * 1e3, 1) for name, seconds in found.items()}


async def watched(work: Awaitable[Any]) -> tuple[Any, Watched]:
    """Return what *work* returns, and how it went."""
    found = Watched()
    task = asyncio.ensure_future(work)
    begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
    last_s = begun_cpu_s
    while not task.done():
        await asyncio.sleep(0)
        now_s = time.thread_time()
        found.blocked_s = max(found.blocked_s, now_s - last_s)
        last_s = now_s
    found.s, found.cpu_s = time.perf_counter() - begun_s, last_s - begun_cpu_s
    return task.result(), found


class Running:
    """A job that runs in one scheduler, and is read by others."""

    def __init__(self, tasks: int, batch: int) -> None:
        self._tasks = tasks
        self._batch = batch
        self._clock = SystemClock()
        self._memory = MemoryStore(self._clock)
        self._in_hand: list[TaskSucceeded] = []
        self.snapshots: list[dict[str, float]] = []
        self.reads: list[dict[str, float]] = []

    async def run(self) -> None:
        """Run all but the last batch of tasks."""
        store = self._store()
        job, _ = await store.submit(planned(self._tasks))
        done, batch_bytes = 0, 0
        while done < self._tasks - self._batch:
            before = job
            events, graph = self._next(job.graph)
            committed, how = await watched(store.commit(job, tuple(events), graph))
            job = committed.job  # nobody else writes
            done = len(job.graph.stages[1].ledger.outputs)
            if job.header.generation > before.header.generation:
                self.snapshots.append({"tasks": done, **how.row})
                continue
            batch_bytes = max(batch_bytes, job.log_bytes - before.log_bytes)
            if job.log_bytes + batch_bytes > _threshold(job) and done > _EARLY * self._tasks:
                await self._read(job)
        await self._read(job)

    def _next(self, graph: ExecutionGraph) -> tuple[list[Event], ExecutionGraph]:
        reports, self._in_hand = self._in_hand[: self._batch], self._in_hand[self._batch :]
        graph = apply_all(graph, reports)
        launched = pop_next_tasks(graph, SLOT, len(reports) or _SLOTS, 10)
        if not isinstance(launched, TasksLaunched) or launched.stage_id != 1:
            return list(reports), graph
        self._in_hand += [success(launched, partition, attempt) for partition, attempt in launched.tasks]
        return [*reports, launched], apply(graph, launched)

    async def _read(self, job: StoredJob) -> None:
        found, how = await watched(self._store().load(_JOB))
        if found.graph != job.graph:
            raise AssertionError("what was read is not what was written")
        done = len(job.graph.stages[1].ledger.outputs)
        sizes = {"snapshot_bytes": job.header.snapshot_bytes, "log_bytes": job.log_bytes}
        self.reads.append({"tasks": done, **sizes, **how.row})

    def _store(self) -> JobStore:
        backend = MemoryBackend(self._memory)
        return JobStore(backend, JobHeads(backend, self._clock, interval_ms=500), self._clock)


def _threshold(job: StoredJob) -> int:
    return max(SNAPSHOT_MIN_LOG_BYTES, SNAPSHOT_LOG_RATIO * job.header.snapshot_bytes)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=16, help="reports, and launches, of one append")
    parser.add_argument("--json", type=Path, help="where the figures go as JSON (default: printed)")
    options = parser.parse_args()
    gc.set_threshold(*GC_THRESHOLDS)
    running = Running(options.tasks, options.batch)
    asyncio.run(running.run())
    found = {
        "tasks": options.tasks,
        "batch": options.batch,
        "reads": running.reads,
        "snapshots": running.snapshots,
        "python": sys.version.split()[0],
        "load": round(os.getloadavg()[0], 2),
    }
    if options.json is None:
        print(json.dumps(found, indent=1))
    else:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
