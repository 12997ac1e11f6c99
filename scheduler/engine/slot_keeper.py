"""Keeps slots and launches of push executors in order: what replicas that died have left behind, and what went astray.

Books are each replica's own, so nothing here is certain: a hold is released when whoever had it is gone, a launch that
is in nobody's books is sent again. Both are harmless where they were not needed, since an executor runs nothing twice
and refuses what it has no slot for.
"""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Iterable

import structlog

from onager.clock import Clock
from onager.errors import OnagerError
from onager.execution_graph import ExecutionGraph, RunningStage, can_judge, not_held
from onager.execution_graph.events import TasksLaunched
from onager.ids import ExecutorId, Incarnation, JobId, TaskKey
from onager.scheduler import timing
from onager.scheduler.cluster.members import Members
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.engine.local_driver import UNREADABLE, LocalDriver
from onager.scheduler.engine.push_scheduler import PushScheduler
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.records import ExecutorRecord, ExecutorSession
from onager.scheduler.executors.slots import SlotPool, SlotsRecord
from onager.scheduler.jobs.job_store import JobStore

log = structlog.get_logger(__name__)


class SlotKeeper:
    """Looks after the slots and the launches of push executors."""

    def __init__(
        self,
        push: PushScheduler,
        local: LocalDriver,
        jobs: JobStore,
        executors: ExecutorManager,
        members: Members,
        precedence: Precedence,
        clock: Clock,
    ) -> None:
        self._push = push
        self._local = local
        self._ledger = push.ledger
        self._pool: SlotPool = push.pool
        self._jobs = jobs
        self._executors = executors
        self._members = members
        self._precedence = precedence
        self._clock = clock
        self._wake = asyncio.Event()
        self._known_holders: frozenset[str] = frozenset()
        self._must_take_over = True  # those of whom nobody knows any more, when all schedulers were gone
        self._lost_holder_s = -math.inf
        self._since_s: dict[tuple[str, ...], float] = {}
        """When something was first seen to be odd."""
        self._seen: set[tuple[str, ...]] = set()
        self._found_elsewhere: set[TaskKey] = set()
        self._read_s: dict[JobId, float] = {}
        members.listen(self._on_peers)
        push.on_elsewhere = self.found_elsewhere

    def _on_peers(self) -> None:
        live = self._members.live_incarnations
        if self._known_holders - live:
            self._must_take_over = True
            self._lost_holder_s = self._clock.monotonic_s()
            self._wake.set()
        self._known_holders = live

    async def run(self) -> None:
        """Look after everything for as long as the scheduler lives."""
        while True:
            try:
                async with asyncio.timeout(timing.SLOTS_LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass  # it is time
            self._wake.clear()
            try:
                await self.patrol()
            except OnagerError as error:
                log.warning("slots_not_looked_after", error=str(error))

    async def patrol(self) -> None:
        """Do one round."""
        if not self._members.is_registered:
            return
        self._seen = set()
        await self._close_lives()
        await self._send_again()
        await self._take_out_the_dead()
        await self._verify()
        await self._look_after_records()
        self._since_s = {what: since_s for what, since_s in self._since_s.items() if what in self._seen}

    def _odd_for_s(self, *what: str) -> float:
        """Return for how long *what* has been seen in every round."""
        now_s = self._clock.monotonic_s()
        self._seen.add(what)
        return now_s - self._since_s.setdefault(what, now_s)

    async def _close_lives(self) -> None:
        for executor_id, incarnation in self._ledger.lives():
            if not self._executors.is_alive(executor_id, incarnation):
                self._ledger.close(executor_id, incarnation)
                await self._push.launcher.close_life(executor_id, incarnation)

    # ---------------------------------------------------------------- launches in nobody's books

    async def _send_again(self) -> None:
        """Send launches of this replica's jobs again that, as far as is known, nobody who lives has in his books.

        When a replica is gone, at once, whatever it is that it has not sent. Else what another one launched and this
        one has seen for a while without knowing whether it arrived: the executor says whose it is.
        """
        is_hasty, self._must_take_over = self._must_take_over, False
        try:
            unbooked = self._unbooked(is_hasty=is_hasty)
            for job_id, keys in unbooked.items():
                await self._send_job_again(job_id, keys, is_hasty=is_hasty)
        except BaseException:
            self._must_take_over = self._must_take_over or is_hasty
            raise

    def _unbooked(self, *, is_hasty: bool) -> dict[JobId, set[TaskKey]]:
        found: dict[JobId, set[TaskKey]] = {}
        elsewhere: set[TaskKey] = set()
        for head in self._jobs.heads.active():
            job_id = JobId(head.job_id)
            if self._precedence.place(job_id):
                continue
            job = self._jobs.cached(job_id)
            keys = set() if job is None else set(self._pushed(job_id, job.graph))
            elsewhere |= keys & self._found_elsewhere
            due = {
                key
                for key in keys - elsewhere
                if is_hasty or self._odd_for_s("unbooked", str(key)) >= timing.LAUNCH_ON_ITS_WAY_S
            }
            if due or is_hasty:
                found[job_id] = due
        self._found_elsewhere = elsewhere
        return found

    def _pushed(self, job_id: JobId, graph: ExecutionGraph) -> dict[TaskKey, tuple[ExecutorRecord, RunningStage]]:
        """Return the running tasks of a job in living push executors' hands that are not in the books here."""
        found: dict[TaskKey, tuple[ExecutorRecord, RunningStage]] = {}
        for stage in graph.stages:
            if not isinstance(stage, RunningStage) or not graph.is_active:
                continue
            for partition, task in stage.in_hand():
                record = self._executors.find(task.executor_id)
                if record is None or record.mode != "push" or record.state == "lost":
                    continue
                key = TaskKey(job_id, stage.spec.stage_id, stage.attempt, partition, task.attempt)  # type: ignore[arg-type]
                if record.incarnation == task.incarnation and not self._ledger.has(ExecutorId(task.executor_id), key):
                    found[key] = record, stage
        return found

    async def _send_job_again(self, job_id: JobId, keys: set[TaskKey], *, is_hasty: bool) -> None:
        try:
            graph = (await self._jobs.fresh(job_id)).graph
        except UNREADABLE:
            return
        sets: dict[tuple[str, int], tuple[ExecutorRecord, RunningStage, list[TaskKey]]] = {}
        for key, (record, stage) in self._pushed(job_id, graph).items():
            if is_hasty or key in keys:
                sets.setdefault((record.executor_id, key.stage_id), (record, stage, []))[2].append(key)
        for record, stage, mine in sets.values():
            launches = await self._local.launches(job_id, graph, [_launched(stage, record, mine)])
            log.info("launches_sent_again", job_id=job_id, executor_id=record.executor_id, tasks=len(mine))
            life = ExecutorId(record.executor_id), Incarnation(record.incarnation)
            self._ledger.adopt(*life, mine, self._clock.monotonic_s())
            self._push.observer.sent_again(len(mine))
            self._push.launcher.launch(record, [launch.task_set for launch in launches])

    def found_elsewhere(self, keys: Iterable[TaskKey]) -> None:
        """Note tasks of which the executor says that another replica that lives has launched them.

        It knows who lives from the launch that it answers. One that has died since may be the one: it is asked again.
        """
        self._found_elsewhere.update(keys)
        if self._clock.monotonic_s() - self._lost_holder_s < timing.LAUNCH_ON_ITS_WAY_S:
            self._must_take_over = True

    # ---------------------------------------------------------------- holds of nobody

    async def _take_out_the_dead(self) -> None:
        """Strike out holders that no scheduler is any more."""
        dead: dict[ExecutorId, Counter[str]] = {}
        for record in self._pool:
            for holder, slots in record.holders.items():
                if (
                    holder not in self._members.live_incarnations
                    and self._odd_for_s("holder", holder) >= timing.HOLDER_STRANGE_S
                ):
                    dead.setdefault(ExecutorId(record.executor_id), Counter())[holder] = slots
        if not dead:
            return
        await self._members.refresh()
        for executor_id, holders in dead.items():
            gone = Counter({h: n for h, n in holders.items() if h not in self._members.live_incarnations})
            if gone:
                log.info("slots_of_dead_holders", executor_id=executor_id, slots=gone.total())
                self._pool.settle(executor_id, gone)

    async def _verify(self) -> None:
        """Strike out what is not wanted any more and was not reported here; settle what the store has otherwise."""
        doubted = set[ExecutorId]()
        for record in list(self._pool):
            executor_id = ExecutorId(record.executor_id)
            recorded = record.holders.get(self._pool.holder, 0)
            held = self._ledger.held(executor_id, Incarnation(record.incarnation))
            if recorded != held and self._odd_for_s("odds", executor_id) >= timing.SLOTS_AT_ODDS_S:
                self._pool.settle(executor_id)
            if recorded < held:
                doubted.add(executor_id)  # somebody was told the end of a task that is in our books
        by_job: dict[JobId, dict[tuple[ExecutorId, Incarnation], list[TaskKey]]] = defaultdict(dict)
        doubtful: set[JobId] = set()
        for executor_id, incarnation, key, _ in self._ledger.launched():
            by_job[key.job_id].setdefault((executor_id, incarnation), []).append(key)
            if executor_id in doubted:
                doubtful.add(key.job_id)
        for job_id, lives in by_job.items():
            graph = await self._graph(job_id, is_doubtful=job_id in doubtful)
            for life, keys in lives.items():
                for key in keys if graph is None else not_held(graph, keys, *life):
                    if graph is None or can_judge(graph, key):
                        self._end(*life, key)
        self._read_s = {job_id: at_s for job_id, at_s in self._read_s.items() if job_id in by_job}
        self._push.confirmed = {key: number for key, number in self._push.confirmed.items() if key.job_id in by_job}

    def _end(self, executor_id: ExecutorId, incarnation: Incarnation, key: TaskKey) -> None:
        odd_for_s = self._odd_for_s("unwanted", str(key))
        record = self._executors.find(executor_id)
        if odd_for_s >= timing.UNWANTED_TASK_S:
            self._ledger.forget(executor_id, [key])
        elif not odd_for_s and record is not None and record.incarnation == incarnation:
            self._push.launcher.cancel(record, [key])

    async def _graph(self, job_id: JobId, *, is_doubtful: bool) -> ExecutionGraph | None:
        """Return the job's graph as it is likely to be stored; None when there is none any more."""
        job = self._jobs.cached(job_id)
        now_s = self._clock.monotonic_s()
        read_s = self._read_s.setdefault(job_id, now_s)
        is_old = bool(self._precedence.place(job_id)) and now_s - read_s >= timing.FOREIGN_JOB_READ_S
        if job is None or is_old or (is_doubtful and now_s - read_s >= timing.LAUNCH_YOUNG_S):
            self._read_s[job_id] = now_s
            try:
                job = await self._jobs.fresh(job_id)
            except UNREADABLE:
                return None
        return job.graph

    def heard_list(self, session: ExecutorSession, number: int, listed: set[TaskKey]) -> None:
        """Take in what an executor holds: tasks that it took before and has no more are over, whoever was told."""
        now_s = self._clock.monotonic_s()
        young = {
            k: at_s for k, at_s in session.held.items() if k not in listed and now_s - at_s < timing.LAUNCH_YOUNG_S
        }
        session.held = {**young, **{key: session.held.get(key, now_s) for key in listed}}
        session.list_number = max(session.list_number, number)
        gone = [
            key
            for key in self._ledger.launched_at(session.executor_id, session.incarnation)
            if key not in listed and self._push.confirmed.get(key, number) < number
        ]
        for key in gone:
            self._push.confirmed.pop(key, None)
        self._ledger.forget(session.executor_id, gone)

    # ---------------------------------------------------------------- records

    async def _look_after_records(self) -> None:
        """Remove slots of no executor, and write down those of an executor that has none."""
        for record in list(self._pool):
            if self._is_of_nobody(record):
                waited_s = self._odd_for_s("of nobody", record.executor_id, record.incarnation)
                if waited_s >= timing.NOBODYS_SLOTS_S and self._precedence.has_come(
                    record.executor_id, waited_s - timing.NOBODYS_SLOTS_S, timing.SLOTS_LOOK_S
                ):
                    await self._executors.refresh()
                    if self._is_of_nobody(record):
                        await self._pool.remove(ExecutorId(record.executor_id))
        for executor in list(self._executors.records()):
            executor_id = ExecutorId(executor.executor_id)
            if executor.mode == "push" and executor.state != "lost" and self._pool.find(executor_id) is None:
                waited_s = self._odd_for_s("without slots", executor_id)
                if waited_s >= timing.NOBODYS_SLOTS_S and self._precedence.has_come(
                    executor_id, waited_s - timing.NOBODYS_SLOTS_S, timing.SLOTS_LOOK_S
                ):
                    await self._pool.create(executor_id, Incarnation(executor.incarnation), executor.slots)

    def _is_of_nobody(self, record: SlotsRecord) -> bool:
        return not self._executors.is_alive(record.executor_id, record.incarnation)


def _launched(stage: RunningStage, record: ExecutorRecord, keys: list[TaskKey]) -> TasksLaunched:
    return TasksLaunched(
        stage_id=stage.spec.stage_id,
        stage_attempt=stage.attempt,
        executor_id=record.executor_id,
        incarnation=record.incarnation,
        list_number=0,
        tasks=tuple(sorted((key.partition, key.task_attempt) for key in keys)),
        at_ms=0,
    )
