"""Another scheduler, driving its jobs: what is for it goes in few calls, many parts in each."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from onager.execution_graph import ExecutorSlot
from onager.ids import JobId, SchedulerId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MIB
from onager.protocol.task_keys import task_id, task_key
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.cluster.member_calls import MemberCalls
from onager.scheduler.policy.reservations import Compared, ExecutorReservation, Filled, Launch, Updated, unfilled

log = structlog.get_logger(__name__)

_CALLS_AT_ONCE: Final = 2
"""With more under way, what comes waits and goes together with the next call."""
_CALL_BYTES: Final = 4 * MIB
"""A call takes no more parts when it has so much; one part may be larger."""
_PART_BYTES: Final = 4 * 1024
"""What a part counts for at least: the other one takes 1,024 of a kind."""
_ANSWER_BYTES: Final = 64 * 1024
"""What one counts for that asks how far a job is: as much as the answer for one of 700 stages."""


@dataclass(slots=True)
class _Part:
    field: str
    message: Any
    done: "asyncio.Future[Any]"

    @property
    def size_bytes(self) -> int:
        least = _ANSWER_BYTES if self.field == "watched" else _PART_BYTES
        return max(least, int(self.message.ByteSize()))


class RemoteDriver:
    """One other replica."""

    def __init__(self, scheduler_id: SchedulerId, own_id: SchedulerId, calls: MemberCalls, loads: JobLoads) -> None:
        self.scheduler_id = scheduler_id
        self._own_id = own_id
        self._calls = calls
        self._loads = loads
        self._waiting: deque[_Part] = deque()
        self._watched: dict[str, _Part] = {}
        """Those of them that ask how far a job is: one for all who watch it."""
        self._under_way: set[asyncio.Task[None]] = set()
        self.told = 0
        """The number of the latest change of a load that the replica was told."""
        self._answered_change = 0
        """The latest one that it was told of in an answer since the last round, whether or not that arrived."""
        self._heard = 0
        """The number of the latest change of a load of its jobs that it has told."""
        self._busy: Counter[str] = Counter()

    def is_busy_with(self, executor_id: str) -> bool:
        """Return whether an answer is awaited that may hold tasks for the executor."""
        return self._busy[executor_id] > 0

    @property
    def answers(self) -> bool:
        """Return whether it is worth asking."""
        return self._calls.answers(self.scheduler_id)

    # ---------------------------------------------------------------- driving

    async def update(self, executor: ExecutorSlot, reports: Sequence[pb.TaskReport], freed: int) -> Updated:
        """Hand reports over."""
        message = pb.ForwardedReports(
            executor_id=executor.executor_id,
            incarnation=executor.incarnation,
            list_number=executor.list_number,
            reports=reports,
            freed_slots=freed,
        )
        keys = [task_key(report.task) for report in reports]
        applied: pb.AppliedReports = await self._send("reports", message, executor.executor_id)
        launches = [Launch(executor.executor_id, task_set) for task_set in applied.task_sets]
        left = freed - sum(launch.tasks for launch in launches)
        if not applied.all_acknowledged:
            keys = [task_key(task) for task in applied.acknowledged]
        return Updated(keys, launches, [ExecutorReservation.of(executor)] * left)

    async def fill(self, job_id: JobId, reservations: Sequence[ExecutorReservation]) -> Filled:
        """Hand slots over, those of one executor together."""
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

    async def compare(self, slot: ExecutorSlot, held: Sequence[TaskKey], *, disproves: bool) -> Compared:
        """Hand a list over."""
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
        """Ask how far a job is; `NotDrivingError` also when the replica does not follow it."""
        part = self._watched.get(job_id)
        if part is None:
            part = self._watched[job_id] = self._add("watched", pb.WatchedJob(job_id=job_id))
        found: pb.WatchedJob = await asyncio.shield(part.done)  # others may wait for it, too
        if not found.HasField("progress"):
            raise NotDrivingError(f"{self.scheduler_id} does not follow {job_id}")
        return found

    def answered(self, heard_change: int, told_change: int) -> None:
        """Note that the replica asked something of this one, has heard of loads so far, and is told later ones."""
        self.told = max(self.told, heard_change)
        self._answered_change = told_change

    async def tell(self) -> None:
        """Tell how much the jobs of this replica have to do, if that is new to the other one and no call does it."""
        lately, self._answered_change = self._answered_change, 0
        if max(self.told, lately) < self._loads.latest_change and not self._under_way:
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
            # What is wrong with the answer, or with a part, is wrong with no other replica.
            log.exception("call_not_worked_off", scheduler_id=self.scheduler_id)
            why = f"{self.scheduler_id}: {error!r}"
        finally:
            if why:
                parts += self._waiting  # they would wait for the same silence
                self._waiting.clear()
                self._watched.clear()
            for part in parts:
                if not part.done.done():
                    part.done.set_exception(NotDrivingError(why))

    async def _call_with(self, parts: list[_Part]) -> None:
        size = 0
        while self._waiting and (not parts or size + self._waiting[0].size_bytes <= _CALL_BYTES):
            parts.append(self._waiting.popleft())
            size += parts[-1].size_bytes
            if parts[-1].field == "watched":
                del self._watched[parts[-1].message.job_id]
        loads, change = self._loads.changed_since(self.told)
        request = pb.ForwardRequest(scheduler_id=self._own_id, loads=loads, heard_change=self._heard)
        for part in parts:
            getattr(request, part.field).append(part.message)
        answer = await self._calls.forward(self.scheduler_id, request)
        self.told = max(self.told, change)
        self._heard = max(self._heard, answer.change)
        self._loads.take(answer.loads)
        results = {name: iter(getattr(answer, name)) for name in ("reports", "slots", "lists", "watched")}
        for part in parts:
            found = next(results[part.field], None)
            if part.done.done():
                continue  # whoever asked is gone; an executor's next list tells what it did not get
            if found is None:
                part.done.set_exception(NotDrivingError(f"{self.scheduler_id} left a part unanswered"))
            else:
                part.done.set_result(found)
