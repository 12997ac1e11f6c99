"""An executor that polls one scheduler, and reports to the driver of the job."""

import asyncio

import pytest

from onager.executor.agent.backoff import Pace
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id
from tests.support.fakes.scripted_gateway import PLAN_BLOB, PLAN_DIGEST, key, rig, task_set
from tests.support.waiting import eventually


async def polled(r, *task_sets):
    """Hand out *task_sets* to one poll after the other, and wait until they run."""
    for one in task_sets:
        r.gateway.launches.put_nowait(one)
    await eventually(lambda: len(r.worker.started) == sum(len(one.tasks) for one in task_sets))


def addresses(r):
    return r.agent._gateway.addresses.split(",")


async def test_a_report_goes_to_the_driver_whose_answer_may_hold_the_next_task():
    async with rig(slots=2, schedulers=2, poll_wait_ms=5_000) as r:
        polling, acting = r.gateways
        there = addresses(r)[1]
        await polled(r, task_set(0, reply_to=there))
        await eventually(lambda: polling.polls[-1].free_slots == 1)
        acting.refills = [task_set(1, reply_to=there)]
        r.worker.succeed(key(0))
        await eventually(lambda: key(1) in r.worker.started)
        r.worker.succeed(key(1))
        await eventually(lambda: acting.reported() == [key(0), key(1)])
        assert not polling.reported()
        assert [request.list_number for request in acting.reports] == [polling.polls[-1].list_number] * 2


async def test_slots_that_the_driver_left_free_are_offered_to_the_polled_scheduler():
    async with rig(slots=3, schedulers=2, poll_wait_ms=5_000) as r:
        polling, acting = r.gateways
        await polled(r, task_set(0, 1, reply_to=addresses(r)[1]))
        await eventually(lambda: polling.polls[-1].free_slots == 1)
        for partition in (0, 1):
            r.worker.succeed(key(partition))
        await eventually(lambda: sum(request.freed_slots for request in polling.reports) == 2)
        assert len(acting.reported()) == 2
        assert not polling.reported()
        assert polling.polls[-1].free_slots == 1, "the poll that waits says so, and goes on"


@pytest.mark.parametrize("is_driver", [False, True])
async def test_a_report_that_a_scheduler_does_not_take_goes_to_the_next_one(is_driver):
    """The first may be of an earlier version, and unable to read the job."""
    async with rig(slots=2, schedulers=2, poll_wait_ms=5_000) as r:
        first, second = r.gateways
        first.acknowledges = False
        await polled(r, task_set(0, reply_to=addresses(r)[0] if is_driver else ""))
        r.worker.succeed(key(0))
        await eventually(lambda: second.reported() == [key(0)])
        assert first.reported() == [key(0)]


async def beaten(gateway):
    """Return when so much time has passed that whatever the executor had to say was said."""
    beats = len(gateway.heartbeats)
    await eventually(lambda: len(gateway.heartbeats) > beats + 1)


async def test_slots_that_were_added_to_the_poll_are_offered_once():
    async with rig(slots=2, poll_wait_ms=5_000) as r:
        r.gateway.credits = True
        await polled(r, task_set(0, reply_to=addresses(r)[0]))
        await eventually(lambda: r.gateway.polls[-1].free_slots == 1)
        r.worker.succeed(key(0))
        await eventually(lambda: r.agent._attempts.is_empty)
        await beaten(r.gateway)
        assert len(r.gateway.reports) == 1


async def test_with_no_free_slot_before_the_poll_tells_of_them():
    async with rig(slots=1, schedulers=2) as r:
        polling, acting = r.gateways
        await polled(r, task_set(0, reply_to=addresses(r)[1]))
        r.worker.succeed(key(0))
        await eventually(lambda: polling.polls[-1].free_slots == 1 and acting.reports)
        await beaten(polling)
        assert not polling.reports


async def test_a_dead_driver_is_skipped_and_a_list_is_sent_beside_the_waiting_poll():
    async with rig(slots=2, schedulers=2, poll_wait_ms=5_000) as r:
        polling, _ = r.gateways
        there = addresses(r)[1]
        await r.servers[1].stop(None)
        await polled(r, task_set(0, reply_to=there))
        await eventually(lambda: polling.polls[-1].free_slots == 1)
        before = polling.polls[-1].list_number
        r.worker.succeed(key(0))
        await eventually(lambda: polling.polls[-1].list_number > before)
        assert polling.reported() == [key(0)]
        assert polling.reports[0].freed_slots == 0, "who is gone may have filled it"
        assert polling.polls[-1].free_slots == 2

        # The poll before is answered, too, and what comes with it runs.
        polling.launches.put_nowait(task_set(1, reply_to=there))
        await eventually(lambda: key(1) in r.worker.started)
        before = polling.polls[-1].list_number
        r.worker.succeed(key(1))
        await eventually(lambda: key(1) in polling.reported())
        assert polling.reports[1].freed_slots == 1, "it was not even asked: nothing can have got lost"


async def test_the_next_polled_scheduler_gets_a_later_list_that_may_disprove_launches_of_the_previous_one():
    async with rig(slots=2, schedulers=2, poll_wait_ms=5_000) as r:
        polling, acting = r.gateways
        await eventually(lambda: polling.polls)
        await r.servers[0].stop(None)
        await eventually(lambda: acting.polls)
        assert acting.polls[0].list_number > polling.polls[-1].list_number


async def test_a_silent_scheduler_does_not_hold_up_reports_to_others():
    async with rig(slots=2, schedulers=2) as r:
        polling, acting = r.gateways

        async def hang(request, context):
            await asyncio.sleep(30)

        acting.before["report"] = hang
        await polled(r, task_set(0, reply_to=addresses(r)[1]), task_set(1))
        r.worker.succeed(key(0))
        await eventually(lambda: acting.reports)
        r.worker.succeed(key(1))
        await eventually(lambda: len(polling.reported()) == 2)
        assert polling.reported() == [key(1), key(0)]


async def test_heartbeats_list_running_tasks_so_that_the_polled_scheduler_can_cancel_them():
    async with rig(slots=1) as r:
        await polled(r, task_set(0))
        await eventually(lambda: r.gateway.heartbeats[-1].running == [task_id(key(0))])


def test_a_few_polls_may_follow_each_other_and_later_ones_wait():
    pace = Pace(0.05, 3)
    assert [pace.wait_s(10.0) for _ in range(5)] == pytest.approx([0.0, 0.0, 0.0, 0.05, 0.1])
    assert pace.wait_s(10.25) == 0.0


async def test_a_blob_that_came_with_the_poll_is_not_fetched():
    async with rig() as r:
        r.gateway.sent_along = [pb.Blob(digest=PLAN_DIGEST, content=PLAN_BLOB)]
        await polled(r, task_set(0))
        assert not r.gateway.blob_requests
