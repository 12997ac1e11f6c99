"""Two schedulers, each driving some jobs: executors report to the driver, and poll one of them."""

import asyncio

import pytest

from onager.errors import DiskError
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id, task_key, task_keys
from onager.scheduler import timing
from onager.scheduler.engine import reports
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.state_backend import Keyspace
from tests.unit.scheduler.pair import HERE, SLOT, THERE, FakeContext, job_of, register, reported
from tests.unit.scheduler.small_graphs import session_of
from tests.unit.scheduler.test_dispatcher import polled


async def test_launches_say_where_they_are_to_be_reported_where_that_matters(pair):
    here, there = job_of(HERE), job_of(THERE)
    await pair.run_job(here, 4)
    await pair.run_job(there, 4)
    filled = await pair.here.tasks.fill_reservations([ExecutorReservation.of(SLOT)] * 4)
    addresses = {key.job_id: t.task_set.reply_to for t in filled.launches for key in task_keys(t.task_set)}
    assert addresses == {j: pair.schedulers[r].schedulers.record.address for j, r in ((here, HERE), (there, THERE))}
    await pair.here._backend.delete(Keyspace.Schedulers, THERE)
    await pair.here.schedulers.refresh()
    filled = await pair.here.tasks.fill_reservations([ExecutorReservation.of(SLOT)])
    assert [launch.task_set.reply_to for launch in filled.launches] == [""], "alone, any address leads here"


async def test_a_scheduler_that_helps_out_does_not_name_itself(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    pair.fate = "silent"
    filled = await pair.here.tasks.fill_reservations([ExecutorReservation.of(SLOT)])
    assert [launch.task_set.reply_to for launch in filled.launches] == [""]


async def test_a_report_to_the_driver_is_not_forwarded_and_its_slot_is_filled(pair):
    await register(pair)
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    keys = await pair.fill(1)
    pair.calls.clear()
    answer = await pair.there.gateway.ReportTasks(reported(keys, freed_slots=1, list_number=3), FakeContext())
    assert list(map(task_key, answer.acknowledged)) == keys
    (launched,) = answer.task_sets
    assert pair.calls == []
    assert launched.reply_to == pair.there.schedulers.record.address
    assert (await pair.stored(job_id)).running[1].list_number == 3, "list 3, that is elsewhere, cannot have it"
    answer = await pair.there.gateway.ReportTasks(
        reported(task_keys(launched), freed_slots=1, list_number=3), FakeContext()
    )
    assert (list(answer.task_sets), answer.credited_slots) == ([], 0), "no poll waits there: the executor tells"


async def test_a_list_does_not_disprove_what_the_driver_launched_meanwhile(pair, monkeypatch):
    await register(pair)
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    keys = await pair.fill(1)
    await pair.there.gateway.ReportTasks(reported(keys, freed_slots=1, list_number=2), FakeContext())
    for number, lost in ((2, 0), (3, 1)):
        asked = session_of(list_number=1)
        asked.list_number = number
        monkeypatch.setattr(pair.here.executors, "_sessions", {asked.executor_id: asked})
        await pair.here.reconciler.compare_all()
        assert (await pair.stored(job_id)).running[1].lost_launches == lost


async def test_an_executor_of_the_version_before_reports_where_it_polls(pair):
    await register(pair)
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    asked = pair.here.executors.require("e1", "life")
    asked.list_number = 5
    keys = await pair.fill(1)
    answer = await pair.here.gateway.ReportTasks(reported(keys, freed_slots=1), FakeContext())
    assert list(map(task_key, answer.acknowledged)) == keys
    assert [task.partition for task_set in answer.task_sets for task in task_set.tasks] == [1]
    assert (await pair.stored(job_id)).running[1].list_number == 5


async def test_slots_without_reports_are_added_to_the_poll_that_waits(pair):
    await register(pair)
    asked = pair.here.executors.require("e1", "life")
    waiting = asyncio.create_task(polled(pair.here.dispatcher, asked, 1, 5))
    await asyncio.sleep(0)
    answer = await pair.here.gateway.ReportTasks(reported([], freed_slots=2), FakeContext())
    assert answer.credited_slots == 2
    assert pair.here.dispatcher._offers["e1"].credit == 3
    pair.here.dispatcher.nudge(lambda _: True)
    await waiting


async def test_a_poll_goes_on_waiting_when_a_report_ends_its_job(pair):
    await register(pair)
    asked = pair.here.executors.require("e1", "life")
    asked.list_number = 1
    job_id = job_of(HERE)
    await pair.run_job(job_id, 1)
    keys = await pair.fill(1)
    asked.held.update(dict.fromkeys(keys, 0.0))
    offer = pair.here.dispatcher.offer(asked, 1)
    answer = await pair.here.gateway.ReportTasks(reported(keys, freed_slots=1, list_number=1), FakeContext())
    await pair.settle()
    assert pair.here.jobs.cached(job_id) is None or not pair.here.jobs.cached(job_id).graph.is_active
    assert (list(map(task_key, answer.acknowledged)), list(answer.cancel)) == (keys, [])
    assert not offer.answered.is_set(), "the next job needs it"
    assert not asked.reporting


async def test_the_polled_scheduler_learns_from_heartbeats_what_to_cancel(pair):
    await register(pair)
    pair.here.executors.require("e1", "life").list_number = 1
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    keys = await pair.fill(1, pair.there)
    beat = pb.HeartbeatRequest(executor_id="e1", incarnation="life", running=map(task_id, keys))
    assert not (await pair.here.gateway.Heartbeat(beat, FakeContext())).cancel
    await pair.there.local.coordinator(job_id).cancel_job("enough")
    await pair.here.heads.refresh()
    assert list(map(task_key, (await pair.here.gateway.Heartbeat(beat, FakeContext())).cancel)) == keys
    pair.clock.advance(int(timing.LAUNCH_YOUNG_S * 1000) + 1)
    other = pb.HeartbeatRequest(executor_id="e1", incarnation="life", running=[task_id(keys[0]._replace(partition=1))])
    await pair.here.gateway.Heartbeat(other, FakeContext())
    assert list(pair.here.executors.require("e1", "life").held) == [keys[0]._replace(partition=1)]


async def test_a_scheduler_that_is_not_polled_reports_unwanted_tasks_once(pair):
    await register(pair)
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    keys = await pair.fill(2)
    answer = await pair.there.gateway.ReportTasks(reported(keys[:1], freed_slots=1), FakeContext())
    ((launched,),) = (task_keys(task_set) for task_set in answer.task_sets)
    await pair.there.local.coordinator(job_id).cancel_job("enough")
    pair.clock.advance(1_000)
    answer = await pair.there.gateway.ReportTasks(reported(keys[1:]), FakeContext())
    assert list(map(task_key, answer.cancel)) == [launched]
    pair.clock.advance(1_000)
    assert not (await pair.there.gateway.ReportTasks(reported([]), FakeContext())).cancel


async def test_a_task_that_arrived_and_is_no_longer_listed_is_not_asked_about(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    asked = session_of(list_number=1)
    keys = await pair.fill(2)
    asked.held = dict.fromkeys(keys, -10.0)
    await pair.here.reconciler.take_list(asked, 2, {keys[0]})
    assert [call for call in pair.calls if call.lists], "one has perhaps got lost"
    pair.calls.clear()
    await pair.here.reconciler.take_list(asked, 3, set())
    assert not [call for call in pair.calls if call.lists], "it was reported to who acts"


async def test_a_task_reported_to_the_driver_before_the_next_list_is_not_cancelled(pair):
    await register(pair)
    asked = pair.here.executors.require("e1", "life")
    job_id = job_of(THERE)
    await pair.run_job(job_id, 1)
    waiting = asyncio.create_task(polled(pair.here.dispatcher, asked, 1, 5))
    await asyncio.sleep(0)
    await pair.here.dispatcher._fill()
    (launched,) = await waiting
    keys = task_keys(launched)
    await pair.there.gateway.ReportTasks(reported(keys), FakeContext())
    await pair.here.heads.refresh()
    assert pair.here.heads.get(job_id).state.is_terminal
    _, is_young = await pair.here.reconciler.take_list(asked, 1, set())
    assert is_young
    assert not asked.runs(job_id)
    assert await pair.here.reconciler.unwanted(asked) == []
    _, is_young = await pair.here.reconciler.take_list(asked, 2, set(keys))
    assert not is_young
    assert await pair.here.reconciler.unwanted(asked) == keys, "it is there"
    asked.held = dict.fromkeys(keys, pair.clock.monotonic_s())
    _, is_young = await pair.here.reconciler.take_list(asked, 3, set())
    assert not is_young, "it was there: it is not on its way"
    assert not asked.held


async def test_a_planning_task_brings_the_spec_where_that_is_at_hand(pair):
    await register(pair)
    job_id = job_of(HERE)
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))
    await pair.here.service.SubmitJob(pb.SubmitJobRequest(job_id=job_id, spec=spec, client_id="c"), FakeContext())
    asked = pb.PollWorkRequest(executor_id="e1", incarnation="life", free_slots=1, list_number=1, wait_ms=5_000)
    waiting = asyncio.create_task(pair.here.gateway.PollWork(asked, FakeContext()))
    dispatching = asyncio.create_task(pair.here.dispatcher.run())
    answer = await waiting
    dispatching.cancel()
    (blob,) = answer.blobs
    assert [task_set.spec_digest for task_set in answer.task_sets] == [blob.digest] == [digest_of(blob.content)]
    assert pair.there.blobs.at_hand(blob.digest) is None
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 2"))
    await pair.here.service.SubmitJob(
        pb.SubmitJobRequest(job_id=job_of(HERE, 1), spec=spec, client_id="c"), FakeContext()
    )
    failure = pb.Failure(kind="user_error")
    ended = [pb.TaskReport(task=task_id(key), failure=failure) for key in task_keys(answer.task_sets[0])]
    freed = pb.ReportTasksRequest(executor_id="e1", incarnation="life", reports=ended, freed_slots=1)
    answer = await pair.here.gateway.ReportTasks(freed, FakeContext())
    (blob,) = answer.blobs
    assert [task_set.spec_digest for task_set in answer.task_sets] == [blob.digest] == [digest_of(blob.content)]


async def test_reports_that_need_a_disk_which_fails_here_are_sent_to_another_scheduler(pair, monkeypatch):
    await register(pair)
    job_id, other = job_of(HERE), job_of(HERE, 1)
    for each in (job_id, other):
        await pair.run_job(each, 1)
    keys = sorted(await pair.fill(2), key=lambda key: key.job_id != job_id)
    read = reports._succeeded

    def failing(graph, key, *args):
        if key.job_id == job_id:
            raise DiskError("the directory of an output does not answer")
        return read(graph, key, *args)

    monkeypatch.setattr(reports, "_succeeded", failing)
    answer = await pair.here.gateway.ReportTasks(reported(keys), FakeContext())
    assert list(map(task_key, answer.acknowledged)) == keys[1:], "what others reported beside it counts"
    with pytest.raises(DiskError):
        await pair.here.gateway.ReportTasks.__wrapped__(pair.here.gateway, reported(keys[:1]), FakeContext())
    monkeypatch.setattr(reports, "_succeeded", read)
    answer = await pair.there.gateway.ReportTasks(reported(keys[:1]), FakeContext())
    assert list(map(task_key, answer.acknowledged)) == keys[:1]
