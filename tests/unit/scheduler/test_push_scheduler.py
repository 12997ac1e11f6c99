"""Slots of push executors in the hand: none is forgotten there."""

import asyncio
from types import SimpleNamespace

import pytest

from onager.errors import InvalidRequestError, StateUnavailableError
from onager.ids import ExecutorId, Incarnation, JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import ClientAccess, ClientSecurity
from scheduler.tasks.distribution import Place
from scheduler.tasks.push_scheduler import PushScheduler
from scheduler.tasks.reservations import ExecutorReservation

JOB = JobId("job-1")


async def test_slots_that_were_taken_count_though_those_of_another_executor_could_not_be():
    async def reserve(executor_id, jobs):
        if executor_id == "e1":
            raise StateUnavailableError("the store does not answer")
        return [ExecutorReservation(executor_id, Incarnation("life"), 0, job_id) for job_id in jobs]

    places = [Place(ExecutorId(executor_id), JOB) for executor_id in ("e1", "e2", "e2")]
    found = await PushScheduler.reserve_slots(SimpleNamespace(_reserve=reserve), places)
    assert [r.executor_id for r in found] == ["e2", "e2"]


async def test_what_is_committed_is_delivered_though_the_executor_has_given_the_call_up():
    push = PushScheduler.__new__(PushScheduler)
    push._working = set()
    gate, delivered = asyncio.Event(), []

    async def work(session, request):
        await gate.wait()
        delivered.append((session, request))

    push._report = work
    call = asyncio.create_task(push.report("session", "request"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()
    await asyncio.gather(*push._working)
    assert delivered == [("session", "request")]


def test_an_executor_that_would_be_sent_plaintext_from_elsewhere_is_refused():
    push = PushScheduler.__new__(PushScheduler)
    push.launcher = SimpleNamespace(check=ClientAccess(ClientSecurity(), ()).check)
    request = pb.RegisterExecutorRequest(executor_id="e1", mode="push", address="executor.example:1")
    with pytest.raises(InvalidRequestError, match="ONAGER_SCHEDULER_PEER_TLS_CA"):
        push.check_reachable(request)
    request.address = "127.0.0.1:1"
    push.check_reachable(request)
    push.check_reachable(pb.RegisterExecutorRequest(executor_id="e1"))
