"""Spark Connect's calls, as somebody makes them who means no good; there is no executor, and another client calls."""

import asyncio
import uuid
import zlib

import grpc
import pytest
import zstandard
from grpc import StatusCode

from onager.protocol.limits import CHANNEL_OPTIONS, MIB
from onager.protocol.spark_connect import ExecutePlanRequest, request_of
from onager.scheduler.connect.records import MAX_OPERATIONS
from tests.abuse.conftest import Abused

SERVICE = "/spark.connect.SparkConnectService"


def new_id() -> str:
    return str(uuid.uuid4())


def plan(session_id: str, root: bytes = b"", **fields: object) -> ExecutePlanRequest:
    request = ExecutePlanRequest(session_id=session_id, operation_id=new_id(), **fields)
    request.user_context.user_id = "mallory"
    request.plan.root = root or b"x"
    return request


def end(abused: Abused, session_id: str) -> None:
    request = request_of("ReleaseSession")(session_id=session_id)
    request.user_context.user_id = "mallory"
    assert abused.call(f"{SERVICE}/ReleaseSession", request.SerializeToString())[0].code is StatusCode.OK


def read_once(abused: Abused, *requests: ExecutePlanRequest) -> list[tuple[StatusCode | None, str]]:
    """Return how calls end of which one response is read; None for those that go on."""

    async def one(channel: grpc.aio.Channel, request: ExecutePlanRequest) -> tuple[StatusCode | None, str]:
        call = channel.unary_stream(f"{SERVICE}/ExecutePlan")(request.SerializeToString())
        try:
            await call.read()
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        call.cancel()
        return None, ""

    async def all_of_them() -> list[tuple[StatusCode | None, str]]:
        async with grpc.aio.insecure_channel(abused.address, options=CHANNEL_OPTIONS) as channel:
            return [await one(channel, request) for request in requests]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda: plan(new_id(), bytes(60 * MIB)).SerializeToString(), id="60 MiB"),
        pytest.param(lambda: plan(new_id(), bytes(17 * MIB)).SerializeToString(), id="17 MiB"),
        pytest.param(lambda: plan(new_id(), tags=["t"] * 30_000).SerializeToString(), id="many tags"),
        pytest.param(lambda: b"\xff" * 1000, id="no message"),
    ],
)
def test_plans_that_are_too_much_are_refused(unnoticed: Abused, content) -> None:
    answers = unnoticed.call(f"{SERVICE}/ExecutePlan", *[content()] * 4)
    assert {answer.code for answer in answers} <= {
        StatusCode.RESOURCE_EXHAUSTED,
        StatusCode.INVALID_ARGUMENT,
        StatusCode.UNAVAILABLE,
    }


def test_a_plan_that_unpacks_to_gigabytes_is_refused(unnoticed: Abused) -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    request = plan(new_id())
    packed = b"".join(packer.compress(bytes(MIB)) for _ in range(2048)) + packer.flush()
    request.plan.compressed_operation.data = packed
    request.plan.compressed_operation.op_type = request.plan.compressed_operation.compression_codec = 1
    ((code, text),) = read_once(unnoticed, request)
    assert (code, "CONNECT_LIMIT_EXCEEDED" in text) == (StatusCode.RESOURCE_EXHAUSTED, True)


def test_a_plan_that_nests_without_end_is_nothing_to_a_scheduler(unnoticed: Abused) -> None:
    session_id, root = new_id(), b""
    for _ in range(5_000):
        root = b"\x0a" + len(root).to_bytes(3, "little") + root
    assert read_once(unnoticed, plan(session_id, root)) == [(None, "")]
    end(unnoticed, session_id)


def test_an_operation_is_not_another_plan(unnoticed: Abused) -> None:
    session_id = new_id()
    first, other = plan(session_id, b"one"), plan(session_id, b"two")
    other.operation_id = first.operation_id
    *again, refused = read_once(unnoticed, first, first, other)
    assert again == [(None, "")] * 2
    assert "INVALID_HANDLE.OPERATION_ALREADY_EXISTS" in refused[1]
    end(unnoticed, session_id)


def test_a_session_runs_only_so_many_operations_and_none_after_its_end(unnoticed: Abused) -> None:
    session_id = new_id()
    answers = read_once(unnoticed, *(plan(session_id, b"%d" % n) for n in range(MAX_OPERATIONS + 1)))
    assert answers[:-1] == [(None, "")] * MAX_OPERATIONS
    assert "operations that run at a time" in answers[-1][1]
    end(unnoticed, session_id)
    ((_, text),) = read_once(unnoticed, plan(session_id))
    assert "INVALID_HANDLE.SESSION_CLOSED" in text


def test_files_of_a_name_that_leads_elsewhere_are_refused(unnoticed: Abused) -> None:
    async def add(name: str) -> str:
        request = request_of("AddArtifacts")(session_id=new_id())
        request.user_context.user_id = "mallory"
        data = request.batch.artifacts.add(name=name).data
        data.data, data.crc = b"x", zlib.crc32(b"x")
        async with grpc.aio.insecure_channel(unnoticed.address) as channel:
            try:
                await channel.stream_unary(f"{SERVICE}/AddArtifacts")(iter([request.SerializeToString()]))
            except grpc.aio.AioRpcError as error:
                return error.details() or ""
        return ""

    names = ["cache/../../x", "/etc/passwd", f"cache/{'0' * 64}", f"cache/{'x' * 5000}", "pyfiles", "pyfiles/../x.py"]
    names += ["pyfiles/a/x.py", "files/..", f"files/{'x' * 300}"]
    names += [f"archives/x.zip#{alias}" for alias in ("..", "../../x", "a/b")]
    for name in names:
        assert "INVALID_ARTIFACT" in asyncio.run(add(name)), name
    for name in ("jars/x.jar", "classes/X.class", "forward_to_fs/etc/passwd"):
        assert "UNSUPPORTED_FEATURE" in asyncio.run(add(name)), name
    assert not asyncio.run(add("pyfiles/x.py"))
