"""REST when browsers are many, slow, gone, or never read."""

import asyncio

import pytest
from structlog.testing import capture_logs

from onager.clock import SystemClock
from onager.protocol.apart import Room
from onager.scheduler.http import bodies
from onager.scheduler.http.coalescing import Coalesced
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.integration.scheduler.test_jobs import two_stages
from tests.support.fakes.scripted_executor import executor
from tests.support.http import http_scheduler, stream
from tests.support.waiting import eventually


@pytest.fixture
async def served(tmp_path):
    async with http_scheduler(MemoryBackend(MemoryStore(SystemClock())), tmp_path) as one:
        yield one


async def test_many_browsers_share_the_work(served, monkeypatch):
    await served.submit("job-1")
    looked = asked = 0
    all_are_there = asyncio.Event()
    get, fresh = Coalesced.get, served.app.jobs.fresh

    def asking(*args):
        nonlocal asked
        asked += 1
        if asked == 50:
            all_are_there.set()
        return get(*args)

    async def slow(*args):
        await all_are_there.wait()
        return await fresh(*args)

    monkeypatch.setattr(Coalesced, "get", asking)
    monkeypatch.setattr(served.app.jobs, "fresh", slow)
    view = served.app.service.queries.view
    detail = view.detail

    def counting(*args):
        nonlocal looked
        looked += 1
        return detail(*args)

    view.detail = counting
    answers = await asyncio.gather(*(served.http.get("/api/v1/jobs/job-1") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert looked == 2


async def test_a_stream_is_not_open_to_everybody_at_once(served, monkeypatch):
    monkeypatch.setattr("onager.scheduler.http.streams.HTTP_STREAMS_OF_ADDRESS", pb_limit(2))
    await served.submit("job-1")
    async with stream(served, "/jobs/job-1/events"), stream(served, "/jobs/job-1/progress"):
        answer = await served.http.get("/api/v1/jobs/job-1/progress")
        assert (answer.status_code, "retry-after" in answer.headers) == (429, True)
    await eventually(lambda: not served.app.watchers._events)  # nobody follows the job any more
    async with stream(served, "/jobs/job-1/progress") as reported:
        assert (await anext(reported)).data["state"] == "queued"


def pb_limit(most):
    from onager.protocol.call_limits import StreamLimit

    return StreamLimit(most, can_wait=False)


async def test_a_browser_that_never_reads_is_dropped_and_holds_nobody_up(served, monkeypatch):
    monkeypatch.setattr("onager.scheduler.http.server.STREAM_STALLED_S", 0.3)
    host, port = served.url.removeprefix("http://").strip("/").split(":")
    await served.submit("job-1")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    transport = writer.transport
    transport.pause_reading()
    writer.write(b"GET /api/v1/jobs/job-1/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n")
    await eventually(lambda: served.app.watchers._events)
    async with (
        stream(served, "/jobs/job-1/events") as reported,
        executor(served.address, "e1", two_stages(width=2_500), slots=500),
    ):
        kinds = [message.kind async for message in reported]
    assert kinds[-1] == "end"
    await eventually(lambda: not served.app.watchers._events, what="it is dropped")
    transport.abort()
    del reader


async def test_a_client_that_sends_its_request_slowly_is_cut_off(served, monkeypatch):
    monkeypatch.setattr("onager.scheduler.http.server.HTTP_HEAD_S", 0.2)
    host, port = served.url.removeprefix("http://").strip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /readyz HTTP/1.1\r\nx: ")

    async def is_cut_off():
        writer.write(b"x")
        return reader.at_eof() or reader.exception() is not None

    await eventually(is_cut_off)
    writer.transport.abort()


async def test_one_address_has_few_slow_exports(served, monkeypatch):
    await served.submit("job-1")
    go = asyncio.Event()

    async def slow(*_):
        yield b"<svg"
        await go.wait()

    monkeypatch.setattr(served.app.exports, "export", slow)
    path = "/api/v1/jobs/job-1/timeline.svg"
    async with served.http.stream("GET", path) as one, served.http.stream("GET", path) as two:
        assert (one.status_code, two.status_code) == (200, 200)
        third = await served.http.get(path)
        assert (third.status_code, third.json()["type"]) == (429, "urn:onager:error:OneAtATimeError")
        go.set()


async def test_a_caller_that_leaves_before_its_body_has_come_is_no_defect(served):
    with capture_logs() as logged:
        writer = await half_sent(served, "/api/v1/jobs", 100)
        await asyncio.sleep(0.1)
        writer.transport.abort()
        await eventually(lambda: served.app.http_requests["4xx"])
    assert served.app.http_requests["5xx"] == 0
    assert not [line for line in logged if line["log_level"] in ("error", "critical")]


async def half_sent(served, path, size):
    """Send the head of a request, and the first byte of its body."""
    host, port = served.url.removeprefix("http://").strip("/").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {size}"
    writer.write(f"{head}\r\n\r\n{{".encode())
    await writer.drain()
    return writer


async def test_large_bodies_that_are_under_way_have_a_limit_together(served, monkeypatch):
    monkeypatch.setattr(bodies, "_under_way", Room(150_000))
    writer = await half_sent(served, "/api/v1/jobs", 100_000)
    await eventually(lambda: bodies._under_way.left_bytes < 150_000)
    text = f"SELECT 1 -- {'x' * 100_000}"
    answer = await served.submit("job-1", sql={"text": text})
    assert (answer.status_code, answer.json()["retryable"]) == (503, True)
    assert answer.headers["retry-after"] == "1"
    assert (await served.submit("job-2")).status_code == 201, "there is always room for small ones"
    writer.transport.abort()
    await eventually(lambda: bodies._under_way.left_bytes == 150_000)
    assert (await served.submit("job-1", sql={"text": text})).status_code == 201
