"""Push mode: reserves slots for jobs that wait, keeps freed ones in hand, and has what is launched delivered.

Any replica may fill any slot that it holds, with tasks of any job, as in pull mode. So that not all reserve slots for
the same tasks, each does it for the jobs that it comes first for; for others only when nobody has done so for a while.
"""

import asyncio
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from onager.clock import Clock
from onager.errors import InvalidRequestError, InvalidSettingError, OnagerError
from onager.execution_graph import ExecutionGraph, FailureKind, RunningStage, TasksLost, not_held
from onager.ids import ExecutorId, Incarnation, JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key, task_keys
from onager.scheduler import timing
from onager.scheduler.cluster.members import Members
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.engine.fitness import Fitness, Fits
from onager.scheduler.engine.launcher import Launcher
from onager.scheduler.engine.push_observer import PushObserver
from onager.scheduler.engine.task_manager import TaskManager
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.records import ExecutorRecord, ExecutorSession
from onager.scheduler.executors.slots import SlotPool
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.job_writers import Decision, JobWriters
from onager.scheduler.policy.distribution import FreeSlots, Place, TaskDistribution, distribute
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.input_locality import InputLocality
from onager.scheduler.policy.reservations import ExecutorReservation, Launch
from onager.scheduler.policy.slot_books import SlotBooks
from onager.supervision import Background, run_loops

log = structlog.get_logger(__name__)

_CLAIMS_REMEMBERED: Final = 10_000
_CLAIMS_AT_ONCE: Final = 1_024


class PushScheduler:
    """The push executors' slots in this replica's hand, from reservation to release."""

    observer = PushObserver()
    """Who hears of it; set by who keeps metrics."""

    def __init__(
        self,
        pool: SlotPool,
        ledger: SlotBooks,
        tasks: TaskManager,
        queue: FairQueue,
        jobs: JobStore,
        writers: JobWriters,
        executors: ExecutorManager,
        members: Members,
        precedence: Precedence,
        clock: Clock,
        *,
        policy: TaskDistribution,
        fitness: Fitness,
    ) -> None:
        self.pool = pool
        self.ledger = ledger
        self.launcher: Launcher
        """Set by who puts the parts together: it tells this one what becomes of launches."""
        self._tasks = tasks
        self._queue = queue
        self._jobs = jobs
        self._writers = writers
        self._executors = executors
        self._members = members
        self._precedence = precedence
        self._clock = clock
        self._policy = policy
        self._fitness = fitness
        self._inputs = InputLocality()
        self._wake = asyncio.Event()
        self._waiting_since_s: dict[JobId, float] = {}
        self._not_before_s: dict[ExecutorId, float] = {}
        self._claimed: OrderedDict[TaskKey, None] = OrderedDict()
        self._losing = Background()
        self._working: set[asyncio.Task[Collection[TaskKey]]] = set()
        self.on_elsewhere: Callable[[Sequence[TaskKey]], None] = lambda _: None
        self.confirmed: dict[TaskKey, int] = {}
        """The number of the executor's last list before it took the task."""
        pool.listen(self.wake)

    def wake(self) -> None:
        """Say that tasks, or slots, may have become free."""
        self._wake.set()

    # ---------------------------------------------------------------- the loop

    async def run(self) -> None:
        """Fill free slots for as long as the scheduler lives."""
        await run_loops(filling_of_pushed_slots=self._fill_again_and_again(), refusals=self._losing.until_defect())

    async def _fill_again_and_again(self) -> None:
        calm_s = timing.PUSH_CALM_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(timing.PUSH_TICK_S):
                    await self._wake.wait()
            self._wake.clear()
            if not self._queue.has_runnable:
                calm_s = timing.PUSH_CALM_S
                continue
            try:
                unfilled = await self.fill()
            except OnagerError as error:
                log.warning("push_slots_not_filled", error=str(error))
                unfilled = 1
            # Slots that are taken and given back wake us, too.
            calm_s = min(timing.PUSH_LONGEST_CALM_S, 2 * calm_s) if unfilled else timing.PUSH_CALM_S
            if unfilled:
                await asyncio.sleep(calm_s)

    async def fill(self) -> int:
        """Reserve slots for the jobs whose turn it is, and fill them; return how many were taken for nothing."""
        if not self._members.is_registered:
            return 0  # others would take the holds of one whom they do not see for a dead one's
        wasted = 0
        passed_over: set[ExecutorId] = set()
        while slots := [s for s in self._free_slots() if s.executor_id not in passed_over]:
            fits = self._fitness.as_of_now()
            places = distribute(self._policy, slots, self._claims(slots, fits), self._affinity, fits)
            reservations = await self.reserve_slots(places)
            if not reservations:
                return wasted
            unfilled = await self._fill(reservations)
            if not unfilled:
                return wasted
            wasted += len(unfilled)
            # There is less to do than it seemed; or of another replica's job, what waits needs another executor.
            passed_over |= {reservation.executor_id for reservation in unfilled}
        if not passed_over:
            self._waiting_since_s.clear()
        return wasted

    def _free_slots(self) -> list[FreeSlots]:
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        found = []
        for record in self._executors.records():
            executor_id = ExecutorId(record.executor_id)
            is_ready = record.takes_work(now_ms) and self._not_before_s.get(executor_id, 0.0) <= now_s
            if record.mode != "push" or not is_ready:
                continue
            free = self.pool.free(executor_id, Incarnation(record.incarnation))
            if free:
                found.append(FreeSlots(executor_id, free, record.slots))
        return sorted(found, key=lambda s: s.executor_id)

    def _claims(self, slots: Sequence[FreeSlots], fits: Fits) -> list[JobId]:
        """Return whose *slots* are by right, jobs left out that others see to, or that have no use for any of them."""
        limit = min(sum(s.free for s in slots), _CLAIMS_AT_ONCE)
        while fair := self._queue.claims(limit):
            useless = [j for j in dict.fromkeys(fair) if not any(fits(j, s.executor_id) for s in slots)]
            if not useless:
                break
            for job_id in useless:
                self._queue.pass_over(job_id)
        self._queue.reconsider()
        now_s = self._clock.monotonic_s()
        self._waiting_since_s = {job_id: self._waiting_since_s.get(job_id, now_s) for job_id in fair}
        return [
            job_id
            for job_id in fair
            if self._precedence.has_come(job_id, now_s - self._waiting_since_s[job_id], timing.PUSH_MOMENT_S)
        ]

    def _affinity(self, job_id: JobId, executor_id: ExecutorId) -> float:
        """Return the part of the input of the job's next tasks that the executor holds, and 1 if it has their plan."""
        job = self._jobs.cached(job_id)
        record = self._executors.find(executor_id)
        if job is None or record is None:
            return 0.0
        for stage in job.graph.stages:
            if isinstance(stage, RunningStage) and stage.pending_count:
                plan = stage.spec.plan_digest or ""
                has_plan = self.launcher.has_plan(executor_id, record.incarnation, plan)
                return has_plan + self._inputs.part(job.graph, stage, executor_id)
        return 0.0

    # ---------------------------------------------------------------- reservations

    async def reserve_slots(self, places: Iterable[Place]) -> list[ExecutorReservation]:
        """Take the slots at *places* as far as they are free still; each is tied to the job that it is for."""
        wanted: dict[ExecutorId, list[JobId]] = defaultdict(list)
        for place in places:
            wanted[place.executor_id].append(place.job_id)
        found: list[ExecutorReservation] = []
        tried = (self._reserve(executor_id, jobs) for executor_id, jobs in wanted.items())
        for result in await asyncio.gather(*tried, return_exceptions=True):
            if isinstance(result, OnagerError):
                log.warning("slots_not_reserved", error=str(result))  # those of other executors are in the hand
            elif isinstance(result, BaseException):
                self.cancel_reservations(found)
                raise result
            else:
                found += result
        return found

    async def _reserve(self, executor_id: ExecutorId, jobs: Sequence[JobId]) -> list[ExecutorReservation]:
        record = self._executors.find(executor_id)
        if record is None:
            return []
        incarnation = Incarnation(record.incarnation)
        taken = await self.pool.take(
            executor_id,
            incarnation,
            len(jobs),
            lambda slots: self.ledger.take_in_hand(executor_id, incarnation, slots),
        )
        return [ExecutorReservation(executor_id, incarnation, 0, job_id) for job_id in jobs[:taken]]

    def cancel_reservations(self, reservations: Iterable[ExecutorReservation]) -> None:
        """Give slots back for which there is no task."""
        lives = Counter((r.executor_id, r.incarnation) for r in reservations)
        for (executor_id, incarnation), slots in lives.items():
            self.ledger.give_back(executor_id, incarnation, slots)

    async def _fill(self, reservations: Sequence[ExecutorReservation]) -> Sequence[ExecutorReservation]:
        """Have slots in the hand filled; return those that were not, and are given back."""
        try:
            filled = await self._tasks.fill_reservations(reservations)
        except BaseException:
            self.cancel_reservations(reservations)
            raise
        self._deliver(filled.launches, {r.executor_id: r.incarnation for r in reservations})
        self.cancel_reservations(filled.unfilled)
        return filled.unfilled

    def _deliver(self, launches: Iterable[Launch], lives: Mapping[ExecutorId, Incarnation]) -> None:
        """Send what is committed, and keep account of the slots that it takes."""
        now_s = self._clock.monotonic_s()
        for launch in launches:
            executor_id = ExecutorId(launch.executor_id)
            incarnation = lives[executor_id]
            record = self._executors.find(executor_id)
            if record is None or not self._executors.is_alive(executor_id, incarnation):
                # It is lost, and the jobs are told; where it comes back after all, its slots are not ours.
                self.ledger.give_back(executor_id, incarnation, launch.tasks)
                continue
            keys = task_keys(launch.task_set)
            self.ledger.launch(executor_id, incarnation, keys, now_s)
            self.observer.launched(len(keys), self._waited_s(launch.task_set))
            session = self._executors.session(executor_id)
            if session is not None and session.incarnation == incarnation:
                session.held.update(dict.fromkeys(keys, now_s))
            self.launcher.launch(record, [launch.task_set])

    def _waited_s(self, task_set: pb.TaskSet) -> float | None:
        """Return for how long the stage has been running, as far as that is known here."""
        job = self._jobs.cached(JobId(task_set.job_id))
        if job is None or task_set.stage_id >= len(job.graph.stages):
            return None
        stage = job.graph.stages[task_set.stage_id]
        if not isinstance(stage, RunningStage) or stage.attempt != task_set.stage_attempt:
            return None
        return max(0, self._clock.now_ms() - stage.started_ms) / 1000

    # ---------------------------------------------------------------- reports

    async def report(self, session: ExecutorSession, request: pb.ReportTasksRequest) -> Collection[TaskKey]:
        """Apply reports, and fill the slots that they free, in the same append where that is fair.

        Return what is acknowledged; what is launched is on its way. That goes on even if the executor has given the
        call up: what is committed has to be delivered.
        """
        task = asyncio.create_task(self._report(session, request))
        self._working.add(task)
        task.add_done_callback(self._worked)
        return await asyncio.shield(task)

    def _worked(self, task: "asyncio.Task[Collection[TaskKey]]") -> None:
        self._working.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("reports_not_worked_off", error=repr(error))  # told to the executor, if it waits still

    async def _report(self, session: ExecutorSession, request: pb.ReportTasksRequest) -> Collection[TaskKey]:
        executor_id, incarnation = session.executor_id, session.incarnation
        holders = {task_key(report.task): report.holder for report in request.reports}
        mine = self.ledger.begin_report(executor_id, incarnation, holders)
        claimed = self._claim(session, {key: h for key, h in holders.items() if key not in mine})
        ours = mine | set(claimed)
        refills = len(ours) if request.freed_slots and self._executors.takes_work(session) else 0
        stored: set[TaskKey] = set()
        try:
            updated = await self._tasks.update_task_statuses(session.slot, request.reports, refills)
            stored = set(updated.acknowledged)
        finally:
            freed = self.ledger.end_report(executor_id, incarnation, ours, stored)
            self._settle_claims(executor_id, {key: h for key, h in claimed.items() if key in stored})
            self._give_up_claims(executor_id, [key for key in claimed if key not in stored])
        for key in stored:
            self.confirmed.pop(key, None)
        self._deliver(updated.launches, {executor_id: incarnation})
        left = max(0, freed - sum(launch.tasks for launch in updated.launches))
        reservations = list(updated.reservations)[:left]
        self.ledger.give_back(executor_id, incarnation, left - len(reservations))
        if reservations:
            await self._fill(reservations)
        return updated.acknowledged

    def _claim(self, session: ExecutorSession, holders: dict[TaskKey, str]) -> dict[TaskKey, str]:
        """Take over the slots of tasks that other replicas launched and that this one is told of, each once."""
        claimed = {}
        for key, holder in holders.items():
            if holder and holder != self.pool.holder and key not in self._claimed:
                self._claimed[key] = None
                claimed[key] = holder
        while len(self._claimed) > _CLAIMS_REMEMBERED:
            self._claimed.popitem(last=False)
        if claimed:
            now_s = self._clock.monotonic_s()
            self.ledger.adopt(session.executor_id, session.incarnation, claimed, now_s)
            self.ledger.begin_report(session.executor_id, session.incarnation, claimed)
        return claimed

    def _give_up_claims(self, executor_id: ExecutorId, keys: Iterable[TaskKey]) -> None:
        for key in keys:
            self.ledger.forget(executor_id, [key])
            self._claimed.pop(key, None)  # it will be reported again

    def _settle_claims(self, executor_id: ExecutorId, claimed: dict[TaskKey, str]) -> None:
        if claimed:
            self.pool.settle(executor_id, Counter(claimed.values()))

    # ---------------------------------------------------------------- what the launcher tells

    def taken(self, record: ExecutorRecord, keys: Sequence[TaskKey], list_number: int) -> None:
        """Note that the executor has the tasks."""
        executor_id, now_s = ExecutorId(record.executor_id), self._clock.monotonic_s()
        for key in keys:
            if key not in self.confirmed and (since_s := self.ledger.since_s(executor_id, key)) is not None:
                self.observer.taken(now_s - since_s)
            if self.ledger.has(executor_id, key):
                self.confirmed[key] = list_number

    def refused(self, record: ExecutorRecord, keys: Sequence[TaskKey], reason: str, *, pause_s: float) -> None:
        """Take tasks back that the executor does not run: they are handed out again, uncounted."""
        executor_id = ExecutorId(record.executor_id)
        log.info("launch_refused", executor_id=executor_id, tasks=[str(key) for key in keys], reason=reason)
        self.observer.refused(len(keys))
        self.ledger.forget(executor_id, keys)
        if pause_s:
            self._not_before_s[executor_id] = self._clock.monotonic_s() + pause_s
        by_job: dict[JobId, list[TaskKey]] = defaultdict(list)
        for key in keys:
            by_job[key.job_id].append(key)
        for job_id, some in by_job.items():
            self._losing.start("taking back of refused launches", self._lose(job_id, executor_id, some))

    def elsewhere(self, record: ExecutorRecord, keys: Sequence[TaskKey]) -> None:
        """Strike out tasks whose slots another replica holds."""
        self.ledger.forget(ExecutorId(record.executor_id), keys)
        self.on_elsewhere(keys)

    def given_up(self, record: ExecutorRecord, keys: Sequence[TaskKey]) -> None:
        """Strike out tasks that are sent no more: should that life go on after all, they are in nobody's books."""
        log.info("launches_given_up", executor_id=record.executor_id, tasks=[str(key) for key in keys])
        self.observer.given_up(len(keys))
        self.ledger.forget(ExecutorId(record.executor_id), keys)

    def withdrawn(self, record: ExecutorRecord, keys: Sequence[TaskKey]) -> None:
        """Free the slots of tasks that were stopped before they were on their way."""
        self.ledger.forget(ExecutorId(record.executor_id), keys)

    def failed(self) -> None:
        """Note that a call to an executor failed, and will be made again."""
        self.observer.failed()

    async def _lose(self, job_id: JobId, executor_id: ExecutorId, keys: Sequence[TaskKey]) -> None:
        stages: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for key in sorted(keys):
            stages[key.stage_id, key.stage_attempt].append((key.partition, key.task_attempt))
        events = [
            TasksLost(
                stage_id=stage_id,
                stage_attempt=attempt,
                executor_id=executor_id,
                tasks=tuple(tasks),
                reason=FailureKind.LAUNCH_LOST,
                at_ms=self._clock.now_ms(),
            )
            for (stage_id, attempt), tasks in stages.items()
        ]
        try:
            await self._writers.record(job_id, lambda _: Decision(events))
        except OnagerError as error:
            # The graph believes in them still: whoever looks after launches sends them again.
            log.warning("refusal_not_stored", job_id=job_id, executor_id=executor_id, error=str(error))

    def check_reachable(self, request: pb.RegisterExecutorRequest) -> None:
        """Raise `InvalidRequestError` when an executor that registers can be sent no work, by what is configured."""
        if request.mode == "push":
            try:
                self.launcher.check(request.address)
            except InvalidSettingError as error:
                raise InvalidRequestError(
                    f"executor {request.executor_id} wants to be sent work at {request.address}, where the scheduler "
                    "would send it unencrypted; give the schedulers ONAGER_SCHEDULER_PEER_TLS_CA, or --insecure if "
                    "the network between is trusted"
                ) from error

    # ---------------------------------------------------------------- ends

    def job_ended(self, job_id: JobId, graph: ExecutionGraph | None = None) -> None:
        """Stop what a job that is over still runs, or that *graph* says nobody wants."""
        for (executor_id, incarnation), keys in self.ledger.tasks_of(job_id).items():
            record = self._executors.find(executor_id)
            unwanted = keys if graph is None else not_held(graph, keys, executor_id, incarnation)
            if unwanted and record is not None and record.incarnation == incarnation and record.state != "lost":
                self.launcher.cancel(record, unwanted)

    async def close(self) -> None:
        """Finish what is being stored, and close the connections to executors."""
        await asyncio.gather(*self._working, self._losing.join(), return_exceptions=True)
        await self.launcher.close()
