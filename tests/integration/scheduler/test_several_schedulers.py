"""Two schedulers over one store: clients may use either, and neither needs the other."""

import asyncio
import uuid
from contextlib import asynccontextmanager

import pytest

from onager.clock import SystemClock
from onager.protocol import onager_pb2 as pb
from onager.scheduler.app import SchedulerApp
from onager.scheduler.server import serve
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import open_backend
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.integration.scheduler.conftest import Running
from tests.integration.scheduler.test_jobs import RESULT, two_stages
from tests.support.fakes.scripted_executor import Client, executor
from tests.support.waiting import eventually


@asynccontextmanager
async def scheduler(backend, tmp_path):
    settings = SchedulerSettings(listen="127.0.0.1:0", exchange_dir=str(tmp_path), sweep_interval_ms=200)
    made = SchedulerApp(settings, backend, SystemClock())
    await made.start()
    server, port = await serve(made, settings.listen)
    running = Running(made, server, port, asyncio.create_task(made.run()))
    try:
        yield running
    finally:
        await running.stop()


@pytest.fixture(params=["memory", "etcd"])
def connect(request):
    """Return what gives one more client of a store, each time that it is called."""
    if request.param == "memory":
        memory = MemoryStore(SystemClock())

        async def client():
            return MemoryBackend(memory)
    else:
        url = request.getfixturevalue("etcd").url(uuid.uuid4().hex)

        async def client():
            return await open_backend(url)

    return client


@pytest.fixture
async def schedulers(connect, tmp_path):
    async with (
        await connect() as one,
        await connect() as other,
        scheduler(one, tmp_path) as here,
        scheduler(other, tmp_path) as there,
    ):
        yield here, there


async def test_a_job_submitted_here_is_run_there_and_followed_anywhere(schedulers):
    here, there = schedulers
    client, other = Client(here.address), Client(there.address)
    await client.submit("job-1")
    following = asyncio.create_task(client.wait("job-1"))
    async with executor(there.address, "e1", two_stages()):
        assert (await following).state == pb.SUCCESSFUL
        assert (await other.wait("job-1")).state == pb.SUCCESSFUL
    assert await client.fetch("job-1") == await other.fetch("job-1") == RESULT
    assert (await other.submit("job-1")).existed
    listed = (await client.stub.ListExecutors(pb.ListExecutorsRequest())).executors
    assert [e.executor_id for e in listed] == ["e1"]
    await client.close()
    await other.close()


async def test_schedulers_tell_the_same_load_of_an_executor(schedulers):
    here, there = schedulers
    clients = [Client(here.address), Client(there.address)]
    said = pb.ExecutorLoad(heap_used_bytes=1 << 20, rss_bytes=2 << 30, cpu_percent=90, running=2, free_slots=1)

    async def reported():
        lists = await asyncio.gather(*(c.stub.ListExecutors(pb.ListExecutorsRequest()) for c in clients))
        return [(e.executor_id, e.running, e.load) for found in lists for e in found.executors]

    async with executor(there.address, "e1", two_stages()) as scripted:
        scripted.load = said

        async def is_described_alike():
            return await reported() == [("e1", 2, said)] * 2

        await eventually(is_described_alike)
    for client in clients:
        await client.close()


async def test_schedulers_list_each_other(schedulers):
    async def listed(address):
        client = Client(address)
        found = (await client.stub.ListSchedulers(pb.ListSchedulersRequest())).schedulers
        await client.close()
        return {(s.address, s.answering) for s in found}

    here, there = (one.address for one in schedulers)

    async def both_are_listed():
        return await listed(here) == {(here, True), (there, False)} and await listed(there) == {
            (here, False),
            (there, True),
        }

    await eventually(both_are_listed)


async def test_executors_of_two_schedulers_share_a_job(schedulers):
    here, there = schedulers
    client = Client(here.address)
    run = two_stages(width=200)
    async with executor(here.address, "e1", run) as e1, executor(there.address, "e2", run) as e2:
        await client.submit("job-1")
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert sorted(ran[1:4:2] for ran in [*e1.ran, *e2.ran]) == sorted(
            [(0, 0), *((1, p) for p in range(200)), *((2, p) for p in range(3))]
        )
    detail = await client.detail("job-1")
    assert {t.successes for s in detail.progress.stages for t in s.tasks} == {1}
    await client.close()
