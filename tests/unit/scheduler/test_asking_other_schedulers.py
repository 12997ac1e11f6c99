"""Two schedulers, each driving some jobs: how much a call between them may carry."""

import asyncio

import pytest

from onager.ids import JobId
from onager.scheduler.cluster import job_loads
from onager.scheduler.policy.reservations import ExecutorReservation
from tests.unit.scheduler.pair import HERE, SLOT, THERE, job_of
from tests.unit.scheduler.small_graphs import graph

# ---------------------------------------------------------------- telling of many jobs


@pytest.mark.parametrize("asks", [False, True], ids=["reported", "asks"])
async def test_of_more_jobs_than_a_call_may_tell_the_rest_is_reported_by_later_ones(pair, monkeypatch, asks):
    monkeypatch.setattr(job_loads, "MAX_LOADS", 2)
    job_ids = [job_of(HERE, n) for n in range(5)]
    for job_id in job_ids:
        await pair.here.jobs.submit(graph(job_id))
    await pair.there.heads.refresh()
    for _ in range(3):
        assert {pair.there.loads.position(job_id)[0] for job_id in job_ids} != {0}
        if asks:
            await pair.there.forwarding.drivers()[HERE].compare_tasks(SLOT, [], disproves=False)
        else:
            await pair.here.forwarding.drivers()[THERE].tell()
    assert {pair.there.loads.position(job_id)[0] for job_id in job_ids} == {0}
    assert all(len(call.loads) <= 2 for call in pair.calls)
    pair.calls.clear()
    await pair.here.forwarding.drivers()[THERE].tell()
    await pair.here.forwarding.drivers()[THERE].tell()
    assert len(pair.calls) == asks, "nothing is reported twice, unless it is not sure to have arrived"


# ---------------------------------------------------------------- watching


async def test_watchers_of_another_schedulers_job_share_one_request(pair, monkeypatch):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 5)
    pair.calls.clear()
    received, view = [], pair.there.for_schedulers.view
    monkeypatch.setattr(view, "progress", lambda *found, progress=view.progress: received.append(1) or progress(*found))
    actor = pair.here.forwarding.driver_of(job_id)
    first, *others = [asyncio.create_task(actor.progress(job_id)) for _ in range(30)]
    await asyncio.sleep(0)
    first.cancel()  # who leaves takes nothing from the others
    found = await asyncio.gather(*others)
    assert {each.progress.stages[1].partitions for each in found} == {5}
    assert [len(call.watched) for call in pair.calls] == [1]
    keys = await pair.fill(1)
    again, _ = await asyncio.gather(actor.progress(job_id), actor.progress(job_id))
    assert (again.progress.stages[1].running, again.log_seq) == (len(keys), found[0].log_seq + 1)
    assert len(received) == 2


async def test_a_watcher_asks_again_while_a_call_is_in_flight(pair):
    """The answer in flight may be older than the change that the watcher knows of."""
    job_id = job_of(THERE)
    await pair.run_job(job_id, 5)
    actor, is_made, may_arrive = pair.here.forwarding.driver_of(job_id), asyncio.Event(), asyncio.Event()

    async def slow(scheduler_id, request):
        answer = await pair.forward(scheduler_id, request)
        is_made.set()
        await may_arrive.wait()
        return answer

    pair.here.forwarding.calls.forward = slow
    early = asyncio.create_task(actor.progress(job_id))
    await is_made.wait()
    await pair.there.local.fill_reservations(job_id, [ExecutorReservation.of(SLOT)])
    late = asyncio.create_task(actor.progress(job_id))
    await asyncio.sleep(0)
    may_arrive.set()
    assert (await late).log_seq == (await early).log_seq + 1


async def test_no_call_has_more_parts_than_the_other_scheduler_takes(pair):
    jobs = [JobId(f"none-{n}") for n in range(1_500)]
    actor = pair.here.forwarding.drivers()[THERE]
    pair.calls.clear()
    watchers = (actor.progress(job_id) for job_id in jobs)
    found = await asyncio.gather(*watchers, return_exceptions=True)
    assert {str(each) for each in found} == {f"there does not follow {job_id}" for job_id in jobs}
    assert max(len(call.watched) for call in pair.calls) == 64
    pair.calls.clear()
    await asyncio.gather(*(actor.compare_tasks(SLOT, [], disproves=False) for _ in range(1_500)))
    assert sorted(len(call.lists) for call in pair.calls) == [476, 1024]
