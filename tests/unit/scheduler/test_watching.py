"""All who watch a job share its messages, and get them less often the more there are."""

import asyncio
from contextlib import aclosing
from itertools import pairwise

import pytest

from onager.errors import JobNotFoundError
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.serving import SharedMessage, encoded
from onager.scheduler import timing
from onager.scheduler.api.feeds import pace_s
from onager.scheduler.app import SchedulerApp
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.simulation.loop import VirtualClock
from tests.support.waiting import eventually
from tests.unit.scheduler.pair import SLOT, FakeContext
from tests.unit.scheduler.small_graphs import planned

JOB = JobId("job-1")
SPEC = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))


@pytest.fixture
async def scheduler(backend, clock):
    scheduler = SchedulerApp(SchedulerSettings(), backend, clock)
    await scheduler.start()
    return scheduler


@pytest.fixture
async def looks(scheduler):
    await scheduler.service.SubmitJob(pb.SubmitJobRequest(job_id=JOB, spec=SPEC), FakeContext())
    return scheduler.service.queries


async def _watched(looks, received):
    async with aclosing(looks.shared_progress(JOB)) as messages:
        async for message in messages:
            received.append(message)


async def test_a_message_is_made_once_for_all_who_watch(scheduler, looks, monkeypatch):
    made = []
    real = looks._progress

    async def counted(*arguments, **more):
        made.append(arguments)
        return await real(*arguments, **more)

    monkeypatch.setattr(looks, "_progress", counted)
    received = [[] for _ in range(40)]
    watching = [asyncio.create_task(_watched(looks, each)) for each in received]
    await eventually(lambda: all(received))
    assert len(made) < 10
    assert len({id(each[0]) for each in received}) == 1
    await scheduler.service.CancelJob(pb.CancelJobRequest(job_id=JOB), FakeContext())
    await asyncio.gather(*watching)
    assert {each[-1].message.state for each in received} == {pb.CANCELLED}
    assert len({id(each[-1]) for each in received}) == 1
    late = []
    await _watched(looks, late)
    assert [message.message.state for message in late] == [pb.CANCELLED]


async def test_who_comes_later_gets_what_is_read_after_that(looks, monkeypatch):
    """It may have seen more at another scheduler."""
    real, fresh = looks._progress, []

    async def noted(job_id, seq, *, is_fresh):
        fresh.append(is_fresh)
        return await real(job_id, seq, is_fresh=is_fresh)

    monkeypatch.setattr(looks, "_progress", noted)
    async with aclosing(looks.progress(JOB)) as first, aclosing(looks.progress(JOB)) as second:
        await anext(first)
        assert fresh == [True]
        await anext(second)
        assert fresh == [True, True]


async def test_what_cannot_be_read_is_reported_to_all(scheduler):
    async def watch():
        async with aclosing(scheduler.service.queries.progress(JobId("nobody"))) as messages:
            await anext(messages)

    results = await asyncio.gather(watch(), watch(), return_exceptions=True)
    assert [type(error) for error in results] == [JobNotFoundError, JobNotFoundError]
    assert scheduler.service.queries._followers == 0


def test_the_more_watch_the_less_often_each_gets_a_message():
    assert pace_s(1) == pace_s(50) == timing.WATCH_EVERY_S
    assert 1_200 / pace_s(1_200) <= 500


@pytest.mark.virtual_time
@pytest.mark.parametrize("followers", [1, 400])
async def test_a_job_that_changes_all_the_time_is_reported_at_that_pace(followers):
    clock = VirtualClock(asyncio.get_running_loop())
    scheduler = SchedulerApp(SchedulerSettings(), MemoryBackend(MemoryStore(clock)), clock)
    await scheduler.start()
    await scheduler.service.SubmitJob(pb.SubmitJobRequest(job_id=JOB, spec=SPEC), FakeContext())
    await scheduler.local.fill_reservations(JOB, [ExecutorReservation.of(SLOT)])
    await scheduler.writers.record_decision(JOB, lambda _: Decision([planned(100)]))
    times_s = [[] for _ in range(followers)]

    async def watch(times):
        async for _ in scheduler.service.queries.shared_progress(JOB):
            times.append(clock.monotonic_s())

    watching = [asyncio.create_task(watch(times)) for times in times_s]
    await asyncio.sleep(5)
    for times in times_s:
        times.clear()
    for _ in range(100):
        await scheduler.local.fill_reservations(JOB, [ExecutorReservation.of(SLOT)])
        await asyncio.sleep(0.05)
    await scheduler.service.CancelJob(pb.CancelJobRequest(job_id=JOB), FakeContext())
    await asyncio.gather(*watching)
    for times in times_s:
        gaps = [after - before for before, after in pairwise(times[:-1])]  # the end is reported at once
        assert pace_s(followers) - 0.001 < min(gaps)
        assert max(gaps) < pace_s(followers) + 0.1


def test_a_shared_message_is_encoded_once():
    shared = SharedMessage(pb.JobProgress(job_id=JOB))
    assert encoded(shared) is encoded(shared)
    assert encoded(shared) == encoded(shared.message)


async def test_who_reads_slowly_gets_the_last_message(scheduler, looks):
    async with aclosing(looks.shared_progress(JOB)) as messages:
        received = [await anext(messages)]
        feed = looks._feeds._feeds[JOB]
        await scheduler.service.CancelJob(pb.CancelJobRequest(job_id=JOB), FakeContext())
        await eventually(lambda: feed.is_over)
        received += [message async for message in messages]
    assert received[-1].message.state == pb.CANCELLED
