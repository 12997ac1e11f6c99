"""Slots go to tasks that can take them, and to no others."""

from types import SimpleNamespace

import pytest

from onager.execution_graph import SpeculationPolicy, submit
from onager.execution_graph.events import StragglersFound
from onager.ids import ExecutorId, JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler.app import SchedulerApp
from onager.scheduler.engine.feasibility import Feasibility
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.parts import env, stored, view
from tests.unit.scheduler.small_graphs import planned

STRAGGLING, OTHER = JobId("job-1"), JobId("job-2")


class World:
    """A scheduler without running loops, and executors whose slots the test offers."""

    def __init__(self, clock):
        self.app = SchedulerApp(
            SchedulerSettings(exchange_dir="/x", listen="127.0.0.1:1"), MemoryBackend(MemoryStore(clock)), clock
        )

    async def register(self, executor_id):
        request = pb.RegisterExecutorRequest(
            executor_id=executor_id, incarnation="life", slots=2, protocol_version=PROTOCOL_VERSION, spark_version="4.3"
        )
        await self.app.gateway.RegisterExecutor(request, SimpleNamespace(peer=lambda: "elsewhere"))

    async def run_job(self, job_id, *, speculates=False):
        """Submit a job, and have it planned: one task waits."""
        policy = SpeculationPolicy() if speculates else None
        made = submit(job_id=job_id, name="j", client_id="c", spec_digest="d" * 64, at_ms=1, speculation=policy)
        await self.app.jobs.submit(made)
        assert await self.launched("e1") == [job_id]
        await self.app.writers.record_decision(job_id, lambda _: Decision([planned(1)]))

    async def launched(self, executor_id):
        """Offer a slot of the executor; return the jobs that have launched into it."""
        session = self.app.executors.session(ExecutorId(executor_id))
        filled = await self.app.tasks.fill_reservations([ExecutorReservation.of(session.slot)])
        return [launch.task_set.job_id for launch in filled.launches]


@pytest.fixture
async def world(clock):
    """The only waiting task is a second attempt, whose first runs on the only executor."""
    made = World(clock)
    await made.app.start()
    await made.register("e1")
    await made.run_job(STRAGGLING, speculates=True)
    assert await made.launched("e1") == [STRAGGLING]
    found = StragglersFound(stage_id=1, stage_attempt=0, tasks=((0, 0),), at_ms=99)
    await made.app.writers.record_decision(STRAGGLING, lambda _: Decision([found]))
    yield made
    await made.app.writers.close()


async def test_a_straggler_that_waits_for_another_executor_costs_no_append(world):
    assert world.app.queue.has_runnable
    before = world.app.jobs.cached(STRAGGLING).seq
    assert await world.launched("e1") == []
    assert world.app.jobs.cached(STRAGGLING).seq == before


async def test_another_executor_gets_it_at_once(world):
    await world.register("e2")
    assert await world.launched("e2") == [STRAGGLING]


async def test_a_straggler_keeps_no_other_job_from_the_slot(world):
    await world.run_job(OTHER)
    assert await world.launched("e1") == [OTHER]


class Elsewhere:
    """A job that another scheduler drives."""

    def __init__(self, clock):
        self.place = (3, 1)
        ownership = SimpleNamespace(follows=lambda _: False)
        loads = SimpleNamespace(position=lambda _: self.place)
        self.feasibility = Feasibility(env(clock), None, view(ownership=ownership), loads)

    def fits(self, executor_id="e1"):
        return self.feasibility.as_of_now()(STRAGGLING, ExecutorId(executor_id))


async def test_an_executor_of_no_use_to_another_schedulers_job_is_left_alone_until_there_is_news(clock):
    job = Elsewhere(clock)
    assert job.fits()
    job.feasibility.found_nothing(STRAGGLING, ExecutorId("e1"), job.place)
    assert (job.fits(), job.fits("e2")) == (False, True)
    job.place = (4, 1)
    assert job.fits()


async def test_news_that_came_while_a_slot_was_offered_are_news(clock):
    job = Elsewhere(clock)
    offered_at, job.place = job.place, (4, 1)
    job.feasibility.found_nothing(STRAGGLING, ExecutorId("e1"), offered_at)
    assert job.fits()


async def test_an_executor_of_no_use_is_left_alone_only_for_a_while(clock):
    job = Elsewhere(clock)
    job.feasibility.found_nothing(STRAGGLING, ExecutorId("e1"), job.place)
    clock.advance(1_900)
    assert not job.fits()
    clock.advance(200)
    assert job.fits()


def test_a_job_of_which_nothing_is_known_is_worth_a_try(clock):
    store = stored(None, SimpleNamespace(cached=lambda _: None), clock)
    feasibility = Feasibility(env(clock), store, view(ownership=SimpleNamespace(follows=lambda _: True)), None)
    assert feasibility.as_of_now()(STRAGGLING, ExecutorId("e1"))
