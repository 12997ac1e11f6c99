"""Sends reports of finished tasks until each is acknowledged: batched, repeated, independent of polls."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from onager.errors import OnagerError, UnknownExecutorError
from onager.executor.agent.attempts import AttemptTable
from onager.executor.agent.backoff import Backoff
from onager.executor.agent.gateway import SchedulerGateway, tell
from onager.executor.work import failure_report
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MAX_MESSAGE_BYTES, MAX_REPORT_BYTES
from onager.protocol.task_keys import task_key
from onager.waiting import is_set_within

_BATCH_WINDOW_S = 0.003
"""How long the first report waits for others, unless nothing else runs or there was no report for a while."""
_RARE_S = 0.05
_OFFER_AFTER_S = 0.005
"""How long slots that a report freed and its answer did not fill wait for others, before they are offered."""
_BATCH_BYTES = MAX_MESSAGE_BYTES // 4
_AGAIN_S = 0.05
"""How long the first wait is before a report is sent again."""
AGAIN_LIMIT_S = 2.0
"""How long the longest is."""
_TIMEOUT_S = 15.0

OnAnswer = Callable[[pb.ReportTasksResponse], None]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Reports that share a call."""

    reply_to: str
    """The address of their scheduler; empty for any scheduler that answers."""
    reports: dict[TaskKey, pb.TaskReport] = field(default_factory=dict)


class Reporter:
    """Makes one call at a time to each scheduler; reports that come meanwhile share the next call."""

    def __init__(
        self,
        attempts: AttemptTable,
        gateway: SchedulerGateway,
        *,
        executor_id: str,
        incarnation: str,
        on_answer: OnAnswer,
        on_unknown: Callable[[], None],
        on_silence: Callable[[], None] = lambda: None,
        list_number: Callable[[], int] = lambda: 0,
        takes_work: Callable[[], bool] = lambda: True,
        spawn: Callable[[Coroutine[None, None, None]], object] = asyncio.create_task,
    ) -> None:
        """Make it; *on_silence* is called when a scheduler may have launched tasks in an answer that was lost.

        It is called again when the reports of such a call are acknowledged at last. *takes_work*:
        whether the scheduler may fill the slots that reports free. *spawn* runs work in the background.
        """
        self._attempts = attempts
        self._gateway = gateway
        self._executor_id = executor_id
        self._incarnation = incarnation
        self._on_answer = on_answer
        self._on_unknown = on_unknown
        self._on_silence = on_silence
        self._list_number = list_number
        self._takes_work = takes_work
        self._spawn = spawn
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_flight = 0
        self._sending: dict[str, object] = {}
        """The tasks that send reports, by the address of the scheduler."""
        self._idle_since_s = asyncio.get_running_loop().time()
        self._unfilled = asyncio.Event()
        self._unreported_slots = 0
        """Free slots that the polled scheduler does not know of."""
        self._polls_waiting = 0
        self._unanswered: set[TaskKey] = set()
        self._refused: dict[TaskKey, Backoff] = {}
        """Reports that an answer did not acknowledge: each is sent again after a while, and holds up no other."""
        self._pausing: set[TaskKey] = set()
        """Those of them whose while is not over."""
        self._log = structlog.get_logger().bind(executor_id=executor_id)

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Offer slots that others leave free to the polled scheduler, inside the block; it knows all slots so far."""
        self._unreported_slots = 0
        self._polls_waiting += 1
        try:
            yield
        finally:
            self._polls_waiting -= 1

    def wake(self) -> None:
        """Note that there is something to send."""
        self._wake.set()

    async def wait_until_idle(self, timeout_s: float) -> None:
        """Wait until no call is in flight, but no longer than *timeout_s*."""
        await is_set_within(self._idle, timeout_s)

    async def run(self) -> None:
        """Send reports as they come, for ever."""
        while True:
            await self._wake.wait()
            is_rare = not self._sending and asyncio.get_running_loop().time() - self._idle_since_s >= _RARE_S
            if self._attempts.active and not is_rare:
                await asyncio.sleep(_BATCH_WINDOW_S)
            self._wake.clear()
            for reply_to in self._destinations():
                if reply_to not in self._sending:
                    self._sending[reply_to] = self._spawn(self._send_all(reply_to))

    async def _send_all(self, reply_to: str) -> None:
        """Send all reports for one scheduler, until none is left."""
        backoff = Backoff(_AGAIN_S, AGAIN_LIMIT_S)
        try:
            while batch := self._next_batch(reply_to):
                if await self._send(batch):
                    backoff.reset()
                else:
                    await backoff.sleep()
        finally:
            self._sending.pop(reply_to, None)
            self._idle_since_s = asyncio.get_running_loop().time()

    async def offer(self) -> None:
        """Offer slots that other schedulers left free to the polled one, for ever."""
        while True:
            await self._unfilled.wait()
            await asyncio.sleep(_OFFER_AFTER_S)
            self._unfilled.clear()
            slots, self._unreported_slots = min(self._unreported_slots, self._attempts.free_slots), 0
            if not (slots and self._takes_work() and self._polls_waiting):
                continue  # the next poll offers them
            try:
                with self._calling():
                    self._on_answer(await self._gateway.report(self._request((), slots), _TIMEOUT_S))
            except UnknownExecutorError:
                self._on_unknown()
            except OnagerError as e:
                tell(self._log, "slots_not_offered", e, slots=slots)
                self._on_silence()

    async def flush(self, timeout_s: float) -> None:
        """Send the remaining reports once more, for at most *timeout_s*; only after `run` has ended."""
        try:
            async with asyncio.timeout(timeout_s):
                self._pausing.clear()
                while batches := [batch for to in self._destinations() if (batch := self._next_batch(to))]:
                    if not all(await asyncio.gather(*map(self._send, batches))) or self._pausing:
                        await asyncio.sleep(0.1)
                        self._pausing.clear()
        except TimeoutError:
            self._log.warning("reports_left_behind", count=len(self._attempts.reports()))

    def _destinations(self) -> list[str]:
        """Return the addresses of the schedulers with pending reports; empty for any scheduler that answers."""
        return list(dict.fromkeys(reply_to for _, _, reply_to in self._attempts.reports()))

    def _next_batch(self, reply_to: str) -> _Batch | None:
        """Return the next call's reports to one scheduler: as many as fit a message."""
        batch = _Batch(reply_to)
        size = 0
        for key, report, wanted in self._attempts.reports():
            if wanted != reply_to or key in self._pausing:
                continue
            size += report.ByteSize()
            if batch.reports and size > _BATCH_BYTES:
                break
            batch.reports[key] = report
        return batch if batch.reports else None

    async def _send(self, batch: _Batch) -> bool:
        """Send *batch*; return whether there was an answer. Reports that it does not acknowledge pause."""
        keys = batch.reports.keys()
        # A scheduler may have filled the slots of reports that were sent before: the next poll offers them.
        fresh = keys - self._unanswered - self._refused.keys()
        freed = self._attempts.freed_by(len(fresh)) if self._takes_work() else 0
        request = self._request(batch.reports.values(), freed)
        try:
            with self._calling():
                answer = await self._call(batch.reply_to, request)
        except UnknownExecutorError:
            self._on_unknown()
            return False
        except OnagerError as e:
            self._unanswered |= keys
            tell(self._log, "report_not_delivered", e, tasks=len(keys))
            return False
        acknowledged = {task_key(task) for task in answer.acknowledged}
        self._attempts.acknowledge(acknowledged)
        self._unanswered -= keys
        self._on_answer(answer)
        if acknowledged & (keys - fresh):
            self._on_silence()  # a waiting poll has offered fewer slots than are free now
        for key in keys:
            if key in acknowledged:
                self._refused.pop(key, None)
            else:
                # Its scheduler may lack a feature that the job needs.
                self._attempts.send_report_to(key, self._gateway.next_address(batch.reply_to))
                self._pause(key)
        return True

    def _pause(self, key: TaskKey) -> None:
        backoff = self._refused.setdefault(key, Backoff(_AGAIN_S, AGAIN_LIMIT_S))
        self._pausing.add(key)
        asyncio.get_running_loop().call_later(backoff.next_s(), self._send_again, key)

    def _send_again(self, key: TaskKey) -> None:
        self._pausing.discard(key)
        self.wake()

    async def _call(self, reply_to: str, request: pb.ReportTasksRequest) -> pb.ReportTasksResponse:
        """Return the answer of the scheduler at *reply_to*, else of any other."""
        if reply_to and not self._gateway.is_passed_over(reply_to):
            answer = await self._gateway.report_to(reply_to, request)
            if answer is not None:
                filled = sum(len(task_set.tasks) for task_set in answer.task_sets)
                freed = min(request.freed_slots, len(answer.acknowledged))
                self._leave(freed - filled - answer.credited_slots)
                return answer
            request.freed_slots = 0  # the silent scheduler may have filled them
            self._on_silence()
        return await self._gateway.report(request, _TIMEOUT_S)

    def _leave(self, slots: int) -> None:
        """Note that *slots* are free that only a scheduler knows that is not polled."""
        if slots > 0:
            self._unreported_slots += slots
            self._unfilled.set()

    def _request(self, reports: Iterable[pb.TaskReport], freed_slots: int) -> pb.ReportTasksRequest:
        return pb.ReportTasksRequest(
            executor_id=self._executor_id,
            incarnation=self._incarnation,
            reports=reports,
            freed_slots=freed_slots,
            list_number=self._list_number(),
        )

    @contextmanager
    def _calling(self) -> Iterator[None]:
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()


def within_limits(report: pb.TaskReport) -> pb.TaskReport:
    """Return *report*, or a replacement if it is too large to be sent at all."""
    size = report.ByteSize()
    if size <= MAX_REPORT_BYTES:
        return report
    message = (
        f"what the task has to report takes {size:,} bytes, more than the {MAX_REPORT_BYTES:,} that fit a message: "
        "the plan holds that much data itself (local rows, literals); read it from files instead"
    )
    failure = pb.Failure(kind="user_error", message=message)
    return pb.TaskReport(task=report.task, started_ms=report.started_ms, ended_ms=report.ended_ms, failure=failure)


def killed(keys: Iterable[TaskKey], why: str, now_ms: int) -> list[pb.TaskReport]:
    """Return reports that the tasks *keys* were stopped before they started, because of *why*."""
    failure = pb.Failure(kind="task_killed", message=why)
    return [failure_report(key, failure, started_ms=now_ms, ended_ms=now_ms) for key in keys]
