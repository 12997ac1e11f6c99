"""A live view of the cluster: what runs, what waits, and on which executors."""

import sys
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import onager
from onager.cli.admin import load_text
from onager.cli.output import print_json, print_table
from onager.client.client import OnagerClient
from onager.client.progress import JobProgress, JobState
from onager.errors import NotFoundError, SchedulerUnreachableError
from onager.protocol import onager_pb2 as pb
from onager.protocol.plain import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

_ACTIVE: Final = (JobState.PUBLISHING, JobState.RUNNING, JobState.PLANNING, JobState.QUEUED)
_MAX_JOBS: Final = 100
_MAX_LOOKED_AT: Final = 20
"""Jobs whose tasks are counted."""
_RETRY_S: Final = 3.0
"""Who looks on sees soon that no scheduler answers, rather than figures of the past."""
_JOBS: Final = ("JOB", "STATE", "SECONDS", "STAGES", "TASKS", "RUNNING", "RETRIED", "BY", "NAME")
_EXECUTORS: Final = ("EXECUTOR", "STATE", "SLOTS", "HEAP", "RSS", "CPU", "PYTHON", "SEEN SECONDS AGO", "WHY")
_NAME_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class Look:
    """The cluster at one moment."""

    at_ms: int
    jobs: list[JobProgress]
    """Active ones, those that run first; the first of them with their stages."""
    raw_jobs: list[pb.JobProgress]
    executors: list[pb.ExecutorInfo]
    schedulers: list[pb.SchedulerInfo]

    @property
    def waiting(self) -> int:
        """Return how many of the jobs wait to be planned, or for a slot."""
        return sum(job.state is JobState.QUEUED for job in self.jobs)

    @property
    def slots(self) -> tuple[int, int]:
        """Return how many slots are taken, as executors said last, and how many there are, where work is taken."""
        working = [e for e in self.executors if e.state == "alive"]
        return sum(e.running for e in working), sum(e.slots for e in working)


def top(scheduler: str, every_s: float, output: str, *, once: bool) -> None:
    """Show the cluster until interrupted; once, for programs and where there is no terminal."""
    with onager.connect(scheduler, retry_timeout_s=_RETRY_S) as client:
        if output == "json":
            print_json(as_json(look(client)))
        elif once or not sys.stdout.isatty():
            show(look(client))
        else:
            _watch(client, every_s)


def look(client: OnagerClient) -> Look:
    """Return the cluster as it is now."""
    raw: list[pb.JobProgress] = []
    for state in _ACTIVE:
        raw += client.list_jobs(pb.ListJobsRequest(state=state.value, limit=_MAX_JOBS - len(raw)))
    jobs = [JobProgress.from_message(job) for job in raw]
    for number, job in enumerate(jobs[:_MAX_LOOKED_AT]):
        try:
            with closing(client.job(job.job_id).watch()) as changes:  # without where its time went, which costs
                jobs[number] = next(changes)
        except NotFoundError:
            continue  # it is gone meanwhile
    return Look(
        at_ms=time.time_ns() // 1_000_000,
        jobs=jobs,
        raw_jobs=raw,
        executors=client.executors(),
        schedulers=client.schedulers(),
    )


def as_json(seen: Look) -> dict[str, object]:
    """Return what is shown, for programs."""
    taken, slots = seen.slots
    return {
        "at_ms": seen.at_ms,
        "slots": slots,
        "slots_taken": taken,
        "jobs_waiting": seen.waiting,
        "jobs": [plain(raw) | _counts(job) for raw, job in zip(seen.raw_jobs, seen.jobs, strict=True)],
        "executors": [plain(executor) for executor in seen.executors],
        "schedulers": [plain(scheduler) for scheduler in seen.schedulers],
    }


def show(seen: Look) -> None:
    """Print tables."""
    print(summary(seen))
    print()
    print_table(_JOBS, [job_row(job, seen.at_ms) for job in seen.jobs])
    print()
    print_table(_EXECUTORS, [executor_row(executor, seen.at_ms) for executor in seen.executors])


def summary(seen: Look) -> str:
    """Return the first line."""
    taken, slots = seen.slots
    more = "+" if len(seen.jobs) >= _MAX_JOBS else ""
    return (
        f"{len(seen.schedulers)} scheduler{'s' * (len(seen.schedulers) != 1)}, {taken} of {slots} slots taken, "
        f"{len(seen.jobs) - seen.waiting}{more} jobs going on, {seen.waiting}{more} waiting"
    )


def job_row(job: JobProgress, now_ms: int) -> tuple[str, ...]:
    """Return a line about a job."""
    counts = _counts(job)
    tasks = f"{counts['tasks_done']}/{counts['tasks']}" if counts else ""
    stages = len(job.stages) or job.stages_total
    done = sum(stage.state == "successful" for stage in job.stages) if job.stages else job.stages_done
    return (
        job.job_id,
        job.state,
        f"{max(0, now_ms - (job.started_ms or job.submitted_ms)) / 1000:.0f}",
        f"{done}/{stages}",
        tasks,
        str(counts.get("tasks_running", "")),
        str(counts.get("tasks_retried", "") or ""),
        job.principal,
        job.waiting_for or job.name[:_NAME_CHARS],
    )


def executor_row(executor: pb.ExecutorInfo, now_ms: int) -> tuple[str, ...]:
    """Return a line about an executor."""
    load = executor.load if executor.HasField("load") else None
    return (
        executor.executor_id,
        executor.state.replace("_", " "),
        f"{executor.running}/{executor.slots}",
        *load_text(load),
        "" if load is None else str(load.python_workers),
        f"{max(0, now_ms - executor.last_seen_ms) / 1000:.0f}" if executor.last_seen_ms else "",
        executor.reason,
    )


def _counts(job: JobProgress) -> dict[str, int]:
    """Return the job's tasks by state; nothing if its stages are not known."""
    if not job.stages:
        return {}
    return {
        "tasks": sum(stage.partitions for stage in job.stages),
        "tasks_done": sum(stage.successful for stage in job.stages),
        "tasks_running": sum(stage.running for stage in job.stages),
        "tasks_retried": sum(stage.tasks_failed + stage.tasks_lost for stage in job.stages),
    }


def _watch(client: OnagerClient, every_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        try:
            while True:
                try:
                    live.update(_drawn(look(client)), refresh=True)
                except SchedulerUnreachableError as error:
                    live.update(str(error), refresh=True)
                time.sleep(every_s)
        except KeyboardInterrupt:
            return


def _drawn(seen: Look) -> "RenderableType":
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    tables = []
    rows = [job_row(job, seen.at_ms) for job in seen.jobs], [executor_row(e, seen.at_ms) for e in seen.executors]
    for headers, some in zip((_JOBS, _EXECUTORS), rows, strict=True):
        table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
        for header in headers:
            table.add_column(header, no_wrap=True, overflow="ellipsis")
        for row in some:
            table.add_row(*map(escape, row))
        tables.append(table)
    jobs, executors = tables
    clock = time.strftime("%H:%M:%S")
    return Group(f"{clock}  {summary(seen)}  (Ctrl-C ends)", "", jobs, "", executors)
