"""Replies to requests of Spark Connect reach who asked, or an error does."""

import asyncio
import threading
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from onager.executor.agent.requests import Requests
from onager.executor.work import SparkLostError
from onager.ids import Incarnation
from onager.protocol import onager_pb2 as pb
from onager.protocol import onager_pb2_grpc as services
from onager.protocol.security import ClientAccess, ClientSecurity
from tests.support.waiting import HANGS_S

PLAN = pb.AwaitRequestsResponse(requests=[pb.ExecutorRequest(number=7, connect=pb.ConnectCall(analyze=b"plan"))])


class Gateway(services.OnagerExecutorGatewayServicer):
    """Asks once, and refuses analyses."""

    def __init__(self):
        self.asked = False
        self.reported = asyncio.get_running_loop().create_future()

    async def AwaitRequests(self, request, context):  # noqa: N802 - the name of a call
        for answer in request.answers:
            if answer.connect.HasField("analyzed"):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "it is too large")
            self.reported.set_result(answer)
        if self.asked:
            await asyncio.sleep(60)
        self.asked = True
        return PLAN


class Asker(services.OnagerExecutorGatewayServicer):
    """Asks once, and sees what becomes of the calls that wait."""

    def __init__(self):
        self.asked = False
        self.left = asyncio.get_running_loop().create_future()
        self.replies = []

    async def AwaitRequests(self, request, context):  # noqa: ARG002, N802
        self.replies.extend(request.answers)
        if self.asked:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.left.done() or self.left.set_result(None)
                raise
        self.asked = True
        return PLAN


@asynccontextmanager
async def awaiting_at(gateway, serve, **more):
    """Have calls whose requests *serve* answers wait at a server with *gateway* within the context."""
    server = grpc.aio.server()
    services.add_OnagerExecutorGatewayServicer_to_server(gateway, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    access = ClientAccess(ClientSecurity(), [address])
    requests = Requests(
        access,
        executor_id="e1",
        incarnation=Incarnation("1"),
        read_logs=None,
        connect=serve,
        is_draining=lambda: False,
        on_drain=None,
        **more,
    )
    try:
        requests.serve_connect_at([address])
        yield requests
    finally:
        await requests.close()
        await server.stop(None)


async def test_an_executor_whose_spark_is_lost_replies_nothing_and_leaves():
    def serve(call):
        raise SparkLostError("[Errno 111] Connection refused")

    asker = Asker()
    async with awaiting_at(asker, serve):
        await asyncio.wait_for(asker.left, HANGS_S)
    assert not asker.replies


@pytest.mark.parametrize("is_failure", [False, True])
async def test_who_asked_learns_that_a_reply_was_refused(is_failure):
    def serve(call):
        if is_failure:
            return pb.ConnectReply(failure=pb.ConnectFailure(message="no"))
        return pb.ConnectReply(analyzed=b"large")

    gateway = Gateway()
    async with awaiting_at(gateway, serve):
        reported = await asyncio.wait_for(gateway.reported, HANGS_S)
    assert reported.number == 7
    if is_failure:
        assert reported.connect.failure.message == "no"
    else:
        assert reported.connect.failure.message.startswith("the answer cannot be passed on: ")
        assert "it is too large" in reported.connect.failure.message


async def test_what_an_executor_serves_goes_on_when_its_calls_go_and_its_end_is_reported():
    """A task that is to run alone waits for it."""
    begun, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    quiet = asyncio.Event()

    def serve(call):
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(HANGS_S)
        return pb.ConnectReply()

    async with awaiting_at(Asker(), serve, on_quiet=quiet.set) as requests:
        assert requests.is_quiet
        await asyncio.wait_for(begun.wait(), HANGS_S)
        requests.serve_connect_at([])
        await asyncio.sleep(0)
        assert not requests.is_quiet
        may_end.set()
        await asyncio.wait_for(quiet.wait(), HANGS_S)
        assert requests.is_quiet
