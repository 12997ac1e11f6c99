"""A submitted job: watch it, cancel it, fetch its result."""

import os
import time
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from onager.client.connection import Connection
from onager.client.events import JobEvent, watch_events
from onager.client.exports import read_timeline, save_export, write_export
from onager.client.final_plan import FinalPlan, get_final_plan
from onager.client.logs import AttemptLog, fetch_logs
from onager.client.progress import JobProgress, JobState
from onager.client.results import ResultReader
from onager.client.task_costs import TaskCost, task_costs
from onager.clock import SystemClock
from onager.errors import InvalidRequestError, NotFoundError
from onager.ids import new_job_id
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ProgressCallback = Callable[[JobProgress], None]


class JobHandle:
    """One job, made by `OnagerClient`."""

    def __init__(self, connection: Connection, job_id: str) -> None:
        self._connection = connection
        self._id = job_id

    @property
    def id(self) -> str:
        """The job's id, with which any process can find it; see `OnagerClient.job`."""
        return self._id

    def __repr__(self) -> str:
        return f"JobHandle({self._id!r})"

    def wait(self, timeout: float | None = None, on_progress: ProgressCallback | None = None) -> JobProgress:
        """Wait until the job has succeeded, and return its final progress.

        *on_progress* is called at once and at every change (at most every 100 ms). Raises `JobFailedError` with Spark's
        own message or, for a Python function, with its exception and the traceback of the user's own frames,
        `JobCancelledError`, or `TimeoutError` after *timeout* seconds, in which case the job continues.
        """
        for progress in self.watch(timeout):
            if on_progress is not None:
                on_progress(progress)
        if progress.failure is not None:
            raise progress.failure
        return progress

    def watch(self, timeout: float | None = None) -> Generator[JobProgress, None, None]:
        """Yield the job's progress now and at every change; the last one is the final state.

        Survives the loss of the scheduler that answers. Raises `TimeoutError` after *timeout* seconds.
        """
        end_s = None if timeout is None else time.monotonic() + timeout

        def open_stream(stub: Any, deadline_s: float) -> Iterator[pb.JobProgress]:
            left_s = deadline_s if end_s is None else min(deadline_s, end_s - time.monotonic())
            if left_s <= 0:
                raise TimeoutError(f"job {self._id} has not ended within {timeout:g} s")
            messages: Iterator[pb.JobProgress] = stub.WatchJob(pb.WatchJobRequest(job_id=self._id), timeout=left_s)
            return messages

        while True:
            for message in self._connection.stream(open_stream):
                progress = JobProgress.from_message(message)
                yield progress
                if progress.state.is_final:
                    return

    def progress(self) -> JobProgress:
        """Return the job's current progress."""
        # A page after all tasks: only the first page has the specification and the plan.
        request = pb.GetJobRequest(job_id=self._id, stage_id=2**32 - 1)
        return JobProgress.from_message(self._connection.call("GetJob", request).progress)

    def detail(self) -> pb.JobDetail:
        """Return everything about the job: specification, plan, stages with their tasks."""
        message: pb.JobDetail = self._connection.call("GetJob", pb.GetJobRequest(job_id=self._id))
        stages = {stage.stage_id: stage for stage in message.progress.stages}
        while message.HasField("next"):
            start = message.next
            request = pb.GetJobRequest(job_id=self._id, stage_id=start.stage_id, partition=start.partition)
            page: pb.JobDetail = self._connection.call("GetJob", request)
            for stage in page.progress.stages:
                if stage.stage_id in stages:
                    stages[stage.stage_id].tasks.extend(stage.tasks)
            if not page.HasField("next"):
                message.ClearField("next")
            else:
                message.next.CopyFrom(page.next)
        return message

    def events(self, after: int = 0, *, follow: bool = False) -> Iterator[JobEvent]:
        """Yield what happened to the job, after a position of its log: launches, results, losses, who committed them.

        With *follow* it goes on until the job has ended. Survives the loss of the scheduler that it asks.
        """
        return watch_events(self._connection, self._id, after, follow=follow)

    def final_plan(self) -> FinalPlan:
        """Return the plan as it ran, or has run so far: stages, operators, and what these measured.

        What has not been reported is left out; nothing waits for it.
        """
        return get_final_plan(self._connection, self._id)

    def task_costs(self) -> dict[int, tuple[TaskCost, ...]]:
        """Return what the tasks of each stage took, by stage and partition, as far as they have succeeded.

        It reads all events of the job, and lacks those that are not in the store any more.
        """
        return task_costs(self.events())

    def timeline(self, after: int = 0) -> dict[str, Any]:
        """Return what the job did when and where: lanes of executors, bars of attempts, marks of what happened.

        Fields that are empty, 0 or false are left out. With the ``position`` of an earlier answer as *after*, it has
        only the bars and marks that are new or have changed since.
        """
        return read_timeline(self._connection, self._id, after)

    def export(self, kind: str, to: str | os.PathLike[str] | BinaryIO) -> int:
        """Write a file about what the job did, and return how many bytes it has.

        *kind* is ``timeline`` (JSON), ``timeline-svg`` (a picture) or ``spark-event-log`` (for Spark's History Server).
        A file at a path appears when it is complete.
        """
        if isinstance(to, str | os.PathLike):
            return save_export(self._connection, self._id, kind, Path(to))
        write_export(self._connection, self._id, kind, to)
        return to.tell()

    def logs(
        self,
        stage_id: int | None = None,
        partition: int | None = None,
        attempt: int | None = None,
        *,
        tail_bytes: int = 64 * 1024,
        follow: bool = False,
    ) -> Iterator[AttemptLog]:
        """Yield what attempts of the job's tasks logged, from executors that live and from the job's record.

        *stage_id*, *partition* and *attempt* select: None means all. Of each attempt come at most the last *tail_bytes*
        (up to 256 KiB, which is what executors keep). With *follow* it goes on until the job has ended.
        """
        request = pb.FetchLogsRequest(
            job_id=self._id,
            stage_id=stage_id,
            partition=partition,
            attempt=attempt,
            tail_bytes=tail_bytes,
            follow=follow,
        )
        return fetch_logs(self._connection, request)

    def retry(self, job_id: str | None = None) -> "JobHandle":
        """Submit the job's specification again, and return the new job once it is stored durably.

        When a script has failed or was cancelled, the steps that succeeded count as done.
        Only an ended job can be retried: raises `JobNotEndedError` for others, and `NotFoundError` when the
        specification is not stored any more. A repeated call with the same *job_id* returns the same job.
        """
        return self.retry_with(job_id, None)

    def retry_with(self, job_id: str | None, mended: pb.MendedProgram | None) -> "JobHandle":
        """Retry the program that this job is, by a mended one if one is given (`ProgramHandle.retry`)."""
        request = pb.RetryJobRequest(
            job_id=self._id,
            new_job_id=job_id or new_job_id(SystemClock()),
            protocol_version=PROTOCOL_VERSION,
            mended=mended,
        )
        answer: pb.RetryJobResponse = self._connection.call("RetryJob", request)
        return JobHandle(self._connection, answer.job_id)

    def step(self, step: str | int) -> "JobHandle":
        """Return the job of a step of this script, given by its name or number.

        `NotFoundError` when there is no such step, or it has not begun.
        """
        stages = [stage for stage in self.progress().stages if stage.work == "step"]
        found = next((stage for stage in stages if step in (stage.stage_id, stage.name)), None)
        if found is None:
            names = ", ".join(stage.name for stage in stages) or "none: it is no script"
            raise NotFoundError(f"job {self._id} has no step {step!r}; its steps are {names}")
        if not found.child_job_id:
            raise NotFoundError(f"step {step!r} of job {self._id} has not begun: it is {found.state}")
        return JobHandle(self._connection, found.child_job_id)

    def cancel(self, reason: str = "") -> JobState:
        """Cancel the job, and return its state; no effect on a job that has ended."""
        request = pb.CancelJobRequest(job_id=self._id, reason=reason)
        answer: pb.CancelJobResponse = self._connection.call("CancelJob", request)
        return JobState(pb.JobState.Name(answer.state).lower())

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Wait for the job, then yield its result batch by batch, in the order of partitions and batches.

        A broken connection is reopened and continues where it broke. The result of EXPLAIN ANALYZE is one row with the
        plan, as it ran, in a column ``plan``.
        """
        return self._reader().batches()

    def to_arrow(self) -> "pa.Table":
        """Wait for the job, and return its result as one Arrow table (duplicate column names included)."""
        import pyarrow as pa

        reader = self._reader()
        batches = list(reader.batches())
        return pa.Table.from_batches(batches, reader.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Wait for the job, and return its result as a pandas frame; `ModuleNotFoundError` without pandas, at once."""
        if find_spec("pandas") is None:
            advice = "to_pandas needs pandas: run pip install pandas, or take to_arrow()"
            raise ModuleNotFoundError(advice, name="pandas")
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def _reader(self) -> ResultReader:
        progress = self.wait()
        if progress.sink_path:
            raise InvalidRequestError(f"job {self._id} wrote its result to {progress.sink_path}; read it there")
        return ResultReader(self._connection, self._id)
