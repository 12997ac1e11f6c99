"""What the agent asks of whatever does the work, and small words about task sets that both sides use."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from onager.executor.exchange.look import Contents
from onager.ids import BlobDigest, JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id

OnReport = Callable[[pb.TaskReport], None]
"""Takes the report of one task; may be called from any thread, once per task."""


class WorkerDiedError(Exception):
    """What runs tasks was killed before it could run any: starting again will help."""


class ClusterAwayError(WorkerDiedError):
    """The cluster that is to run tasks does not answer, or gives nothing: it may be away for a while, or misnamed."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Tasks of one stage to start now, with the blobs that they need in hand."""

    task_set: pb.TaskSet
    blobs: Mapping[BlobDigest, bytes]


class Worker(Protocol):
    """Runs tasks; what goes wrong in one is in its report, not raised. Callable from any thread."""

    @property
    def stream_address(self) -> str:
        """``host:port`` where others read what tasks stream while they run; empty: they cannot."""
        ...

    def start(self, assignment: Assignment, on_report: OnReport) -> None:
        """Start the tasks of *assignment*; *on_report* is called once for each, whatever becomes of it."""
        ...

    def cancel(self, tasks: Collection[TaskKey]) -> None:
        """Stop *tasks*: each is soon reported with a failure, or with its success when that came first."""
        ...

    def kept_jobs(self) -> Collection[JobId]:
        """Return the jobs of which something is kept in memory for tasks to come, or for others to read."""
        ...

    def streamed_jobs(self) -> Collection[JobId]:
        """Return the jobs of which others may still read what tasks that are done have streamed here."""
        ...

    def clean_up(self, request: pb.CleanUp) -> None:
        """Forget a job and remove its files but for those to keep; harmless to repeat, and may take long."""
        ...

    def exchange_contents(self) -> Contents | None:
        """Return what lies in the exchange directory; None when that cannot be told, now or later."""
        ...

    def check_exchange(self) -> None:
        """Raise `ExchangeFullError` while nothing can be written into the exchange directory for want of space."""
        ...

    def is_alive(self) -> bool:
        """Return whether tasks can still run here; once false it stays so."""
        ...

    def close(self) -> None:
        """Stop everything and release what is held."""
        ...


def part_of(task_set: pb.TaskSet, keys: Collection[TaskKey]) -> pb.TaskSet:
    """Return *task_set* with only those of its tasks that *keys* names; itself when these are all."""
    if len(keys) == len(task_set.tasks):
        return task_set  # its inputs may be many
    part = pb.TaskSet()
    part.CopyFrom(task_set)
    del part.tasks[:]
    part.tasks.extend(pb.TaskAttempt(partition=key.partition, task_attempt=key.task_attempt) for key in keys)
    return part


def blobs_needed(task_set: pb.TaskSet) -> tuple[BlobDigest, ...]:
    """Return the digests of what has to be fetched before tasks of *task_set* can start."""
    match task_set.work:
        case pb.PLAN:
            return (BlobDigest(task_set.spec_digest),)
        case pb.QUERY:
            digests = (task_set.plan_digest, task_set.inputs_digest)
            return tuple(BlobDigest(digest) for digest in digests if digest)
        case pb.PUBLISH:
            manifests = (output.payload_digest for location in task_set.inputs for output in location.outputs)
            return tuple(BlobDigest(digest) for digest in manifests if digest)
        case _:
            return ()


def failure_report(key: TaskKey, failure: pb.Failure, *, started_ms: int, ended_ms: int) -> pb.TaskReport:
    """Return the report that the task *key* failed with *failure*."""
    return pb.TaskReport(task=task_id(key), started_ms=started_ms, ended_ms=ended_ms, failure=failure)
