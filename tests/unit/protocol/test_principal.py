"""The name of a caller reaches the method that serves it, and no other call."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest

from onager.protocol import onager_pb2 as pb
from onager.protocol.border import Border
from onager.protocol.onager_pb2_grpc import (
    OnagerSchedulerServicer,
    OnagerSchedulerStub,
    add_OnagerSchedulerServicer_to_server,
)
from onager.protocol.security import ServerAccess, ServerSecurity, caller_of, principal
from onager.protocol.security.principal import note_principal
from onager.protocol.serving import translated, translated_stream
from tests.support.waiting import HANGS_S

TOKENS = {name: f"{name}-{'x' * 20}" for name in ("ann", "bob", "")}


class Service(OnagerSchedulerServicer):
    def __init__(self):
        self.both = asyncio.Barrier(2)

    @translated
    async def GetJob(self, request, context):  # noqa: N802
        if request.job_id == "together":
            await self.both.wait()
        caller = caller_of(context)
        return pb.JobDetail(plan=f"{caller.principal} {caller.address}")

    @translated_stream
    async def WatchJob(self, request, context):  # noqa: ARG002, N802
        for _ in range(3):
            yield pb.JobProgress(name=principal())
            await asyncio.sleep(0)


@asynccontextmanager
async def serving(security):
    access = ServerAccess(security, "127.0.0.1:0")
    server = grpc.aio.server(interceptors=access.interceptors)
    add_OnagerSchedulerServicer_to_server(Service(), Border(server))
    port = access.add_port(server, "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield OnagerSchedulerStub(channel)
    await server.stop(None)


@pytest.fixture
async def guarded(tmp_path):
    lines = [f"{name} client {token}" if name else token for name, token in TOKENS.items()]
    (tmp_path / "tokens").write_text("\n".join(lines))
    async with serving(ServerSecurity(auth_token_file=tmp_path / "tokens")) as stub:
        yield stub


def shown(name):
    return (("authorization", f"Bearer {TOKENS[name]}"),)


@pytest.mark.parametrize("name", TOKENS)
async def test_a_method_knows_who_calls(guarded, name):
    answer = await guarded.GetJob(pb.GetJobRequest(job_id="j"), metadata=shown(name))
    assert answer.plan == f"{name} 127.0.0.1"


@pytest.mark.parametrize("name", TOKENS)
async def test_a_stream_knows_who_calls_up_to_its_end(guarded, name):
    stream = guarded.WatchJob(pb.WatchJobRequest(job_id="j"), metadata=shown(name))
    assert [message.name async for message in stream] == [name] * 3


async def test_calls_at_the_same_time_are_each_their_caller_s(guarded):
    request = pb.GetJobRequest(job_id="together")
    calls = [guarded.GetJob(request, metadata=shown(name), timeout=HANGS_S) for name in ("ann", "bob")]
    assert [(await call).plan.split()[0] for call in calls] == ["ann", "bob"]


async def test_without_tokens_nobody_has_a_name_even_where_the_server_was_started_in_a_call():
    note_principal("ann")
    async with serving(ServerSecurity()) as stub:
        assert (await stub.GetJob(pb.GetJobRequest(job_id="j"))).plan == " 127.0.0.1"
        assert [message.name async for message in stub.WatchJob(pb.WatchJobRequest(job_id="j"))] == [""] * 3
