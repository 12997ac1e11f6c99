"""Slots of push executors are reserved for tasks that can take them, and for no others."""

from types import SimpleNamespace

import pytest

from execution_graph import SpeculationPolicy, StragglersFound, submit
from onager.ids import ExecutorId, JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from scheduler.jobs.job_writers import Decision
from scheduler.replica import Replica
from scheduler.settings import SchedulerSettings
from scheduler.tasks.fitness import Fitness
from state_backend import Keyspace
from state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.world import planned

STRAGGLING, OTHER = JobId("job-1"), JobId("job-2")


class Context:
    def peer(self):
        return "elsewhere"


class World:
    """One replica whose loops do not run, and push executors that take what they are sent."""

    def __init__(self, clock):
        self.clock = clock
        self.backend = MemoryBackend(MemoryStore(clock))
        self.replica = Replica(SchedulerSettings(exchange_dir="/x", listen="127.0.0.1:1"), self.backend, clock)
        self.launched = []
        self.replica.push.launcher = SimpleNamespace(
            launch=lambda record, task_sets: self.launched.extend((record.executor_id, t.job_id) for t in task_sets),
            check=lambda _: None,
            has_plan=lambda *_: False,
        )

    async def start(self):
        record = self.replica.peers.record
        await self.backend.put(Keyspace.Schedulers, self.replica.peers.id, record.encoded())
        await self.replica.start()

    async def register(self, executor_id, slots):
        request = pb.RegisterExecutorRequest(
            executor_id=executor_id, incarnation="life", slots=slots, protocol_version=PROTOCOL_VERSION,
            spark_version="4.3", mode="push", address="127.0.0.1:1",
        )  # fmt: skip
        await self.replica.gateway.RegisterExecutor(request, Context())
        await self.replica.slots.refresh()

    async def run_job(self, job_id, tasks, *, speculates=False):
        """Submit a job and have it planned: *tasks* wait."""
        policy = SpeculationPolicy() if speculates else None
        made = submit(
            job_id=job_id, name="j", client_id="c", spec_digest="d" * 64, at_ms=1, speculation=policy
        )  # fmt: skip
        await self.replica.jobs.submit(made)
        await self.fill()
        self.launched.clear()
        await self.replica.writers.record(job_id, lambda _: Decision([planned(tasks)]))
        ledger = self.replica.push.ledger
        ledger.forget(ExecutorId("e1"), [k for *_, k, _ in ledger.launched() if (k.job_id, k.stage_id) == (job_id, 0)])

    async def fill(self):
        """Let waiting tasks find slots; return how often slots were written."""
        writes = []
        commit = self.backend._commit

        async def counted(ops, expect, fence):
            writes.extend(op for op in ops if getattr(op, "keyspace", None) is Keyspace.Slots)
            return await commit(ops, expect, fence)

        self.backend._commit = counted
        try:
            await self.replica.push.fill()
        finally:
            self.backend._commit = commit
        return len(writes)


@pytest.fixture
async def world(clock):
    """One executor has a slot free, and the only task that waits is a second attempt of one that runs there."""
    made = World(clock)
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
        acting = SimpleNamespace(follows=lambda _: False)
        loads = SimpleNamespace(position=lambda _: self.place)
        self.fitness = Fitness(None, acting, loads, clock, frozenset)

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
