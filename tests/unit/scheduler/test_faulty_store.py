"""Jobs end right over a store that fails at every turn: nothing lost, nothing done twice."""

import asyncio
import random  # noqa: TID251 seeded
from collections import Counter
from contextlib import suppress

import pytest

from onager.errors import OutcomeUnknownError, StateCorruptError, StateUnavailableError
from onager.execution_graph import SuccessfulStage
from onager.ids import JobId
from onager.scheduler.engine.query_coordinator import Cluster, QueryCoordinator, Share
from onager.scheduler.jobs.job_writers import Decision, JobWriters
from onager.state_backend import EventKind, Keyspace
from onager.state_backend.faulty import FaultKind, FaultyBackend, seeded
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.support.waiting import HANGS_S
from tests.unit.scheduler.small_graphs import SLOT, graph, keys, planned, store, succeeded

RATES = {
    FaultKind.UNAVAILABLE: 0.1,
    FaultKind.SLOW_REQUEST: 0.1,
    FaultKind.SLOW_ANSWER: 0.05,
    FaultKind.UNKNOWN_UNWRITTEN: 0.15,
    FaultKind.UNKNOWN_WRITTEN: 0.15,
    FaultKind.UNKNOWN_LATE: 0.15,
}
TASKS = 60


class SchedulerApp:
    """One scheduler's parts for a job, over a store with its own faults."""

    def __init__(self, honest_store, clock, seed, adapter=MemoryBackend):
        draw = random.Random(seed)
        self.backend = FaultyBackend(adapter(honest_store), seeded(draw.random, RATES), clock)
        self.clock = clock
        self.jobs = store(self.backend, clock)
        self.writers = JobWriters(self.jobs, clock)


async def until_done(call):
    """Retry until it succeeds, as loops of schedulers and clients do."""
    while True:
        try:
            return await call()
        except (StateUnavailableError, OutcomeUnknownError):
            await asyncio.sleep(0)


async def run_job(scheduler, others, job_id):
    """Submit a job through one scheduler, and report each task through all of them, a few at a time."""
    await until_done(lambda: scheduler.jobs.submit(graph(job_id)))
    coordinator = QueryCoordinator(job_id, scheduler.writers, scheduler.clock, Cluster(lambda: 1))
    await until_done(lambda: coordinator.launch_tasks([Share(SLOT, 1)]))
    await until_done(lambda: scheduler.writers.record_decision(job_id, lambda _: Decision([planned(TASKS)])))

    await until_done(lambda: coordinator.launch_tasks([Share(SLOT, TASKS)]))

    async def report(scheduler, partitions):
        for partition in partitions:
            await until_done(
                lambda p=partition: scheduler.writers.record_decision(job_id, lambda _: Decision([succeeded(1, p)]))
            )

    await asyncio.gather(*(report(r, range(start, TASKS, 4)) for start in range(4) for r in others))


@pytest.mark.parametrize("seed", range(5))
async def test_jobs_of_three_schedulers_end_right_though_half_of_all_writes_fail(clock, seed):
    honest = MemoryStore(clock)
    auditor = MemoryBackend(honest)
    schedulers = [SchedulerApp(honest, clock, seed * 10 + n) for n in range(3)]
    job_ids = [JobId(f"job-{n}") for n in range(5)]
    async with asyncio.timeout(HANGS_S):
        await asyncio.gather(*(run_job(schedulers[n % 3], schedulers, job_id) for n, job_id in enumerate(job_ids)))
        for scheduler in schedulers:
            await scheduler.backend.settle()

    unknown = sum((r.backend.met for r in schedulers), Counter())
    assert sum(unknown[kind] for kind in unknown if kind.startswith("unknown")) > 50, unknown
    for job_id in job_ids:
        job = await store(auditor, clock).load(job_id)
        assert job.keyspace is Keyspace.CompletedJobs
        stage = job.graph.stages[1]
        assert isinstance(stage, SuccessfulStage)
        assert set(stage.ledger.outputs) == set(range(TASKS))
    # What arrived late must not have brought back what the end took away.
    assert await keys(auditor, Keyspace.ActiveJobs, Keyspace.JobLog) == set()
    for scheduler in schedulers:
        await scheduler.backend.close()


class Unguarded(MemoryBackend):
    """Ignores expectations: the guard that everything relies on is taken away."""

    async def _commit(self, ops, expect):  # noqa: ARG002
        return await super()._commit(ops, {})


async def writes_by_log_position(clock, adapter):
    honest = MemoryStore(clock)
    auditor = MemoryBackend(honest)
    schedulers = [SchedulerApp(honest, clock, 77 + n, adapter) for n in range(2)]
    puts = Counter()
    async with auditor.watch(Keyspace.JobLog) as events:
        with suppress(StateCorruptError):
            await run_job(schedulers[0], schedulers, JobId("job-1"))
        for scheduler in schedulers:
            await scheduler.backend.settle()
            await scheduler.backend.close()
        await auditor.put(Keyspace.JobLog, "end", b"")
        async for event in events:
            if event.key == "end":
                break
            if event.kind is EventKind.PUT:
                puts[event.key] += 1
    return puts


async def test_every_log_position_is_written_once(clock):
    """Despite retries and late requests; without expectations this fails."""
    puts = await writes_by_log_position(clock, MemoryBackend)
    assert len(puts) > 5
    assert set(puts.values()) == {1}
    puts = await writes_by_log_position(clock, Unguarded)
    assert max(puts.values()) > 1
