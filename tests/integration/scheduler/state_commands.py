"""`onager` as a process, and clusters with a job in the middle to look after."""

import asyncio
import contextlib
import json
import os

from onager.clock import SystemClock
from onager.protocol import onager_pb2 as pb
from onager.state_admin.backing_up import LEASE_BOUND
from onager.state_admin.contents import read_contents
from onager.state_backend import Keyspace, Put, open_backend
from tests.integration.scheduler.test_jobs import two_stages
from tests.integration.scheduler.test_process import process
from tests.support.fakes.scripted_executor import Client, arrow_stream, executor, success
from tests.support.processes.children import free_port
from tests.support.processes.forked import fork_onager
from tests.support.waiting import HANGS_S, eventually


async def start_onager(*arguments, **environment):
    return await fork_onager(*map(str, arguments), environment=os.environ | environment)


async def onager(*arguments, code=0, **environment):
    """Return what the command prints, on standard output and standard error."""
    started = await start_onager(*arguments, **environment)
    out, err = await asyncio.wait_for(started.communicate(), HANGS_S)
    assert started.returncode == code, (out.decode(), err.decode())
    return out.decode(), err.decode()


async def state(*arguments, code=0):
    return await onager("state", *arguments, code=code)


async def state_json(*arguments, code=0):
    return json.loads((await state(*arguments, "-o", "json", code=code))[0])


def result_of(task_set, task):
    n = task.partition
    return success(task_set, task, "e1", inline=arrow_stream([10 * n, 10 * n + 1], batches=2), rows=2)


@contextlib.asynccontextmanager
async def busy_cluster(tmp_path, backend, **settings):
    """A scheduler with one job that has ended, and one whose second stage runs until it is released."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    waits, goes_on = asyncio.Event(), asyncio.Event()

    def run(task_set, task):
        if task_set.job_id == "active" and task_set.stage_id == 2 and not goes_on.is_set():
            waits.set()
            return None
        return two_stages()(task_set, task)

    async def go_on():
        goes_on.set()
        await e1.finish(list(e1.held.values()), result_of)

    async with process(tmp_path, port, backend=backend, **settings):
        client = Client(address)
        async with executor(address, "e1", run) as e1:
            await client.submit("ended")
            assert (await client.wait("ended")).state == pb.SUCCESSFUL
            await client.submit("active")
            await asyncio.wait_for(waits.wait(), HANGS_S)
            # The scheduler looks at its exchange directory at some time after its start.
            places = pb.ListStateRequest(prefix="Places")

            async def knows_places():
                return (await client.stub.ListState(places)).entries

            await eventually(knows_places, "the record of a place")
            yield address, client, go_on
        await client.close()


async def filled(url, records):
    async with await open_backend(url) as backend:
        for start_at in range(0, len(records), 100):
            await backend.put_txn([Put(*record) for record in records[start_at : start_at + 100]])


async def contents(url):
    async with await open_backend(url, clock=SystemClock()) as backend:
        store = await read_contents(backend)
    return {
        (keyspace, key): item.value
        for keyspace, found in store.records.items()
        if keyspace not in (*LEASE_BOUND, Keyspace.Executors, Keyspace.Audit)
        for key, item in found.items()
    }
