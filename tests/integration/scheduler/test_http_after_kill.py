"""The scheduler that serves a stream of events is killed in mid-stream: the stream goes on at another one."""

import asyncio
import json
import signal
import uuid
from contextlib import asynccontextmanager

import httpx

from onager.state_backend import open_backend
from tests.integration.scheduler.test_process import start
from tests.support.http import messages
from tests.support.large_jobs import LargeJob
from tests.support.waiting import HANGS_S

EVENTS = "/api/v1/jobs/job-1/events"


@asynccontextmanager
async def serving(tmp_path, url):
    """Yield a scheduler process and a browser of it."""
    process = await start(tmp_path, 0, backend=url, http_listen="127.0.0.1:0")
    try:
        line = await asyncio.wait_for(process.stdout.readline(), HANGS_S)
        assert line.startswith(b"page at "), (await process.stderr.read()).decode()
        async with httpx.AsyncClient(
            base_url=line.decode().removeprefix("page at ").strip(), timeout=HANGS_S
        ) as browser:
            yield process, browser
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.communicate()


async def test_a_stream_goes_on_at_another_scheduler_with_nothing_missed_and_nothing_twice(etcd, tmp_path):
    url = etcd.url(uuid.uuid4().hex)
    async with await open_backend(url) as backend:
        job = await LargeJob.submitted(backend, "job-1", 10_000, 1_000)
        await job.run(1_000, a_batch=10)
        await job.run(7_000, a_batch=700)
        async with serving(tmp_path, url) as (first, one), serving(tmp_path, url) as (_, two):
            seen, ids = [], []
            headers = {"accept": "text/event-stream"}
            try:
                async with one.stream("GET", EVENTS, headers=headers) as answer:
                    async for message in messages(answer):
                        seen += message.data
                        ids.append(int(message.id))
                        if len(ids) == 120:
                            first.send_signal(signal.SIGKILL)
            except httpx.TransportError:
                pass  # cut off within a message, or between two
            assert len(ids) >= 120
            await job.run(2_000, a_batch=500)  # the job goes on
            going_on = asyncio.create_task(job.cancel())
            async with two.stream("GET", EVENTS, headers={**headers, "last-event-id": str(ids[-1])}) as answer:
                async for message in messages(answer):
                    if message.kind == "end":
                        break
                    seen += message.data
                    ids.append(int(message.id))
            await going_on
            lines = await two.get(EVENTS, headers={"accept": "application/x-ndjson"})
    assert [json.loads(line) for line in lines.text.splitlines()] == seen
    assert ids == list(range(1, job.stored.seq + 1))
