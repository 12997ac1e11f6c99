"""The way to the schedulers: one at a time, and the next when it is not reached."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import pytest
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

from onager.programs import channels
from onager.programs.channels import ERROR, Way, way
from onager.programs.stub import Stub
from onager.programs.terms import Terms
from tests.support.waiting import HANGS_S


class Server:
    """Says who it is."""

    def __init__(self, name, address="127.0.0.1:0"):
        def answer(request, context):
            self.seen.append(dict(context.invocation_metadata()))
            return base_pb2.GetStatusResponse(session_id=name)

        self.seen = []
        method = grpc.unary_unary_rpc_method_handler(
            answer, base_pb2.GetStatusRequest.FromString, base_pb2.GetStatusResponse.SerializeToString
        )
        handler = grpc.method_handlers_generic_handler("spark.connect.SparkConnectService", {"GetStatus": method})
        self.server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
        self.address = f"127.0.0.1:{self.server.add_insecure_port(address)}"
        self.server.start()


def test_a_call_goes_on_at_the_next_scheduler_and_shows_the_token_of_now(tmp_path):
    token = tmp_path / "token"
    token.write_text("a" * 32 + "\n")
    token.chmod(0o600)
    here, there = Server("here"), Server("there")
    terms = Terms("p", 1, "s" * 32, "seed", "ann", (here.address, there.address), {"auth_token_file": str(token)})
    stub = Stub(way(terms, [], base_pb2_grpc.SparkConnectServiceStub))
    ask = stub.GetStatus
    assert ask(base_pb2.GetStatusRequest()).session_id == "here"
    assert here.seen[0]["onager-program"] == f"p/1/{'s' * 32}"
    assert here.seen[0]["authorization"] == f"Bearer {'a' * 32}"
    here.server.stop(0).wait()
    token.write_text("b" * 32 + "\n")
    assert ask(base_pb2.GetStatusRequest()).session_id == "there"
    again = Server("here again", here.address)
    there.server.stop(0).wait()
    assert ask(base_pb2.GetStatusRequest()).session_id == "here again"
    deadline_s = time.monotonic() + HANGS_S
    while again.seen[-1]["authorization"] != f"Bearer {'b' * 32}" and time.monotonic() < deadline_s:
        time.sleep(0.1)
        ask(base_pb2.GetStatusRequest())
    assert again.seen[-1]["authorization"] == f"Bearer {'b' * 32}"
    again.server.stop(0).wait()


class FailedError(grpc.RpcError):
    def __init__(self, code=grpc.StatusCode.UNAVAILABLE, name=""):
        self._code, self._name = code, name

    def code(self):
        return self._code

    def trailing_metadata(self):
        return [(ERROR, json.dumps({"class": self._name}).encode())] if self._name else ()


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def monotonic(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    ticking = Clock()
    monkeypatch.setattr(channels, "time", ticking)
    return ticking


def made(addresses):
    connected = []

    def connect(address):
        connected.append(address)
        return SimpleNamespace(address=address)

    return Way(addresses, connect), connected


def test_the_next_scheduler_is_asked_when_one_is_not_reached_or_stops(clock):
    to, connected = made(["a:1", "b:1", "c:1"])
    first = to.stub
    to.failed(first, FailedError())
    to.failed(first, FailedError())
    assert connected == ["a:1", "b:1"], "another thread has failed by the first one, too"
    to.failed(to.stub, FailedError(name="SchedulerUnreachableError"))
    to.failed(to.stub, FailedError())
    assert connected == ["a:1", "b:1", "c:1", "a:1"]


@pytest.mark.parametrize(
    "error",
    [
        FailedError(name="BusyError"),
        FailedError(grpc.StatusCode.RESOURCE_EXHAUSTED, "StateFullError"),
        FailedError(grpc.StatusCode.INTERNAL),
    ],
)
def test_an_answer_is_no_reason_to_ask_another_one(clock, error):
    to, connected = made(["a:1", "b:1"])
    clock.now_s = 100
    to.failed(to.stub, error)
    assert connected == ["a:1"]


def test_the_only_scheduler_is_looked_for_again_after_a_minute(clock):
    to, connected = made(["a:1"])
    for seconds in (0, 30, 59, 61, 90, 120, 122):
        clock.now_s = seconds
        to.failed(to.stub, FailedError())
    assert connected == ["a:1"] * 3


def test_each_channel_is_to_one_scheduler_with_the_certificates_of_now(tmp_path, clock, monkeypatch):
    ca, token = tmp_path / "ca.pem", tmp_path / "tokens"
    token.write_text("a" * 32 + "\n")
    token.chmod(0o600)
    ca.write_bytes(b"old")
    seen = []
    monkeypatch.setattr(grpc, "ssl_channel_credentials", lambda *content: content)
    monkeypatch.setattr(grpc, "secure_channel", lambda *given, **_: seen.append(given) or grpc.insecure_channel("x:1"))
    monkeypatch.setattr(channels, "_token", lambda _: lambda: ())
    files = {"tls_ca": str(ca), "auth_token_file": str(token)}
    to = way(Terms("p", 1, "s" * 32, "seed", "ann", ("a:1", "b:1"), files), [], lambda channel: channel)
    ca.write_bytes(b"new")
    to.failed(to.stub, FailedError())
    assert seen == [("a:1", (b"old", None, None)), ("b:1", (b"new", None, None))]
