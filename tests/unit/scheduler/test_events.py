"""What happened to a job, as a scheduler tells it."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from onager.execution_graph import JobCancelled, SinkSpec
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.api import events, job_queries
from onager.scheduler.app import SchedulerApp
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.settings import SchedulerSettings
from tests.support.waiting import HANGS_S
from tests.unit.scheduler.pair import FakeContext
from tests.unit.scheduler.small_graphs import graph, planned, succeeded
from tests.unit.scheduler.test_job_store import launches

JOB = JobId("job-1")


@pytest.fixture
async def scheduler(backend, clock):
    made = SchedulerApp(SchedulerSettings(exchange_dir="/x", scheduler_id="s1", listen="127.0.0.1:1"), backend, clock)
    await made.start()
    await made.jobs.submit(graph(JOB))
    yield made
    await made.close()


async def record(scheduler, decide):
    return (await scheduler.writers.record_decision(JOB, decide)).graph


async def run(scheduler, tasks):
    """Let the job's tasks succeed in one batch; it goes on while one is left."""
    await record(scheduler, lambda job: Decision(launches(job)))
    await record(scheduler, lambda _: Decision([planned(tasks)]))
    await record(scheduler, lambda job: Decision(launches(job, tasks)))
    await record(scheduler, lambda _: Decision([succeeded(1, p) for p in range(tasks - 1)]))


async def batches_of(scheduler, after=0, *, follow=False):
    request = pb.WatchEventsRequest(job_id=JOB, after=after, follow=follow)
    return [message async for message in scheduler.service.WatchEvents(request, FakeContext())]


async def test_all_that_happened_is_reported_with_who_committed_it(scheduler, monkeypatch):
    monkeypatch.setattr(events, "_EVENTS_A_MESSAGE", 4)
    monkeypatch.setattr(job_queries, "_EVENTS_A_PAGE", 3)
    await run(scheduler, 10)
    found = await batches_of(scheduler)
    assert [message.position for message in found] == [1, 2, 3, 4, 4, 4]
    assert [message.more for message in found] == [False, False, False, True, True, False]
    assert {message.scheduler_id for message in found} == {"s1"}
    partitions = [json.loads(event.json)["partition"] for message in found[3:] for event in message.events]
    assert partitions == list(range(9))
    assert [message.position for message in await batches_of(scheduler, after=3)] == [4, 4, 4]


async def test_who_follows_learns_all_up_to_the_end(scheduler):
    await run(scheduler, 3)
    following = asyncio.create_task(batches_of(scheduler, follow=True))
    await asyncio.sleep(0)
    await record(scheduler, lambda _: Decision([JobCancelled(reason="enough", at_ms=8)]))
    found = await asyncio.wait_for(following, HANGS_S)
    assert found[-1].events[-1].type == "job_cancelled"
    assert [message.position for message in found] == list(range(1, len(found) + 1))
    assert found == await batches_of(scheduler), "and it is there after the end"


async def test_secrets_are_not_reported(scheduler):
    sink = SinkSpec(path="/out", format="csv", mode="error", options=(("password", "hunter2"), ("sep", ";")))
    found = planned(3)
    await record(scheduler, lambda job: Decision(launches(job)))
    await record(scheduler, lambda _: Decision([replace(found, summary=replace(found.summary, sink=sink))]))
    (event,) = (
        event for message in await batches_of(scheduler) for event in message.events if event.type == "job_planned"
    )
    assert "hunter2" not in event.json
    assert json.loads(event.json)["summary"]["sink"]["options"][1] == ["sep", ";"]
