"""The driver of jobs that is this scheduler itself, with the same interface as another one."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from onager.errors import DiskError, JobNotFoundError, OnagerError, SchemaVersionError, StateCorruptError
from onager.execution_graph import (
    Event,
    ExecutionGraph,
    ExecutorLife,
    ExecutorLost,
    ExecutorSlot,
    Failure,
    TaskFailed,
    can_judge,
    lives_at_work,
    not_held,
)
from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import Reports, by_job
from onager.scheduler import wire
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.engine.bundles import ClusterView, Env, Store
from onager.scheduler.engine.lasting_errors import LastingErrors, is_lasting
from onager.scheduler.engine.query_coordinator import Cluster, QueryCoordinator, Share
from onager.scheduler.engine.reports import ReportReader, failed_task
from onager.scheduler.engine.reuse import Reuse
from onager.scheduler.jobs.job_heads import JobHead
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.loops import a_few_at_once
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.reservations import Compared, ExecutorReservation, Filled, Launch, Updated, unfilled

log = structlog.get_logger(__name__)

_READ_AT_ONCE: Final = 16
_JUDGED_AT_ONCE: Final = 64
_UPDATED_AT_ONCE: Final = 128
_LAUNCHING: Final = "the launch of tasks"
_COMPARING: Final = "the comparison with what an executor runs"
_ADOPTING: Final = "taking the job over"
UNREADABLE: Final = (JobNotFoundError, StateCorruptError, SchemaVersionError)
"""The errors of a job's record that is missing, or cannot be read here."""


class _JobUpdated(NamedTuple):
    """What came of the reports of one job."""

    job_id: JobId
    acknowledged: Sequence[TaskKey] = ()
    freed: int = 0
    """The slots that may be filled, those of the launches included."""
    launches: Sequence[Launch] = ()
    disk_error: DiskError | None = None


class LocalDriver:
    """Drives jobs itself: mostly those that this scheduler follows, and any other when its driver does not answer."""

    def __init__(
        self,
        env: Env,
        store: Store,
        view: ClusterView,
        cluster: Cluster,
        reader: ReportReader,
        queue: FairQueue,
        loads: JobLoads,
        reuse: Reuse | None = None,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        """Make it; *reuse* knows the outputs that jobs may take of others.

        *on_room* is called when slots that were kept for one job of a limited session may go to its other jobs again.
        """
        self._env = env
        self._store = store
        self._view = view
        self._cluster = cluster
        self._reader = reader
        self._queue = queue
        self._loads = loads
        self._reuse = reuse
        self._on_room = on_room
        self._errors = LastingErrors(env.clock)
        self._coordinators: dict[JobId, QueryCoordinator] = {}
        self._updating = asyncio.Semaphore(_UPDATED_AT_ONCE)
        self._catching_up = asyncio.Lock()
        self._rounds_asked = self._rounds_done = 0

    def coordinator(self, job_id: JobId) -> QueryCoordinator:
        """Return the job's coordinator."""
        found = self._coordinators.get(job_id)
        if found is None:
            found = QueryCoordinator(job_id, self._store.writers, self._env.clock, self._cluster)
            if self._view.ownership.follows(job_id):  # a coordinator of any other job serves this call only
                self._coordinators[job_id] = found
        return found

    def forget(self, job_id: JobId) -> None:
        """Drop what is kept for a job that has ended."""
        self._coordinators.pop(job_id, None)
        self._errors.forget(job_id)

    # ---------------------------------------------------------------- filling slots

    async def fill_reservations(self, job_id: JobId, reservations: Sequence[ExecutorReservation]) -> Filled:
        """Assign tasks of the job to the executors of *reservations*, as many as there are, and commit that."""
        by_slot = Counter(reservation.slot for reservation in reservations)
        launches = await self.fill_shares(job_id, [Share(slot, tasks) for slot, tasks in by_slot.items()])
        return Filled(launches, unfilled(reservations, launches))

    async def fill_shares(self, job_id: JobId, shares: Sequence[Share]) -> list[Launch]:
        """Assign tasks of the job to executors, to each no more than its share, and commit that."""
        try:
            launches = await self.coordinator(job_id).launch_tasks(shares, limit=lambda: self._queue.room(job_id))
        except Exception as error:
            await self._failed(job_id, _LAUNCHING, error)
            raise NotDrivingError(job_id) from error
        self._errors.forget_errors(job_id, (_LAUNCHING,))
        return self._addressed(job_id, launches)

    def _addressed(self, job_id: JobId, launches: list[Launch]) -> list[Launch]:
        """Add to *launches* the address for their reports, so that the polled scheduler need not forward them."""
        if self._view.ownership.others and self._view.ownership.is_mine(job_id):
            for launch in launches:
                launch.task_set.reply_to = self._view.schedulers.record.address
        return launches

    # ---------------------------------------------------------------- reports

    async def update_task_statuses(self, executor: ExecutorSlot, reports: Reports, freed: int) -> Updated:
        """Apply the reports of *executor*, job by job, and fill its freed slots with next tasks of the same jobs.

        A repeated or stale report, or one of an ended, unknown or damaged job, is acknowledged and dropped. A report
        that could not be stored is not acknowledged, so that it is sent again; after some time with an error that does
        not pass, the job ends with it. Neither is a report of a job that only a newer version can read: a newer
        scheduler takes it.
        """
        work = []
        for job_id, mine in by_job(reports).items():
            share = min(freed, len(mine))
            freed -= share
            work.append(self._update_in_turn(job_id, mine, executor, share))
        acknowledged: list[TaskKey] = []
        launches: list[Launch] = []
        left: list[ExecutorReservation] = [ExecutorReservation.of(executor)] * freed
        disk_error: DiskError | None = None
        for job_id, keys, share, launched, failed in await a_few_at_once(work):
            disk_error = failed or disk_error
            acknowledged += keys
            launches += launched
            unused = share - sum(launch.tasks for launch in launched)
            left += [ExecutorReservation.of(executor, job_id)] * unused
        return Updated(acknowledged, launches, left, disk_error)

    async def _update_in_turn(self, job_id: JobId, mine: Reports, executor: ExecutorSlot, freed: int) -> _JobUpdated:
        async with self._updating:
            return await self._update_job(job_id, mine, executor, freed)

    async def _update_job(self, job_id: JobId, mine: Reports, executor: ExecutorSlot, freed: int) -> _JobUpdated:
        planned = freed if self._queue.room(job_id) < float("inf") else 0
        self._queue.plan_slots(job_id, planned)
        try:
            job = await self._job_with(job_id, mine)
            if not job.graph.is_active:
                return _JobUpdated(job_id, list(mine), freed)
            events: list[Event] = await self._reader.read_reports(job.graph, executor, mine)
            if self._reuse is not None:
                events = await self._reuse.take_outputs(job, events)
            launches = await self.coordinator(job_id).record_statuses(
                events,
                Share(executor, min(freed, self._env.settings.max_launches_per_append)),
                limit=lambda: min(self._queue.room(job_id), self._queue.allowance(job_id)),
            )
        except SchemaVersionError as error:
            log.warning("reports_left_to_others", job_id=job_id, reports=len(mine), error=str(error))
            return _JobUpdated(job_id)
        except UNREADABLE as error:
            log.warning("reports_dropped", job_id=job_id, reports=len(mine), error=str(error))
            return _JobUpdated(job_id, list(mine), freed)
        except Exception as error:
            is_ours = isinstance(error, OnagerError)
            log.warning("reports_not_stored", job_id=job_id, reports=len(mine), error=repr(error), exc_info=not is_ours)
            keys = await self._one_by_one(job_id, mine, executor, error)
            return _JobUpdated(job_id, keys, disk_error=error if isinstance(error, DiskError) else None)
        finally:
            if planned:
                self._queue.give_back_slots(job_id, planned)
                self._on_room()  # decisions committed meanwhile found the session full
        self._queue.note_granted(job_id, sum(launch.tasks for launch in launches))
        self._errors.forget_errors(job_id, mine)
        return _JobUpdated(job_id, list(mine), freed, self._addressed(job_id, launches))

    async def _one_by_one(
        self, job_id: JobId, mine: Reports, executor: ExecutorSlot, error: Exception
    ) -> list[TaskKey]:
        """Return which of the reports that failed together with *error* are done with, each by itself."""
        if not is_lasting(error):
            return []
        if len(mine) > 1:
            acknowledged: list[TaskKey] = []
            for key, report in mine.items():
                acknowledged += (await self._update_job(job_id, {key: report}, executor, 0)).acknowledged
            return acknowledged
        (key,) = mine
        failure = self._errors.note_error(job_id, key, error)
        if failure is None:
            return []
        lost = failed_task(key, executor, failure, pb.TaskMetrics(), self._env.clock.now_ms())
        return [key] if await self._end(job_id, failure, lost) else []

    async def _failed(self, job_id: JobId, work: str, error: Exception) -> bool:
        """Log that *work* on a job failed, and end the job if it always does; return whether that was done."""
        is_defect = not isinstance(error, OnagerError)
        log.warning("work_on_job_failed", job_id=job_id, work=work, error=repr(error), exc_info=is_defect)
        failure = self._errors.note_error(job_id, work, error)
        return failure is not None and await self._end(job_id, failure)

    async def _end(self, job_id: JobId, failure: Failure, task: TaskFailed | None = None) -> bool:
        """End a job that cannot be driven; return whether that was done."""
        log.error("job_given_up", job_id=job_id, error=failure.message)
        try:
            graph = await self.coordinator(job_id).fail_job(failure, task)
        except Exception as error:  # noqa: BLE001 - it is tried again
            log.error("job_not_ended", job_id=job_id, error=repr(error))  # noqa: TRY400 - the cause was logged
            return False
        return not graph.is_active

    async def _job_with(self, job_id: JobId, tasks: Iterable[TaskKey]) -> StoredJob:
        """Return the job from the cache if it is followed and *tasks* are in it, else as stored.

        Another scheduler may have launched them.
        """
        if self._view.ownership.follows(job_id):
            job = await self._store.jobs.get(job_id)
            if all(can_judge(job.graph, key) for key in tasks):
                return job
        return await self._store.jobs.fresh(job_id)

    # ---------------------------------------------------------------- lists of running work

    async def compare_tasks(
        self, slot: ExecutorSlot, held: Sequence[TaskKey], *, disproves: bool, jobs: Sequence[JobId] | None = None
    ) -> Compared:
        """Return what follows from the tasks that an executor *held*, of the followed jobs, or of *jobs* as stored."""
        launches: list[Launch] = []
        if jobs is not None:
            await self._read_all(jobs)
        if disproves:
            launches = await self.disprove(slot, set(held), jobs)
        return Compared(launches, await self.unwanted(slot.executor_id, slot.incarnation, held))

    def _wanted(self, executor_id: str, incarnation: str, jobs: Iterable[JobId] | None = None) -> set[TaskKey]:
        """Return the tasks that committed graphs assign to this life of the executor."""
        some = None if jobs is None else frozenset(jobs)

        def graph_of(job_id: JobId) -> ExecutionGraph | None:
            is_meant = self._view.ownership.follows(job_id) if some is None else job_id in some
            job = self._store.jobs.cached(job_id) if is_meant else None
            return None if job is None else job.graph

        held = self._store.jobs.held.of(ExecutorLife(executor_id, incarnation), graph_of)
        return {wire.task_key_of(job_id, task) for job_id, tasks in held for task in tasks}

    def can_judge(self, job_id: JobId) -> bool:
        """Return whether tasks of the job can be judged here: it is followed, has ended, or does not exist."""
        head, job = self._store.jobs.heads.get(job_id), self._store.jobs.cached(job_id)
        has_ended = head is None or not head.is_active or (job is not None and not job.graph.is_active)
        return has_ended or self._view.ownership.follows(job_id)

    async def unwanted(self, executor_id: str, incarnation: str, held: Iterable[TaskKey]) -> list[TaskKey]:
        """Return those of the tasks *held* by this life of the executor that no graph wants any more.

        A task that cannot be judged now, because its job cannot be read, is left alone.
        """
        by_job: dict[JobId, list[TaskKey]] = defaultdict(list)
        for key in held:
            by_job[key.job_id].append(key)
        found: list[TaskKey] = []
        for number, (job_id, mine) in enumerate(sorted(by_job.items())):
            if number % _JUDGED_AT_ONCE == _JUDGED_AT_ONCE - 1:
                await asyncio.sleep(0)
            head = self._store.jobs.heads.get(job_id)
            if head is not None and head.state.is_terminal and head.broken is None:
                found += sorted(mine)
                continue
            job = self._store.jobs.cached(job_id) if self._view.ownership.follows(job_id) else None
            keys = sorted(mine if job is None else not_held(job.graph, mine, executor_id, incarnation))
            if not keys:
                continue
            try:
                graph = (await self._job_with(job_id, keys)).graph
            except SchemaVersionError:
                continue  # the newer schedulers that wrote it want the task
            except UNREADABLE:
                found += keys
                continue
            except OnagerError as error:
                log.warning("tasks_not_judged", job_id=job_id, executor_id=executor_id, error=str(error))
                continue
            found += not_held(graph, keys, executor_id, incarnation)
        return found

    async def disprove(
        self, slot: ExecutorSlot, held: set[TaskKey], jobs: Iterable[JobId] | None = None
    ) -> list[Launch]:
        """Repeat, or take back, launches that the executor's list *held* disproves, of the followed jobs or of *jobs*.

        Return the repeated ones.
        """
        missing = self._wanted(slot.executor_id, slot.incarnation, jobs) - held
        launches: list[Launch] = []
        for job_id in sorted({key.job_id for key in missing}):
            mine = [wire.held_task(key) for key in held if key.job_id == job_id]
            try:
                repeated = await self.coordinator(job_id).reconcile_tasks(slot, mine)
            except Exception as error:  # noqa: BLE001 - of this job alone: the executor has tasks of others
                await self._failed(job_id, _COMPARING, error)
            else:
                self._errors.forget_errors(job_id, (_COMPARING,))
                launches += self._addressed(job_id, repeated)
        return launches

    # ---------------------------------------------------------------- taking over, and losses

    async def adopt(self, job_id: JobId) -> None:
        """Begin to drive a job, from what is stored; one that cannot be read is left alone."""
        try:
            job = await self._store.jobs.fresh(job_id)
            if job.graph.is_active:
                if not self._view.ownership.follows(job_id):  # it was in the cache before, and is unchanged
                    self._view.ownership.read(job_id)
                    self._loads.adopted(job_id)
                await self.coordinator(job_id).revive()
        except UNREADABLE as error:
            log.warning("job_not_adopted", job_id=job_id, error=str(error))
        except Exception as error:
            if not await self._failed(job_id, _ADOPTING, error) and not is_lasting(error):
                raise
        else:
            self._errors.forget_errors(job_id, (_ADOPTING,))

    async def catch_up(self) -> None:
        """Read the changes of others to jobs that this scheduler follows; concurrent callers share one round."""
        self._rounds_asked += 1
        mine = self._rounds_asked
        async with self._catching_up:
            if self._rounds_done >= mine:
                return
            covers = self._rounds_asked
            await self._read_all(self._view.ownership.followed)
            self._rounds_done = covers

    async def _read_all(self, jobs: Sequence[JobId]) -> None:
        for start in range(0, len(jobs), _READ_AT_ONCE):
            some = (self._store.jobs.fresh(job_id) for job_id in jobs[start : start + _READ_AT_ONCE])
            for result in await asyncio.gather(*some, return_exceptions=True):
                if isinstance(result, BaseException) and not isinstance(result, UNREADABLE):
                    raise result

    async def lose_executor(self, lost: ExecutorLost, *, jobs: Sequence[JobId] | None = None) -> None:
        """Apply the loss to every job, or to those of *jobs*, that this scheduler follows and that is affected.

        `OnagerError` when one could not be stored.
        """
        some = self._view.ownership.followed if jobs is None else jobs
        concerned = [job_id for job_id in some if _has_something(self._store.jobs.cached(job_id), lost)]
        results = await asyncio.gather(*(self._lose(job_id, lost) for job_id in concerned), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error

    async def _lose(self, job_id: JobId, lost: ExecutorLost) -> None:
        work = f"the loss of executor {lost.executor_id}"
        try:
            await self.coordinator(job_id).lose_executor(lost)
        except UNREADABLE:
            pass
        except Exception as error:
            if await self._failed(job_id, work, error):
                return
            if isinstance(error, OnagerError):
                raise
            raise OnagerError(f"job {job_id} could not take in {work}: {error!r}") from error
        else:
            self._errors.forget_errors(job_id, (work,))

    def strays(self, is_alive: Callable[[str, str], bool]) -> list[tuple[str, str]]:
        """Return the lives of executors that are over, but to which graphs still assign tasks."""
        found: set[tuple[str, str]] = set()
        for job_id in self._view.ownership.followed:
            job = self._store.jobs.cached(job_id)
            if job is None:
                continue
            found |= {life for life in lives_at_work(job.graph) if not is_alive(*life)}
        return sorted(found)

    def on_commit(self, job: StoredJob, head: JobHead) -> None:
        """Drop what is kept for a job that has ended."""
        if not job.graph.is_active:
            self.forget(JobId(head.job_id))


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
