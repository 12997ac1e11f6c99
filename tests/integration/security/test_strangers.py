"""Callers without a token: they can only check health, with a limited number of watches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from onager.protocol.border import Border
from onager.protocol.call_limits import FOREIGN_BYTES, FOREIGN_STREAMS, STREAM_SHARE_PERCENT
from onager.protocol.security import ServerAccess, ServerSecurity
from tests.support.waiting import HANGS_S, eventually

SUBMIT = "/onager.v1.OnagerScheduler/SubmitJob"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
SHARE = FOREIGN_STREAMS.share(STREAM_SHARE_PERCENT)


@asynccontextmanager
async def served(directory: Path, *, with_tokens: bool = True) -> AsyncIterator[grpc.aio.Channel]:
    """Serve health and reflection, with tokens wanted, and yield a channel to it."""
    (directory / "tokens").write_text("a-client client 0123456789abcdef0123456789abcdef\n")
    access = ServerAccess(ServerSecurity(auth_token_file=directory / "tokens" if with_tokens else None), "127.0.0.1:0")
    server = grpc.aio.server(interceptors=access.interceptors)
    Border(server).add_looking(HealthServicer(), [])
    port = access.add_port(server, "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


async def test_health_is_watched_so_many_times_and_reported_at_once_all_the_same(tmp_path):
    async with served(tmp_path) as channel:
        health = HealthStub(channel)
        watches = [health.Watch(HealthCheckRequest(service=f"s{n}")) for n in range(SHARE)]
        for watch in watches:
            assert (await watch.read()).status == HealthCheckResponse.SERVICE_UNKNOWN
        with pytest.raises(grpc.aio.AioRpcError, match="which is the share") as refused:
            await health.Watch(HealthCheckRequest(), timeout=HANGS_S).read()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert (await health.Check(HealthCheckRequest(), timeout=HANGS_S)).status == HealthCheckResponse.SERVING
        watches.pop().cancel()

        async def has_room() -> bool:
            try:
                return (await health.Watch(HealthCheckRequest()).read()).status == HealthCheckResponse.SERVING
            except grpc.aio.AioRpcError:
                return False

        await eventually(has_room)


async def test_no_service_with_a_long_name_is_watched(tmp_path):
    async with served(tmp_path) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="more than the limit of 1,024"):
            await HealthStub(channel).Watch(HealthCheckRequest(service="s" * FOREIGN_BYTES), timeout=HANGS_S).read()


async def test_reflection_has_so_many_streams(tmp_path):
    async with served(tmp_path, with_tokens=False) as channel:
        streams = [channel.stream_stream(REFLECTION)() for _ in range(SHARE)]
        for stream in streams:
            await stream.write(b"\x3a\x00")  # list the services
            assert await stream.read()
        with pytest.raises(grpc.aio.AioRpcError, match="which is the share"):
            await channel.stream_stream(REFLECTION)(timeout=HANGS_S).read()


async def test_a_caller_without_a_token_is_refused_before_its_request_is_read(tmp_path):
    async def nothing_yet() -> AsyncIterator[bytes]:
        await asyncio.sleep(60)
        yield b""

    async with served(tmp_path) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.stream_unary(SUBMIT)(nothing_yet(), timeout=HANGS_S)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
