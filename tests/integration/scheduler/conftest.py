import asyncio
import secrets
import uuid
from contextlib import asynccontextmanager

import pytest

from onager.clock import SystemClock
from onager.scheduler.app import SchedulerApp
from onager.scheduler.server import serve
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import open_backend
from tests.support.fakes.scripted_executor import Client


class Running:
    """A scheduler that serves within this process."""

    def __init__(self, app, server, port, loops):
        self.app, self.server, self.loops = app, server, loops
        self.address = f"127.0.0.1:{port}"

    async def stop(self):
        await self.server.stop(0.1)
        self.loops.cancel()
        await asyncio.gather(self.loops, return_exceptions=True)
        await self.app.close()


@pytest.fixture(params=["leveldb", "etcd"])
def store(request, tmp_path):
    """Return the URL of an empty store."""
    if request.param == "leveldb":
        return f"leveldb:{tmp_path / 'state'}"
    return request.getfixturevalue("etcd").url(uuid.uuid4().hex)


@asynccontextmanager
async def serving(store, tmp_path, **settings):
    settings = SchedulerSettings(
        backend=store,
        listen="127.0.0.1:0",
        exchange_dir=str(tmp_path / "exchange"),
        **settings,
    )
    async with await open_backend(settings.backend) as backend:
        app = SchedulerApp(settings, backend, SystemClock())
        await app.start()
        server, port = await serve(app, settings.listen)
        running = Running(app, server, port, asyncio.create_task(app.run()))
        try:
            yield running
        finally:
            await running.stop()


@pytest.fixture
async def scheduler(store, tmp_path):
    async with serving(
        store,
        tmp_path,
        sweep_interval_ms=200,
        executor_lease_ttl_ms=1_500,
        connection_grace_ms=200,
        retry_pauses_s=(0.2,),
    ) as running:
        yield running


@pytest.fixture
async def client(scheduler):
    client = Client(scheduler.address)
    yield client
    await client.close()


@pytest.fixture(params=["leveldb", "etcd"])
def make_url(request, tmp_path):
    """Return a maker of URLs of empty stores of one kind."""
    if request.param == "leveldb":
        return lambda: f"leveldb:{tmp_path / secrets.token_hex(4)}"
    etcd = request.getfixturevalue("etcd")
    return lambda: etcd.url(f"test-{secrets.token_hex(8)}")


@pytest.fixture
def url(make_url):
    return make_url()
