"""The dispatcher matches free slots and waiting tasks, whichever comes first."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    ExecutorLost,
    Failed,
    FailureKind,
    JvmDeath,
    SpeculationPolicy,
    SuspectTask,
    TasksLost,
)
from onager.ids import JobId, TaskKey
from onager.scheduler import timing
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.engine.dispatcher import Dispatcher, Lane
from onager.scheduler.engine.feasibility import Feasibility
from onager.scheduler.engine.job_checks import JobChecks
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.engine.query_coordinator import Cluster
from onager.scheduler.engine.reports import ReportReader
from onager.scheduler.engine.task_manager import TaskManager
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.jobs.results import ResultStore
from onager.scheduler.policy.distribution import TaskDistribution
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.reservations import ExecutorReservation, Filled
from onager.supervision import LoopEndedError
from tests.support.waiting import HANGS_S
from tests.unit.scheduler.parts import env, executors, stored, view
from tests.unit.scheduler.small_graphs import acting_alone, graph, planned, session_of, store, succeeded

JOB = JobId("job-1")
pytestmark = pytest.mark.virtual_time


class Hall:
    def __init__(self, backend, clock):
        self.clock = clock
        self.jobs = store(backend, clock)
        self.store = stored(backend, self.jobs, clock)
        self.writers = self.store.writers
        self.queue = FairQueue()
        self.ownership = ownership = acting_alone(backend, clock)
        loads = JobLoads(self.queue, FairQueue(), self.jobs.heads, ownership, clock)
        self.jobs.listen(lambda job, _: ownership.read(job.graph.job_id))
        self.view = view(ownership=ownership, found=executors("e1", "e2"))
        reader = ReportReader(self.store.blobs, ResultStore(backend), clock, self.view.executors)
        self.env = env(clock, max_launches_per_append=100)
        self.local = local = LocalDriver(self.env, self.store, self.view, Cluster(lambda: 4), reader, self.queue, loads)
        self.jobs.listen(local.on_commit)
        feasibility = Feasibility(self.env, self.store, self.view, loads)
        alone = SimpleNamespace(driver_of=lambda _: None)
        self.tasks = TaskManager(self.env, local, alone, self.queue, loads, feasibility)
        self.dispatcher = Dispatcher([Lane(self.tasks, self.queue, is_of_programs=False)], clock)
        self.jobs.listen(loads.on_commit)
        self.jobs.listen(lambda *_: self.dispatcher.wake())

    async def running_job(self, tasks):
        """A job whose planning is in e1's hands and done, so that *tasks* wait."""
        await self.jobs.submit(graph())
        launches = await self.tasks.fill_reservations([_reservation(session_of())])
        assert len(launches.launches) == 1
        await self.writers.record_decision(JOB, lambda _: Decision([planned(tasks)]))

    @asynccontextmanager
    async def open(self):
        loop = asyncio.create_task(self.dispatcher.run())
        try:
            yield self
        finally:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)


async def polled(dispatcher, session, slots, timeout_s):
    """Return the launches that a poll is answered with."""
    offer = dispatcher.offer(session, slots)
    await dispatcher.wait_for_work(offer, timeout_s)
    return offer.launches


def _reservation(session):
    return ExecutorReservation(session.executor_id, session.incarnation, 0)


def partitions(task_sets):
    return sorted(task.partition for task_set in task_sets for task in task_set.tasks)


@pytest.fixture
async def hall(backend, clock):
    async with Hall(backend, clock).open() as hall:
        yield hall


async def test_a_poll_waits_until_work_comes(hall):
    waiting = asyncio.create_task(polled(hall.dispatcher, session_of(), 2, 5))
    await asyncio.sleep(0)
    await hall.jobs.submit(graph())
    task_sets = await waiting
    assert [task_set.stage_id for task_set in task_sets] == [0]


async def test_a_poll_takes_what_waits_already_as_one_set(hall):
    await hall.running_job(5)
    session = session_of()
    task_sets = await polled(hall.dispatcher, session, 3, 5)
    assert len(task_sets) == 1
    assert partitions(task_sets) == [0, 1, 2]
    assert len(session.held) == 3


async def test_tasks_are_spread_over_the_executors_that_wait(hall):
    await hall.jobs.submit(graph())
    await hall.tasks.fill_reservations([_reservation(session_of())])
    polls = [polled(hall.dispatcher, session_of(e), 4, 5) for e in ("e1", "e2")]
    waiting = [asyncio.create_task(poll) for poll in polls]
    await asyncio.sleep(0)
    await hall.writers.record_decision(JOB, lambda _: Decision([planned(4)]))
    assert [len(partitions(found)) for found in await asyncio.gather(*waiting)] == [2, 2]


@pytest.mark.parametrize(
    ("policy", "given"), [(TaskDistribution.BIAS, [2, 0]), (TaskDistribution.LOCALITY, [0, 2])], ids=str
)
async def test_tasks_go_where_the_policy_says(backend, clock, policy, given):
    made = Hall(backend, clock)
    near_e2 = {"e1": 0.2, "e2": 0.8}
    made.dispatcher = Dispatcher(
        [Lane(made.tasks, made.queue, is_of_programs=False)], clock, policy=policy, affinity=lambda _, e: near_e2[e]
    )
    async with made.open() as hall:
        await hall.jobs.submit(graph())
        await hall.tasks.fill_reservations([_reservation(session_of())])
        waiting = [asyncio.create_task(polled(hall.dispatcher, session_of(e), 4, 60)) for e in ("e1", "e2")]
        await asyncio.sleep(0)
        await hall.writers.record_decision(JOB, lambda _: Decision([planned(2)]))
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        hall.dispatcher.nudge(lambda _: True)
        assert [len(partitions(found)) for found in await asyncio.gather(*waiting)] == given


async def test_credit_goes_to_the_poll_that_waits(hall):
    session = session_of()
    waiting = asyncio.create_task(polled(hall.dispatcher, session, 0, 5))
    await asyncio.sleep(0)
    await hall.jobs.submit(graph())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    hall.dispatcher.credit(session, 1)
    assert len(await waiting) == 1


async def test_no_work_is_an_empty_answer_after_its_time(hall):
    assert await polled(hall.dispatcher, session_of(), 2, 0.01) == []


async def test_one_nudge_may_be_enough(hall):
    polls = [asyncio.create_task(polled(hall.dispatcher, session_of(e), 2, 60)) for e in ("e1", "e2", "e3")]
    await asyncio.sleep(0)
    for ended in (1, 2):
        hall.dispatcher.nudge(lambda session: session.executor_id != "e1", at_most=1)
        await asyncio.sleep(0.01)
        assert [poll.done() for poll in polls] == [False, ended >= 1, ended >= 2]
    hall.dispatcher.nudge(lambda _: True)
    await asyncio.gather(*polls)


async def test_a_nudged_poll_is_answered_at_once(hall):
    waiting = asyncio.create_task(polled(hall.dispatcher, session_of(), 2, 60))
    await asyncio.sleep(0)
    hall.dispatcher.nudge(lambda session: session.executor_id == "e1")
    assert await waiting == []


async def test_a_poll_that_its_executor_repeats_takes_the_place_of_the_first(hall):
    session = session_of()
    first = asyncio.create_task(polled(hall.dispatcher, session, 1, 60))
    await asyncio.sleep(0)
    second = asyncio.create_task(polled(hall.dispatcher, session, 1, 60))
    assert await first == []
    await hall.jobs.submit(graph())
    assert len(await second) == 1


@pytest.fixture
def hold_fills(hall, monkeypatch):
    """Delay the filling of slots until the returned event is set, as if another scheduler were slow to answer."""

    def hold():
        may_go_on, fill = asyncio.Event(), hall.tasks.fill_reservations

        async def slowly(reservations):
            await may_go_on.wait()
            return await fill(reservations)

        monkeypatch.setattr(hall.tasks, "fill_reservations", slowly)
        return may_go_on

    return hold


async def polling_twice(hall, slots):
    """Poll again while slots of the first poll are being filled."""
    session, polls = session_of(), []
    for _ in range(2):
        polls.append(asyncio.create_task(polled(hall.dispatcher, session, slots, 60)))
        await asyncio.sleep(0.1)
    return polls


async def test_slots_that_are_being_filled_are_not_offered_by_the_next_poll_too(hall, hold_fills):
    await hall.running_job(6)
    may_go_on = hold_fills()
    first, second = await polling_twice(hall, 2)
    may_go_on.set()
    assert partitions(await first) == [0, 1]
    await asyncio.sleep(0.1)
    assert not second.done(), "the executor has two slots"
    second.cancel()


async def test_slots_that_could_not_be_filled_are_those_of_the_next_poll(hall, hold_fills, backend):
    await hall.jobs.submit(graph("bad"))
    may_go_on = hold_fills()
    first, second = await polling_twice(hall, 1)
    hall.jobs.forget(JobId("bad"))
    await backend.delete_range("ActiveJobs", "")
    may_go_on.set()
    assert await first == []
    await hall.jobs.submit(graph("good", at_ms=2))
    (task_set,) = await asyncio.wait_for(second, HANGS_S)
    assert task_set.job_id == "good"


async def test_executors_that_leave_or_are_gone_get_nothing(hall):
    leaving, gone = session_of("e1", "draining"), session_of("e2")
    gone.is_gone = True
    polls = [polled(hall.dispatcher, s, 2, 0.1) for s in (leaving, gone)]
    await hall.jobs.submit(graph())
    assert await asyncio.gather(*polls) == [[], []]


async def test_a_job_that_cannot_be_worked_on_keeps_no_other_from_its_slots(hall, backend):
    await hall.jobs.submit(graph("bad", at_ms=0))
    await hall.jobs.submit(graph())
    hall.jobs.forget(JobId("bad"))
    await backend.delete_range("ActiveJobs", "")
    await hall.jobs.submit(graph("good", at_ms=2))
    task_sets = await polled(hall.dispatcher, session_of(), 3, 5)
    assert "good" in {task_set.job_id for task_set in task_sets}


async def straggling(hall, tasks=4):
    """A job of which all tasks but the last are done, on e1, and the last is to be run a second time."""
    await hall.jobs.submit(replace(graph(), speculation=SpeculationPolicy(min_task_runtime_ms=0)))
    await hall.tasks.fill_reservations([_reservation(session_of())])
    await hall.writers.record_decision(JOB, lambda _: Decision([planned(tasks)]))
    await hall.tasks.fill_reservations([_reservation(session_of())] * tasks)
    await hall.writers.record_decision(JOB, lambda _: Decision([succeeded(1, p) for p in range(tasks - 1)]))
    hall.clock.advance(60_000)
    await hall.local.coordinator(JOB).record_overdue(["e1", "e2"], [])
    return hall.jobs.cached(JOB).graph


async def test_a_second_attempt_finds_the_executor_that_may_run_it(hall):
    assert (await straggling(hall)).stages[1].speculatable == (3,)
    mine = asyncio.create_task(polled(hall.dispatcher, session_of("e1"), 2, 60))
    await asyncio.sleep(0.01)
    (task_set,) = await polled(hall.dispatcher, session_of("e2"), 2, 5)
    assert [(t.partition, t.task_attempt) for t in task_set.tasks] == [(3, 1)]
    assert not mine.done(), "it runs the first attempt"
    mine.cancel()


async def test_a_second_attempt_that_no_slot_fits_keeps_no_other_job_from_it(hall):
    await straggling(hall)
    await hall.jobs.submit(graph("other", at_ms=99))
    (task_set,) = await polled(hall.dispatcher, session_of("e1"), 1, 5)
    assert task_set.job_id == "other"


async def test_stragglers_are_found_only_in_jobs_that_this_scheduler_drives(hall):
    await straggling(hall)
    await hall.writers.record_decision(JOB, lambda g: Decision([_given_up(g)]))
    (task_set,) = await polled(hall.dispatcher, session_of("e1"), 1, 5)
    assert [(t.partition, t.task_attempt) for t in task_set.tasks] == [(3, 1)]
    hall.clock.advance(60_000)
    ownership = SimpleNamespace(followed=[])
    cluster = view(ownership=ownership, found=executors("e1", "e2"))
    checks = JobChecks(hall.env, hall.store, cluster, hall.local, lambda _: None)
    await checks.check_all()
    assert hall.jobs.cached(JOB).graph.stages[1].speculatable == (), "another scheduler acts"
    ownership.followed = hall.ownership.followed
    await checks.check_all()
    assert hall.jobs.cached(JOB).graph.stages[1].speculatable == (3,)


def _given_up(graph):
    return TasksLost(
        stage_id=1, stage_attempt=0, executor_id="e1", tasks=((3, 0),), reason=FailureKind.TASK_KILLED, at_ms=1
    )


async def test_a_round_that_fails_late_ends_the_dispatcher(backend, clock):
    """As one that fails at once does: whichever it is, nobody else would notice."""
    hall = Hall(backend, clock)
    is_slow = asyncio.Event()

    async def fail(_):
        is_slow.set()
        await asyncio.sleep(2 * timing.DISPATCH_ROUND_S)
        raise ValueError("a defect")

    hall.tasks.fill_reservations = fail
    loop = asyncio.create_task(hall.dispatcher.run())
    await hall.jobs.submit(graph())
    poll = asyncio.create_task(polled(hall.dispatcher, session_of(), 1, 5))
    await is_slow.wait()
    async with asyncio.timeout(HANGS_S):
        with pytest.raises(LoopEndedError, match="a defect"):
            await loop
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)


def jvm_died(executor_id, partitions, *, is_memory=True, was_alone=False, attempt=0):
    suspects = tuple(SuspectTask(JOB, 1, 0, p, attempt) for p in partitions)
    death = JvmDeath(is_memory=is_memory, was_alone=was_alone, tasks=len(suspects), suspects=suspects)
    return ExecutorLost(executor_id=executor_id, incarnation="life", reason="its JVM ended", at_ms=9, death=death)


def lone(task_sets):
    return [task.partition for task_set in task_sets for task in task_set.tasks if task.alone]


async def test_a_suspect_goes_alone_to_an_executor_that_holds_nothing(hall):
    await hall.running_job(6)
    await hall.tasks.fill_reservations([_reservation(session_of())] * 3)
    await hall.local.lose_executor(jvm_died("e1", (0, 1, 2)))
    busy, empty = session_of("e2"), session_of("e1")
    busy.held[TaskKey("other", 1, 0, 0, 0)] = 0.0
    at_busy = await polled(hall.dispatcher, busy, 3, 1)
    assert (partitions(at_busy), lone(at_busy)) == ([3, 4, 5], [])
    at_empty = await polled(hall.dispatcher, empty, 4, 1)
    assert partitions(at_empty) == lone(at_empty) == [0], "one, although four slots are free"


async def test_a_suspect_waits_for_no_empty_executor_if_nothing_else_is_left_for_the_slot(hall):
    await hall.running_job(2)
    await hall.tasks.fill_reservations([_reservation(session_of())] * 2)
    await hall.local.lose_executor(jvm_died("e1", (0, 1)))
    busy = session_of("e2")
    busy.held[TaskKey("other", 1, 0, 0, 0)] = 0.0
    task_sets = await polled(hall.dispatcher, busy, 3, 1)
    assert partitions(task_sets) == lone(task_sets) == [0]


async def test_what_runs_out_of_memory_alone_ends_its_job_and_no_other(hall):
    await hall.running_job(1)
    await hall.tasks.fill_reservations([_reservation(session_of())])
    await hall.local.lose_executor(jvm_died("e1", (0,)))
    (task_set,) = await polled(hall.dispatcher, session_of("e2"), 4, 1)
    assert task_set.tasks[0].alone
    others = replace(
        jvm_died("e2", (), was_alone=True),
        death=JvmDeath(is_memory=True, was_alone=True, tasks=1, suspects=(SuspectTask("job-2", 1, 0, 0, 1),)),
    )
    await hall.local.lose_executor(others)
    assert hall.jobs.cached(JOB).graph.is_active, "the other job's task was the cause"
    (task_set,) = await polled(hall.dispatcher, session_of("e3"), 4, 1)
    attempt = task_set.tasks[0].task_attempt
    await hall.local.lose_executor(jvm_died("e3", (0,), was_alone=True, attempt=attempt))
    outcome = hall.jobs.cached(JOB).graph.outcome
    assert isinstance(outcome, Failed)
    assert "ran out of memory" in outcome.failure.message


async def test_a_slot_of_programs_that_becomes_free_takes_no_task_of_spark(hall):
    await hall.running_job(tasks=2)
    session = session_of()
    hall.dispatcher._lanes = [*hall.dispatcher._lanes, Lane(_NoPrograms(), FairQueue(), is_of_programs=True)]
    session.record = session.record.model_copy(update={"runs_programs": True})
    freed = [_reservation(session)]
    assert not (await hall.dispatcher.fill(session, freed)).launches
    session.record = session.record.model_copy(update={"runs_programs": False})
    assert len((await hall.dispatcher.fill(session, freed)).launches) == 1


class _NoPrograms:
    async def fill_reservations(self, reservations):
        return Filled([], reservations)
