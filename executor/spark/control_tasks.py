"""Tasks that are not a stage of Spark's own: planning a job, and publishing its dataset; each on a thread."""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from executor.spark import failures
from executor.work import Assignment, OnReport
from onager.clock import Clock
from onager.errors import SinkError
from onager.ids import BlobDigest, JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id, task_keys

Action = Callable[[TaskKey, pb.TaskSet, Mapping[BlobDigest, bytes]], pb.TaskSuccess]
"""Does the work of one task and returns what it has to report; raises what went wrong."""


@dataclass(frozen=True, slots=True)
class _Running:
    on_report: OnReport
    started_ms: int


class ControlTasks:
    """Runs tasks as plain function calls, reports them like any other, and stops the Spark jobs of cancelled ones."""

    def __init__(
        self,
        spark: SparkSession,
        kernel: Any,
        actions: Mapping[int, Action],
        clock: Clock,
    ) -> None:
        self._context = spark.sparkContext
        self._kernel = kernel
        self._actions = actions
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[TaskKey, _Running] = {}

    def start(self, assignment: Assignment, on_report: OnReport) -> None:
        """Start each task of *assignment*."""
        task_set = assignment.task_set
        action = self._actions[task_set.work]
        for key in task_keys(task_set):
            with self._lock:
                self._running[key] = _Running(on_report, self._clock.now_ms())
            # A daemon: a cancelled function of the user may never end, and must not keep the process.
            work = (key, action, task_set, assignment.blobs)
            threading.Thread(target=self._run, args=work, name=f"onager {key}", daemon=True).start()

    def cancel(self, tasks: Collection[TaskKey]) -> None:
        """Report *tasks* as killed, and stop what Spark runs for them."""
        for key in tasks:
            if self._finish(key, failure=failures.killed("cancelled")):
                self._context.cancelJobGroup(_group(key))

    def close_job(self, job_id: JobId) -> None:
        """Cancel what runs of a job."""
        with self._lock:
            tasks = [key for key in self._running if key.job_id == job_id]
        self.cancel(tasks)

    def _run(self, key: TaskKey, action: Action, task_set: pb.TaskSet, blobs: Mapping[BlobDigest, bytes]) -> None:
        try:
            with self._lock:
                if key not in self._running:
                    return
            self._context.setJobGroup(_group(key), f"onager {key}", interruptOnCancel=True)
            success = action(key, task_set, blobs)
        except BaseException as e:  # noqa: BLE001 - a user's function may even call sys.exit
            self._finish(key, failure=self._classify(e))
        else:
            self._finish(key, success=success)

    def _classify(self, error: BaseException) -> pb.Failure:
        if isinstance(error, SinkError) and isinstance(error.__cause__, OSError):
            return pb.Failure(kind="io_error", message=str(error), error_class=type(error).__name__)
        try:
            return failures.from_exception(self._kernel, error)
        except (Py4JError, OSError) as e:
            # The JVM died while it was asked.
            return pb.Failure(kind="io_error", message=f"{error} (and it could not be classified: {e})")

    def _finish(
        self, key: TaskKey, *, success: pb.TaskSuccess | None = None, failure: pb.Failure | None = None
    ) -> bool:
        """Report *key* unless that was done; return whether it was not."""
        with self._lock:
            running = self._running.pop(key, None)
        if running is None:
            return False
        report = pb.TaskReport(
            task=task_id(key),
            started_ms=running.started_ms,
            ended_ms=self._clock.now_ms(),
            success=success,
            failure=failure,
        )
        if success is not None and not report.success.metrics.run_ms:
            report.success.metrics.run_ms = report.ended_ms - report.started_ms
        running.on_report(report)
        return True


def _group(key: TaskKey) -> str:
    return f"control/{key}"
