"""Slots of push executors are reserved for tasks that can take them, and for no others."""

from types import SimpleNamespace

import pytest

from onager.execution_graph import StragglersFound
from onager.ids import ExecutorId, JobId
from onager.scheduler.engine.fitness import Fitness
from onager.scheduler.jobs.job_writers import Decision
from tests.unit.scheduler.push_world import PushWorld

STRAGGLING, OTHER = JobId("job-1"), JobId("job-2")


@pytest.fixture
async def world(clock):
    """One executor has a slot free, and the only task that waits is a second attempt of one that runs there."""
    made = PushWorld(clock)
    await made.start()
    await made.register("e1", 2)
    await made.run_job(STRAGGLING, 1, speculates=True)
    assert await made.fill() == 1
    assert made.launched == [("e1", STRAGGLING)]
    made.launched.clear()
    found = StragglersFound(stage_id=1, stage_attempt=0, tasks=((0, 0),), at_ms=99)
    await made.replica.writers.record(STRAGGLING, lambda _: Decision([found]))
    yield made
    await made.replica.writers.close()


async def test_a_straggler_that_waits_for_another_executor_costs_nothing(world):
    assert world.replica.queue.has_runnable
    assert [await world.fill() for _ in range(3)] == [0, 0, 0]
    assert world.launched == []


async def test_another_executor_gets_it_at_once(world):
    await world.register("e2", 1)
    assert await world.fill() == 1
    assert world.launched == [("e2", STRAGGLING)]


async def test_a_straggler_keeps_no_other_job_from_the_slot(world):
    await world.run_job(OTHER, 1)
    assert await world.fill() == 1
    assert world.launched == [("e1", OTHER)]


class Elsewhere:
    """A job that another replica acts on."""

    def __init__(self, clock):
        self.place = (3, 1)
        ownership = SimpleNamespace(follows=lambda _: False)
        loads = SimpleNamespace(position=lambda _: self.place)
        self.fitness = Fitness(None, ownership, loads, clock, frozenset)

    def fits(self, executor_id="e1"):
        return self.fitness.as_of_now()(STRAGGLING, ExecutorId(executor_id))


async def test_an_executor_of_no_use_to_another_replicas_job_is_left_alone_until_there_is_news(clock):
    job = Elsewhere(clock)
    assert job.fits()
    job.fitness.found_nothing(STRAGGLING, ExecutorId("e1"))
    assert (job.fits(), job.fits("e2")) == (False, True)
    job.place = (4, 1)
    assert job.fits()


async def test_or_for_a_while(clock):
    job = Elsewhere(clock)
    job.fitness.found_nothing(STRAGGLING, ExecutorId("e1"))
    clock.advance(1_900)
    assert not job.fits()
    clock.advance(200)
    assert job.fits()


def test_a_job_of_which_nothing_is_known_is_worth_a_try(clock):
    fitness = Fitness(
        SimpleNamespace(cached=lambda _: None), SimpleNamespace(follows=lambda _: True), None, clock, frozenset
    )
    assert fitness.as_of_now()(STRAGGLING, ExecutorId("e1"))
