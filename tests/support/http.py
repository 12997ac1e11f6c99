"""A scheduler that serves gRPC and HTTP within this process, and browsers that call it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from onager.clock import SystemClock
from onager.scheduler.app import SchedulerApp
from onager.scheduler.http.server import serving_http
from onager.scheduler.server import serve
from onager.scheduler.settings import SchedulerSettings
from tests.support.waiting import HANGS_S

JSON = {"content-type": "application/json"}


class Served(NamedTuple):
    """A scheduler, where it serves, and a client of it."""

    app: SchedulerApp
    address: str
    url: str
    http: httpx.AsyncClient

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON at *path* below the API's root."""
        answer = await self.http.get(f"/api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def submit(self, job_id: str, **spec: Any) -> httpx.Response:
        body = {"job_id": job_id, "client_id": "test", "spec": {"sql": {"text": "SELECT 1"}, "name": job_id, **spec}}
        return await self.http.post("/api/v1/jobs", json=body)


@asynccontextmanager
async def http_scheduler(backend, tmp_path, *, registry=None, verify=True, **settings) -> AsyncIterator[Served]:
    made = SchedulerSettings(
        listen="127.0.0.1:0",
        exchange_dir=str(tmp_path),
        **{"http_listen": "127.0.0.1:0", "sweep_interval_ms": 200, **settings},
    )
    app = SchedulerApp(made, backend, SystemClock())
    await app.start()
    server, port = await serve(app, made.listen)
    loops = asyncio.create_task(app.run())
    try:
        async with (
            serving_http(app, made.http_listen, SystemClock(), registry) as url,
            httpx.AsyncClient(base_url=url, timeout=HANGS_S, verify=verify) as http,
        ):
            yield Served(app, f"127.0.0.1:{port}", url, http)
    finally:
        await server.stop(0.1)
        loops.cancel()
        await asyncio.gather(loops, return_exceptions=True)
        await app.close()


class Message(NamedTuple):
    """A server-sent event."""

    kind: str
    id: str
    data: Any


async def messages(answer: httpx.Response) -> AsyncIterator[Message]:
    """Yield the server-sent events of an answer; comments are left out, as browsers do."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
        elif fields:
            if "data" in fields:
                yield Message(fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"]))
            fields = {}


@asynccontextmanager
async def stream(served: Served, path: str, **headers: str) -> AsyncIterator[AsyncIterator[Message]]:
    """Yield the events of a stream."""
    headers = {"accept": "text/event-stream", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with served.http.stream("GET", f"/api/v1{path}", headers=headers) as answer:
        assert answer.status_code == 200, (await answer.aread(), answer.status_code)
        yield messages(answer)
