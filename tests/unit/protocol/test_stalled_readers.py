"""A client that stops reading, or sending: it is asked to come again, and keeps no place for ever."""

import asyncio
from unittest.mock import Mock

import grpc
import pytest

from onager.errors import BusyError, OnagerError
from onager.protocol import onager_pb2 as pb
from onager.protocol import serving
from onager.protocol.border import Border
from onager.protocol.limits import CHANNEL_OPTIONS, MIB, SERVER_OPTIONS
from onager.protocol.onager_pb2_grpc import (
    OnagerSchedulerServicer,
    OnagerSchedulerStub,
    add_OnagerSchedulerServicer_to_server,
)
from onager.protocol.serving import translated_stream
from onager.protocol.status import from_rpc_error
from onager.scheduler.connect.handler import SparkConnectHandler
from onager.scheduler.connect.service import SparkConnectService
from tests.support.waiting import HANGS_S, eventually


class Service(OnagerSchedulerServicer):
    ended = 0

    @translated_stream
    async def FetchResult(self, request, _):  # noqa: N802
        try:
            for _ in range(100 if request.partition == 0 else 3):
                yield pb.ResultChunk(record_batch=bytes(MIB))
            if request.partition == 2:
                raise BusyError("later")
        finally:
            self.ended += 1


@pytest.fixture
async def served():
    service = Service()
    server = grpc.aio.server(options=SERVER_OPTIONS)
    add_OnagerSchedulerServicer_to_server(service, Border(server))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
        yield service, OnagerSchedulerStub(channel)
    await server.stop(None)


async def read_all(call, pause_s=0.0):
    read = 0
    try:
        async for _ in call:
            read += 1
            if read == 1:
                await asyncio.sleep(pause_s)
    except grpc.aio.AioRpcError as error:
        return read, from_rpc_error(error, "it")
    return read, None


async def test_who_stops_reading_and_goes_on_is_asked_to_come_again(served, monkeypatch):
    monkeypatch.setattr(serving, "STREAM_STALLED_S", 0.3)
    service, stub = served
    async with asyncio.timeout(HANGS_S):
        read, error = await read_all(stub.FetchResult(pb.FetchResultRequest(job_id="j")), pause_s=1.5)
    assert 0 < read < 100
    assert isinstance(error, BusyError)
    assert service.ended == 1


@pytest.mark.parametrize(("partition", "expected"), [(1, type(None)), (2, BusyError)])
async def test_who_reads_gets_all_and_what_the_method_raises(served, partition, expected):
    _, stub = served
    request = pb.FetchResultRequest(job_id="j", partition=partition)
    read, error = await read_all(stub.FetchResult(request))
    assert read == 3
    assert isinstance(error, expected)
    assert error is None or isinstance(error, OnagerError)


async def test_a_stream_whose_client_leaves_ends(served):
    service, stub = served
    call = stub.FetchResult(pb.FetchResultRequest(job_id="j"))
    await call.read()
    call.cancel()
    await eventually(lambda: service.ended == 1)


async def test_a_client_that_sends_nothing_gives_its_place_back(monkeypatch):
    monkeypatch.setattr(serving, "STREAM_STALLED_S", 0.3)
    door = SparkConnectHandler(Mock(spec=SparkConnectService), asyncio.Event(), 75)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((door,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
        silent = [channel.stream_unary("/spark.connect.SparkConnectService/AddArtifacts")() for _ in range(4)]
        async with asyncio.timeout(HANGS_S):
            codes = [await call.code() for call in silent]
            assert {await call.details() for call in silent} == {"nothing came for 0.3 s: send it again"}
    assert codes == [grpc.StatusCode.UNAVAILABLE] * 4
    await server.stop(None)
