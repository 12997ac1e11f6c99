"""The tasks that an executor holds: accepted, started as slots are free, cancelled, and judged once they end."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable

import structlog

from onager.clock import Clock
from onager.errors import OnagerError, VersionMismatchError
from onager.execution_graph import FailureCause, FailureKind
from onager.executor.agent.attempts import AttemptState, AttemptTable
from onager.executor.agent.backoff import Backoff
from onager.executor.agent.blobs import BlobCache
from onager.executor.agent.gateway import tell
from onager.executor.agent.reporting import killed, within_limits
from onager.executor.agent.threads import Threads
from onager.executor.attempt_logs import AttemptLogs, working_on
from onager.executor.work import Assignment, CatalogReader, Worker, blobs_needed, part_of
from onager.ids import BlobDigest, JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id, task_key, task_keys

DEATH_NOTICE = "the executor's JVM died"
_DEATH_RATTLE_S = 0.1
_BLOB_ATTEMPTS = 5


class TasksInHand:
    """Stands between the calls to schedulers and the worker; made within a running event loop."""

    def __init__(
        self,
        attempts: AttemptTable,
        worker: Worker,
        blobs: BlobCache,
        clock: Clock,
        threads: Threads,
        *,
        executor_id: str,
        spawn: Callable[[Coroutine[None, None, None]], object],
        on_report_due: Callable[[], None],
        on_no_space: Callable[[], None],
        on_failure: Callable[[], None],
        on_death: Callable[[str], None],
        logs: AttemptLogs,
        catalog: CatalogReader,
        is_quiet: Callable[[], bool] = lambda: True,
    ) -> None:
        """Make it.

        `Agent` says what each callback is. *spawn* runs work in the background. *on_report_due* is called when there is
        a report to send, *on_no_space* when a task found no space to write into, *on_failure* when one failed, and
        *on_death* with the reason why the worker cannot run anything any more. *logs* has what attempts logged, of
        which the end goes with the report of a failed one. Jobs are planned with what *catalog* reads. *is_quiet*
        returns whether the worker does nothing but tasks.
        """
        self._attempts = attempts
        self._worker = worker
        self._blobs = blobs
        self._clock = clock
        self._threads = threads
        self._spawn = spawn
        self._on_report_due = on_report_due
        self._on_no_space = on_no_space
        self._on_failure = on_failure
        self._on_death = on_death
        self._logs = logs
        self._catalog = catalog
        self._is_quiet = is_quiet
        self._log = structlog.get_logger().bind(executor_id=executor_id)
        self._reported: deque[pb.TaskReport] = deque()
        """Reports of the worker's threads that are not processed yet."""
        self._is_judging_due = False
        self._judged = asyncio.Event()
        self._judged.set()
        self._judging = 0
        """Failures of which it is not yet certain that the worker survived them."""
        self._loop = asyncio.get_running_loop()

    # ---------------------------------------------------------------- coming in and starting

    def accept(self, task_sets: Iterable[pb.TaskSet], *, is_leaving: bool) -> None:
        """Take the tasks that a poll brought; refused ones are reported as killed."""
        for task_set in task_sets:
            launch = self._attempts.accept(task_set, refuses_all=is_leaving)
            if launch.known:
                self._log.info("launch_repeated", job_id=task_set.job_id, tasks=[str(key) for key in launch.known])
                self._on_report_due()
            if launch.refused:
                why = "the executor has no slot for the task"
                why = "the executor runs another task alone" if self._attempts.has_lone else why
                why = "the executor is leaving" if is_leaving else why
                self._log.warning("launch_refused", job_id=task_set.job_id, tasks=len(launch.refused), why=why)
                self._finish_all(killed(launch.refused, why, self._clock.now_ms()))

    def start(self) -> None:
        """Start what is queued and has a slot now."""
        for task_set in self._attempts.take_startable(is_quiet=self._is_quiet()):
            self._spawn(self._start(task_set))

    async def _start(self, task_set: pb.TaskSet) -> None:
        keys = task_keys(task_set)
        log = self._log.bind(job_id=task_set.job_id, stage_id=task_set.stage_id)
        try:
            blobs = {digest: await self._fetch(digest) for digest in blobs_needed(task_set)}
            if inputs := blobs.pop(BlobDigest(task_set.inputs_digest), b""):
                task_set.MergeFromString(inputs)
            running = self._attempts.mark_running(keys)
            if running:
                log.debug("tasks_started", work=pb.Work.Name(task_set.work), tasks=len(running))
                assignment = Assignment(part_of(task_set, running), blobs, self._catalog)
                await self._threads.starts(self._worker.start, assignment, self._report_from_any_thread)
        except Exception as e:  # whatever the error is, the scheduler has to learn of it
            if isinstance(e, OnagerError):
                tell(log, "tasks_not_started", e)
            else:
                log.exception("tasks_not_started")
            text = f"the executor could not start the task: {e}"
            failure = pb.Failure(kind=FailureKind.IO_ERROR, message=text, cause=_cause_of(e) or "")
            now_ms = self._clock.now_ms()
            for key in keys:
                self._judge(pb.TaskReport(task=task_id(key), started_ms=now_ms, ended_ms=now_ms, failure=failure))

    async def _fetch(self, digest: BlobDigest) -> bytes:
        backoff = Backoff(first_s=0.1, limit_s=2.0)
        for _ in range(_BLOB_ATTEMPTS - 1):
            try:
                return await self._blobs.get(digest)
            except OnagerError as e:
                tell(self._log, "blob_not_fetched", e, digest=digest)
                await backoff.sleep()
        return await self._blobs.get(digest)

    def cancel(self, tasks: Iterable[pb.TaskId]) -> None:
        """Stop tasks; those that wait end at once."""
        keys = [task_key(task) for task in tasks]
        waiting = self._attempts.in_state(keys, AttemptState.QUEUED, AttemptState.PREPARING)
        self._finish_all(killed(waiting, "the task was cancelled before it started", self._clock.now_ms()))
        running = self._attempts.in_state(keys, AttemptState.RUNNING)
        if running:
            self._log.info("tasks_cancelled", tasks=[str(key) for key in running])
            self._spawn(self._cancel_running(running))

    async def _cancel_running(self, keys: Collection[TaskKey]) -> None:
        await self._threads.cancels(self._worker.cancel, keys)

    async def clean_up(self, request: pb.CleanUp) -> bool:
        """Remove files of a job, and forget it unless it goes on; return whether to acknowledge the clean-up.

        A failed clean-up is not acknowledged, so it is asked for again.
        """
        job_id = JobId(request.job_id)
        try:
            await self._threads.clean_ups(self._worker.clean_up, request)
        except (OnagerError, OSError) as e:
            self._log.warning("clean_up_failed", job_id=job_id, error=str(e))
            return False
        if request.dead_writers:
            return False  # the job goes on
        return not request.memory_only

    # ---------------------------------------------------------------- what became of them

    def _report_from_any_thread(self, report: pb.TaskReport) -> None:
        if self._loop.is_closed():
            return
        self._reported.append(report)
        if not self._is_judging_due:
            self._is_judging_due = True
            self._loop.call_soon_threadsafe(self._judge_all)

    def _judge_all(self) -> None:
        """Process the reports; those that arrive together are processed together."""
        self._is_judging_due = False
        done: list[pb.TaskReport] = []
        while self._reported:
            report = self._reported.popleft()
            success = report.success
            if report.HasField("success") and not (success.HasField("plan") or success.HasField("feed")):
                done.append(report)
            else:
                self._judge(report)
        if done:
            self._finish_all(done)

    def _judge(self, report: pb.TaskReport) -> None:
        """Accept a success as it is; a failure only once it is certain that the worker survived it."""
        if report.HasField("success") or report.failure.kind == "task_killed":
            found = report.success.plan.blobs if report.success.HasField("plan") else report.success.blobs
            for blob in found:  # the tasks that need them may well come here
                self._blobs.offer(BlobDigest(blob.digest), blob.content)
            self._finish_all([report])
        elif report.failure.kind == "executor_lost":
            self._on_death(report.failure.message)
        else:
            self._spawn(self._judge_failure(report))

    async def wait_until_judged(self) -> None:
        """Wait until no failure is being judged."""
        await asyncio.sleep(0)
        await self._judged.wait()

    async def _judge_failure(self, report: pb.TaskReport) -> None:
        self._judging += 1
        self._judged.clear()
        try:
            await self._judge_failure_late(report)
        finally:
            self._judging -= 1
            if not self._judging:
                self._judged.set()

    async def _judge_failure_late(self, report: pb.TaskReport) -> None:
        # When the worker's process dies, its tasks fail in many ways; none of these is the user's error.
        await asyncio.sleep(_DEATH_RATTLE_S)
        if await self._threads.liveness(self._worker.is_alive):
            kind = report.failure.cause or report.failure.kind
            key = task_key(report.task)
            report.failure.log_tail = self._logs.tail(key)
            with working_on(self._logs, key):
                self._log.info("task_failed", task=str(key), kind=kind)
            if kind == FailureCause.NO_SPACE:
                self._on_no_space()
            self._on_failure()
            self._finish_all([report])
        else:
            self._on_death(DEATH_NOTICE)

    def _finish_all(self, reports: Iterable[pb.TaskReport]) -> None:
        for report in reports:
            self._logs.end(task_key(report.task))
            if self._attempts.finish(within_limits(report)):
                self._on_report_due()
        self.start()


def _cause_of(error: Exception) -> FailureCause | None:
    """Return the cause of an error that occurred before the worker got the task, if one is known."""
    match error:
        case VersionMismatchError():
            return FailureCause.OTHER_VERSION
        case OnagerError() | OSError():
            return None
        case _:
            return FailureCause.INTERNAL_ERROR
