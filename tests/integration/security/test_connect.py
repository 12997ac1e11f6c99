"""Who may use Spark Connect, and whose sessions are whose: the token says so, and not what a client says of itself."""

import asyncio
import secrets
import uuid
import zlib

import grpc
import pytest

from onager.protocol.call_limits import CONNECT_OPERATIONS, CONNECT_UPLOADS, STREAM_SHARE_PERCENT
from onager.protocol.limits import CHANNEL_OPTIONS
from onager.protocol.spark_connect import message, request_of
from tests.integration.security.parts import scheduler
from tests.support.waiting import HANGS_S, eventually

SESSION = str(uuid.uuid4())
SERVICE = "/spark.connect.SparkConnectService"


@pytest.fixture(scope="module")
def tokens():
    return {
        name: (role, secrets.token_hex(32))
        for name, role in {
            "ann": "client",
            "bob": "client",
            "eve": "viewer",
            "exec": "executor",
            "sched": "scheduler",
        }.items()
    }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, tokens):
    directory = tmp_path_factory.mktemp("connect")
    file = directory / "tokens"
    file.write_text("".join(f"{name} {role} {token}\n" for name, (role, token) in tokens.items()))
    with scheduler(directory, "--auth-token-file", file) as started:
        yield started


def ask(guarded, method, token, answer="GetStatusResponse", **fields):
    request = request_of(method)(session_id=SESSION, **fields)
    request.user_context.user_id = "ann"
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(guarded.address()) as channel:
        call = channel.unary_unary(f"{SERVICE}/{method}")
        return message(answer).FromString(call(request.SerializeToString(), metadata=metadata, timeout=HANGS_S))


@pytest.mark.parametrize("name", ["eve", "exec", None])
def test_only_clients_use_it(guarded, tokens, name):
    with pytest.raises(grpc.RpcError) as raised:
        ask(guarded, "GetStatus", name and tokens[name][1])
    expected = grpc.StatusCode.PERMISSION_DENIED if name else grpc.StatusCode.UNAUTHENTICATED
    assert raised.value.code() is expected


async def test_one_client_cannot_take_what_all_need(guarded, tokens):
    """Bob is served beside as many silent uploads, and as many streams of one operation, as ann can open."""

    def headers(name):
        return [("authorization", f"Bearer {tokens[name][1]}")]

    async with grpc.aio.insecure_channel(guarded.address(), options=CHANNEL_OPTIONS) as channel:
        uploads = [
            channel.stream_unary(f"{SERVICE}/AddArtifacts")(metadata=headers("ann"))
            for _ in range(CONNECT_UPLOADS.most)
        ]
        codes = [asyncio.ensure_future(call.code()) for call in uploads]
        refused = CONNECT_UPLOADS.most - CONNECT_UPLOADS.share(STREAM_SHARE_PERCENT)
        await eventually(lambda: [code.done() for code in codes].count(True) == refused)
        assert {code.result() for code in codes if code.done()} == {grpc.StatusCode.UNAVAILABLE}

        execute = request_of("ExecutePlan")(session_id=str(uuid.uuid4()), operation_id=str(uuid.uuid4()))
        execute.plan.root = b"x"
        running = channel.unary_stream(f"{SERVICE}/ExecutePlan")(execute.SerializeToString(), metadata=headers("ann"))
        await running.read()
        reattach = request_of("ReattachExecute")(session_id=execute.session_id, operation_id=execute.operation_id)
        streams = [
            channel.unary_stream(f"{SERVICE}/ReattachExecute")(reattach.SerializeToString(), metadata=headers("ann"))
            for _ in range(CONNECT_OPERATIONS.most)
        ]
        ended = [asyncio.ensure_future(call.code()) for call in streams]
        refused = 1 + CONNECT_OPERATIONS.most - CONNECT_OPERATIONS.share(STREAM_SHARE_PERCENT)
        # On a busy machine more end meanwhile: a stream that takes nothing for a minute does.
        await eventually(lambda: [code.done() for code in ended].count(True) >= refused)
        assert {code.result() for code in ended if code.done()} == {grpc.StatusCode.UNAVAILABLE}

        add = request_of("AddArtifacts")(session_id=SESSION)
        data = add.batch.artifacts.add(name="files/x").data
        data.data, data.crc = b"x", zlib.crc32(b"x")
        upload = channel.stream_unary(f"{SERVICE}/AddArtifacts")
        assert await upload(iter([add.SerializeToString()]), metadata=headers("bob"), timeout=HANGS_S)
        execute.session_id, execute.operation_id = SESSION, str(uuid.uuid4())
        other = channel.unary_stream(f"{SERVICE}/ExecutePlan")(execute.SerializeToString(), metadata=headers("bob"))
        assert await asyncio.wait_for(other.read(), HANGS_S)
        for call in (*uploads, running, *streams, other):
            call.cancel()


def test_a_session_is_its_users_and_nobody_elses(guarded, tokens):
    of_ann = ask(guarded, "GetStatus", tokens["ann"][1])
    of_bob = ask(guarded, "GetStatus", tokens["bob"][1])
    assert of_ann.server_side_session_id != of_bob.server_side_session_id, "bob says that he is ann, and has her id"
    with pytest.raises(grpc.RpcError, match="SESSION_CHANGED"):
        ask(
            guarded,
            "GetStatus",
            tokens["bob"][1],
            client_observed_server_side_session_id=of_ann.server_side_session_id,
        )
    ask(guarded, "ReleaseSession", tokens["bob"][1], "ReleaseSessionResponse")
    again = ask(guarded, "GetStatus", tokens["ann"][1])
    assert again.server_side_session_id == of_ann.server_side_session_id
