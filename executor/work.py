"""The agent's interface to the worker that runs tasks, and helpers for task sets that both sides use."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from onager.executor.exchange.look import Contents
from onager.ids import BlobDigest, JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id

OnReport = Callable[[pb.TaskReport], None]
"""Takes the report of one task; may be called from any thread, once per task.

In an executor it is `onager.executor.agent.tasks_in_hand.TasksInHand._report_from_any_thread`."""


class WorkerDiedError(Exception):
    """The worker was killed before it could run any task: a restart will help."""


class ClusterAwayError(WorkerDiedError):
    """The cluster that runs the tasks does not answer, or gives nothing: it may be away for a while, or misnamed."""


class SparkLostError(Exception):
    """Spark's JVM does not answer: its executor is about to end."""


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended by itself."""

    how: str
    """For people, to follow "ended": such as "with exit code 3"."""
    is_memory: bool = False
    """Whether there is evidence that memory ran out."""


class CatalogReader(Protocol):
    """Reads the catalog, which schedulers keep. Callable from any thread."""

    def read(self, request: pb.ReadCatalogRequest) -> Future[pb.ReadCatalogResponse]:
        """Begin to read the records that *request* names, all as they are at one revision.

        The future raises `SchedulerUnreachableError` when no scheduler has answered for a while. Cancelling it ends the
        read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Assignment:
    """Tasks of one stage to start now, with the blobs that they need."""

    task_set: pb.TaskSet
    blobs: Mapping[BlobDigest, bytes]
    catalog: CatalogReader | None = None
    """What planning reads the catalog through; None: there is no catalog."""


class Worker(Protocol):
    """Runs tasks; a task's errors are in its report, not raised. Callable from any thread.

    An executor's is `onager.executor.spark.worker.SparkWorker`, and `TasksInHand` calls it.
    """

    @property
    def stream_address(self) -> str:
        """``host:port`` where others read the streams of running tasks; empty if it cannot stream."""
        ...

    def start(self, assignment: Assignment, on_report: OnReport) -> None:
        """Start the tasks of *assignment*; *on_report* is called once for each, whatever becomes of it."""
        ...

    def cancel(self, tasks: Collection[TaskKey]) -> None:
        """Stop *tasks*: each is reported once it has ended, with a failure unless its success came first."""
        ...

    def kept_jobs(self) -> Collection[JobId]:
        """Return the jobs of which data is kept in memory, for later tasks or for other readers."""
        ...

    def streamed_jobs(self) -> Collection[JobId]:
        """Return the jobs of which finished tasks' streams may still be read here."""
        ...

    def clean_up(self, request: pb.CleanUp) -> None:
        """Forget a job and remove its files except those to keep; harmless to repeat, and may take long."""
        ...

    def exchange_contents(self) -> Contents | None:
        """Return the contents of the exchange directory; None when they cannot be determined, now or later."""
        ...

    def check_exchange(self) -> None:
        """Raise `ExchangeFullError` while the exchange directory has no space."""
        ...

    def sample_load(self) -> pb.ExecutorLoad | None:
        """Return what its processes use, apart from tasks and slots; None when that is not known, now or later."""
        ...

    def progress(self) -> Sequence[pb.AttemptProgress]:
        """Return what running tasks have read, as far as it is known."""
        ...

    def connect(self, call: pb.ConnectCall, catalog: CatalogReader) -> pb.ConnectReply:
        """Return Spark's reply to a request of a Spark Connect session, or its error; else `SparkLostError`."""
        ...

    def is_alive(self) -> bool:
        """Return whether tasks can still run here; once false, it stays false."""
        ...

    def end(self) -> WorkerEnd | None:
        """Return how its process ended; None while that is not known."""
        ...

    def enforce_deadlines(self) -> str:
        """Stop what has taken too long; return what did not stop in time, if anything: then `kill` is next."""
        ...

    def kill(self) -> None:
        """End its process at once; `close` follows."""
        ...

    def close(self) -> None:
        """Stop everything and release what is held."""
        ...


def part_of(task_set: pb.TaskSet, keys: Collection[TaskKey]) -> pb.TaskSet:
    """Return *task_set* with only those of its tasks that *keys* names; *task_set* itself if those are all."""
    if len(keys) == len(task_set.tasks):
        return task_set  # not copied: its inputs may be many
    part = pb.TaskSet()
    part.CopyFrom(task_set)
    del part.tasks[:]
    part.tasks.extend(pb.TaskAttempt(partition=key.partition, task_attempt=key.task_attempt) for key in keys)
    return part


def blobs_needed(task_set: pb.TaskSet) -> tuple[BlobDigest, ...]:
    """Return the digests of the blobs to fetch before tasks of *task_set* can start."""
    match task_set.work:
        case pb.PLAN | pb.PROGRAM:
            return (BlobDigest(task_set.spec_digest),)
        case pb.QUERY:
            fused = (stage.plan_digest for stage in task_set.fused)
            digests = (task_set.plan_digest, task_set.inputs_digest, task_set.portion.digest, *fused)
            return tuple(BlobDigest(digest) for digest in digests if digest)
        case pb.REPLAN:
            return BlobDigest(task_set.spec_digest), BlobDigest(task_set.replan.frame_digest)
        case pb.FEED:
            digests = (task_set.spec_digest, task_set.plan_digest, task_set.portion.digest)
            return tuple(BlobDigest(digest) for digest in digests if digest)
        case pb.PUBLISH:
            manifests = (output.payload_digest for location in task_set.inputs for output in location.outputs)
            return tuple(BlobDigest(digest) for digest in manifests if digest)
        case _:
            return ()


def failure_report(key: TaskKey, failure: pb.Failure, *, started_ms: int, ended_ms: int) -> pb.TaskReport:
    """Return the report that the task *key* failed with *failure*."""
    return pb.TaskReport(task=task_id(key), started_ms=started_ms, ended_ms=ended_ms, failure=failure)
