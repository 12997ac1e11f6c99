"""Compares executors' running lists with the graphs, on whichever scheduler has them.

Jobs that this scheduler drives are compared at once. A task that went through a session and is missing from a list is
reported at once to its job's driver. Besides, each list goes to every other scheduler within a second, because launches
of theirs may have been lost on the way here.

When an executor polled another scheduler before, launches which that one asked for may be in flight. So its list is
compared a second time, everywhere, a moment later.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from onager.errors import OnagerError
from onager.ids import JobId, SchedulerId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_keys
from onager.scheduler import timing
from onager.scheduler.cluster.forwarding import Forwarding
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.cluster.remote_driver import RemoteDriver
from onager.scheduler.engine.bundles import ClusterView, Env, Store
from onager.scheduler.engine.dispatcher import Dispatcher
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.executors.records import ExecutorSession
from onager.scheduler.loops import every, whenever
from onager.scheduler.policy.reservations import Compared, Launch

log = structlog.get_logger(__name__)

_HERE: Final = SchedulerId("")
"""Stands for this scheduler among those that lists are compared with."""


class Reconciler:
    """The lists of the executors that this scheduler talks with."""

    def __init__(
        self,
        env: Env,
        store: Store,
        view: ClusterView,
        local: LocalDriver,
        forwarding: Forwarding,
        dispatcher: Dispatcher,
    ) -> None:
        self._env = env
        self._store = store
        self._view = view
        self._local = local
        self._forwarding = forwarding
        self._dispatcher = dispatcher
        self._again = asyncio.Event()

    # ---------------------------------------------------------------- a list comes

    async def take_list(self, session: ExecutorSession, number: int, listed: set[TaskKey]) -> tuple[list[Launch], bool]:
        """Compare a later list with what is known; return repeated launches, and whether it came too early for some."""
        was_elsewhere = not session.list_number or number > session.list_number + 1
        if was_elsewhere:
            self._drop_late(session)
        session.list_number = number
        now_s = self._env.clock.monotonic_s()
        missing = {key: at_s for key, at_s in session.held.items() if key not in listed}
        late = {key for task_set in session.late_task_sets for key in task_keys(task_set)}
        # A task that was listed before did arrive: it has been reported to another scheduler since.
        young = {
            key
            for key, at_s in missing.items()
            if key in late or (now_s - at_s < timing.LAUNCH_YOUNG_S and key not in session.listed)
        }
        lost = (key for key in missing if key not in young and key not in session.listed)
        suspicious = {self._view.ownership.scheduler_of(key.job_id) for key in lost}
        session.listed, session.in_doubt = frozenset(listed), frozenset(young)
        session.held = {
            **{key: session.held[key] for key in session.held if key in young},
            **{key: session.held.get(key, now_s) for key in sorted(listed)},
        }
        held = listed | young
        launches = await self._compare_here(session, held)
        asked = [
            a for i, a in self._forwarding.drivers().items() if (was_elsewhere or i in suspicious) and self._has_jobs(i)
        ]
        for compared in await asyncio.gather(*(self._compare_with(driver, session) for driver in asked)):
            launches += compared.launches
            session.unwanted.update(dict.fromkeys(compared.unwanted))
        if was_elsewhere:
            session.compared.clear()
            asyncio.get_running_loop().call_later(timing.LIST_COMPARED_AGAIN_S, self._again.set)
        return launches, bool(young)

    def learn_running(self, session: ExecutorSession, running: set[TaskKey]) -> None:
        """Note the tasks in a heartbeat, which other schedulers may have launched; it disproves no launch."""
        now_s = self._env.clock.monotonic_s()
        known = {
            key: at_s for key, at_s in session.held.items() if key in running or now_s - at_s < timing.LAUNCH_YOUNG_S
        }
        session.held = known | {key: now_s for key in sorted(running) if key not in known}

    def note_launches(self, session: ExecutorSession, launches: Iterable[Launch]) -> None:
        """Remember that the tasks are on their way to the executor."""
        now_s = self._env.clock.monotonic_s()
        for launch in launches:
            session.note_launch(launch.task_set, now_s)

    def take_late(self, session: ExecutorSession) -> list[pb.TaskSet]:
        """Return launches that wait for an answer to the executor: from now on they are on their way."""
        task_sets, session.late_task_sets = session.late_task_sets, []
        now_s = self._env.clock.monotonic_s()
        for task_set in task_sets:
            session.note_launch(task_set, now_s)
        return task_sets

    def _drop_late(self, session: ExecutorSession) -> None:
        """Forget launches that wait for an answer: another scheduler that got a list may have taken them back.

        If none has, this list does it; no other attempt may run beside them.
        """
        for task_set in session.late_task_sets:
            for key in task_keys(task_set):
                session.held.pop(key, None)
        session.late_task_sets = []

    async def unwanted(self, session: ExecutorSession, *, is_thrifty: bool = False) -> list[TaskKey]:
        """Return the tasks that the executor holds and no graph wants, as far as is known here.

        All held tasks are checked; with *is_thrifty* only if the last check was not just now.
        """
        now_s = self._env.clock.monotonic_s()
        judged: list[TaskKey] = []
        if not is_thrifty or now_s - session.judged_s >= timing.LIST_JUDGED_EVERY_S:
            session.judged_s = now_s
            judged = self._judged(session.running)
        found = dict.fromkeys(key for key in session.unwanted if key in session.held)
        session.unwanted.clear()
        if judged:
            found.update(dict.fromkeys(await self._local.unwanted(session.executor_id, session.incarnation, judged)))
        if not session.list_number:
            for key in found:  # the scheduler that is polled keeps telling it
                session.held.pop(key, None)
        return list(found)

    def _judged(self, held: Sequence[TaskKey]) -> list[TaskKey]:
        """Return the tasks of jobs that can be judged here."""
        jobs: dict[JobId, bool] = {}
        for key in held:
            if key.job_id not in jobs:
                jobs[key.job_id] = self._local.can_judge(key.job_id)
        return [key for key in held if jobs[key.job_id]]

    # ---------------------------------------------------------------- later, and with the others

    async def run(self) -> None:
        """Compare lists that are new, and tell the other schedulers what is held, for as long as this one lives."""
        await every(timing.LISTS_COMPARED_EVERY_S, self.compare_all)

    async def run_again(self) -> None:
        """Compare lists a second time, a moment after they came, for as long as this scheduler lives."""
        await whenever(self._again, self.compare_new)

    async def compare_new(self) -> None:
        """Compare the lists that are new to a scheduler, this one included."""
        await self._compare(_is_new)

    async def compare_all(self) -> None:
        """Compare the lists that are new to a scheduler, and tell each other one which tasks of its jobs are held."""
        await self._compare(self._is_due)

    def _is_due(self, session: ExecutorSession, scheduler_id: SchedulerId) -> bool:
        return _is_new(session, scheduler_id) or any(
            self._view.ownership.scheduler_of(key.job_id) == scheduler_id for key in session.held
        )

    async def _compare(self, is_due: Callable[[ExecutorSession, SchedulerId], bool]) -> None:
        sessions = list(self._view.executors.sessions)
        work = [self._tell_here(session) for session in sessions if _is_new(session, _HERE)]
        for scheduler_id, driver in self._forwarding.drivers().items():
            if self._has_jobs(scheduler_id):
                work += [self._tell(driver, session) for session in sessions if is_due(session, scheduler_id)]
        await asyncio.gather(*work)

    async def _tell_here(self, session: ExecutorSession) -> None:
        self._deliver_late(session, Compared(await self._compare_here(session, set(session.held))))

    async def _tell(self, driver: RemoteDriver, session: ExecutorSession) -> None:
        self._deliver_late(session, await self._compare_with(driver, session))

    def _deliver_late(self, session: ExecutorSession, compared: Compared) -> None:
        if session.is_gone or not (compared.launches or compared.unwanted):
            return
        session.late_task_sets += [launch.task_set for launch in compared.launches]
        session.unwanted.update(dict.fromkeys(compared.unwanted))
        self._dispatcher.nudge(lambda other: other is session)

    async def _compare_here(self, session: ExecutorSession, held: set[TaskKey]) -> list[Launch]:
        session.compared[_HERE] = session.list_number
        launches = await self._local.disprove(session.slot, held)
        self.note_launches(session, launches)
        return launches

    async def _compare_with(self, driver: RemoteDriver, session: ExecutorSession) -> Compared:
        scheduler_id, slot = driver.scheduler_id, session.slot
        # An answer on its way may hold launches that the list cannot have.
        disproves = _is_new(session, scheduler_id) and not driver.is_busy_with(session.executor_id)
        held = [key for key in sorted(session.held) if self._view.ownership.scheduler_of(key.job_id) == scheduler_id]
        try:
            try:
                compared = await driver.compare_tasks(slot, held, disproves=disproves)
            except NotDrivingError:
                jobs = self._jobs_of(scheduler_id)
                compared = await self._local.compare_tasks(slot, held, disproves=disproves, jobs=jobs)
        except OnagerError as error:
            log.warning("list_not_compared", executor_id=slot.executor_id, scheduler_id=scheduler_id, error=str(error))
            return Compared()
        if disproves:
            session.compared[scheduler_id] = slot.list_number
        self.note_launches(session, compared.launches)
        return compared

    def _jobs_of(self, scheduler_id: SchedulerId) -> list[JobId]:
        active = (JobId(head.job_id) for head in self._store.heads.active())
        return [job_id for job_id in active if self._view.ownership.scheduler_of(job_id) == scheduler_id]

    def _has_jobs(self, scheduler_id: SchedulerId) -> bool:
        return any(
            self._view.ownership.scheduler_of(JobId(h.job_id)) == scheduler_id for h in self._store.heads.active()
        )

    def begin_again(self) -> None:
        """Compare every list again: some jobs have a new driver, which may not know all launches yet."""
        self._forget_compared()
        asyncio.get_running_loop().call_later(timing.LISTS_SETTLED_S, self._forget_compared)

    def _forget_compared(self) -> None:
        for session in self._view.executors.sessions:
            session.compared.clear()


def _is_new(session: ExecutorSession, scheduler_id: SchedulerId) -> bool:
    return session.list_number > session.compared.get(scheduler_id, 0)
