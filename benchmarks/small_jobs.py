"""Many small jobs: ``python -m benchmarks.small_jobs --json FILE``; what grows with their number: ``--soak 20000``.

Real schedulers over a real store, executors without Spark. A job is a plan and one task that does nothing. Submitters
(threads with a connection each, which begin at different schedulers) submit without a pause, and each waits for a job
when it has so many (``--window``) that have not ended. *Distinct* jobs differ in their specification, plan and
explanation; *identical* ones are the same query again and again.

| figure | what it is |
|---|---|
| ``jobs_per_s`` | jobs that ended in a second, from the first submission to the last end; the median of the samples |
| ``failed`` | jobs that did not succeed, and submissions that raised an error, of all samples |
| ``conflicts`` | transactions of the store that were refused, a job |
| ``writes``, ``bytes`` | transactions that were committed, and bytes written, a job |
| ``scheduler_cpu_ms`` | processor time of all schedulers, a job; so for executors and store |

The soak runs its jobs in a row with a short retention, and tells at a quarter, half, and all of them what schedulers
and executors hold in memory and the store on disk, when all that is past its retention was to be gone.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onager
from benchmarks.bare_cluster import BareCluster, Counters, Process, rss_mb, store
from benchmarks.bare_executor import BareJob
from benchmarks.orchestration.__main__ import configurations
from benchmarks.orchestration.measure import settled
from benchmarks.state.machine import describe
from onager.client.job import JobHandle
from onager.errors import OnagerError

KINDS: Final = ("distinct", "identical")
EXECUTOR_SLOTS: Final = (16, 16)
_SETTLE_S: Final = 60.0
"""How long what is past its retention may stay: a few sweeps, and clean-ups by executors."""
_SWEEP_MS: Final = 1_000
_COMPACT_HISTORY_S: Final = 5
COLUMNS: Final = (
    "backend", "schedulers", "jobs", "jobs_per_s", "failed", "conflicts", "writes", "bytes",
    "scheduler_cpu_ms", "executor_cpu_ms", "store_cpu_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """Jobs of one kind."""

    jobs: int
    failed: int
    elapsed_s: float
    counted: Counters

    def row(self) -> dict[str, float]:
        """Return its figures."""
        counted, jobs = self.counted, self.jobs
        return {
            "jobs_per_s": round(jobs / self.elapsed_s, 1),
            "conflicts": round(counted.conflicts / jobs, 3),
            "writes": round(counted.writes / jobs, 2),
            "bytes": round(counted.bytes_written / jobs),
            "scheduler_cpu_ms": round(1e3 * counted.scheduler_cpu_s / jobs, 2),
            "executor_cpu_ms": round(1e3 * counted.executor_cpu_s / jobs, 2),
            "store_cpu_ms": round(1e3 * counted.store_cpu_s / jobs, 2),
        }


class Submitters:
    """Threads with a connection each."""

    def __init__(self, addresses: Sequence[str], count: int, window: int) -> None:
        turned = [[*addresses[n % len(addresses) :], *addresses[: n % len(addresses)]] for n in range(count)]
        self._clients = [onager.connect(each) for each in turned]
        self._window = window
        self._lock = threading.Lock()
        self._begun = self._failed = 0

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()

    def run(self, jobs: int, job_of: Callable[[int], BareJob]) -> int:
        """Submit *jobs* jobs, wait until all have ended, and return how many failed."""
        self._begun = self._failed = 0

        def submit_some(client: onager.OnagerClient) -> None:
            waiting: deque[JobHandle] = deque()
            while (number := self._next(jobs)) is not None:
                try:
                    waiting.append(client.submit(job_of(number).spec))
                except OnagerError as error:
                    self._note_failure(error)
                if len(waiting) >= self._window:
                    self._wait(waiting.popleft())
            for job in waiting:
                self._wait(job)

        with ThreadPoolExecutor(len(self._clients)) as pool:
            list(pool.map(submit_some, self._clients))
        return self._failed

    def _next(self, jobs: int) -> int | None:
        with self._lock:
            if self._begun == jobs:
                return None
            self._begun += 1
            return self._begun

    def _wait(self, job: JobHandle) -> None:
        try:
            job.wait()
        except OnagerError as error:
            self._note_failure(error)

    def _note_failure(self, error: OnagerError) -> None:
        with self._lock:
            self._failed += 1
            if self._failed == 1:
                print(f"the first that failed: {error}", file=sys.stderr)


def job_of(kind: str, run: str) -> Callable[[int], BareJob]:
    """Return the job with a number: a new one each, or the same one."""
    return lambda number: BareJob(1, tag=f"{run} {number}" if kind == "distinct" else "the same again")


def sample(cluster: BareCluster, submitters: Submitters, jobs: int, kind: str, run: str) -> Sample:
    """Run *jobs* jobs of a kind."""
    before = settled(cluster)
    begun_s = time.perf_counter()
    failed = submitters.run(jobs, job_of(kind, run))
    elapsed_s = time.perf_counter() - begun_s
    return Sample(jobs, failed, elapsed_s, settled(cluster).since(before))


def measure(options: argparse.Namespace, directory: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each store, number of schedulers and kind; the kinds in turns."""
    for backend, _, count in configurations(options.backends, ["pull"], options.schedulers):
        own = directory / f"{backend}-{count}"
        own.mkdir()
        samples: dict[str, list[Sample]] = {kind: [] for kind in KINDS}
        with store(backend, own) as found, _cluster(found.url, count, own, found.pid) as cluster:
            submitters = Submitters(cluster.addresses, options.submitters, options.window)
            submitters.run(options.submitters, job_of("distinct", "warm"))
            for number in range(options.repeats):
                for kind in KINDS:
                    samples[kind].append(sample(cluster, submitters, options.jobs, kind, f"{number}"))
            submitters.close()
        for kind, mine in samples.items():
            rows = [each.row() for each in mine]
            figures = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
            failed = sum(each.failed for each in mine)
            yield {"backend": backend, "schedulers": count, "jobs": kind, **figures, "failed": failed}


def soak(options: argparse.Namespace, directory: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each store, number of schedulers, and a quarter, half, and all of the jobs."""
    environment = {
        "ONAGER_SCHEDULER_RESULT_RETENTION_S": str(options.retention),
        "ONAGER_SCHEDULER_RECORD_RETENTION_S": str(options.retention),
        "ONAGER_SCHEDULER_SWEEP_INTERVAL_MS": str(_SWEEP_MS),
    }
    marks = [options.soak // 4, options.soak // 2, options.soak]
    for backend, _, count in configurations(options.backends, ["pull"], options.schedulers):
        own = directory / f"soak-{backend}-{count}"
        own.mkdir()
        with store(backend, own) as found:
            url = f"{found.url}?compact_history={_COMPACT_HISTORY_S}s" if backend == "etcd" else found.url
            with _cluster(url, count, own, found.pid, environment) as cluster:
                submitters = Submitters(cluster.addresses, options.submitters, min(options.window, 8))
                done = failed = 0
                for mark in marks:
                    before, begun_s = cluster.counters(), time.perf_counter()
                    failed += submitters.run(mark - done, job_of("distinct", f"{mark}"))
                    elapsed_s = time.perf_counter() - begun_s
                    left = _wait_until_gone(cluster, options.retention + _SETTLE_S)
                    if backend == "etcd":
                        time.sleep(2 * _COMPACT_HISTORY_S)
                    counted = cluster.counters().since(before)
                    yield {
                        "backend": backend,
                        "schedulers": count,
                        "jobs": mark,
                        "failed": failed,
                        "jobs_per_s": round((mark - done) / elapsed_s, 1),
                        "scheduler_cpu_ms": round(1e3 * counted.scheduler_cpu_s / (mark - done), 2),
                        "schedulers_rss_mb": _all_rss_mb(cluster.schedulers),
                        "executors_rss_mb": _all_rss_mb(cluster.executors),
                        "disk_mb": _disk_mb(own / ("state" if backend == "leveldb" else "etcd")),
                        "jobs_known": left,
                    }
                    done = mark
                submitters.close()


def _cluster(
    url: str, count: int, directory: Path, store_pid: int | None, environment: dict[str, str] | None = None
) -> BareCluster:
    return BareCluster(
        url,
        schedulers=count,
        executor_slots=EXECUTOR_SLOTS,
        store_pid=store_pid,
        scheduler_environment=environment,
        directory=directory,
    )


def _all_rss_mb(processes: Sequence[Process]) -> list[float]:
    return [rss_mb(process.running.pid) for process in processes if process.running is not None]


def _disk_mb(directory: Path) -> float:
    return round(sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file()) / 1e6, 1)


def _wait_until_gone(cluster: BareCluster, within_s: float) -> int:
    """Wait until retention has removed all jobs; return how many are left."""
    end_s = time.monotonic() + within_s
    with cluster.connect() as client:
        while (left := len(client.jobs(limit=1_000))) and time.monotonic() < end_s:
            time.sleep(0.5)
    return left


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_jobs", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--backends", type=lambda text: text.split(","), default=["leveldb", "etcd"], help="with commas"
    )
    parser.add_argument("--schedulers", type=_numbers, default=[1, 3], help="how many; numbers with commas")
    parser.add_argument("--jobs", type=int, default=800, help="of a sample")
    parser.add_argument("--repeats", type=int, default=3, help="samples of each kind")
    parser.add_argument("--submitters", type=int, default=16)
    parser.add_argument("--window", type=int, default=8, help="jobs of a submitter that have not ended")
    parser.add_argument("--soak", type=int, default=0, metavar="JOBS", help="run so many in a row instead")
    parser.add_argument("--retention", type=int, default=10, metavar="S", help="of results and records in the soak")
    parser.add_argument("--dir", type=Path, default=None, help="a directory on the disk to measure on")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onager-bench-", dir=options.dir) as directory:
        header = describe(Path(directory))
        rows = []
        for row in (soak if options.soak else measure)(options, Path(directory)):
            rows.append(row)
            print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    report = {"machine": {**header, "load_at_end": round(os.getloadavg()[0], 2)}, "rows": rows}
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(row["failed"] for row in rows) else 0


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
