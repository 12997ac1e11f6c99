"""Assigns tasks to slots, and applies what executors report."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from execution_graph import Event, ExecutorLost, ExecutorSlot, can_judge, lives_at_work, wanted_tasks
from onager.clock import Clock
from onager.errors import JobNotFoundError, OnagerError, SchemaVersionError, StateCorruptError
from onager.ids import ExecutorId, Incarnation, JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key
from scheduler import wire
from scheduler.jobs.job_heads import JobHead
from scheduler.jobs.job_log import StoredJob
from scheduler.jobs.job_store import JobStore
from scheduler.jobs.job_writers import JobWriters
from scheduler.jobs.reports import ReportReader
from scheduler.tasks.fair_queue import FairQueue
from scheduler.tasks.query_coordinator import Launch, QueryCoordinator, Share

log = structlog.get_logger(__name__)

_READ_AT_ONCE: Final = 16
_UNREADABLE: Final = (JobNotFoundError, StateCorruptError, SchemaVersionError)
_ROUNDS: Final = 4
"""Slots whose job had less to do than it seemed are offered to others so often."""


@dataclass(frozen=True, slots=True)
class ExecutorReservation:
    """A free slot of an executor in this scheduler's hand, perhaps kept for a job that it worked for."""

    executor_id: ExecutorId
    incarnation: Incarnation
    list_number: int
    job_id: JobId | None = None

    @property
    def slot(self) -> ExecutorSlot:
        """Return the slot as the graph sees it."""
        return ExecutorSlot(self.executor_id, self.incarnation, self.list_number)


@dataclass(frozen=True, slots=True)
class Filled:
    """What became of reservations: tasks in executors' hands, and slots for which there is no task."""

    launches: Sequence[Launch]
    unfilled: Sequence[ExecutorReservation]


@dataclass(frozen=True, slots=True)
class Updated:
    """What became of reports."""

    acknowledged: Sequence[TaskKey]
    """Applied, or of no use to anybody: never to be sent again."""
    launches: Sequence[Launch]
    """Tasks that took freed slots in the same append."""
    reservations: Sequence[ExecutorReservation]
    """Freed slots to fill next, tied to the job that they worked for."""


@dataclass(slots=True)
class _JobReports:
    keys: list[TaskKey] = field(default_factory=list)
    reports: list[pb.TaskReport] = field(default_factory=list)


class TaskManager:
    """The tasks of all active jobs."""

    def __init__(
        self,
        jobs: JobStore,
        writers: JobWriters,
        reader: ReportReader,
        queue: FairQueue,
        clock: Clock,
        *,
        max_launches: int,
        cluster_slots: Callable[[], int],
    ) -> None:
        self._jobs = jobs
        self._writers = writers
        self._reader = reader
        self._queue = queue
        self._clock = clock
        self._max_launches = max_launches
        self._cluster_slots = cluster_slots
        self._coordinators: dict[JobId, QueryCoordinator] = {}
        self._catching_up = asyncio.Lock()
        self._rounds_asked = self._rounds_done = 0
        jobs.listen(self._on_commit)

    def coordinator(self, job_id: JobId) -> QueryCoordinator:
        """Return who drives the job."""
        found = self._coordinators.get(job_id)
        if found is None:
            found = QueryCoordinator(job_id, self._writers, self._clock)
            if self._queue.knows(job_id):  # one of an ended job is for this moment only
                self._coordinators[job_id] = found
        return found

    async def adopt(self, job_id: JobId) -> None:
        """Begin to work on a job that this replica sees for the first time; one that cannot be read is left alone."""
        try:
            await (self._jobs.fresh(job_id) if self._queue.knows(job_id) else self._jobs.load(job_id))
            await self.coordinator(job_id).revive()
        except (JobNotFoundError, StateCorruptError, SchemaVersionError) as error:
            log.warning("job_not_adopted", job_id=job_id, error=str(error))

    # ---------------------------------------------------------------- filling slots

    async def fill_reservations(self, reservations: Sequence[ExecutorReservation]) -> Filled:
        """Hand tasks to the executors of *reservations*, as many as there are tasks, and commit that.

        A slot goes to its own job while that is fair, else to the job with the fewest running tasks for its weight. A
        job that cannot be worked on now gets none, and keeps no other from theirs.
        """
        launches: list[Launch] = []
        waiting = list(reservations)
        for _ in range(_ROUNDS):
            assigned, unfilled = self._assign(waiting)
            if not assigned:
                waiting = unfilled
                break
            results = await asyncio.gather(*(self._fill_job(job, mine) for job, mine in assigned.items()))
            waiting = list(unfilled)
            for job_id, (done, left) in zip(assigned, results, strict=True):
                launches += done
                waiting += left
                if left:
                    self._queue.pass_over(job_id)  # others may have use for them
            if not waiting or not self._queue.has_runnable:
                break
        self._queue.reconsider()
        return Filled(launches, waiting)

    def _assign(
        self, reservations: Sequence[ExecutorReservation]
    ) -> tuple[dict[JobId, list[ExecutorReservation]], list[ExecutorReservation]]:
        assigned: dict[JobId, list[ExecutorReservation]] = defaultdict(list)
        for number, reservation in enumerate(reservations):
            job_id = self._queue.take(prefer=reservation.job_id) if number < self._max_launches else None
            if job_id is None:
                return assigned, list(reservations[number:])
            assigned[job_id].append(reservation)
        return assigned, []

    async def _fill_job(
        self, job_id: JobId, reservations: Sequence[ExecutorReservation]
    ) -> tuple[list[Launch], list[ExecutorReservation]]:
        by_slot: dict[ExecutorSlot, list[ExecutorReservation]] = defaultdict(list)
        for reservation in reservations:
            by_slot[reservation.slot].append(reservation)
        shares = [Share(slot, len(mine)) for slot, mine in by_slot.items()]
        try:
            launches = await self.coordinator(job_id).launch(shares, self._cluster_slots())
        except Exception as error:
            log.warning(
                "job_not_scheduled", job_id=job_id, error=repr(error), exc_info=not isinstance(error, OnagerError)
            )
            self._queue.remove(job_id)
            return [], list(reservations)
        finally:
            self._queue.give_back(job_id, len(reservations))
        given: dict[str, int] = defaultdict(int)
        for launch in launches:
            given[launch.executor_id] += launch.tasks
        left = [r for slot, mine in by_slot.items() for r in mine[given[slot.executor_id] :]]
        return launches, left

    # ---------------------------------------------------------------- reports

    async def update_task_statuses(
        self, executor: ExecutorSlot, reports: Iterable[pb.TaskReport], freed_slots: int
    ) -> Updated:
        """Apply what *executor* reports, each job for itself, and hand it next tasks of the same jobs for freed slots.

        A repeated or stale report, one of an ended, unknown or unreadable job, is acknowledged and dropped. What could
        not be stored is not acknowledged, so that it is sent again.
        """
        by_job: dict[JobId, _JobReports] = defaultdict(_JobReports)
        for report in reports:
            key = task_key(report.task)
            by_job[key.job_id].keys.append(key)
            by_job[key.job_id].reports.append(report)
        free = freed_slots
        work = []
        for job_id, mine in by_job.items():
            freed = min(free, len(mine.reports))
            free -= freed
            work.append(self._update_job(job_id, mine, executor, freed))
        acknowledged: list[TaskKey] = []
        launches: list[Launch] = []
        left: list[ExecutorReservation] = []
        for job_id, keys, freed, launched in await asyncio.gather(*work):
            acknowledged += keys
            launches += launched
            unused = freed - sum(launch.tasks for launch in launched)
            left += [self._reservation(executor, job_id)] * unused
        left += [self._reservation(executor, None)] * free
        return Updated(acknowledged, launches, left)

    async def _update_job(
        self, job_id: JobId, mine: _JobReports, executor: ExecutorSlot, freed: int
    ) -> tuple[JobId, list[TaskKey], int, list[Launch]]:
        try:
            job = await self._job_with(job_id, mine.keys)
            if not job.graph.is_active:
                return job_id, mine.keys, freed, []
            events: list[Event] = await self._reader.read(job.graph, executor, mine.reports)
            launches = await self.coordinator(job_id).report(
                events,
                executor,
                min(freed, self._max_launches),
                self._queue.load_of_others(job_id),
                self._queue.weight(job_id),
                self._cluster_slots(),
            )
        except (JobNotFoundError, StateCorruptError, SchemaVersionError) as error:
            log.warning("reports_dropped", job_id=job_id, reports=len(mine.keys), error=str(error))
            return job_id, mine.keys, freed, []
        except Exception as error:
            is_ours = isinstance(error, OnagerError)
            log.warning(
                "reports_not_stored", job_id=job_id, reports=len(mine.keys), error=repr(error), exc_info=not is_ours
            )
            return job_id, [], 0, []
        return job_id, mine.keys, freed, launches

    async def _job_with(self, job_id: JobId, tasks: Iterable[TaskKey]) -> StoredJob:
        """Return the job as this replica last saw it, or as it is stored if it has not seen all of *tasks*.

        Another replica may have launched them.
        """
        job = await self._jobs.get(job_id)
        if all(can_judge(job.graph, wire.held_task(key)) for key in tasks):
            return job
        return await self._jobs.fresh(job_id)

    # ---------------------------------------------------------------- reconciliation and loss

    def wanted(self, executor_id: str, incarnation: str) -> set[TaskKey]:
        """Return the tasks that the committed graphs believe in the hands of this life of the executor."""
        wanted: set[TaskKey] = set()
        for job_id in self._queue.running_jobs():
            job = self._jobs.cached(job_id)
            if job is not None:
                held = wanted_tasks(job.graph, executor_id, incarnation)
                wanted.update(wire.task_key_of(job_id, h) for h in held)
        return wanted

    async def unwanted(self, executor_id: str, incarnation: str, held: Iterable[TaskKey]) -> list[TaskKey]:
        """Return those of *held*, what this life of the executor has, with which nobody wants it to go on.

        One that cannot be judged now, because its job cannot be read, is left alone.
        """
        doubtful: dict[JobId, list[TaskKey]] = defaultdict(list)
        wanted = self.wanted(executor_id, incarnation)
        for key in sorted(held):
            if key not in wanted:
                doubtful[key.job_id].append(key)
        found: list[TaskKey] = []
        for job_id, keys in doubtful.items():
            try:
                graph = (await self._job_with(job_id, keys)).graph
            except (JobNotFoundError, StateCorruptError, SchemaVersionError):
                found += keys
                continue
            except OnagerError as error:
                log.warning("tasks_not_judged", job_id=job_id, executor_id=executor_id, error=str(error))
                continue
            known = wanted_tasks(graph, executor_id, incarnation)
            found += [key for key in keys if wire.held_task(key) not in known]
        return found

    async def catch_up(self) -> None:
        """Read what other replicas have done to the active jobs; who asks while that goes on shares the next round."""
        self._rounds_asked += 1
        mine = self._rounds_asked
        async with self._catching_up:
            if self._rounds_done >= mine:
                return
            covers = self._rounds_asked
            jobs = self._queue_jobs()
            for start in range(0, len(jobs), _READ_AT_ONCE):
                some = (self._jobs.fresh(job_id) for job_id in jobs[start : start + _READ_AT_ONCE])
                for result in await asyncio.gather(*some, return_exceptions=True):
                    if isinstance(result, BaseException) and not isinstance(result, _UNREADABLE):
                        raise result
            self._rounds_done = covers

    async def reconcile(self, slot: ExecutorSlot, held: set[TaskKey], wanted: set[TaskKey]) -> list[Launch]:
        """Repeat, or take back, launches of *wanted* that the executor's list *held* disproves.

        Return the repeated ones.
        """
        jobs = {key.job_id for key in wanted - held}
        launches: list[Launch] = []
        for job_id in sorted(jobs):
            mine = [wire.held_task(key) for key in held if key.job_id == job_id]
            try:
                launches += await self.coordinator(job_id).reconcile(slot, mine, self._cluster_slots())
            except OnagerError as error:
                log.warning("list_not_applied", job_id=job_id, executor_id=slot.executor_id, error=str(error))
        return launches

    async def lose_executor(self, lost: ExecutorLost, *, is_late: bool = False) -> None:
        """Apply the loss to every active job that has something there; `OnagerError` when one could not be stored.

        When another scheduler is likely to have done it (*is_late*), look at what is stored before anything is written.
        """
        jobs = [job_id for job_id in self._queue_jobs() if _has_something(self._jobs.cached(job_id), lost)]
        if is_late:
            for result in await asyncio.gather(*map(self._jobs.fresh, jobs), return_exceptions=True):
                if isinstance(result, BaseException) and not isinstance(result, _UNREADABLE):
                    raise result
            jobs = [job_id for job_id in jobs if _has_something(self._jobs.cached(job_id), lost)]
        results = await asyncio.gather(
            *(self.coordinator(job_id).lose_executor(lost) for job_id in jobs), return_exceptions=True
        )
        errors = [r for r in results if isinstance(r, BaseException)]
        for error in errors:
            if not isinstance(error, JobNotFoundError | StateCorruptError | SchemaVersionError):
                raise error

    def strays(self, is_alive: Callable[[str, str], bool]) -> list[tuple[str, str]]:
        """Return the lives of executors that are gone while graphs still believe tasks in their hands."""
        found: set[tuple[str, str]] = set()
        for job_id in self._queue.running_jobs():
            job = self._jobs.cached(job_id)
            if job is None:
                continue
            found |= {life for life in lives_at_work(job.graph) if not is_alive(*life)}
        return sorted(found)

    def _queue_jobs(self) -> list[JobId]:
        return [JobId(head.job_id) for head in self._jobs.heads if head.is_active]

    def _reservation(self, executor: ExecutorSlot, job_id: JobId | None) -> ExecutorReservation:
        return ExecutorReservation(
            ExecutorId(executor.executor_id), Incarnation(executor.incarnation), executor.list_number, job_id
        )

    def _on_commit(self, job: StoredJob, head: JobHead) -> None:
        job_id = JobId(head.job_id)
        if head.is_active:
            self._queue.follow(job_id, job.graph, head.weight)
        else:
            self._queue.remove(job_id)
            self._coordinators.pop(job_id, None)


def _has_something(job: StoredJob | None, lost: ExecutorLost) -> bool:
    """Return whether the loss could change the job: a running task there, or an output that dies with the executor."""
    if job is None:
        return False
    if any(life.executor_id == lost.executor_id for life in lives_at_work(job.graph)):
        return True
    for stage in job.graph.stages:
        if any(not o.is_durable and o.executor_id == lost.executor_id for o in stage.ledger.outputs.values()):
            return True
    return False
