"""Measures one cluster."""

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.bare_cluster import BareCluster, Counters
from benchmarks.bare_executor import BareJob
from benchmarks.orchestration import SAMPLE_TASKS
from onager.client import OnagerClient

_QUIET_S: Final = 0.3
_QUIET_TIMEOUT_S: Final = 10.0
_PROBE_PAUSE_S: Final = 0.02
_BUSY_LEAD_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    """Jobs of one size, one after the other."""

    tasks: int
    elapsed_s: float
    counted: Counters

    def row(self) -> dict[str, float]:
        """Return the figures of the sample."""
        counted = self.counted
        return {
            "tasks_per_s": round(self.tasks / self.elapsed_s, 1),
            "store_writes_per_task": round(counted.writes / self.tasks, 4),
            "store_bytes_per_task": round(counted.bytes_written / self.tasks, 1),
            "scheduler_cpu_us_per_task": round(1e6 * counted.scheduler_cpu_s / self.tasks, 1),
            "executor_cpu_us_per_task": round(1e6 * counted.executor_cpu_s / self.tasks, 1),
            "store_cpu_us_per_task": round(1e6 * counted.store_cpu_s / self.tasks, 1),
            "conflicts": counted.conflicts,
        }


def median_row(samples: Sequence[Sample]) -> dict[str, float]:
    """Return each figure's median over *samples*."""
    rows = [sample.row() for sample in samples]
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def sample(
    cluster: BareCluster, client: OnagerClient, tasks: int, at_least: int = SAMPLE_TASKS, *, metrics: str = "off"
) -> Sample:
    """Run jobs of *tasks* tasks, which report *metrics*, until there are *at_least* tasks in total."""
    jobs = max(1, at_least // tasks)
    before = settled(cluster)
    begun_s = time.perf_counter()
    for _ in range(jobs):
        client.submit(BareJob(tasks, metrics=metrics).spec).wait()
    elapsed_s = time.perf_counter() - begun_s
    return Sample(jobs * tasks, elapsed_s, settled(cluster).since(before))


def settled(cluster: BareCluster) -> Counters:
    """Return the counters once they no longer change, since jobs are cleaned up after their end."""
    end_s = time.monotonic() + _QUIET_TIMEOUT_S
    found = cluster.counters()
    while True:
        time.sleep(_QUIET_S)
        before, found = found, cluster.counters()
        if found.writes == before.writes or time.monotonic() > end_s:
            return found


def first_task_ms(cluster: BareCluster, client: OnagerClient, probes: int) -> list[float]:
    """Return, for each of *probes* jobs of one task, the time until a worker had the task."""
    submitted = {}
    for _ in range(probes):
        begun_s = time.monotonic()
        job = client.submit(BareJob(1).spec)
        submitted[job.id] = begun_s
        job.wait()
        time.sleep(_PROBE_PAUSE_S)
    return first_starts_ms(submitted, cluster.events())


def first_starts_ms(submitted: dict[str, float], events: Any) -> list[float]:
    """Return how long after its submission each job's first task started, in the order of the jobs."""
    started: dict[str, float] = {}
    for word, job_id, *rest in events:
        if word == "started" and job_id in submitted:
            started[job_id] = min(float(rest[0]), started.get(job_id, float("inf")))
    return [1000 * (started[job_id] - at_s) for job_id, at_s in submitted.items()]


def busy_first_task_ms(cluster: BareCluster, probes: int, tasks: int) -> list[float]:
    """Return the same while a job of *tasks* tasks occupies the slots; fewer, when that ends before."""
    found: list[float] = []
    with cluster.connect() as client:
        big = client.submit(BareJob(tasks).spec)
        ended = threading.Event()

        def wait() -> None:
            try:
                list(big.watch())
            finally:
                ended.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(_BUSY_LEAD_S)
        with cluster.connect() as other:
            while len(found) < probes and not ended.is_set():
                found += first_task_ms(cluster, other, 1)
        if not ended.is_set():
            big.cancel("measured")
            ended.wait()
        waiting.join()
    return found


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the quantile *share* of the values; None if there are none."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) if ordered else None
