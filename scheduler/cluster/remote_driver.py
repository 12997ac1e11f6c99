"""Another scheduler that drives its jobs; few calls to it carry many parts each."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from onager.execution_graph import ExecutorSlot
from onager.ids import JobId, SchedulerId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_FORWARDED_ATTEMPTS
from onager.protocol.limits import MIB
from onager.protocol.task_keys import Reports, task_id, task_key
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.cluster.scheduler_calls import SchedulerCalls
from onager.scheduler.policy.reservations import Compared, ExecutorReservation, Filled, Launch, Updated, unfilled

log = structlog.get_logger(__name__)

_CALLS_AT_ONCE: Final = 2
"""While this many calls are in flight, new parts wait and share the next call."""
_CALL_BYTES: Final = 4 * MIB
"""A call that holds this much takes no more parts; one part may be larger."""
_PART_BYTES: Final = 4 * 1024
"""The least that a part counts for: the callee takes 1,024 parts of a kind."""
_ANSWER_BYTES: Final = 64 * 1024
"""What a request for progress counts for: as much as the answer for a job of 700 stages."""


@dataclass(slots=True)
class _Part:
    field: str
    """Its list in `ForwardRequest`, and that of its answer in `ForwardResponse`."""
    message: Any
    done: "asyncio.Future[Any]"

    def refuse(self, why: str) -> None:
        """End with a `NotDrivingError`, unless it has ended; perhaps nobody waits for it any more."""
        if not self.done.done():
            self.done.set_exception(NotDrivingError(why))
            self.done.exception()

    @property
    def size_bytes(self) -> int:
        least = _ANSWER_BYTES if self.field == "watched" else _PART_BYTES
        return max(least, int(self.message.ByteSize()))


class RemoteDriver:
    """One other scheduler.

    There `onager.scheduler.api.scheduler_gateway.SchedulerGatewayService.Forward` gives the work to its `LocalDriver`.
    """

    def __init__(self, scheduler_id: SchedulerId, own_id: SchedulerId, calls: SchedulerCalls, loads: JobLoads) -> None:
        self.scheduler_id = scheduler_id
        self._own_id = own_id
        self._calls = calls
        self._loads = loads
        self._waiting: deque[_Part] = deque()
        self._watched: dict[str, _Part] = {}
        """Parts that ask for a job's progress: one for all its watchers."""
        self._progress: dict[bytes, pb.AttemptProgress] = {}
        """How far attempts are, by their keys: the latest that is not sent yet."""
        self._under_way: set[asyncio.Task[None]] = set()
        self.sent_change = 0
        """The number of the latest change of a load that was sent to the scheduler."""
        self._answered_change = 0
        """The latest change that an answer of ours carried to it since the last round, whether or not it arrived."""
        self._known_change = 0
        """The number of the latest change that it has sent, of loads of its jobs."""
        self._busy: Counter[str] = Counter()

    def is_busy_with(self, executor_id: str) -> bool:
        """Return whether an awaited answer may hold tasks for the executor."""
        return self._busy[executor_id] > 0

    @property
    def answers(self) -> bool:
        """Return whether the scheduler is likely to answer."""
        return self._calls.answers(self.scheduler_id)

    # ---------------------------------------------------------------- driving

    async def update_task_statuses(self, executor: ExecutorSlot, reports: Reports, freed: int) -> Updated:
        """Forward reports."""
        message = pb.ForwardedReports(
            executor_id=executor.executor_id,
            incarnation=executor.incarnation,
            list_number=executor.list_number,
            reports=reports.values(),
            freed_slots=freed,
            empty=executor.is_empty,
        )
        keys = list(reports)
        applied: pb.AppliedReports = await self._send("reports", message, executor.executor_id)
        launches = [Launch(executor.executor_id, task_set) for task_set in applied.task_sets]
        left = freed - sum(launch.tasks for launch in launches)
        if not applied.all_acknowledged:
            keys = [task_key(task) for task in applied.acknowledged]
        return Updated(keys, launches, [ExecutorReservation.of(executor)] * left)

    async def fill_reservations(self, job_id: JobId, reservations: Sequence[ExecutorReservation]) -> Filled:
        """Forward slots, those of one executor together."""
        by_slot = Counter(reservation.slot for reservation in reservations)
        parts = [
            self._send(
                "slots",
                pb.ForwardedSlots(
                    job_id=job_id,
                    executor_id=slot.executor_id,
                    incarnation=slot.incarnation,
                    list_number=slot.list_number,
                    slots=slots,
                    empty=slot.is_empty,
                ),
                slot.executor_id,
            )
            for slot, slots in by_slot.items()
        ]
        launches: list[Launch] = []
        found = await asyncio.gather(*parts, return_exceptions=True)
        failures = [part for part in found if isinstance(part, BaseException) or part.failed]
        for slot, part in zip(by_slot, found, strict=True):
            if not isinstance(part, BaseException):
                launches += [Launch(slot.executor_id, task_set) for task_set in part.task_sets]
        if failures and not launches:
            first = failures[0]
            raise first if isinstance(first, BaseException) else NotDrivingError(f"{self.scheduler_id} cannot")
        return Filled(launches, unfilled(reservations, launches))

    async def compare_tasks(self, slot: ExecutorSlot, held: Sequence[TaskKey], *, disproves: bool) -> Compared:
        """Forward a list."""
        message = pb.ForwardedList(
            executor_id=slot.executor_id,
            incarnation=slot.incarnation,
            list_number=slot.list_number,
            held=[task_id(key) for key in held],
            disproves=disproves,
        )
        found: pb.ComparedList = await self._send("lists", message, slot.executor_id)
        launches = [Launch(slot.executor_id, task_set) for task_set in found.task_sets]
        return Compared(launches, [task_key(task) for task in found.cancel])

    async def progress(self, job_id: JobId) -> pb.WatchedJob:
        """Return a job's progress; `NotDrivingError` also when the scheduler does not follow the job."""
        part = self._watched.get(job_id)
        if part is None:
            part = self._watched[job_id] = self._add("watched", pb.WatchedJob(job_id=job_id))
        found: pb.WatchedJob = await asyncio.shield(part.done)  # other callers may wait for it, too
        if not found.HasField("progress"):
            raise NotDrivingError(f"{self.scheduler_id} does not follow {job_id}")
        return found

    def note_progress(self, reported: Iterable[pb.AttemptProgress]) -> None:
        """Take what executors have reported about tasks of the scheduler's jobs; it goes with the next call."""
        for each in reported:
            key = each.task.SerializeToString()
            if key in self._progress or len(self._progress) < MAX_FORWARDED_ATTEMPTS:
                self._progress[key] = each

    def answered(self, known_change: int, sent_change: int) -> None:
        """Note a call of the scheduler: it knows loads up to *known_change*, our answer goes up to *sent_change*."""
        self.sent_change = max(self.sent_change, known_change)
        self._answered_change = sent_change

    async def tell(self) -> None:
        """Send the loads of this scheduler's jobs, if the other one does not know them and no call carries them yet."""
        lately, self._answered_change = self._answered_change, 0
        if (self._progress or max(self.sent_change, lately) < self._loads.latest_change) and not self._under_way:
            self._start()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    # ---------------------------------------------------------------- calls

    def _add(self, field: str, message: Any) -> _Part:
        part = _Part(field, message, asyncio.get_running_loop().create_future())
        self._waiting.append(part)
        if len(self._under_way) < _CALLS_AT_ONCE:
            self._start()
        return part

    async def _send(self, field: str, message: Any, executor_id: str | None = None) -> Any:
        part = self._add(field, message)
        if executor_id is None:
            return await part.done
        self._busy[executor_id] += 1
        try:
            return await part.done
        finally:
            self._busy[executor_id] -= 1
            if not self._busy[executor_id]:
                del self._busy[executor_id]

    def _start(self) -> None:
        task = asyncio.create_task(self._call())
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        if self._waiting and len(self._under_way) < _CALLS_AT_ONCE:
            self._start()

    async def _call(self) -> None:
        parts: list[_Part] = []
        why = "the call was broken off"
        try:
            await self._call_with(parts)
            why = ""
        except NotDrivingError as error:
            why = str(error)
        except Exception as error:
            # An error in the answer, or in a part, would not go away with another scheduler.
            log.exception("call_not_worked_off", scheduler_id=self.scheduler_id)
            why = f"{self.scheduler_id}: {error!r}"
        finally:
            if why:
                parts += self._waiting  # they would meet the same silence
                self._waiting.clear()
                self._watched.clear()
            for part in parts:
                part.refuse(why)

    async def _call_with(self, parts: list[_Part]) -> None:
        size = 0
        while self._waiting and (not parts or size + self._waiting[0].size_bytes <= _CALL_BYTES):
            parts.append(self._waiting.popleft())
            size += parts[-1].size_bytes
            if parts[-1].field == "watched":
                del self._watched[parts[-1].message.job_id]
        loads, change = self._loads.changed_since(self.sent_change)
        progress, self._progress = self._progress, {}
        request = pb.ForwardRequest(
            scheduler_id=self._own_id, loads=loads, known_change=self._known_change, progress=progress.values()
        )
        for part in parts:
            getattr(request, part.field).append(part.message)
        answer = await self._calls.forward(self.scheduler_id, request)
        self.sent_change = max(self.sent_change, change)
        self._known_change = max(self._known_change, answer.change)
        self._loads.take_loads(answer.loads)
        results = {name: iter(getattr(answer, name)) for name in ("reports", "slots", "lists", "watched")}
        for part in parts:
            found = next(results[part.field], None)
            if part.done.done():
                continue  # the caller is gone; the executor's next list shows what it did not get
            if found is None:
                part.refuse(f"{self.scheduler_id} left a part unanswered")
            else:
                part.done.set_result(found)
