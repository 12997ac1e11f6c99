"""Control tasks, which run no stage of Spark: planning a job and publishing its dataset, each on its own thread."""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

import structlog
from py4j.protocol import Py4JError

from onager.clock import Clock
from onager.daemon_threads import DaemonThreads
from onager.executor.attempt_logs import AttemptLogs, working_on
from onager.executor.spark import failures
from onager.executor.spark.cancellation import Cancellation, TaskCancelledError
from onager.executor.spark.deadlines import Deadlines, name_of
from onager.executor.spark.kernel.execution import Kernel
from onager.executor.work import Assignment, OnReport
from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id, task_keys

log = structlog.get_logger()

Action = Callable[[TaskKey, Assignment, Cancellation], pb.TaskSuccess]
"""Does the work of one task and returns its success; raises when it fails. `SparkWorker` has one for each kind."""

_CLOSE_S = 5.0
_MOST: Final = 1 << 16
"""Threads, which schedulers' reservations bound."""


@dataclass(frozen=True, slots=True)
class _Running:
    on_report: OnReport
    started_ms: int
    cancellation: Cancellation


class ControlTasks:
    """Runs control tasks as function calls, reports their outcomes, and cancels them.

    A cancelled task is reported only once its work has ended, since its slot is in use until then.
    """

    def __init__(
        self,
        kernel: Kernel,
        actions: Mapping[int, Action],
        clock: Clock,
        logs: AttemptLogs | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        """*deadlines* know each task from its start to its end."""
        self._deadlines = deadlines or Deadlines(clock, inf)
        self._kernel = kernel
        self._actions = actions
        self._clock = clock
        self._logs = logs
        # Work in Spark's driver may ignore cancellation. A new thread's first call into the JVM takes some ms.
        self._threads = DaemonThreads("onager-control", _MOST)
        self._changed = threading.Condition()
        self._running: dict[TaskKey, _Running] = {}

    def start(self, assignment: Assignment, on_report: OnReport) -> None:
        """Start each task of *assignment*."""
        task_set = assignment.task_set
        action = self._actions[task_set.work]
        for key in task_keys(task_set):
            name = name_of(key)
            cancellation = Cancellation(partial(self._stop, key), partial(self._deadlines.limit, name))
            with self._changed:
                self._running[key] = _Running(on_report, self._clock.now_ms(), cancellation)
            self._deadlines.begin(name, cancellation.run_out, partial(self._give_up, key))
            self._threads.submit(self._run, key, action, assignment)

    def cancel(self, tasks: Collection[TaskKey]) -> None:
        """Cancel *tasks* and their Spark jobs; each is reported as killed once its work has ended."""
        for key in tasks:
            with self._changed:
                running = self._running.get(key)
            if running is None:
                continue
            self._deadlines.stopped(name_of(key))
            running.cancellation.cancel()

    def _stop(self, key: TaskKey) -> None:
        try:
            self._kernel.cancel_control(_group(key))
        except (Py4JError, OSError) as e:  # the JVM is gone, and the task with it
            log.warning("cancel_failed", task=str(key), error=str(e))

    def _give_up(self, key: TaskKey) -> None:
        """Report a task that does not stop: the JVM is about to be ended."""
        with self._changed:
            running = self._running.get(key)
        if running is not None:
            self._finish(key, failure=self._failure_of(TaskCancelledError(), running.cancellation))

    def groups(self) -> dict[str, TaskKey]:
        """Return the running tasks, by the job groups of their Spark jobs."""
        with self._changed:
            return {_group(key): key for key in self._running}

    def close_job(self, job_id: JobId) -> bool:
        """Cancel the running tasks of a job, and return whether they ended within 5 s."""
        with self._changed:
            tasks = [key for key in self._running if key.job_id == job_id]
        self.cancel(tasks)
        with self._changed:
            return self._changed.wait_for(lambda: not any(key in self._running for key in tasks), _CLOSE_S)

    def _run(self, key: TaskKey, action: Action, assignment: Assignment) -> None:
        with self._changed:
            cancellation = self._running[key].cancellation
        try:
            with working_on(self._logs, key):
                success = self._act(key, action, assignment, cancellation)
        except BaseException as e:  # noqa: BLE001 - every error belongs in the report
            self._finish(key, failure=self._failure_of(e, cancellation))
        else:
            self._finish(key, success=success)

    def _failure_of(self, error: BaseException, cancellation: Cancellation) -> pb.Failure:
        if cancellation.is_cancelled and cancellation.error is None:
            return failures.killed("cancelled")
        return failures.from_exception(self._kernel, cancellation.error or error)

    def _act(self, key: TaskKey, action: Action, assignment: Assignment, cancellation: Cancellation) -> pb.TaskSuccess:
        """Do the work on a JVM thread with the task's own job group and scheduler pool."""

        def was_cancelled() -> bool:
            self._deadlines.stopped(name_of(key))
            return cancellation.is_cancelled

        with self._kernel.control(_group(key), f"onager {key}", str(key), was_cancelled):
            cancellation.check()  # a later cancellation reaches the job group
            return action(key, assignment, cancellation)

    def _finish(
        self, key: TaskKey, *, success: pb.TaskSuccess | None = None, failure: pb.Failure | None = None
    ) -> None:
        with self._changed:
            running = self._running.pop(key, None)
            self._changed.notify_all()
        self._deadlines.end(name_of(key))
        if running is None:
            return  # it was given up
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


def _group(key: TaskKey) -> str:
    return f"control/{key}"
