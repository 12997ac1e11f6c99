"""Decisions about one job are committed together, and are made again if another scheduler was first."""

import asyncio

import pytest

from onager.errors import JobNotFoundError, StateUnavailableError
from onager.execution_graph import JobCancelled, SuccessfulStage
from onager.ids import JobId
from onager.scheduler.engine.query_coordinator import Cluster, QueryCoordinator, Share
from onager.scheduler.jobs.job_writers import Decision, JobWriters
from tests.unit.scheduler.small_graphs import SLOT, append, graph, planned, store, succeeded

JOB = JobId("job-1")


@pytest.fixture
async def jobs(backend, clock):
    jobs = store(backend, clock)
    await jobs.submit(graph())
    return jobs


async def with_running(writers, clock, tasks):
    coordinator = QueryCoordinator(JOB, writers, clock, Cluster(lambda: 1))
    await coordinator.launch_tasks([Share(SLOT, 1)])
    await writers.record_decision(JOB, lambda _: Decision([planned(tasks)]))
    await coordinator.launch_tasks([Share(SLOT, tasks)])
    return coordinator


async def test_what_is_decided_during_an_append_goes_with_the_next(jobs, clock):
    writers = JobWriters(jobs, clock)
    await with_running(writers, clock, 50)
    before = writers.appends
    done = [writers.record_decision(JOB, lambda _, n=n: Decision([succeeded(1, n)])) for n in range(50)]
    recorded = await asyncio.gather(*done)
    assert writers.appends - before <= 2
    assert isinstance(recorded[-1].graph.stages[1], SuccessfulStage)


async def test_a_decider_that_raises_spoils_no_other(jobs, clock):
    writers = JobWriters(jobs, clock)
    await with_running(writers, clock, 2)

    def raises(_):
        raise ValueError("mine")

    _, second, third = await asyncio.gather(
        writers.record_decision(JOB, lambda _: Decision([succeeded(1, 0)])),
        writers.record_decision(JOB, raises),
        writers.record_decision(JOB, lambda _: Decision([succeeded(1, 1)])),
        return_exceptions=True,
    )
    assert isinstance(second, ValueError)
    assert not third.graph.is_active


async def test_a_lost_race_is_decided_again_on_what_is_stored(backend, jobs, clock):
    writers = JobWriters(jobs, clock)
    await with_running(writers, clock, 2)
    others = store(backend, clock)
    await append(others, await others.load(JOB), [succeeded(1, 0)])
    seen = []

    def decide(found):
        seen.append(set(found.stages[1].ledger.outputs))
        return Decision([succeeded(1, 1)])

    after = (await writers.record_decision(JOB, decide)).graph
    assert seen == [set(), {0}]
    assert writers.conflicts == 1
    assert not after.is_active


async def test_stages_are_set_running_by_the_append_that_resolves_them(jobs, clock):
    writers = JobWriters(jobs, clock)
    coordinator = QueryCoordinator(JOB, writers, clock, Cluster(lambda: 1))
    await coordinator.launch_tasks([Share(SLOT, 1)])
    after = (await writers.record_decision(JOB, lambda _: Decision([planned(3)]))).graph
    assert after.stages[1].state == "running"
    assert writers.appends == 2


async def test_every_caller_learns_that_a_job_is_unknown(backend, clock):
    writers = JobWriters(store(backend, clock), clock)
    asked = [writers.record_decision(JobId("nobody"), lambda _: Decision([])) for _ in range(3)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(error, JobNotFoundError) for error in found)


async def test_the_rest_of_a_report_is_nothing_once_the_job_is_cancelled(jobs, clock):
    writers = JobWriters(jobs, clock)
    coordinator = await with_running(writers, clock, 3)
    await writers.record_decision(JOB, lambda _: Decision([JobCancelled(reason="no", at_ms=7)]))
    launches = await coordinator.record_statuses([succeeded(1, 0)], Share(SLOT, 1))
    assert launches == []


async def test_a_report_hands_out_no_more_than_is_fair(jobs, clock):
    writers = JobWriters(jobs, clock)
    coordinator = QueryCoordinator(JOB, writers, clock, Cluster(lambda: 1))
    await coordinator.launch_tasks([Share(SLOT, 1)])
    await writers.record_decision(JOB, lambda _: Decision([planned(10)]))
    await coordinator.launch_tasks([Share(SLOT, 4)])
    statuses = [succeeded(1, 0), succeeded(1, 1)]
    launches = await coordinator.record_statuses(statuses, Share(SLOT, 2), limit=lambda: 3.0)
    assert sum(launch.tasks for launch in launches) == 1  # 2 still run, and another job waits with 2


async def test_a_caller_is_not_cancelled_with_a_broken_call(jobs, clock, monkeypatch):
    async def cut(*_):
        raise asyncio.CancelledError  # as of a call whose channel was closed

    writers = JobWriters(jobs, clock)
    monkeypatch.setattr(jobs, "commit", cut)
    cancel = JobCancelled(reason="so", at_ms=1)
    with pytest.raises(StateUnavailableError):
        await writers.record_decision(JOB, lambda _: Decision([cancel]))
    monkeypatch.undo()
    assert not (await writers.record_decision(JOB, lambda _: Decision([cancel]))).graph.is_active
