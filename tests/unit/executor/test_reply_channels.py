"""Reports go to the scheduler that launched the task, or to another if it does not answer."""

import asyncio

import pytest

from onager.access_errors import TokenRefusedError
from onager.clock import ManualClock
from onager.errors import UnknownExecutorError
from onager.executor.agent.reply_channels import _MAX_CHANNELS, ReplyChannels
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import ClientAccess, ClientSecurity
from tests.support.fakes.scripted_gateway import ScriptedGateway, refuse, serve
from tests.support.waiting import HANGS_S

REQUEST = pb.ReportTasksRequest(executor_id="e-1")


@pytest.fixture
async def clock():
    return ManualClock()


@pytest.fixture
async def channels(clock):
    made = ReplyChannels(ClientAccess(ClientSecurity(), ()), clock)
    yield made
    await made.close()


async def answered(channels, address):
    async with asyncio.timeout(HANGS_S):
        return await channels.report(address, REQUEST) is not None


async def test_one_that_has_answered_before_is_tried_again_soon_and_another_one_later(channels, clock):
    gateway = ScriptedGateway()
    server, port = await serve(gateway)
    address = f"127.0.0.1:{port}"
    assert await answered(channels, address)
    await server.stop(None)
    assert not await answered(channels, address)
    server, _ = await serve(gateway, address)
    assert not await answered(channels, address)  # passed over
    clock.advance(2_100)
    async with asyncio.timeout(HANGS_S):
        while not await answered(channels, address):
            clock.advance(2_100)  # until the channel connects again
    await server.stop(None)

    other, port = await serve(gateway)
    await other.stop(None)
    address = f"127.0.0.1:{port}"
    assert not await answered(channels, address)
    other, _ = await serve(gateway, address)
    clock.advance(2_100)
    reports = len(gateway.reports)
    assert not await answered(channels, address)
    assert len(gateway.reports) == reports
    clock.advance(30_000)
    async with asyncio.timeout(HANGS_S):
        while not await answered(channels, address):
            clock.advance(30_100)
    await other.stop(None)


async def test_a_scheduler_that_refuses_is_skipped_unless_it_does_not_know_the_executor(channels):
    gateway = ScriptedGateway()
    server, port = await serve(gateway)
    gateway.before["report"] = refuse(TokenRefusedError())
    address = f"127.0.0.1:{port}"
    assert not await answered(channels, address)
    assert channels.is_passed_over(address)
    await server.stop(None)

    gateway = ScriptedGateway()
    server, port = await serve(gateway)
    gateway.before["report"] = refuse(UnknownExecutorError("e-1"))
    with pytest.raises(UnknownExecutorError):
        await answered(channels, f"127.0.0.1:{port}")
    assert not channels.is_passed_over(f"127.0.0.1:{port}")
    await server.stop(None)


async def test_no_report_goes_elsewhere_in_plaintext(channels):
    assert not await answered(channels, "scheduler.example:50050")


async def test_a_report_whose_channel_makes_room_for_others_goes_elsewhere(channels):
    gateway = ScriptedGateway()
    is_held = asyncio.Event()

    async def hold(*_):
        is_held.set()
        await asyncio.sleep(30)

    gateway.before["report"] = hold
    server, port = await serve(gateway)
    report = asyncio.create_task(answered(channels, f"127.0.0.1:{port}"))
    await is_held.wait()
    for other in range(_MAX_CHANNELS):
        await channels._channel(f"127.0.0.1:{other + 1}")
    assert await report is False
    await server.stop(None)
