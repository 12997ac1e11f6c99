"""How services handle requests, their own defects, and too many streams."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from onager.errors import BusyError, InvalidRequestError, OneAtATimeError
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import Room
from onager.protocol.call_limits import STREAM_LIMITS
from onager.protocol.limits import MIB
from onager.protocol.security.principal import note_principal
from onager.protocol.serving import translated, translated_stream
from onager.protocol.status import from_rpc_error


class Refused(grpc.aio.AbortError):
    def __init__(self, code: Any, details: str, metadata: Any) -> None:
        super().__init__(details)
        self.code, self.details, self.trailing_metadata = (lambda: code), (lambda: details), (lambda: metadata)


async def aborted(code: Any, details: str, metadata: Any) -> None:
    raise Refused(code, details, metadata)


def context(address: str) -> Any:
    return SimpleNamespace(abort=aborted, peer=lambda: f"ipv4:{address}:41234")


CONTEXT = context("10.0.0.7")


async def in_call(function: Any, *args: Any, name: str = "") -> Any:
    """Return what *function* gives in a task of its own, as gRPC runs calls, made with the token *name*."""

    async def call() -> Any:
        note_principal(name)
        return await function(*args)

    return await asyncio.create_task(call())


class Service:
    @translated
    async def SubmitJob(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise RuntimeError(f"cannot use {request.client_id}")

    @translated
    async def GetJob(self, request: Any, context: Any) -> str:  # noqa: N802
        return str(request.job_id)

    @translated
    async def ReportTasks(self, request: Any, context: Any) -> str:  # noqa: N802
        return str(request.executor_id)

    @translated_stream
    async def BackupState(self, request: Any, context: Any) -> AsyncIterator[str]:  # noqa: N802
        while True:
            yield "some"

    @translated_stream
    async def WatchJob(self, request: Any, context: Any) -> AsyncIterator[str]:  # noqa: N802
        while True:
            yield "some"


async def refusal(call: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await call
    return caught.value


def test_every_stream_has_a_limit() -> None:
    methods = {m.name for s in pb.DESCRIPTOR.services_by_name.values() for m in s.methods if m.server_streaming}
    assert set(STREAM_LIMITS) == methods


@pytest.mark.parametrize(
    "data", [b"\xff", b"\xff" * 100_000, b"\n\xff", pb.GetJobRequest(job_id="a/b").SerializeToString()]
)
async def test_what_is_no_request_is_refused_as_the_callers_error(data: bytes) -> None:
    with capture_logs() as logs:
        refused = await refusal(Service().GetJob(data, CONTEXT))
    assert refused.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert [entry for entry in logs if entry["log_level"] != "debug"] == []


async def test_a_request_comes_decoded() -> None:
    assert await Service().GetJob(pb.GetJobRequest(job_id="j").SerializeToString(), CONTEXT) == "j"


async def test_a_defect_is_reported_by_the_number_under_which_the_log_has_it() -> None:
    request = pb.SubmitJobRequest(client_id="private")
    with capture_logs() as logs:
        refused = await refusal(Service().SubmitJob(request.SerializeToString(), CONTEXT))
    assert refused.code() is grpc.StatusCode.INTERNAL
    (entry,) = logs
    assert entry["event"] == "call_failed"
    assert entry["incident"] in refused.details()
    assert "RuntimeError" in refused.details()
    assert "private" not in refused.details()


async def test_streams_beyond_the_limit_are_refused_until_one_has_ended() -> None:
    service, request = Service(), pb.BackupStateRequest().SerializeToString()
    first = service.BackupState(request, CONTEXT)
    await anext(first)
    refused = await refusal(anext(service.BackupState(request, CONTEXT)))
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert isinstance(from_rpc_error(refused, "a"), OneAtATimeError)  # type: ignore[arg-type]
    await first.aclose()
    again = service.BackupState(request, CONTEXT)
    assert await anext(again) == "some"
    await again.aclose()


async def test_watchers_beyond_the_limit_are_sent_elsewhere() -> None:
    service, request = Service(), pb.WatchJobRequest(job_id="j").SerializeToString()
    limit = STREAM_LIMITS["WatchJob"]
    clients = [context("10.0.0.7")] * limit.share(75) + [context("10.0.0.8")] * (limit.most - limit.share(75))
    streams = [service.WatchJob(request, client) for client in clients]
    for stream in streams:
        await in_call(anext, stream)
    refused = await refusal(in_call(anext, service.WatchJob(request, context("10.0.0.9"))))
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert "the limit of one process" in refused.details()
    for stream in streams:
        await stream.aclose()


@pytest.mark.parametrize("names", [("", ""), ("ann", "bob")], ids=["addresses", "tokens"])
async def test_one_client_has_only_a_share_of_the_streams(names: tuple[str, str]) -> None:
    service, request = Service(), pb.WatchJobRequest(job_id="j").SerializeToString()
    first = context("10.0.0.7")
    other = first if any(names) else context("10.0.0.8")
    streams = [service.WatchJob(request, first) for _ in range(STREAM_LIMITS["WatchJob"].share(75))]
    for stream in streams:
        await in_call(anext, stream, name=names[0])
    refused = await refusal(in_call(anext, service.WatchJob(request, first), name=names[0]))
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert f"of {names[0] or '10.0.0.7'} are under way, which is the share of one client" in refused.details()
    streams.append(service.WatchJob(request, other))
    assert await in_call(anext, streams[-1], name=names[1]) == "some"
    await streams.pop(0).aclose()
    streams.append(service.WatchJob(request, first))
    assert await in_call(anext, streams[-1], name=names[0]) == "some"
    for stream in streams:
        await stream.aclose()


async def test_a_setting_gives_one_client_another_share() -> None:
    service, request = Service(), pb.WatchJobRequest(job_id="j").SerializeToString()
    service.stream_share_percent = 100  # type: ignore[attr-defined]
    streams = [service.WatchJob(request, CONTEXT) for _ in range(STREAM_LIMITS["WatchJob"].most)]
    for stream in streams:
        await anext(stream)
    assert "the limit of one process" in (await refusal(anext(service.WatchJob(request, CONTEXT)))).details()
    for stream in streams:
        await stream.aclose()


def test_large_requests_wait_for_room() -> None:
    room = Room(10_000_000)
    with room.taken(9_000_000):
        with pytest.raises(BusyError), room.taken(2_000_000):
            pass
        with room.taken(1000):
            pass
    with room.taken(10_000_000):
        pass


class Waiting:
    """Holds submissions and polls until the test is over."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)

    @translated
    async def SubmitJob(self, request: Any, context: Any) -> None:  # noqa: N802
        self.begun.release()
        await asyncio.sleep(60)

    @translated
    async def PollWork(self, request: Any, context: Any) -> None:  # noqa: N802
        self.begun.release()
        await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("name", "request_", "count"),
    [
        ("SubmitJob", pb.SubmitJobRequest(spec={"python": {"source": b"x" * 21 * MIB}}), 3),
        ("PollWork", pb.PollWorkRequest(executor_id="e", running=[pb.TaskId(job_id="j" * 200)] * 4000), 80),
    ],
    ids=["submissions", "polls"],
)
async def test_in_flight_calls_do_not_stop_an_executor_from_reporting(name: str, request_: Any, count: int) -> None:
    async with asyncio.TaskGroup() as group:
        waiting, data, held = Waiting(), request_.SerializeToString(), []
        for _ in range(count):
            held.append(group.create_task(getattr(waiting, name)(data, CONTEXT)))
            await waiting.begun.acquire()
        report = pb.TaskReport(task=pb.TaskId(job_id="j"), failure=pb.Failure(message="m" * 20 * MIB))
        sent = pb.ReportTasksRequest(executor_id="e", reports=[report]).SerializeToString()
        assert await Service().ReportTasks(sent, CONTEXT) == "e"
        assert not any(task.done() for task in held)
        for task in held:
            task.cancel()


async def test_limits_hold_for_messages_that_come_decoded() -> None:
    refused = await refusal(Service().GetJob(pb.GetJobRequest(job_id="j" * 1000), CONTEXT))
    assert isinstance(from_rpc_error(refused, "a"), InvalidRequestError)  # type: ignore[arg-type]
