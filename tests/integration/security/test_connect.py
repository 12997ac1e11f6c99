"""Who may use Spark Connect, and whose sessions are whose: the token says so, and not what a client says of itself."""

import secrets
import uuid

import grpc
import pytest

from onager.protocol.spark_connect import message, request_of
from tests.integration.security.parts import scheduler
from tests.support.waiting import HANGS_S

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
