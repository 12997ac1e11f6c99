"""The agent against a real gRPC server whose answers are scripted, and a worker that obeys the test."""

import asyncio
import hashlib

import pytest
from structlog.testing import capture_logs

from onager.errors import UnknownExecutorError, VersionMismatchError
from onager.executor.agent.backoff import spread
from onager.executor.agent.endings import Ending
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id
from onager.supervision import LoopEndedError
from tests.support.fakes.scripted_gateway import PLAN_BLOB, PLAN_DIGEST, key, lose, refuse, rig, serve, task_set
from tests.support.waiting import HANGS_S, eventually


async def test_a_task_goes_from_poll_to_acknowledged_report():
    async with rig() as r:
        await r.gateway.launches.put(task_set(3))
        await eventually(lambda: r.worker.started)
        assert r.worker.started == [key(3)]
        assert r.gateway.blob_requests == [PLAN_DIGEST]
        r.worker.succeed(key(3))
        await eventually(lambda: r.gateway.reports)
        assert r.gateway.reports[0].freed_slots == 1
        assert r.gateway.outcomes() == {key(3): "success"}
        await eventually(lambda: r.gateway.polls[-1].free_slots == 2 and not r.gateway.polls[-1].running)


async def test_inputs_that_are_given_by_their_digest_are_fetched_once_and_put_in_place():
    inputs = pb.TaskSet(
        inputs=[pb.StageInputLocations(stage_id=1, outputs=[pb.TaskOutput(nonce=f"n{n}")]) for n in (0, 1)]
    )
    content = inputs.SerializeToString()
    digest = hashlib.sha256(content).hexdigest()
    async with rig() as r:
        r.gateway.blobs[digest] = content
        for partition in (0, 1):
            launch = task_set(partition, stage=2)
            launch.inputs_digest = digest
            await r.gateway.launches.put(launch)
        await eventually(lambda: len(r.worker.started) == 2)
        assert r.gateway.blob_requests == [PLAN_DIGEST, digest]
        for assignment in r.worker.assignments:
            assert assignment.task_set.inputs == inputs.inputs
            assert set(assignment.blobs) == {PLAN_DIGEST}


async def test_registration_names_versions_slots_machine_and_incarnation():
    async with rig(slots=3, machine="rack-4") as r:
        await eventually(lambda: r.gateway.polls)
        (request,) = r.gateway.registrations
        assert (request.executor_id, request.incarnation, request.slots) == ("e-1", "life-1", 3)
        assert not request.features
        assert request.machine == "rack-4"
        assert (request.protocol_version, request.spark_version, request.python_version) == (2, "4.3.0", "3.11")


async def test_a_refused_version_ends_the_agent_with_the_message():
    async with rig() as r:
        r.gateway.before["register"] = refuse(VersionMismatchError("this scheduler speaks protocol 2"))
        async with asyncio.timeout(HANGS_S):
            outcome = await r.outcome
        assert outcome.ending is Ending.REFUSED
        assert "protocol 2" in outcome.message
        assert not r.gateway.goodbyes


async def test_a_launch_that_comes_twice_runs_once_while_it_runs():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: len(r.gateway.polls) >= 3)
        assert r.worker.started == [key(0)]


async def test_a_launch_that_comes_again_after_its_report_runs_nothing():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.worker.succeed(key(0))
        await eventually(lambda: r.gateway.reports)
        polls = len(r.gateway.polls)
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: len(r.gateway.polls) >= polls + 2)
        assert r.worker.started == [key(0)]


async def test_a_launch_in_the_answer_to_a_report_starts_at_once():
    async with rig(slots=1) as r:
        r.gateway.refills.append(task_set(1))
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.worker.succeed(key(0))
        await eventually(lambda: len(r.worker.started) == 2)
        assert len(r.gateway.polls) == 1


async def test_a_report_whose_answer_is_lost_is_sent_again_and_offers_its_slot_once():
    async with rig() as r:
        r.gateway.after["report"] = lose(times=2)
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.worker.succeed(key(0))
        await eventually(lambda: len(r.gateway.reports) == 3)
        assert [request.freed_slots for request in r.gateway.reports] == [1, 0, 0]
        assert r.gateway.reported() == [key(0)] * 3


async def test_a_poll_that_waits_meanwhile_is_made_again_with_the_slot_that_no_report_offered():
    async with rig(poll_wait_ms=30_000) as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: len(r.gateway.polls) == 2 and r.worker.started)
        assert r.gateway.polls[1].free_slots == 1
        r.gateway.after["report"] = lose(times=1)
        r.worker.succeed(key(0))
        await eventually(lambda: len(r.gateway.polls) == 3)
        assert (r.gateway.polls[2].free_slots, list(r.gateway.polls[2].running)) == (2, [])


async def test_a_finished_task_stays_in_the_list_until_it_is_acknowledged():
    async with rig() as r:
        r.gateway.acknowledges = False
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.worker.succeed(key(0))
        await eventually(lambda: len(r.gateway.reports) > 2)
        assert [task.partition for task in r.gateway.polls[-1].running] == [0]
        assert r.gateway.polls[-1].free_slots == 1
        r.gateway.acknowledges = True
        await eventually(lambda: r.gateway.polls[-1].free_slots == 2)


async def test_reports_of_one_moment_travel_together():
    async with rig(slots=8) as r:
        await r.gateway.launches.put(task_set(*range(8)))
        await eventually(lambda: len(r.worker.started) == 8)
        for partition in range(8):
            r.worker.succeed(key(partition))
        await eventually(lambda: len(r.gateway.reported()) == 8)
        assert len(r.gateway.reports) <= 2


async def test_lists_are_numbered_and_name_what_is_held():
    async with rig(slots=2) as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: len(r.gateway.polls) >= 2)
        assert [poll.list_number for poll in r.gateway.polls] == list(range(1, len(r.gateway.polls) + 1))
        assert list(r.gateway.polls[1].running) == [task_id(key(0))]


async def test_with_no_free_slot_no_work_is_polled_for_but_cancels_arrive():
    async with rig(slots=1, poll_wait_ms=30_000) as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        polls = len(r.gateway.polls)
        beats = len(r.gateway.heartbeats)
        await eventually(lambda: len(r.gateway.heartbeats) >= beats + 2)
        assert len(r.gateway.polls) == polls
        r.gateway.cancels = [key(0)]
        await eventually(lambda: r.gateway.reports)
        assert r.worker.cancelled == [key(0)]
        assert r.gateway.outcomes() == {key(0): "task_killed"}


async def test_with_no_free_slot_lists_are_sent_that_wait_for_nothing_and_offer_nothing():
    async with rig(slots=1, poll_wait_ms=100) as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        polls = len(r.gateway.polls)
        await eventually(lambda: len(r.gateway.polls) >= polls + 2)
        for poll in r.gateway.polls[polls:]:
            assert (poll.free_slots, poll.wait_ms) == (0, 0)
            assert list(poll.running) == [task_id(key(0))]
        numbers = [poll.list_number for poll in r.gateway.polls]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_a_full_executor_that_learns_of_tasks_all_the_time_sends_lists_still():
    async with rig(slots=1, poll_wait_ms=300) as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        polls = len(r.gateway.polls)

        def is_polled():
            r.agent._note_change()
            return len(r.gateway.polls) > polls

        await eventually(is_polled)


async def test_an_executor_that_leaves_sends_lists_and_offers_none_of_its_slots():
    async with rig(slots=2, poll_wait_ms=100) as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.agent.request_drain()
        await eventually(lambda: r.gateway.polls[-1].free_slots == 0)
        assert r.gateway.polls[-1].wait_ms == 0
        assert list(r.gateway.polls[-1].running) == [task_id(key(0))]


async def test_more_tasks_than_slots_wait_and_more_than_twice_as_many_are_refused():
    async with rig(slots=2) as r:
        await r.gateway.launches.put(task_set(*range(6)))
        await eventually(lambda: len(r.gateway.reported()) == 2)
        assert r.gateway.outcomes() == {key(4): "task_killed", key(5): "task_killed"}
        await eventually(lambda: len(r.worker.started) == 2)
        assert r.worker.started == [key(0), key(1)]
        r.worker.succeed(key(0))
        await eventually(lambda: len(r.worker.started) == 3)
        assert r.worker.started[-1] == key(2)


async def test_a_cancelled_task_that_waits_for_a_slot_never_starts():
    async with rig(slots=1) as r:
        await r.gateway.launches.put(task_set(0, 1))
        await eventually(lambda: r.worker.started)
        r.gateway.cancels = [key(1)]
        await eventually(lambda: r.gateway.outcomes().get(key(1)) == "task_killed")
        r.worker.succeed(key(0))
        await eventually(lambda: r.gateway.outcomes().get(key(0)) == "success")
        assert r.worker.started == [key(0)]


async def test_a_task_cancelled_while_its_plan_is_fetched_never_starts():
    gate = asyncio.Event()

    async def wait(request, context):
        await gate.wait()

    async with rig(slots=1) as r:
        r.gateway.before["blob"] = wait
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.gateway.blob_requests)
        r.gateway.cancels = [key(0)]
        await eventually(lambda: r.gateway.outcomes().get(key(0)) == "task_killed")
        gate.set()
        await r.gateway.launches.put(task_set(1))
        await eventually(lambda: r.worker.started)
        assert r.worker.started == [key(1)]


async def test_an_unknown_executor_registers_again_with_what_it_holds():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        known = len(r.gateway.registrations)
        r.gateway.before["heartbeat"] = refuse(UnknownExecutorError("e-1"))
        await eventually(lambda: len(r.gateway.registrations) > known)
        del r.gateway.before["heartbeat"]
        assert list(r.gateway.registrations[-1].running) == [task_id(key(0))]
        r.worker.succeed(key(0))
        await eventually(lambda: r.gateway.outcomes() == {key(0): "success"})


async def test_a_report_to_a_scheduler_that_does_not_know_us_is_sent_again_after_registering():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        known = len(r.gateway.registrations)
        r.gateway.before["report"] = refuse(UnknownExecutorError("e-1"))
        r.worker.succeed(key(0))
        await eventually(lambda: len(r.gateway.registrations) > known)
        del r.gateway.before["report"]
        await eventually(lambda: r.gateway.polls[-1].free_slots == 2)


async def test_reports_go_to_another_scheduler_when_one_is_gone():
    async with rig(schedulers=2) as r:
        first, second = r.gateways
        await first.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        await r.servers[0].stop(None)
        r.worker.succeed(key(0))
        await eventually(lambda: second.outcomes() == {key(0): "success"})
        await second.launches.put(task_set(1))
        await eventually(lambda: r.worker.started == [key(0), key(1)])


async def test_tasks_run_on_while_no_scheduler_answers():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        port = int(r.agent._settings.scheduler.rpartition(":")[2])
        with capture_logs() as logs:
            await r.servers[0].stop(None)
            r.worker.succeed(key(0))
            await eventually(lambda: any(entry["event"] == "schedulers_lost" for entry in logs))
        assert not r.outcome.done()
        server, _ = await serve(r.gateway, f"127.0.0.1:{port}")
        try:
            await eventually(lambda: r.gateway.outcomes() == {key(0): "success"})
        finally:
            await server.stop(None)


async def test_drain_finishes_what_runs_and_takes_nothing_more():
    async with rig(slots=2) as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: len(r.gateway.polls) == 2)
        r.agent.request_drain()
        await eventually(lambda: r.gateway.heartbeats[-1].draining)
        await r.gateway.launches.put(task_set(1))
        await eventually(lambda: r.gateway.outcomes().get(key(1)) == "task_killed")
        assert not r.outcome.done()
        r.worker.succeed(key(0))
        async with asyncio.timeout(HANGS_S):
            outcome = await r.outcome
        assert outcome.ending is Ending.DRAINED
        assert r.gateway.outcomes()[key(0)] == "success"
        assert all(request.freed_slots == 0 for request in r.gateway.reports)
        assert [goodbye.reason for goodbye in r.gateway.goodbyes] == ["drained"]
        assert r.worker.started == [key(0)]


async def test_an_idle_executor_drains_at_once():
    async with rig() as r:
        await eventually(lambda: r.gateway.polls)
        r.agent.request_drain()
        async with asyncio.timeout(HANGS_S):
            assert (await r.outcome).ending is Ending.DRAINED


async def test_drain_waits_for_those_who_read_what_was_streamed():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.worker.streamed = {"job-1"}
        r.worker.succeed(key(0))
        r.agent.request_drain()
        await eventually(lambda: sum(beat.draining and not beat.running for beat in r.gateway.heartbeats) >= 3)
        assert not r.outcome.done()
        r.gateway.forgotten = ["job-1"]
        async with asyncio.timeout(HANGS_S):
            assert (await r.outcome).ending is Ending.DRAINED


@pytest.mark.parametrize("impatience", ["grace is over", "asked twice"])
async def test_a_drain_that_takes_too_long_gives_up_what_was_streamed(impatience):
    async with rig(drain_grace_ms=100 if impatience == "grace is over" else 60_000) as r:
        r.worker.streamed = {"job-1"}
        await eventually(lambda: r.gateway.polls)
        r.agent.request_drain()
        if impatience == "asked twice":
            r.agent.request_drain()
        async with asyncio.timeout(HANGS_S):
            assert (await r.outcome).ending is Ending.DRAINED


@pytest.mark.parametrize("impatience", ["grace is over", "asked twice"])
async def test_a_drain_that_takes_too_long_stops_what_runs(impatience):
    async with rig(drain_grace_ms=100 if impatience == "grace is over" else 60_000) as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.agent.request_drain()
        if impatience == "asked twice":
            r.agent.request_drain()
        async with asyncio.timeout(HANGS_S):
            outcome = await r.outcome
        assert outcome.ending is Ending.STOPPED
        assert r.gateway.outcomes() == {key(0): "task_killed"}
        assert len(r.gateway.goodbyes) == 1


async def test_the_plans_that_an_executor_made_are_not_fetched_by_it():
    async with rig(slots=1) as r:
        spec = b"SELECT 1"
        digest = hashlib.sha256(spec).hexdigest()
        r.gateway.blobs[digest] = spec
        planning = pb.TaskSet(job_id="job-1", work=pb.PLAN, spec_digest=digest, tasks=[pb.TaskAttempt()])
        r.gateway.refills.append(task_set(0))
        await r.gateway.launches.put(planning)
        await eventually(lambda: r.worker.started)
        (planned,) = r.worker.running
        outcome = pb.PlanOutcome(blobs=[pb.Blob(digest=PLAN_DIGEST, content=PLAN_BLOB)])
        r.worker.running[planned](pb.TaskReport(task=task_id(planned), success=pb.TaskSuccess(plan=outcome)))
        await eventually(lambda: len(r.worker.started) == 2)
        assert r.gateway.blob_requests == [digest]


async def test_a_blob_with_another_digest_is_not_used():
    async with rig() as r:
        r.gateway.blobs[PLAN_DIGEST] = b"something else"
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: len(r.gateway.blob_requests) == 2)
        r.gateway.blobs[PLAN_DIGEST] = b"a plan"
        await eventually(lambda: r.worker.started)
        assert not r.gateway.reports


async def test_a_report_too_large_for_any_message_fails_the_task_with_advice():
    async with rig() as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        success = pb.TaskSuccess(plan=pb.PlanOutcome(blobs=[pb.Blob(digest="d", content=bytes(40 * 2**20))]))
        r.worker.running.pop(key(0))(pb.TaskReport(task=task_id(key(0)), success=success))
        await eventually(lambda: r.gateway.outcomes() == {key(0): "user_error"})
        assert "read it from files instead" in r.gateway.reports[0].reports[0].failure.message


@pytest.mark.parametrize("how", ["returns", "fails", "is cut"])
async def test_an_agent_of_which_a_loop_ends_ends_and_says_which(how, monkeypatch):
    async def end(_):
        await asyncio.sleep(0)
        if how == "fails":
            raise ValueError("a defect")
        if how == "is cut":
            raise asyncio.CancelledError

    monkeypatch.setattr("onager.executor.agent.registration.Registration.keep_alive", end)
    async with rig() as r, asyncio.timeout(HANGS_S):
        with pytest.raises(LoopEndedError, match="heartbeats"):
            await r.outcome


def test_waits_that_begin_together_end_one_by_one():
    waits_ms = {spread(10_000) for _ in range(100)}
    assert all(5_000 < wait_ms <= 10_000 for wait_ms in waits_ms)
    assert len(waits_ms) > 50
