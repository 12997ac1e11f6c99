"""One job, undisturbed or with the death of a scheduler in its middle."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import psutil

from benchmarks.bare_cluster import BareCluster, Process
from benchmarks.bare_executor import BareJob
from onager.client import JobHandle, OnagerClient
from onager.errors import OnagerError
from onager.scheduler.policy import rendezvous

ROLES: Final = ("first_for_job", "most_executors", "clients", "by_lot")
_JOB_TIMEOUT_S: Final = 60.0
_LISTED_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Run:
    """How a job went."""

    job_s: float
    """From submission to end, by the job's record."""
    reported_s: float
    """The same by the client's clock."""
    rerun: int
    is_wrong: bool
    why: str = ""


def run_job(
    cluster: BareCluster, client: OnagerClient, job: BareJob, kill_after_s: float | None, role: str, lot: int
) -> Run:
    """Run *job*; with *kill_after_s*, kill the scheduler of *role* so long after the submission, and start it again."""
    begun_s = time.monotonic()
    handle = client.submit(job.spec)
    with ThreadPoolExecutor(1) as waiter:
        waiting = waiter.submit(_wait, handle, begun_s)
        if kill_after_s is not None:
            time.sleep(max(0.0, begun_s + kill_after_s - time.monotonic()))
            cluster.kill(process := victim(cluster, client, role, handle.id, lot))
        job_s, reported_s, why = waiting.result()
    if kill_after_s is not None:
        cluster.start(process)
        wait_until_listed(cluster)
    why = why or check_rows(handle.to_arrow().column(0).to_pylist(), job.tasks)
    return Run(job_s, reported_s, rerun_tasks(cluster.events(), handle.id), bool(why), why)


def _wait(handle: JobHandle, begun_s: float) -> tuple[float, float, str]:
    try:
        progress = handle.wait(timeout=_JOB_TIMEOUT_S)
    except (OnagerError, TimeoutError) as error:
        return _JOB_TIMEOUT_S, _JOB_TIMEOUT_S, str(error)
    return (progress.ended_ms - progress.submitted_ms) / 1000, time.monotonic() - begun_s, ""


def victim(cluster: BareCluster, client: OnagerClient, role: str, job_id: str, lot: int) -> Process:
    """Return the scheduler that is killed."""
    ids = [f"bench-{number}" for number in range(len(cluster.schedulers))]
    match role:
        case "first_for_job":
            chosen = first_for(job_id, ids)
        case "most_executors":
            chosen = most_connected(
                cluster.addresses, [_ports(e.running.pid) for e in cluster.executors if e.running is not None]
            )
        case "clients":
            answering = next(info.address for info in client.schedulers() if info.answering)
            chosen = cluster.addresses.index(answering)
        case _:
            chosen = lot % len(ids)
    return cluster.schedulers[chosen]


def first_for(job_id: str, ids: Sequence[str]) -> int:
    """Return the place in *ids* of the scheduler that acts first on the job."""
    return next(n for n, one in enumerate(ids) if rendezvous.rank(job_id, one, ids) == 0)


def most_connected(addresses: Sequence[str], ports: Iterable[set[int]]) -> int:
    """Return the place of the address to which most processes, each given by the ports that it talks to, connect."""
    found = Counter(port for own in ports for port in own)
    return max(range(len(addresses)), key=lambda n: found[int(addresses[n].rpartition(":")[2])])


def _ports(pid: int) -> set[int]:
    connections = psutil.Process(pid).net_connections("tcp")
    return {c.raddr.port for c in connections if c.status == psutil.CONN_ESTABLISHED and c.raddr}


def rerun_tasks(events: Iterable[list[str]], job_id: str) -> int:
    """Return how many executions of the job's tasks ended beyond the first of each partition."""
    ended = Counter(words[2] for words in events if words[0] == "finished" and words[1] == job_id)
    return sum(count - 1 for count in ended.values())


def check_rows(rows: Sequence[Any], tasks: int) -> str:
    """Return what is wrong with the rows of a job of *tasks* tasks; empty when nothing is."""
    if sorted(rows) == list(range(tasks)):
        return ""
    return f"{len(rows)} rows, {len(set(rows))} of them different, where {tasks} are expected"


def wait_until_listed(cluster: BareCluster) -> None:
    """Wait until every scheduler lists all others as they run now."""
    pids = {process.running.pid for process in cluster.schedulers if process.running is not None}
    end_s = time.monotonic() + _LISTED_TIMEOUT_S
    for address in cluster.addresses:
        with cluster.connect_to(address) as client:
            while True:
                try:
                    if {info.pid for info in client.schedulers()} == pids:
                        break
                except OnagerError:
                    pass  # not up yet
                if time.monotonic() > end_s:
                    raise TimeoutError(f"{address} does not list all schedulers after {_LISTED_TIMEOUT_S:g} s")
                time.sleep(0.05)
