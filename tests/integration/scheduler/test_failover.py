"""Several scheduler processes over one etcd: the one that all are connected to is killed or stopped."""

import asyncio
import signal
import uuid
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pyarrow as pa
import pytest

import onager
from onager.errors import JobConflictError
from onager.protocol import onager_pb2 as pb
from onager.state_backend import Keyspace, open_backend
from tests.integration.scheduler.test_jobs import RESULT, planned, two_stages
from tests.integration.scheduler.test_process import process
from tests.support.fakes.agents import agent
from tests.support.fakes.scripted_executor import arrow_stream, plan_outcome, success
from tests.support.processes.children import free_ports
from tests.support.waiting import HANGS_S, eventually

WIDTH = 8


class Schedulers:
    def __init__(self, url, addresses, processes):
        self.url, self.addresses, self.processes = url, addresses, processes

    async def kill(self, address):
        await self.end(address, signal.SIGKILL)

    async def end(self, address, number):
        found = self.processes[self.addresses.index(address)]
        found.send_signal(number)
        return await found.wait()

    async def listed(self):
        async with await open_backend(self.url) as store:
            return len(await store.scan_keys(Keyspace.Schedulers, limit=10))


@asynccontextmanager
async def schedulers(etcd, tmp_path, count, **settings):
    url = etcd.url(uuid.uuid4().hex)
    ports = free_ports(count)
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(
                process(
                    *(tmp_path, port),
                    backend=url,
                    executor_lease_ttl_ms=9_000,
                    scheduler_lease_ttl_ms=2_000,
                    **settings,
                )
            )
            for port in ports
        ]
        made = Schedulers(url, [f"127.0.0.1:{port}" for port in ports], processes)

        async def is_complete():
            return await made.listed() == count

        await eventually(is_complete)
        yield made


class Watching:
    """A client in a thread of its own: follows a job to its end, whichever scheduler tells of it."""

    def __init__(self, client, job_id):
        self.reported = []
        self.ended = asyncio.create_task(asyncio.to_thread(self._watch, client, job_id))

    def _watch(self, client, job_id):
        for progress in client.job(job_id).watch(timeout=HANGS_S):
            self.reported.append(progress)
        return self.reported[-1].state


def successes(progress):
    return [stage.successful for stage in progress.stages]


@pytest.mark.parametrize(("count", "mode"), [(2, "pull"), (3, "pull"), (3, "push")])
async def test_the_schedulers_that_everybody_talks_with_are_killed_in_the_middle_of_a_job(etcd, tmp_path, count, mode):
    """All but one: running tasks continue, nothing runs again, and watchers see no step back."""
    is_open = False

    def run(task_set, task):
        is_late = task_set.stage_id == 1 and task.partition >= WIDTH // 2
        return two_stages(width=WIDTH)(task_set, task) if is_open or not is_late else None

    async with (
        schedulers(etcd, tmp_path, count) as cluster,
        agent(cluster.addresses, "e1", run, slots=4, mode=mode) as e1,
    ):
        with onager.connect(",".join(cluster.addresses)) as client:
            job = await asyncio.to_thread(client.sql, "SELECT 1")
            watching = Watching(client, job.id)
            await eventually(lambda: len(e1.worker.going_on) == WIDTH // 2)
            await eventually(lambda: watching.reported and successes(watching.reported[-1])[1:2] == [WIDTH // 2])
            for _ in range(count - 1):
                killed = e1.address
                await cluster.kill(killed)
                await eventually(lambda killed=killed: e1.address != killed)
                detail = await asyncio.to_thread(job.detail)
                assert detail.progress.state == pb.RUNNING
            is_open = True
            e1.worker.finish(two_stages(width=WIDTH))
            assert await watching.ended == "successful"
            detail = await asyncio.to_thread(job.detail)
            assert {t.successes for s in detail.progress.stages for t in s.tasks} == {1}
            assert (await asyncio.to_thread(job.to_arrow)).column(0).to_pylist() == RESULT
    assert Counter(e1.worker.ran).most_common(1)[0][1] == 1
    assert {key.task_attempt for key in e1.worker.ran} == {0}
    assert not e1.worker.cancelled
    steps = [successes(progress) for progress in watching.reported]
    assert all(len(a) <= len(b) and all(x <= y for x, y in zip(a, b, strict=False)) for a, b in pairwise(steps))


PARTITIONS, BATCHES, ROWS = 60, 2, 15_000


def large_result(task_set, task):
    if task_set.work == pb.PLAN:
        return planned(task_set, task, plan_outcome([(PARTITIONS, 1, "result")]))
    values = range(ROWS * task.partition, ROWS * (task.partition + 1))
    return success(task_set, task, "e1", inline=arrow_stream(values, batches=BATCHES), rows=ROWS)


async def test_the_scheduler_is_killed_that_a_result_is_fetched_from(etcd, tmp_path):
    async with schedulers(etcd, tmp_path, 2) as cluster, agent(cluster.addresses, "e1", large_result, slots=8):
        with onager.connect(",".join(cluster.addresses)) as client:
            job = await asyncio.to_thread(client.sql, "SELECT 1")
            await asyncio.to_thread(job.wait, 60)
            batches = job.batches()
            fetched = [await asyncio.to_thread(next, batches) for _ in range(3)]
            await cluster.kill(cluster.addresses[0])
            fetched += await asyncio.to_thread(list, batches)
            assert client._connection._current == 1
    assert len(fetched) == PARTITIONS * BATCHES
    assert pa.Table.from_batches(fetched).column(0).to_pylist() == list(range(PARTITIONS * ROWS))


async def test_a_job_is_submitted_again_at_another_scheduler(etcd, tmp_path):
    runs = two_stages()
    async with schedulers(etcd, tmp_path, 2) as cluster, agent(cluster.addresses, "e1", runs) as e1:
        spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"), name="one")
        with onager.connect(",".join(cluster.addresses)) as client:
            await asyncio.to_thread(client.submit, spec, "job-1")
            await cluster.kill(cluster.addresses[0])
            again = await asyncio.to_thread(client.submit, spec, "job-1")
            assert (await asyncio.to_thread(again.wait, HANGS_S)).state == "successful"
            await asyncio.to_thread(client.submit, spec, "job-1")
            with pytest.raises(JobConflictError):
                await asyncio.to_thread(client.submit, pb.JobSpec(sql=pb.SqlScript(text="SELECT 2")), "job-1")
            assert [found.job_id for found in await asyncio.to_thread(client.jobs)] == ["job-1"]
    assert Counter(e1.worker.ran).most_common(1)[0][1] == 1


async def test_sigterm_hands_over_and_ends_at_once(etcd, tmp_path):
    """Beside an executor that polls, one that runs a task, and a client that watches."""
    poll_s = 2 * HANGS_S
    async with (
        schedulers(etcd, tmp_path, 2, poll_wait_max_ms=round(1000 * poll_s)) as cluster,
        agent(cluster.addresses, "e1", lambda *_: None, slots=1, poll_s=poll_s) as e1,
        agent(cluster.addresses, "e2", two_stages(executor_id="e2"), poll_s=poll_s) as e2,
    ):
        with onager.connect(",".join(cluster.addresses)) as client:

            async def both_are_known():
                return len(await asyncio.to_thread(client.schedulers)) == 2

            await eventually(both_are_known)
            job = await asyncio.to_thread(client.sql, "SELECT 1")
            watching = Watching(client, job.id)
            await eventually(lambda: e1.worker.going_on or e2.worker.ran)
            # A poll would wait for longer.
            assert await asyncio.wait_for(cluster.end(cluster.addresses[0], signal.SIGTERM), HANGS_S) == 0
            assert await cluster.listed() == 1
            await eventually(lambda: e1.address == e2.address == cluster.addresses[1])
            e1.worker.run = two_stages()
            e1.worker.finish(two_stages())
            assert await watching.ended == "successful"
            (left,) = await asyncio.to_thread(client.schedulers)
            assert (left.address, left.answering) == (cluster.addresses[1], True)
            detail = await asyncio.to_thread(job.detail)
            assert {t.successes for s in detail.progress.stages for t in s.tasks} == {1}
            assert sum(s.tasks_lost for s in detail.progress.stages) == 0
    assert Counter([*e1.worker.ran, *e2.worker.ran]).most_common(1)[0][1] == 1
