"""Sends reports of finished tasks until each is acknowledged: batched, repeated, independent of any poll."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from executor.attempts import AttemptTable
from executor.backoff import Backoff
from executor.gateway import SchedulerGateway, tell
from executor.work import failure_report
from onager.errors import OnagerError, UnknownExecutorError
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MAX_MESSAGE_BYTES
from onager.protocol.task_keys import task_key

_BATCH_WINDOW_S = 0.003
"""How long the first report waits for others, unless there was none for a while: then it goes at once."""
_RARE_S = 0.05
_BATCH_BYTES = MAX_MESSAGE_BYTES // 4
_REPORT_LIMIT_BYTES = MAX_MESSAGE_BYTES - 64 * 1024
_TIMEOUT_S = 15.0

OnAnswer = Callable[[pb.ReportTasksResponse], None]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Reports that go with one call."""

    reply_to: str
    """Where the scheduler is reached that they are for; empty for whichever answers."""
    reports: dict[TaskKey, pb.TaskReport] = field(default_factory=dict)


class Reporter:
    """One call at a time; what finishes meanwhile goes with the next."""

    def __init__(
        self,
        attempts: AttemptTable,
        gateway: SchedulerGateway,
        *,
        executor_id: str,
        incarnation: str,
        on_answer: OnAnswer,
        on_unknown: Callable[[], None],
    ) -> None:
        self._attempts = attempts
        self._gateway = gateway
        self._executor_id = executor_id
        self._incarnation = incarnation
        self._on_answer = on_answer
        self._on_unknown = on_unknown
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._unanswered: set[TaskKey] = set()
        self._log = structlog.get_logger().bind(executor_id=executor_id)
        self.refills = True
        """Whether the scheduler may fill the slots that reports free; false while draining."""
        self.is_pushed_to = False
        """Whether schedulers keep account of the slots themselves, so that it does no harm to offer one again."""

    def wake(self) -> None:
        """Say that there is something to send."""
        self._wake.set()

    async def wait_until_idle(self, timeout_s: float) -> None:
        """Wait until no call is in flight, but no longer than *timeout_s*."""
        # Not `wait_for`: before Python 3.12 it may swallow a cancellation, and then the agent cannot end.
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """Send reports as they come, for ever."""
        backoff = Backoff(first_s=0.05, limit_s=2.0)
        now_s = asyncio.get_running_loop().time
        idle_since_s = now_s()
        while True:
            await self._wake.wait()
            if now_s() - idle_since_s < _RARE_S:
                await asyncio.sleep(_BATCH_WINDOW_S)
            self._wake.clear()
            while batch := self._next_batch():
                if await self._send(batch):
                    backoff.reset()
                else:
                    await backoff.sleep()
            idle_since_s = now_s()

    async def flush(self, timeout_s: float) -> None:
        """Send what is left once more, for at most *timeout_s*; only when `run` has ended."""
        try:
            async with asyncio.timeout(timeout_s):
                while batch := self._next_batch():
                    if not await self._send(batch):
                        await asyncio.sleep(0.1)
        except TimeoutError:
            self._log.warning("reports_left_behind", count=len(self._attempts.reports()))

    def _next_batch(self) -> _Batch | None:
        """Return what goes with the next call: reports to one scheduler, as many as fit a message."""
        batch: _Batch | None = None
        size = 0
        for key, report, origin in self._attempts.reports():
            reply_to = "" if origin is None else origin.reply_to
            if batch is None:
                batch = _Batch(reply_to)
            elif reply_to != batch.reply_to:
                continue  # it goes with a later call
            size += report.ByteSize()
            if batch.reports and size > _BATCH_BYTES:
                break
            if origin is not None:
                report.holder = origin.holder
            batch.reports[key] = report
        return batch

    def _offered(self, fresh: set[TaskKey], batch: _Batch) -> int:
        if not self.refills:
            return 0
        return len(batch.reports) if self.is_pushed_to else self._attempts.freed_by(len(fresh))

    async def _send(self, batch: _Batch) -> bool:
        """Return whether every report of *batch* was acknowledged."""
        keys = batch.reports.keys()
        # Slots that a lost answer may have filled are not offered again: the next poll offers them.
        fresh = keys - self._unanswered
        self._idle.clear()
        try:
            answer = await self._gateway.report(
                pb.ReportTasksRequest(
                    executor_id=self._executor_id,
                    incarnation=self._incarnation,
                    reports=batch.reports.values(),
                    freed_slots=self._offered(fresh, batch),
                ),
                _TIMEOUT_S,
                reply_to=batch.reply_to,
            )
        except UnknownExecutorError:
            self._on_unknown()
            return False
        except OnagerError as e:
            self._unanswered |= keys
            tell(self._log, "report_not_delivered", e, tasks=len(keys))
            return False
        finally:
            self._idle.set()
        acknowledged = {task_key(task) for task in answer.acknowledged}
        self._attempts.acknowledge(acknowledged)
        self._unanswered -= keys
        self._on_answer(answer)
        return keys <= acknowledged


def within_limits(report: pb.TaskReport) -> pb.TaskReport:
    """Return *report*, or what stands for it when it is too large to be sent at all."""
    size = report.ByteSize()
    if size <= _REPORT_LIMIT_BYTES:
        return report
    message = (
        f"what the task has to report takes {size:,} bytes, more than the {_REPORT_LIMIT_BYTES:,} that fit a message: "
        "the plan holds that much data itself (local rows, literals); read it from files instead"
    )
    failure = pb.Failure(kind="user_error", message=message)
    return pb.TaskReport(task=report.task, started_ms=report.started_ms, ended_ms=report.ended_ms, failure=failure)


def killed(keys: Iterable[TaskKey], why: str, now_ms: int) -> list[pb.TaskReport]:
    """Return reports that the tasks *keys* were stopped before they started, because of *why*."""
    failure = pb.Failure(kind="task_killed", message=why)
    return [failure_report(key, failure, started_ms=now_ms, ended_ms=now_ms) for key in keys]
