"""Renewals of leases over one stream: each gets the answer about its own, and none waits for a stream that is over."""

import asyncio
from contextlib import asynccontextmanager

import grpc.aio
import pytest
from aetcd import rpc
from aetcd.rpc import rpc_pb2_grpc as services

from onager.state_backend.etcd.renewals import _SILENT_S, _STALLED_S, Renewals
from tests.support.waiting import HANGS_S, eventually

GONE = 13
SLOW = 17


class Member(services.LeaseServicer):
    """Answers *at_once* requests at a time, the latest first; breaks off at a stream's request number *breaks_at*.

    It takes no more of a stream's requests after one about `SLOW`, until *goes_on*.
    """

    def __init__(self, *, at_once=1, breaks_at=0, pause_s=0.0):
        self.at_once, self.breaks_at, self.pause_s = at_once, breaks_at, pause_s
        self.goes_on = asyncio.Event()
        self.streams = self.requests = 0

    async def LeaseKeepAlive(self, requests, context):  # noqa: N802 - the name of a call
        self.streams += 1
        held, number = [], 0
        async for request in requests:
            number += 1
            self.requests += 1
            if number == self.breaks_at:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")
            if request.ID == SLOW:
                await self.goes_on.wait()
            await asyncio.sleep(self.pause_s)
            held.append(request.ID)
            if len(held) == self.at_once:
                for lease in reversed(held):
                    yield rpc.LeaseKeepAliveResponse(ID=lease, TTL=0 if lease == GONE else lease)
                held = []


@asynccontextmanager
async def renewing_at(member):
    server = grpc.aio.server()
    services.add_LeaseServicer_to_server(member, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        renewals = Renewals(rpc.LeaseStub(channel))
        try:
            yield renewals
        finally:
            await renewals.close()
            await server.stop(None)


def renewed(renewals, lease, timeout_s=HANGS_S):
    return renewals.renew(lease, timeout_s, grpc.aio.Metadata())


async def test_each_gets_the_answer_about_its_lease_over_one_stream_in_whatever_order_they_come():
    member = Member(at_once=4)
    async with renewing_at(member) as renewals:
        for _ in range(3):
            assert await asyncio.gather(*(renewed(renewals, lease) for lease in (7, GONE, 9, 7))) == [7, 0, 9, 7]
    assert member.streams == 1


async def test_all_that_wait_fail_with_a_stream_that_breaks_and_the_next_opens_another():
    member = Member(at_once=9, breaks_at=3)
    async with renewing_at(member) as renewals:
        waits = [asyncio.create_task(renewed(renewals, lease)) for lease in (1, 2, 3)]
        ends = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), HANGS_S)
        assert [end.details() for end in ends] == ["etcdserver: no leader"] * 3
        member.at_once = 1
        assert await renewed(renewals, 4) == 4
    assert member.streams == 2


async def test_one_that_has_no_time_left_leaves_the_others_alone():
    member = Member()
    async with renewing_at(member) as renewals:
        patient = asyncio.create_task(renewed(renewals, SLOW))
        await asyncio.sleep(0)
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await renewed(renewals, 2, timeout_s=0.01)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        member.goes_on.set()
        assert await asyncio.wait_for(patient, HANGS_S) == SLOW
    assert member.streams == 1


async def test_others_do_not_wait_behind_one_that_the_member_is_slow_about():
    member = Member()
    async with renewing_at(member) as renewals:
        slow = asyncio.create_task(renewed(renewals, SLOW))
        await asyncio.sleep(2 * _STALLED_S)
        for _ in range(3):
            assert await asyncio.gather(*(renewed(renewals, lease) for lease in (1, 2, 3))) == [1, 2, 3]
        assert not slow.done()
        member.goes_on.set()
        assert await asyncio.wait_for(slow, HANGS_S) == SLOW
    assert member.streams == 2


async def test_others_do_not_wait_behind_many_that_the_member_answers_one_by_one():
    member = Member(pause_s=0.01)
    async with renewing_at(member) as renewals:
        many = [asyncio.create_task(renewed(renewals, lease)) for lease in range(100, 300)]
        await asyncio.sleep(2 * _STALLED_S)
        assert await renewed(renewals, 1, timeout_s=HANGS_S) == 1
        assert not all(task.done() for task in many)
        given_up = many[150:]
        for task in given_up:
            task.cancel()
        assert await asyncio.gather(*many[:150]) == list(range(100, 250))
        await asyncio.gather(*given_up, return_exceptions=True)
    assert member.streams == 2


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_stream_that_was_silent_for_long_is_ended_and_who_waits_asks_over_another(is_cancelled):
    """Their own time decides when they fail: a failure has all requests turn to another member."""
    member = Member()
    async with renewing_at(member) as renewals:
        patient = asyncio.create_task(renewed(renewals, SLOW))
        given_up = asyncio.create_task(renewed(renewals, 2, timeout_s=HANGS_S if is_cancelled else _SILENT_S + 0.1))
        if is_cancelled:
            await asyncio.sleep(_SILENT_S + 0.1)
            given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        await eventually(lambda: member.streams == 2)
        assert not patient.done()
        member.goes_on.set()
        assert await asyncio.wait_for(patient, HANGS_S) == SLOW


async def test_nobody_waits_for_a_stream_that_is_closed_before_it_begins():
    async with renewing_at(Member()) as renewals:
        waits = asyncio.create_task(renewed(renewals, 1))
        await asyncio.sleep(0)  # the stream is there, and has not been written to or read
        await renewals.close()
        (ended,) = await asyncio.wait_for(asyncio.gather(waits, return_exceptions=True), HANGS_S)
        assert isinstance(ended, asyncio.CancelledError)


async def test_a_renewal_that_is_given_up_takes_no_answer_from_another_one_of_its_lease():
    member = Member(at_once=2)
    async with renewing_at(member) as renewals:
        given_up = asyncio.create_task(renewed(renewals, 5))
        await eventually(lambda: member.requests == 1)
        given_up.cancel()
        assert await asyncio.wait_for(renewed(renewals, 5), HANGS_S) == 5
    assert member.streams == 1


async def test_nobody_waits_for_a_connection_that_is_refused():
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        renewals = Renewals(rpc.LeaseStub(channel))
        with pytest.raises(grpc.aio.AioRpcError):
            await asyncio.wait_for(renewed(renewals, 1), HANGS_S)
        await renewals.close()
