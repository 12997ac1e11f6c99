"""Two schedulers, each driving some jobs: slots and reports are forwarded to the driver."""

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace

from onager.execution_graph import ExecutorLost
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id, task_keys
from onager.scheduler import timing
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.state_backend import Keyspace
from tests.support.waiting import HANGS_S
from tests.unit.scheduler.pair import HERE, SLOT, THERE, FakeContext, job_of, register
from tests.unit.scheduler.small_graphs import session_of

# ---------------------------------------------------------------- handing over


async def test_a_slot_and_a_report_go_to_the_driver_of_the_job(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 5)
    appends = pair.there.writers.appends
    first = await pair.fill(2)
    assert [key.partition for key in first] == [0, 1]
    assert [key.partition for key in await pair.finish(first)] == [2, 3]
    assert pair.there.writers.appends == appends + 2
    assert pair.here.writers.appends == pair.there.writers.conflicts == 0
    assert pair.here.queue.running(job_id) == 2, "the answer tells how much there is to do"


async def test_jobs_of_one_scheduler_go_in_one_call(pair):
    jobs = [job_of(THERE, 0), job_of(THERE, 1)]
    for job_id in jobs:
        await pair.run_job(job_id, 4)
    keys = await pair.fill(4)
    assert Counter(key.job_id for key in keys) == {jobs[0]: 2, jobs[1]: 2}
    pair.calls.clear()
    assert len(await pair.finish(keys)) == 4
    assert len(pair.calls) == 1


async def test_a_scheduler_forwards_nothing_about_jobs_that_it_drives(pair):
    job_id = job_of(HERE)
    await pair.run_job(job_id, 3)
    pair.calls.clear()
    await pair.finish(await pair.fill(2))
    assert pair.calls == []


async def test_a_follower_keeps_no_graph_of_its_own(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 5)
    await pair.finish(await pair.fill(2))
    await pair.settle()
    assert pair.here.jobs.cached(job_id) is None
    assert pair.there.ownership.follows(job_id)
    assert not pair.here.ownership.follows(job_id)


# ---------------------------------------------------------------- no answer


@pytest.mark.parametrize("fate", ["silent", "answer lost"])
async def test_a_report_that_the_driver_does_not_answer_is_applied_by_its_receiver(pair, fate):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    keys = await pair.fill(2)
    pair.fate = fate
    await pair.finish(keys)
    ledger = (await pair.stored(job_id)).ledger
    assert sorted(ledger.outputs) == [0, 1]
    assert [ledger.success_count(p) for p in (0, 1)] == [1, 1]


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_launch_whose_answer_was_lost_is_found_by_the_list(pair, monkeypatch, is_first):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    pair.fate = "answer lost"
    here = await pair.fill(1)
    assert [key.partition for key in here] == [1], "the other scheduler has handed out the first, unseen"
    pair.fate = "ok"
    asked = session_of(list_number=1)
    asked.list_number = 0 if is_first else 1
    asked.held[here[0]] = 0.0
    launches, _ = await pair.here.reconciler.take_list(asked, 2, set(here))
    found = [launch.task_set for launch in launches]
    assert bool(found) == is_first, "the first list of an executor is reported at once, any other within a second"
    monkeypatch.setattr(pair.here.executors, "_sessions", {asked.executor_id: asked})
    await pair.here.reconciler.compare_all()
    found += asked.late_task_sets
    assert [key.partition for task_set in found for key in task_keys(task_set)] == [0]
    assert (await pair.stored(job_id)).running[0].lost_launches == 1


async def with_a_launch_that_waits_for_a_poll(pair, monkeypatch):
    """Return a job of two tasks, and the session of an executor that is to learn of the lost launch of the first."""
    job_id = job_of(THERE)
    await pair.run_job(job_id, 1)
    pair.fate = "answer lost"
    await pair.fill(1)
    pair.fate = "ok"
    asked = session_of(list_number=2)  # which does not have it; the poll was answered with something else
    monkeypatch.setattr(pair.here.executors, "_sessions", {asked.executor_id: asked})
    await pair.here.reconciler.compare_all()
    assert [task_set.stage_id for task_set in asked.late_task_sets] == [1]
    pair.clock.advance(int(2 * timing.LAUNCH_YOUNG_S * 1000))
    return job_id, asked


async def test_a_launch_that_waits_for_a_poll_is_not_given_to_another_by_the_list_of_that_poll(pair, monkeypatch):
    job_id, asked = await with_a_launch_that_waits_for_a_poll(pair, monkeypatch)
    await pair.here.reconciler.take_list(asked, 3, set())
    await pair.here.reconciler.compare_all()
    running = (await pair.stored(job_id)).running
    assert [task.attempt for task in running.values()] == [0], "it goes with the answer to that very poll"
    delivered = [key for task_set in pair.here.reconciler.take_late(asked) for key in task_keys(task_set)]
    assert [key.task_attempt for key in delivered] == [0]
    await pair.here.reconciler.take_list(asked, 4, set())
    await pair.here.reconciler.compare_all()
    assert (await pair.stored(job_id)).running, "it is on its way"
    pair.clock.advance(int(2 * timing.LAUNCH_YOUNG_S * 1000))
    await pair.here.reconciler.take_list(asked, 5, set())
    await pair.here.reconciler.compare_all()
    assert not (await pair.stored(job_id)).running, "that answer was lost, too"


async def test_a_launch_that_waits_is_not_delivered_once_others_have_had_lists_without_it(pair, monkeypatch):
    job_id, asked = await with_a_launch_that_waits_for_a_poll(pair, monkeypatch)
    elsewhere = session_of(list_number=3)
    await pair.there.local.compare_tasks(elsewhere.slot, [], disproves=True)
    assert not (await pair.stored(job_id)).running, "another attempt runs somewhere"
    await pair.here.reconciler.take_list(asked, 4, set())
    assert pair.here.reconciler.take_late(asked) == []


async def test_a_list_disproves_nothing_while_the_answer_to_the_one_before_is_awaited(pair, monkeypatch):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 1)
    pair.fate = "answer lost"
    await pair.fill(1)
    pair.fate = "ok"
    asked = session_of(list_number=2)
    monkeypatch.setattr(pair.here.executors, "_sessions", {asked.executor_id: asked})
    forward, is_held, go_on = pair.forward, asyncio.Event(), asyncio.Event()

    async def slow(scheduler_id, request):
        answer = await forward(scheduler_id, request)
        if not is_held.is_set():
            is_held.set()
            await go_on.wait()
        return answer

    monkeypatch.setattr(pair.here.forwarding.calls, "forward", slow)
    first = asyncio.create_task(pair.here.reconciler.compare_all())
    await is_held.wait()
    asked.list_number = 3
    await pair.here.reconciler.compare_all()
    go_on.set()
    await first
    assert (await pair.stored(job_id)).running, "its launch was in the answer to the list before"
    assert asked.late_task_sets


@pytest.mark.parametrize("driver", [HERE, THERE])
@pytest.mark.parametrize("last_list", [0, 5], ids=["first list", "back again"])
async def test_launches_that_the_scheduler_polled_before_asked_for_may_come_after_the_list(
    pair, monkeypatch, driver, last_list
):
    job_id, asked = job_of(driver), session_of(list_number=last_list)
    await pair.run_job(job_id, 1)
    monkeypatch.setattr(pair.here.executors, "_sessions", {asked.executor_id: asked})
    await pair.here.reconciler.take_list(asked, 8, set())
    before = replace(SLOT, list_number=7)
    await pair.schedulers[driver].local.fill_reservations(job_id, [ExecutorReservation.of(before)])
    await asyncio.wait_for(pair.here.reconciler._again.wait(), HANGS_S)
    await pair.here.reconciler.compare_new()
    (repeated,) = asked.late_task_sets
    assert [key.job_id for key in task_keys(repeated)] == [job_id]
    pair.calls.clear()
    await pair.here.reconciler.compare_new()
    assert not pair.calls, "twice is enough"
    assert len(asked.late_task_sets) == 1


async def test_a_repeated_launch_is_not_taken_back_while_another_comparison_of_its_list_goes_on(pair, monkeypatch):
    mine, asked = job_of(HERE), session_of()
    for job_id in (mine, job_of(THERE)):
        await pair.run_job(job_id, 1)
    await pair.here.local.fill_reservations(mine, [ExecutorReservation.of(SLOT)])
    forward, is_held, go_on = pair.forward, asyncio.Event(), asyncio.Event()

    async def slow(scheduler_id, request):
        is_held.set()
        await go_on.wait()
        return await forward(scheduler_id, request)

    monkeypatch.setattr(pair.here.forwarding.calls, "forward", slow)
    first = asyncio.create_task(pair.here.reconciler.take_list(asked, 2, set()))
    await is_held.wait()
    _, is_young = await pair.here.reconciler.take_list(asked, 3, set())
    go_on.set()
    (repeated,), _ = await first
    assert is_young
    assert [key.job_id for key in task_keys(repeated.task_set)] == [mine]
    assert (await pair.stored(mine)).running, "it is on its way"


async def test_a_list_says_nothing_of_launches_that_are_on_their_way(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    await pair.there.local.fill_reservations(job_id, [ExecutorReservation.of(SLOT)])
    pair.here.forwarding.drivers()[THERE]._busy["e1"] += 1
    launches, _ = await pair.here.reconciler.take_list(session_of(list_number=1), 2, set())
    assert launches == []


async def test_a_silent_scheduler_is_passed_over_for_a_while(pair, monkeypatch):
    calls = pair.here.forwarding.calls
    del calls.forward  # the real one, to an address where nobody listens
    assert calls.answers(THERE)
    with pytest.raises(NotDrivingError, match="there"):
        await calls.forward(THERE, pb.ForwardRequest())
    assert not calls.answers(THERE)
    assert pair.here.forwarding.driver_of(job_of(THERE)) is None
    pair.clock.advance(int(timing.SCHEDULER_PASSED_OVER_S * 1000) + 1)
    assert calls.answers(THERE)
    assert pair.here.forwarding.driver_of(job_of(THERE)) is not None


async def test_reports_that_the_other_scheduler_could_not_store_are_stored_here(pair, monkeypatch):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    keys = await pair.fill(1)

    async def broken(*_, **__):
        raise OSError("no store")

    monkeypatch.setattr(pair.there.jobs, "commit", broken)
    await pair.finish(keys)
    assert sorted((await pair.stored(job_id)).ledger.outputs) == [0]


async def test_a_task_of_a_job_that_ended_elsewhere_is_not_wanted_any_more(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    keys = await pair.fill(1)
    asked = session_of(list_number=1)
    asked.held = dict.fromkeys(keys, 0.0)
    assert await pair.here.reconciler.unwanted(asked) == []
    await pair.there.local.coordinator(job_id).cancel_job("enough")
    await pair.here.reconciler.compare_all()
    await pair.here.heads.refresh()
    assert await pair.here.reconciler.unwanted(asked) == keys
    assert pair.here.jobs.cached(job_id) is None, "the head says enough: the job need not be read"


async def test_the_driver_says_which_tasks_are_unwanted(pair, monkeypatch):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    keys = await pair.fill(1)
    asked = session_of(list_number=1)
    asked.held = dict.fromkeys(keys, 0.0)
    monkeypatch.setattr(pair.here.executors, "_sessions", {asked.executor_id: asked})
    lost = ExecutorLost(executor_id="e1", incarnation="life", reason="gone", at_ms=2)
    await pair.there.local.lose_executor(lost)
    await pair.here.reconciler.compare_all()
    assert await pair.here.reconciler.unwanted(asked) == keys
    assert await pair.here.reconciler.unwanted(asked) == [], (
        "once reported, it is said again only when it is still held"
    )


# ---------------------------------------------------------------- the driver changes


async def test_a_scheduler_that_is_left_alone_goes_on_with_all_jobs_at_once(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    (key,) = await pair.fill(1)
    lost = ExecutorLost(executor_id="e1", incarnation="life", reason="gone", at_ms=2)
    pair.here.executors._losses._recent["e1", "life"] = (pair.clock.monotonic_s(), lost)
    received = []
    pair.here.schedulers.listen(lambda: received.append(pair.here.ownership.scheduler_of(job_id)))
    await pair.here._backend.delete(Keyspace.Schedulers, THERE)
    await pair.here.schedulers.refresh()
    assert received == [HERE]
    await pair.here.adoption.adopt_all()
    assert pair.here.ownership.follows(job_id)
    stage = pair.here.jobs.cached(job_id).graph.stages[1]
    assert not stage.running, "what the lost executor ran waits again"
    assert stage.ledger.next_attempt(key.partition) == 1


async def test_a_scheduler_that_drives_a_job_no_longer_reads_it_before_it_writes(pair):
    job_id = job_of(HERE)
    await pair.run_job(job_id, 3)
    keys = await pair.fill(2)
    await pair.there.local.fill_reservations(job_id, [ExecutorReservation.of(SLOT)])
    await pair.here.schedulers.leave(0.1)
    assert pair.here.ownership.scheduler_of(job_id) == THERE
    assert not pair.here.ownership.follows(job_id)
    pair.fate = "silent"
    await pair.finish(keys)
    assert pair.here.writers.conflicts == 0
    assert len((await pair.stored(job_id)).running) == 1


# ---------------------------------------------------------------- how far tasks are


async def test_how_far_tasks_are_goes_to_the_driver_and_is_reported_by_it(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    (key,) = await pair.fill(1)
    reported = [pb.AttemptProgress(task=task_id(key), rows_read=7, permille=500)]
    await register(pair)
    beat = pb.HeartbeatRequest(executor_id="e1", incarnation="life", running=[task_id(key)], progress=reported)
    await pair.here.gateway.Heartbeat(beat, FakeContext())
    assert [list(call.progress) for call in pair.calls if call.progress] == []
    await pair.settle()
    assert [list(call.progress) for call in pair.calls if call.progress] == [reported]
    for scheduler in (pair.here, pair.there):
        progress = (await scheduler.service.GetJob(pb.GetJobRequest(job_id=job_id), FakeContext())).progress
        assert progress.fraction == 0.25
        assert (progress.stages[1].fraction, progress.stages[1].rows_read) == (0.25, 7)


async def test_how_far_tasks_of_own_jobs_are_stays_here(pair):
    job_id = job_of(HERE)
    await pair.run_job(job_id, 2)
    (key,) = await pair.fill(1)
    await register(pair)
    progress = [pb.AttemptProgress(task=task_id(key), permille=500)]
    beat = pb.HeartbeatRequest(executor_id="e1", incarnation="life", running=[task_id(key)], progress=progress)
    pair.calls.clear()
    await pair.here.gateway.Heartbeat(beat, FakeContext())
    await pair.settle()
    assert [call for call in pair.calls if call.progress] == []
    watched = anext(aiter(pair.here.service.WatchJob(pb.WatchJobRequest(job_id=job_id), FakeContext())))
    assert (await watched).message.fraction == 0.25
