"""Where the time of stored jobs went: read import dataclasses
from their histories, kept, and shown to who asks for a job."""

import asyncio
import dataclasses
import json

import pytest
from msgspec.structs import replace

from onager.clock import ManualClock
from onager.errors import StateUnavailableError
from onager.execution_graph import JobCancelled, TaskMetrics, pop_next_tasks, revive
from onager.execution_graph.scripts import planned_at_once
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.api.timeline import reading
from onager.scheduler.api.timeline.reading import Timelines
from onager.scheduler.api.timeline.wall_times import WallTimes
from onager.scheduler.app import SchedulerApp
from onager.scheduler.jobs.history import JobHistory
from onager.scheduler.jobs.recent_batches import RecentBatches
from onager.scheduler.settings import SchedulerSettings
from onager.scheduler.timing import TIMELINE_SOON_S
from tests.unit.execution_graph.test_scripts import step as script_step
from tests.unit.scheduler.pair import FakeContext
from tests.unit.scheduler.small_graphs import SLOT, forget, graph, planned, store, succeeded
from tests.unit.scheduler.test_job_store import launches, running, step

JOB = JobId("job-1")


class CountingHistory(JobHistory):
    def __init__(self, backend):
        super().__init__(backend, RecentBatches(ManualClock()))
        self.reads = 0
        self.fails = False

    async def after(self, job_id, position, limit):
        self.reads += 1
        if self.fails:
            raise StateUnavailableError("the store is away")
        return await super().after(job_id, position, limit)


@pytest.fixture
def history(backend):
    return CountingHistory(backend)


@pytest.fixture
async def times(backend, history, clock):
    made = wall_times(backend, history, clock)
    yield made
    await made.close()


def wall_times(backend, history, clock):
    return WallTimes(Timelines(store(backend, clock), history, clock), clock)


def wall_ms(job, clock):
    return (job.graph.ended_ms or clock.now_ms()) - job.graph.submitted_ms


async def test_shares_of_a_job_add_up_while_it_runs_and_when_it_has_ended(backend, clock, times, history):
    jobs = store(backend, clock)
    job = await running(jobs, 3)
    job = await step(jobs, job, [succeeded(1, 0)])
    shares = await times.shares(job)
    assert sum(share.ms for share in shares) == wall_ms(job, clock)
    before = history.reads
    assert await times.shares(job) == shares
    assert history.reads == before, "it was read a moment ago"
    job = await step(jobs, job, [succeeded(1, 1), succeeded(1, 2)])
    assert not job.graph.is_active
    shares = await times.shares(job)
    assert sum(share.ms for share in shares) == wall_ms(job, clock)
    before = history.reads
    assert await times.shares(job) == shares
    assert history.reads == before, "it does not change any more"


async def test_what_cannot_be_read_is_not_reported_and_read_later(backend, clock, times, history):
    jobs = store(backend, clock)
    job = await running(jobs, 2)
    history.fails = True
    assert await times.shares(job) == ()
    history.fails = False
    assert await times.shares(job)


async def test_a_client_that_asks_for_a_job_gets_its_shares(backend, clock):
    scheduler = SchedulerApp(
        SchedulerSettings(exchange_dir="/x", scheduler_id="s", listen="127.0.0.1:1"), backend, clock
    )
    await scheduler.start()
    await scheduler.jobs.submit(graph(JOB))
    for page in (pb.GetJobRequest(job_id=JOB), pb.GetJobRequest(job_id=JOB, stage_id=2**32 - 1)):
        progress = (await scheduler.service.GetJob(page, FakeContext())).progress
        sum_ms = sum(share.ms for share in progress.time_shares)
        assert sum_ms == clock.now_ms() - progress.submitted_ms
    await scheduler.close()


class PausedHistory(CountingHistory):
    """Pauses with the first that it has found, until let go."""

    def __init__(self, backend):
        super().__init__(backend)
        self.is_reading = asyncio.Event()
        self.go = asyncio.Event()

    async def after(self, job_id, position, limit):
        found = await super().after(job_id, position, limit)
        if not self.is_reading.is_set():
            self.is_reading.set()
            await self.go.wait()
        return found


async def test_all_who_look_at_the_end_of_a_job_get_the_same(backend, clock, history):
    paused = PausedHistory(backend)
    times = wall_times(backend, paused, clock)
    jobs = store(backend, clock)
    job, _ = await jobs.submit(graph())
    job = await step(jobs, job, launches(job.graph))
    job = active = await step(jobs, job, [planned(6)])
    early = asyncio.create_task(times.shares(active))
    await paused.is_reading.wait()
    for partition in range(6):
        at_ms = 100 * (partition + 1)
        if (started := revive(job.graph, at_ms)) is not None:
            job = await step(jobs, job, [started])
        job = await step(jobs, job, [pop_next_tasks(job.graph, SLOT, 1, at_ms)])
        done = replace(succeeded(1, partition, at_ms=at_ms + 60), metrics=TaskMetrics(run_ms=50))
        job = await step(jobs, job, [done])
    assert not job.graph.is_active
    late = [asyncio.create_task(times.shares(job)) for _ in range(2)]
    await asyncio.sleep(0)
    paused.go.set()
    await early
    alone = wall_times(backend, history, clock)
    expected = await alone.shares(job)
    assert sum(share.ms for share in expected) == wall_ms(job, clock)
    assert await asyncio.gather(*late) == [expected, expected]
    assert await times.shares(job) == expected
    await times.close()
    await alone.close()


async def test_looking_at_many_jobs_reads_the_history_of_each_once(backend, clock, times, history, monkeypatch):
    monkeypatch.setattr("onager.scheduler.api.timeline.wall_times._RUNNING_JOBS", 2)
    job = await running(store(backend, clock), 3)
    many = [dataclasses.replace(job, graph=replace(job.graph, submitted_ms=number)) for number in range(3)]
    for each in many:
        await times.shares(each)
    before = history.reads
    for _ in range(3):
        assert [bool(await times.shares(each)) for each in many] == [True, True, False]
    assert history.reads == before
    clock.advance(5_000)
    assert await times.shares(many[2]), "nobody has looked at the others for a while"


async def test_a_job_with_an_id_that_was_used_before_has_its_own_shares(backend, clock, times):
    jobs = store(backend, clock)
    job, _ = await jobs.submit(graph(at_ms=1))
    job = await step(jobs, job, [JobCancelled(reason="enough", at_ms=40)])
    assert sum(share.ms for share in await times.shares(job)) == 39
    await forget(backend)
    again, _ = await store(backend, clock).submit(graph(at_ms=clock.now_ms() - 7))
    assert sum(share.ms for share in await times.shares(again)) == 7


async def test_who_looks_at_a_timeline_takes_turns_with_who_divides_the_time_of_a_long_log(backend, clock, history):
    jobs = store(backend, clock)
    timelines = Timelines(jobs, history, clock)
    times = WallTimes(timelines, clock)
    job = await running(jobs, 4)
    for partition in range(4):
        job = await step(jobs, job, [succeeded(1, partition, at_ms=20 + partition)])
    pages = history.pages

    async def slowly(*args, **kwargs):
        async for page in pages(*args, **kwargs):
            for entry in page:
                clock.advance(400)
                await asyncio.sleep(0)
                yield [entry]

    history.pages = slowly
    dividing = asyncio.create_task(times.shares(job))
    await asyncio.sleep(0)
    early = json.loads(await timelines.as_json(JOB, soon=True))
    assert early["is_early"], "it did not wait until the whole log was read"
    assert sum(share.ms for share in await dividing) == wall_ms(job, clock)
    await times.close()


class SlowHistory(CountingHistory):
    """Gives one entry a page, after a while; may fail after some."""

    def __init__(self, backend, clock, *, takes_ms=0):
        super().__init__(backend)
        self.clock, self.takes_ms, self.left, self.read = clock, takes_ms, 1_000, []

    async def pages(self, job_id, position, *, to=None):
        async for page in super().pages(job_id, position, to=to):
            for entry in page:
                if not self.left:
                    raise StateUnavailableError("the store is away")
                self.left -= 1
                self.clock.advance(self.takes_ms)
                self.read.append(entry.position)
                yield [entry]


async def some_steps(jobs):
    job = await running(jobs, 4)
    for partition in range(3):
        job = await step(jobs, job, [succeeded(1, partition, at_ms=20 + partition)])
    return job


async def test_the_log_of_a_job_with_more_attempts_than_are_kept_is_read_once(backend, clock, monkeypatch):
    monkeypatch.setattr(reading, "_KEPT_ATTEMPTS", 2)
    job = await some_steps(store(backend, clock))
    history = SlowHistory(backend, clock, takes_ms=int(1000 * TIMELINE_SOON_S))
    times = wall_times(backend, history, clock)
    assert await times.shares(job)
    assert history.read == list(range(1, job.seq + 1))
    await times.close()


async def test_a_log_that_cannot_be_read_to_its_end_is_read_on_later(backend, clock):
    job = await some_steps(store(backend, clock))
    history = SlowHistory(backend, clock)
    history.left = 2
    times = wall_times(backend, history, clock)
    assert await times.shares(job) == ()
    history.left = 1_000
    assert await times.shares(job)
    assert history.read == list(range(1, job.seq + 1))
    await times.close()


async def test_a_script_runs_from_its_submission(backend, clock, times):
    steps = (script_step(1), script_step(2, 1))
    job, _ = await store(backend, clock).submit(planned_at_once(graph(at_ms=clock.now_ms()), steps, clock.now_ms()))
    clock.advance(5_000)
    assert job.seq == 0, "its log is empty until its first step has ended"
    assert {share.use: share.ms for share in await times.shares(job)} == {"running": 5_000}
