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
from onager.scheduler.app import Replica
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.simulation.loop import VirtualClock
from tests.support.waiting import eventually
from tests.unit.scheduler.pair import SLOT, Peer
from tests.unit.scheduler.small_graphs import planned

JOB = JobId("job-1")
SPEC = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))


@pytest.fixture
async def replica(backend, clock):
    replica = Replica(SchedulerSettings(), backend, clock)
    await replica.start()
    return replica


@pytest.fixture
async def looks(replica):
    await replica.service.SubmitJob(pb.SubmitJobRequest(job_id=JOB, spec=SPEC), Peer())
    return replica.service.queries


async def _watched(looks, heard):
    async with aclosing(looks.shared_progress(JOB)) as messages:
        async for message in messages:
            heard.append(message)


async def test_a_message_is_made_once_for_all_who_watch(replica, looks, monkeypatch):
    made = []
    real = looks._progress

    async def counted(*arguments, **more):
        made.append(arguments)
        return await real(*arguments, **more)

    monkeypatch.setattr(looks, "_progress", counted)
    heard = [[] for _ in range(40)]
    watching = [asyncio.create_task(_watched(looks, each)) for each in heard]
    await eventually(lambda: all(heard))
    assert len(made) < 10
    assert len({id(each[0]) for each in heard}) == 1
    await replica.service.CancelJob(pb.CancelJobRequest(job_id=JOB), Peer())
    await asyncio.gather(*watching)
    assert {each[-1].message.state for each in heard} == {pb.CANCELLED}
    assert len({id(each[-1]) for each in heard}) == 1
    late = []
    await _watched(looks, late)
    assert [message.message.state for message in late] == [pb.CANCELLED]


async def test_who_comes_later_gets_what_is_read_after_that(looks, monkeypatch):
    """It may have seen more at another scheduler."""
    real, fresh = looks._progress, []

    async def told(job_id, seq, *, is_fresh):
        fresh.append(is_fresh)
        return await real(job_id, seq, is_fresh=is_fresh)

    monkeypatch.setattr(looks, "_progress", told)
    async with aclosing(looks.progress(JOB)) as first, aclosing(looks.progress(JOB)) as second:
        await anext(first)
        assert fresh == [True]
        await anext(second)
        assert fresh == [True, True]


async def test_what_cannot_be_read_is_told_to_all(replica):
    async def watch():
        async with aclosing(replica.service.queries.progress(JobId("nobody"))) as messages:
            await anext(messages)

    told = await asyncio.gather(watch(), watch(), return_exceptions=True)
    assert [type(error) for error in told] == [JobNotFoundError, JobNotFoundError]
    assert replica.service.queries._followers == 0


def test_the_more_watch_the_less_often_each_hears():
    assert pace_s(1) == pace_s(50) == timing.WATCH_EVERY_S
    assert 1_200 / pace_s(1_200) <= 500


@pytest.mark.virtual_time
@pytest.mark.parametrize("followers", [1, 400])
async def test_a_job_that_changes_all_the_time_is_told_at_that_pace(followers):
    clock = VirtualClock(asyncio.get_running_loop())
    replica = Replica(SchedulerSettings(), MemoryBackend(MemoryStore(clock)), clock)
    await replica.start()
    await replica.service.SubmitJob(pb.SubmitJobRequest(job_id=JOB, spec=SPEC), Peer())
    await replica.local.fill_reservations(JOB, [ExecutorReservation.of(SLOT)])
    await replica.writers.record_decision(JOB, lambda _: Decision([planned(100)]))
    told_s = [[] for _ in range(followers)]

    async def watch(told):
        async for _ in replica.service.queries.shared_progress(JOB):
            told.append(clock.monotonic_s())

    watching = [asyncio.create_task(watch(told)) for told in told_s]
    await asyncio.sleep(5)
    for told in told_s:
        told.clear()
    for _ in range(100):
        await replica.local.fill_reservations(JOB, [ExecutorReservation.of(SLOT)])
        await asyncio.sleep(0.05)
    await replica.service.CancelJob(pb.CancelJobRequest(job_id=JOB), Peer())
    await asyncio.gather(*watching)
    for told in told_s:
        gaps = [after - before for before, after in pairwise(told[:-1])]  # the end is told at once
        assert pace_s(followers) - 0.001 < min(gaps)
        assert max(gaps) < pace_s(followers) + 0.1


def test_a_shared_message_is_encoded_once():
    shared = SharedMessage(pb.JobProgress(job_id=JOB))
    assert encoded(shared) is encoded(shared)
    assert encoded(shared) == encoded(shared.message)


async def test_who_reads_slowly_gets_the_last_message(replica, looks):
    async with aclosing(looks.shared_progress(JOB)) as messages:
        heard = [await anext(messages)]
        feed = looks._feeds._feeds[JOB]
        await replica.service.CancelJob(pb.CancelJobRequest(job_id=JOB), Peer())
        await eventually(lambda: feed.is_over)
        heard += [message async for message in messages]
    assert heard[-1].message.state == pb.CANCELLED
