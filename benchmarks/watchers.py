"""Clients that watch a job while it runs: ``python -m benchmarks.watchers --json FILE``.

Three real schedulers on etcd, executors without Spark, and a job of ``--tasks`` tasks that take ``--task-ms`` each.
Once nobody watches it, then ``--watchers`` clients do, in turns. They come when the job is submitted, each over a
connection that it shares with a hundred others, to the schedulers by turns, and read its progress to its end.

| figure | what it is |
|---|---|
| ``seconds`` | from the submission of the job to its end: the median of the samples |
| ``times`` | the same, as a multiple of what it takes without watchers |
| ``messages_a_second`` | to all watchers together |
| ``ended_s`` | how long after the job's end the last watcher knew |
| ``lost`` | executors that were declared lost |
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from benchmarks.bare_cluster import BareCluster, store
from benchmarks.bare_executor import BareJob
from benchmarks.state.machine import describe
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import CHANNEL_OPTIONS
from onager.protocol.onager_pb2_grpc import OnagerSchedulerStub

_SCHEDULERS: Final = 3
_EXECUTOR_SLOTS: Final = (16, 16)
_WATCHERS_A_CONNECTION: Final = 100


@dataclass(frozen=True, slots=True)
class Watched:
    """What watchers saw."""

    messages: int
    ended_s: float
    """When the last of them knew that the job had ended, by the monotonic clock of the machine."""


def watch(addresses: list[str], job_id: str, watchers: int) -> Watched:
    """Watch a job to its end, in a process of its own."""
    return asyncio.run(_watch_all(addresses, job_id, watchers))


async def _watch_all(addresses: list[str], job_id: str, watchers: int) -> Watched:
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(
                grpc.aio.insecure_channel(addresses[n % len(addresses)], options=CHANNEL_OPTIONS)
            )
            for n in range(max(len(addresses), watchers // _WATCHERS_A_CONNECTION))
        ]
        counts = await asyncio.gather(*(_watch(channels[n % len(channels)], job_id) for n in range(watchers)))
    return Watched(sum(counts), time.monotonic())


async def _watch(channel: grpc.aio.Channel, job_id: str) -> int:
    stub: Any = OnagerSchedulerStub(channel)
    count = 0
    async for progress in stub.WatchJob(pb.WatchJobRequest(job_id=job_id)):
        count += 1
        if progress.state == pb.FAILED:
            raise RuntimeError(f"the job failed: {progress.failure.message}")
    return count


def sample(cluster: BareCluster, pool: ProcessPoolExecutor, job: BareJob, watchers: int) -> dict[str, float]:
    """Run a job with *watchers*; return figures."""
    with cluster.connect() as client:
        began_s = time.monotonic()
        submitted = client.submit(job.spec)
        watched = pool.submit(watch, cluster.addresses, submitted.id, watchers) if watchers else None
        submitted.wait()
        ended_s = time.monotonic()
        found = Watched(0, ended_s) if watched is None else watched.result()
        lost = sum(executor.state == "lost" for executor in client.executors())
    seconds = ended_s - began_s
    return {
        "seconds": seconds,
        "messages_a_second": found.messages / seconds,
        "ended_s": max(0.0, found.ended_s - ended_s),
        "lost": lost,
    }


def measure(tasks: int, task_ms: int, counts: list[int], repeats: int) -> dict[str, Any]:
    """Return the figures of jobs with so many watchers, in turns."""
    job = BareJob(tasks, task_ms=task_ms)
    spawning = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as directory:
        machine = describe(Path(directory))
        samples: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
        with (
            store("etcd", Path(directory)) as found,
            BareCluster(found.url, schedulers=_SCHEDULERS, executor_slots=_EXECUTOR_SLOTS) as cluster,
            ProcessPoolExecutor(1, mp_context=spawning) as pool,
        ):
            sample(cluster, pool, BareJob(max(1, tasks // 20)), 1)
            for _ in range(repeats):
                for count, some in samples.items():
                    some.append(sample(cluster, pool, job, count))
    rows = [_row(count, some) for count, some in samples.items()]
    quiet_s = next((row["seconds"] for row in rows if not row["watchers"]), None)
    for row in rows:
        row["times"] = round(row["seconds"] / quiet_s, 2) if quiet_s else None
    return {
        "machine": {**machine, "load_at_end": round(os.getloadavg()[0], 2)},
        "tasks": tasks,
        "task_ms": task_ms,
        "repeats": repeats,
        "rows": rows,
    }


def _row(watchers: int, samples: list[dict[str, float]]) -> dict[str, Any]:
    names = samples[0]
    return {"watchers": watchers, **{n: round(statistics.median(s[n] for s in samples), 2) for n in names}}


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watchers", description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--task-ms", type=int, default=30)
    parser.add_argument("--watchers", default="0,400,1200", help="how many clients watch a job; numbers with commas")
    parser.add_argument("--repeats", type=int, default=3, help="samples of each")
    parser.add_argument("--json", type=Path, help="where the figures go as JSON (default: printed)")
    options = parser.parse_args()
    counts = [int(part) for part in options.watchers.split(",")]
    text = json.dumps(measure(options.tasks, options.task_ms, counts, options.repeats), indent=1)
    if options.json is None:
        print(text)
    else:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
