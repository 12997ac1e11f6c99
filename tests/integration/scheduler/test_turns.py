"""Three schedulers over one store: how often do they conflict?"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from onager.clock import SystemClock
from onager.protocol import onager_pb2 as pb
from onager.scheduler.app import SchedulerApp
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.server import serve
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Committed, Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.integration.scheduler.conftest import Running
from tests.integration.scheduler.test_jobs import two_stages
from tests.support.fakes.scripted_executor import Client, executor
from tests.support.waiting import eventually

JOBS = 15


class Counting(MemoryBackend):
    """Counts transactions by the keyspaces that they write, and those that another scheduler was quicker than."""

    def __init__(self, store, sent, refused):
        super().__init__(store)
        self.sent, self.refused = sent, refused

    async def _commit(self, ops, expect):
        result = await super()._commit(ops, expect)
        written = frozenset(op.keyspace for op in ops)
        self.sent[written] += sum(op.keyspace is Keyspace.FailedJobs for op in ops) or 1  # jobs are removed together
        if not isinstance(result, Committed):
            self.refused[written] += 1
        return result


async def live_through(tmp_path):
    """Run jobs until nothing is left of them, and lose an executor; return what doubled, appends and conflicts."""
    memory, sent, refused = MemoryStore(SystemClock()), Counter(), Counter()
    settings = {
        "sweep_interval_ms": 500,
        "result_retention_s": 1,
        "record_retention_s": 2,
        "executor_lease_ttl_ms": 2_000,
    }
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(3):
            scheduler = SchedulerApp(
                SchedulerSettings(listen="127.0.0.1:0", exchange_dir=str(tmp_path), **settings),
                Counting(memory, sent, refused),
                SystemClock(),
            )
            await scheduler.start()
            server, port = await serve(scheduler, "127.0.0.1:0")
            made.append(Running(scheduler, server, port, asyncio.create_task(scheduler.run())))
            stack.push_async_callback(made[-1].stop)
        await eventually(lambda: all(len(one.app.schedulers.live) == 3 for one in made))
        clients = [Client(one.address) for one in made]
        for client in clients:
            stack.push_async_callback(client.close)

        async def run(n):
            await clients[n % 3].submit(f"job-{n}")
            return (await clients[n % 3].wait(f"job-{n}")).state

        async def is_empty():
            # All at the same moment, since what one has done the others do not begin.
            await asyncio.gather(*(one.app.sweep() for one in made))
            return not len(await made[0].app._backend.scan_keys(Keyspace.JobHeads, limit=1))

        async with (
            executor(made[0].address, "e1", two_stages("e1")),
            executor(made[1].address, "e2", two_stages("e2")) as leaving,
        ):
            assert {await done for done in asyncio.as_completed(map(run, range(JOBS)))} == {pb.SUCCESSFUL}
            appends = sum(one.app.writers.appends for one in made)
            conflicts = sum(one.app.writers.conflicts for one in made)
            await leaving.stop()
            await eventually(is_empty)
            await eventually(
                lambda: all(
                    {i.executor_id: i.state for i in one.app.executors.infos()}["e2"] == "lost" for one in made
                ),
            )
    removals = sum(times for written, times in sent.items() if Keyspace.FailedJobs in written)
    clean_ups = refused[frozenset({Keyspace.JobHeads})] + refused[frozenset({Keyspace.JobHeads, Keyspace.Results})]
    losses = refused[frozenset({Keyspace.Executors, Keyspace.Heartbeats})]
    return removals - JOBS + clean_ups + losses, appends, conflicts


async def test_what_one_can_do_is_seldom_done_twice(tmp_path, tell, monkeypatch):
    doubled, appends, conflicts = await live_through(tmp_path)
    monkeypatch.setattr(Precedence, "place", lambda *_: 0)
    without, appends_without, conflicts_without = await live_through(tmp_path)
    tell(
        f"{JOBS} jobs, three schedulers: {doubled} things done twice ({without} without turns), {conflicts} conflicts "
        f"in {appends} appends ({conflicts_without} in {appends_without})"
    )
    assert doubled * 3 < without
    assert conflicts < appends / 2


@pytest.mark.parametrize("busy", [1, 2])
async def test_others_act_when_the_first_does_not(tmp_path, busy):
    """Schedulers that are listed and do nothing, as dead ones are for a while, keep no job waiting."""
    memory = MemoryStore(SystemClock())
    async with AsyncExitStack() as stack:
        scheduler = SchedulerApp(
            SchedulerSettings(
                listen="127.0.0.1:0",
                exchange_dir=str(tmp_path),
                sweep_interval_ms=200,
                result_retention_s=1,
                record_retention_s=1,
            ),
            MemoryBackend(memory),
            SystemClock(),
        )
        for n in range(busy):
            record = scheduler.schedulers.record.model_copy(update={"scheduler_id": f"dead-{n}"})
            await MemoryBackend(memory).put(Keyspace.Schedulers, f"dead-{n}", record.encoded())
        await scheduler.start()
        server, port = await serve(scheduler, "127.0.0.1:0")
        running = Running(scheduler, server, port, asyncio.create_task(scheduler.run()))
        stack.push_async_callback(running.stop)
        client = Client(running.address)
        stack.push_async_callback(client.close)
        assert len(scheduler.schedulers.live) == busy + 1
        async with executor(running.address, "e1", two_stages()):
            for n in range(6):
                await client.submit(f"job-{n}")
            for n in range(6):
                assert (await client.wait(f"job-{n}")).state == pb.SUCCESSFUL

            async def is_empty():
                return not len(await scheduler._backend.scan_keys(Keyspace.JobHeads, limit=1))

            await eventually(is_empty)
