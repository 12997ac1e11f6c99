"""Three schedulers over one store: their counters add up to what the logs say, and they agree on the cluster."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from prometheus_client import CollectorRegistry

from onager.clock import SystemClock
from onager.execution_graph import FailureKind, JobPlanned, TaskFailed, TaskSucceeded
from onager.protocol import onager_pb2 as pb
from onager.scheduler.app import SchedulerApp
from onager.scheduler.metrics import observe
from onager.scheduler.metrics.catalog import METRICS
from onager.scheduler.server import serve
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.integration.scheduler.conftest import Running
from tests.integration.scheduler.test_jobs import two_stages
from tests.support.fakes.scripted_executor import Client, executor, failure
from tests.support.metrics import of_registry
from tests.support.waiting import eventually

JOBS = [f"job-{n}" for n in range(6)]


class Cluster:
    """Schedulers with metrics, that come and go."""

    def __init__(self, tmp_path):
        self.memory = MemoryStore(SystemClock())
        self.registries = []
        self.running = []
        self._stack = AsyncExitStack()
        self._settings = {
            "listen": "127.0.0.1:0",
            "exchange_dir": str(tmp_path),
            "sweep_interval_ms": 200,
            # Whatever counts here shall not be the machine's doing.
            "scheduler_lease_ttl_ms": 600_000,
            "executor_lease_ttl_ms": 600_000,
            "forward_timeout_ms": 1_900,
            "retry_pauses_s": (),
        }

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for running in self.running:
            await running.stop()
        await self._stack.aclose()

    async def begin(self):
        backend = await self._stack.enter_async_context(MemoryBackend(self.memory))
        settings, registry = SchedulerSettings(**self._settings), CollectorRegistry()
        scheduler = SchedulerApp(settings, backend, SystemClock())
        observe(scheduler, registry, SystemClock(), {})
        await scheduler.start()
        server, port = await serve(scheduler, settings.listen)
        running = Running(scheduler, server, port, asyncio.create_task(scheduler.run()))
        self.registries.append(registry)
        self.running.append(running)
        return running

    async def end(self, running):
        self.running.remove(running)
        await running.stop()

    def total(self):
        """Return the counters of all schedulers, also those that are gone, added up."""
        found = Counter()
        for registry in self.registries:
            found.update({k: v for k, v in of_registry(registry).items() if "_total" in k or "_count" in k})
        return found

    async def history(self, job_id):
        """Return the events of a job, as its log had them."""
        history = self.running[0].app.history
        return [event for entry in await history.after(job_id, 0, 10_000) for event in entry.batch.events]


@pytest.fixture
async def cluster(tmp_path):
    async with Cluster(tmp_path) as cluster:
        yield cluster


def failing_once(executor_id):
    """Two stages; the first attempt of each first task of the second stage fails."""
    run = two_stages(executor_id)

    def or_fail(task_set, task):
        if task_set.stage_id == 2 and task.task_attempt == 0 and task.partition == 0:
            return failure(task_set, task, "io_error")
        return run(task_set, task)

    return or_fail


async def test_counters_add_up_to_the_logs_and_gauges_are_reported_alike(cluster):
    schedulers = [await cluster.begin() for _ in range(3)]
    clients = [Client(scheduler.address) for scheduler in schedulers]
    async with AsyncExitStack() as stack:
        for n, scheduler in enumerate(schedulers):
            await stack.enter_async_context(executor(scheduler.address, f"e{n}", failing_once(f"e{n}")))
        for n, job_id in enumerate(JOBS):
            await clients[n % 3].submit(job_id)
        for job_id in JOBS:
            assert (await clients[0].wait(job_id)).state == pb.SUCCESSFUL
        events = [event for job_id in JOBS for event in await cluster.history(job_id)]
        total = cluster.total()
        assert total["onager_jobs_submitted_total"] == len(JOBS)
        assert total['onager_jobs_ended_total{error_kind="",state="successful"}'] == len(JOBS)
        assert total["onager_job_duration_seconds_count"] == total["onager_planning_seconds_count"] == len(JOBS)
        assert total["onager_submit_to_first_task_seconds_count"] == len(JOBS)
        kinds = Counter(type(event) for event in events)
        assert total['onager_tasks_ended_total{outcome="successful",work="plan"}'] == kinds[JobPlanned] == len(JOBS)
        assert total['onager_tasks_ended_total{outcome="successful",work="query"}'] == kinds[TaskSucceeded]
        assert kinds[TaskSucceeded] == 7 * len(JOBS)
        failed = total[f'onager_tasks_retried_total{{kind="{FailureKind.IO_ERROR}"}}']
        assert failed == kinds[TaskFailed] == len(JOBS)
        assert sum(1 for registry in cluster.registries if of_registry(registry)["onager_task_run_seconds_count"]) > 1
        whole = {metric.name for metric in METRICS if metric.whose == "cluster"}

        def reported():
            found = [of_registry(registry) for registry in cluster.registries]
            return [{k: v for k, v in one.items() if k.partition("{")[0] in whole} for one in found]

        def is_described_alike():
            one, *others = reported()
            return one["onager_schedulers"] == 3 and all(other == one for other in others)

        await eventually(is_described_alike, what=lambda: str(reported()))
        assert reported()[0]['onager_jobs{state="successful"}'] == len(JOBS)
        assert reported()[0]['onager_executors{mode="pull",state="alive"}'] == 3
        assert reported()[0]['onager_executor_slots{state="free"}'] == 6
        assert reported()[0]["onager_slots_wanted"] == 0
    for client in clients:
        await client.close()


async def test_jobs_of_a_scheduler_that_is_gone_are_taken_over_once(cluster):
    first = await cluster.begin()
    client = Client(first.address)
    for job_id in JOBS:
        await client.submit(job_id)
    assert not any("takeovers" in name for name, n in cluster.total().items() if n)
    await eventually(lambda: first.app.schedulers.is_registered)
    second = await cluster.begin()

    def took_over(reason):
        return cluster.total()[f'onager_job_takeovers_total{{reason="{reason}"}}']

    mine = [job_id for job_id in JOBS if second.app.ownership.is_mine(job_id)]
    assert took_over("start") == len(mine)
    await eventually(lambda: first.app.schedulers.live == second.app.schedulers.live)
    await client.close()
    await cluster.end(first)
    await eventually(lambda: took_over("gone") == len(JOBS) - len(mine))
    assert cluster.total()["onager_takeover_seconds_count"] == len(JOBS)


async def test_a_lost_executor_is_counted_by_how_it_was_lost(cluster):
    scheduler = await cluster.begin()
    async with executor(scheduler.address, "e1", two_stages()) as e1:
        await eventually(lambda: e1.lists)
        await e1.stub.DeregisterExecutor(
            pb.DeregisterExecutorRequest(executor_id="e1", incarnation=e1.incarnation, reason="it was asked to")
        )
        await e1.stop()
    assert cluster.total()['onager_executor_lost_total{reason="said_goodbye"}'] == 1
