"""Puts committed launches into the hands of push executors: batched, repeated until they are taken or refused."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import grpc
import structlog

from onager.clock import Clock
from onager.errors import (
    ExecutorUnreachableError,
    OnagerError,
    SchedulerUnreachableError,
    TlsError,
    UnknownExecutorError,
)
from onager.ids import BlobDigest, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MIB
from onager.protocol.onager_pb2_grpc import OnagerExecutorStub
from onager.protocol.security import ClientAccess
from onager.protocol.task_keys import task_id, task_key, task_keys
from onager.scheduler import timing
from onager.scheduler.executors.records import ExecutorRecord
from onager.scheduler.jobs.blobs import BlobStore
from onager.supervision import unless_cut

log = structlog.get_logger(__name__)

_SETS_PER_CALL: Final = 64
_INLINE_BYTES: Final = 4 * MIB
"""Plans that go along with one call; larger ones the executor fetches."""
_SENT_KEPT: Final = 1024

_StageKey = tuple[str, int, int]


class OnLaunched(Protocol):
    """Who is told what executors make of launches."""

    def taken(self, record: ExecutorRecord, keys: Sequence[TaskKey], list_number: int) -> None:
        """The executor has *keys*, and its lists above *list_number* show it."""
        ...

    def refused(self, record: ExecutorRecord, keys: Sequence[TaskKey], reason: str, *, pause_s: float) -> None:
        """The executor does not run *keys*, and nothing is to be launched there for *pause_s*."""
        ...

    def elsewhere(self, record: ExecutorRecord, keys: Sequence[TaskKey]) -> None:
        """The executor has *keys* from another scheduler that lives, and reports to that."""
        ...

    def withdrawn(self, record: ExecutorRecord, keys: Sequence[TaskKey]) -> None:
        """Nobody wants *keys* any more, and they were never sent: nothing will be reported of them."""
        ...

    def failed(self) -> None:
        """A call failed, and will be made again."""
        ...

    def given_up(self, record: ExecutorRecord, keys: Sequence[TaskKey]) -> None:
        """The executor seems to be lost: *keys* are sent no more, and may have come there or not."""
        ...


@dataclass(slots=True)
class _Outbox:
    """What one life of an executor is to be told."""

    record: ExecutorRecord
    channel: grpc.aio.Channel
    stub: Any
    task_sets: "OrderedDict[_StageKey, pb.TaskSet]" = field(default_factory=OrderedDict)
    cancels: dict[TaskKey, None] = field(default_factory=dict)
    doubtful: set[TaskKey] = field(default_factory=set)
    """Launches among them that were sent and not answered: they may have come there."""
    sent_plans: "OrderedDict[str, None]" = field(default_factory=OrderedDict)
    """The latest, so many as matter: one that is sent again does no harm."""
    sending: "asyncio.Task[None] | None" = None
    pause_s: float = timing.LAUNCH_FIRST_PAUSE_S
    failing_since_s: float | None = None

    @property
    def life(self) -> tuple[str, str]:
        return self.record.executor_id, self.record.incarnation


class Launcher:
    """The way to push executors, one call to each at a time; what comes meanwhile goes with the next."""

    def __init__(
        self,
        blobs: BlobStore,
        access: ClientAccess,
        listener: OnLaunched,
        clock: Clock,
        *,
        holder: str,
        reply_to: Callable[[], str],
        live_holders: Callable[[], Iterable[str]],
        is_alive: Callable[[str, str], bool],
    ) -> None:
        self._blobs = blobs
        self._access = access
        self._listener = listener
        self._clock = clock
        self._holder = holder
        self._reply_to = reply_to
        self._live_holders = live_holders
        self._is_alive = is_alive
        self._outboxes: dict[tuple[str, str], _Outbox] = {}

    def launch(self, record: ExecutorRecord, task_sets: Iterable[pb.TaskSet]) -> None:
        """Send tasks that are the executor's by what is committed; those of one stage go together."""
        outbox = self._outbox(record)
        for task_set in task_sets:
            key = (task_set.job_id, task_set.stage_id, task_set.stage_attempt)
            waiting = outbox.task_sets.get(key)
            if waiting is None:
                waiting = outbox.task_sets[key] = pb.TaskSet()
                waiting.CopyFrom(task_set)
            else:
                known = {(task.partition, task.task_attempt) for task in waiting.tasks}
                waiting.tasks.extend(t for t in task_set.tasks if (t.partition, t.task_attempt) not in known)
        self._send(outbox)

    def cancel(self, record: ExecutorRecord, keys: Iterable[TaskKey]) -> None:
        """Stop tasks; what is not launched yet never will be."""
        outbox = self._outbox(record)
        outbox.cancels |= dict.fromkeys(keys)
        if never_sent := self._withdraw(outbox, outbox.cancels):
            self._listener.withdrawn(record, never_sent)
        self._send(outbox)

    def check(self, address: str) -> None:
        """Raise `InvalidSettingError` when nothing may be sent to *address*."""
        self._access.check(address, "address of the executor")

    def has_plan(self, executor_id: str, incarnation: str, digest: str) -> bool:
        """Return whether this life of the executor was sent the plan from here."""
        outbox = self._outboxes.get((executor_id, incarnation))
        return outbox is not None and digest in outbox.sent_plans

    async def close_life(self, executor_id: str, incarnation: str) -> None:
        """Forget a life of an executor that is over."""
        outbox = self._outboxes.pop((executor_id, incarnation), None)
        if outbox is not None:
            if outbox.sending is not None:
                outbox.sending.cancel()
            await outbox.channel.close(None)

    async def close(self) -> None:
        """Close all connections."""
        for life in list(self._outboxes):
            await self.close_life(*life)

    # ---------------------------------------------------------------- sending

    def _outbox(self, record: ExecutorRecord) -> _Outbox:
        life = (record.executor_id, record.incarnation)
        outbox = self._outboxes.get(life)
        if outbox is None:
            channel = self._access.aio_channel(record.address)
            outbox = self._outboxes[life] = _Outbox(record, channel, OnagerExecutorStub(channel))
        return outbox

    def _send(self, outbox: _Outbox) -> None:
        if outbox.sending is None or outbox.sending.done():
            outbox.sending = asyncio.create_task(self._work_off(outbox), name=f"launches to {outbox.record.address}")

    async def _work_off(self, outbox: _Outbox) -> None:
        await asyncio.sleep(0)  # what is launched in the same moment goes along
        while (outbox.task_sets or outbox.cancels) and self._is_alive(*outbox.life):
            try:
                if outbox.cancels:
                    await self._send_cancels(outbox)
                if outbox.task_sets:
                    await self._send_launches(outbox)
            except UnknownExecutorError:
                self._give_up(outbox, "another life of the executor answers", 0.0)
            except Exception as error:
                # What is wrong with one executor's answers is to hold up no other, nor to end the scheduler.
                is_ours = isinstance(error, OnagerError)
                log.info(
                    "launches_not_delivered",
                    executor_id=outbox.record.executor_id,
                    error=str(error) if is_ours else repr(error),
                    exc_info=not is_ours,
                )
                self._listener.failed()
                now_s = self._clock.monotonic_s()
                outbox.failing_since_s = failing_since_s = outbox.failing_since_s or now_s
                if now_s - failing_since_s >= timing.UNREACHED_AFTER_S:
                    self._tell_unreached(outbox, str(error))
                await asyncio.sleep(outbox.pause_s)
                outbox.pause_s = min(timing.LAUNCH_LONGEST_PAUSE_S, 2 * outbox.pause_s)
            else:
                outbox.pause_s, outbox.failing_since_s = timing.LAUNCH_FIRST_PAUSE_S, None
        if keys := self._empty(outbox):
            self._listener.given_up(outbox.record, keys)

    async def _send_launches(self, outbox: _Outbox) -> None:
        record = outbox.record
        chosen = dict(list(outbox.task_sets.items())[:_SETS_PER_CALL])
        plans = await self._plans_for(outbox, chosen.values())
        # Some may have been cancelled, and others may have come, while the plans were read.
        chosen = {key: outbox.task_sets.pop(key) for key in chosen if key in outbox.task_sets}
        if not chosen:
            return
        request = pb.LaunchTasksRequest(
            executor_id=record.executor_id,
            incarnation=record.incarnation,
            task_sets=chosen.values(),
            holder=self._holder,
            reply_to=self._reply_to(),
            blobs=plans,
            live_holders=sorted(self._live_holders()),
        )
        try:
            answer: pb.LaunchTasksResponse = await self._call(outbox, "LaunchTasks", request)
        except BaseException:
            self._put_back(outbox, chosen)
            raise
        self._note_plans(outbox, (task_set.plan_digest for task_set in chosen.values()))
        keys = [key for task_set in chosen.values() for key in task_keys(task_set)]
        outbox.doubtful.difference_update(keys)
        self._tell(record, keys, answer)

    def _note_plans(self, outbox: _Outbox, digests: Iterable[str]) -> None:
        for digest in filter(None, digests):
            outbox.sent_plans[digest] = None
            outbox.sent_plans.move_to_end(digest)
        while len(outbox.sent_plans) > _SENT_KEPT:
            outbox.sent_plans.popitem(last=False)

    def _put_back(self, outbox: _Outbox, task_sets: dict[_StageKey, pb.TaskSet]) -> None:
        outbox.doubtful.update(key for task_set in task_sets.values() for key in task_keys(task_set))
        later = list(outbox.task_sets.values())
        outbox.task_sets = OrderedDict(task_sets)
        for task_set in later:
            key = (task_set.job_id, task_set.stage_id, task_set.stage_attempt)
            if key in outbox.task_sets:
                outbox.task_sets[key].tasks.extend(task_set.tasks)
            else:
                outbox.task_sets[key] = task_set
        self._withdraw(outbox, outbox.cancels)

    def _tell(self, record: ExecutorRecord, keys: Sequence[TaskKey], answer: pb.LaunchTasksResponse) -> None:
        refused, over = [task_key(t) for t in answer.refused], [task_key(t) for t in answer.over]
        elsewhere = [task_key(t) for t in answer.elsewhere]
        if refused:
            self._listener.refused(record, refused, answer.reason, pause_s=timing.EXECUTOR_FULL_PAUSE_S)
        if over:
            self._listener.refused(record, over, "the executor has run it before", pause_s=0.0)
        if elsewhere:
            self._listener.elsewhere(record, elsewhere)
        others = {*refused, *over, *elsewhere}
        self._listener.taken(record, [key for key in keys if key not in others], answer.list_number)

    def _tell_unreached(self, outbox: _Outbox, why: str) -> None:
        log.warning(
            "executor_not_reached",
            executor_id=outbox.record.executor_id,
            address=outbox.record.address,
            error=why,
            advice="it lives; can this address be reached from here? (--advertise of the executor)",
        )
        outbox.failing_since_s = None
        self._give_up(outbox, f"the executor is not reached at {outbox.record.address}", timing.UNREACHED_PAUSE_S)

    def _give_up(self, outbox: _Outbox, reason: str, pause_s: float) -> None:
        """Take back what was to go there."""
        if keys := self._empty(outbox):
            self._listener.refused(outbox.record, keys, reason, pause_s=pause_s)

    def _empty(self, outbox: _Outbox) -> list[TaskKey]:
        """Send nothing of what waits; return the launches among it."""
        keys = [key for task_set in outbox.task_sets.values() for key in task_keys(task_set)]
        outbox.task_sets.clear()
        outbox.cancels.clear()
        outbox.doubtful.clear()
        return keys

    async def _send_cancels(self, outbox: _Outbox) -> None:
        keys = list(outbox.cancels)
        request = pb.CancelTasksRequest(
            executor_id=outbox.record.executor_id,
            incarnation=outbox.record.incarnation,
            tasks=[task_id(key) for key in keys],
        )
        await self._call(outbox, "CancelTasks", request)
        for key in keys:
            outbox.cancels.pop(key, None)

    def _withdraw(self, outbox: _Outbox, keys: Iterable[TaskKey]) -> list[TaskKey]:
        """Take launches out that wait to be sent; return those of them that never were."""
        unwanted = set(keys)
        found: list[TaskKey] = []
        for stage, task_set in list(outbox.task_sets.items()):
            found += [key for key in task_keys(task_set) if key in unwanted]
            left = [task for key, task in zip(task_keys(task_set), task_set.tasks, strict=True) if key not in unwanted]
            if not left:
                del outbox.task_sets[stage]
            elif len(left) < len(task_set.tasks):
                kept = [pb.TaskAttempt(partition=t.partition, task_attempt=t.task_attempt) for t in left]
                del task_set.tasks[:]
                task_set.tasks.extend(kept)
        never_sent = [key for key in found if key not in outbox.doubtful]
        outbox.doubtful.difference_update(found)
        return never_sent

    async def _call(self, outbox: _Outbox, method: str, request: Any) -> Any:
        executor_id, address = outbox.record.executor_id, outbox.record.address
        self.check(address)
        try:
            return await unless_cut(
                getattr(outbox.stub, method)(request, timeout=timing.LAUNCH_ANSWER_S, metadata=self._access.metadata()),
                ExecutorUnreachableError(executor_id, address, "its connection was closed"),
            )
        except grpc.aio.AioRpcError as raw:
            error = self._access.error_of(raw, address)
            if isinstance(error, SchedulerUnreachableError) and not isinstance(error, TlsError):
                error = ExecutorUnreachableError(executor_id, address, error.why)
            raise error from raw

    # ---------------------------------------------------------------- plans

    async def _plans_for(self, outbox: _Outbox, task_sets: Iterable[pb.TaskSet]) -> list[pb.Blob]:
        found: list[pb.Blob] = []
        size = 0
        for digest in dict.fromkeys(t.plan_digest for t in task_sets if t.plan_digest):
            if digest in outbox.sent_plans:
                continue
            content = await self._plan(digest)
            if content is not None and size + len(content) <= _INLINE_BYTES:
                size += len(content)
                found.append(pb.Blob(digest=digest, content=content))
        return found

    async def _plan(self, digest: str) -> bytes | None:
        try:
            return await self._blobs.get(BlobDigest(digest))
        except OnagerError as error:
            log.debug("plan_not_sent_along", digest=digest, error=str(error))
            return None  # the executor fetches it, and says what is wrong with it
