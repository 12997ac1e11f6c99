import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from onager.clock import SystemClock
from onager.execution_graph import RetryLimits, apply_all
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.jobs.job_heads import JobTerms, head_of
from onager.scheduler.policy.fair_queue import FairQueue
from tests.support.waiting import eventually
from tests.unit.scheduler.small_graphs import failed, graph, planned
from tests.unit.scheduler.test_job_store import launches

JOB = JobId("job-1")
pytestmark = pytest.mark.virtual_time


def test_what_another_scheduler_tells_again_is_no_news():
    """Else a task that no slot here is fit for would be asked for without end: each answer tells the load."""
    head = head_of(graph(), JobTerms())
    heads = SimpleNamespace(get=lambda _: head, revision=lambda _: 5)
    loads = JobLoads(
        FairQueue(),
        FairQueue(),
        heads,
        SimpleNamespace(follows=lambda _: False, is_mine=lambda _: False),
        SystemClock(),
    )
    received = []
    loads.listen(received.append)
    load = pb.JobLoad(job_id=JOB, running=1, available=1, log_seq=7, head_revision=5)
    loads.take_loads([load])
    loads.take_loads([load])
    assert received == [JOB]
    loads.take_loads([pb.JobLoad(job_id=JOB, running=1, available=2, log_seq=8, head_revision=5)])
    assert received == [JOB, JOB]


def test_the_end_of_a_pause_is_known_though_the_head_is_known_by_an_earlier_revision_there():
    """Who commits a batch that leaves the head alone knows the head as of that batch; who loads it, as of before."""
    head = head_of(graph(), JobTerms())
    heads = SimpleNamespace(get=lambda _: head, revision=lambda _: 9)
    queue = FairQueue()
    loads = JobLoads(
        queue, FairQueue(), heads, SimpleNamespace(follows=lambda _: False, is_mine=lambda _: False), SystemClock()
    )
    loads.take_loads([pb.JobLoad(job_id=JOB, running=0, available=0, log_seq=7, head_revision=9)])
    assert queue.take_job() is None
    loads.take_loads([pb.JobLoad(job_id=JOB, running=0, available=1, log_seq=7, head_revision=5)])
    assert queue.take_job() == JOB


def test_no_load_is_known_of_a_job_of_which_only_the_head_was_seen():
    """A message has no number for an unknown load."""
    head = head_of(graph(), JobTerms())
    heads = SimpleNamespace(get=lambda _: head, revision=lambda _: 5)
    loads = JobLoads(
        FairQueue(), FairQueue(), heads, SimpleNamespace(follows=lambda _: False, is_mine=lambda _: True), SystemClock()
    )
    loads.on_head(JOB, head)
    assert loads.of([JOB]) == []


@pytest.fixture
async def failing():
    """A job of three tasks, of which the first has failed at 1,000 ms and waits for 100 ms; and its loads."""
    found = replace(graph(), limits=RetryLimits(retry_pauses_ms=(100,)))
    found = apply_all(found, launches(found))
    found = apply_all(found, [planned(3)])
    found = apply_all(found, launches(found, 3))
    failure = failed(0, 1_000)
    found = apply_all(found, [failure])
    head = head_of(found, JobTerms())
    ownership = SimpleNamespace(follows=lambda _: True, is_mine=lambda _: True)
    world = SimpleNamespace(now_ms=1_000, queue=FairQueue(), head=head, ownership=ownership, reported=[])
    heads = SimpleNamespace(get=lambda _: head, revision=lambda _: 5)
    world.loads = JobLoads(world.queue, FairQueue(), heads, ownership, SimpleNamespace(now_ms=lambda: world.now_ms))
    world.job = SimpleNamespace(graph=found, seq=7)
    world.loads.on_commit(world.job, head)
    world.loads.listen(world.reported.append)
    return world


async def test_a_task_that_failed_asks_for_no_slot_until_its_pause_is_over_and_then_everybody_is_notified(failing):
    queue, loads = failing.queue, failing.loads
    assert failing.head.has_runnable_work, "the head does not depend on the time"
    assert (queue.available, queue.has_runnable, queue.running(JOB)) == (0, False, 2)
    before = loads.latest_change
    await asyncio.sleep(0.15)
    assert not failing.reported, "it looked again, and by the clock the pause goes on"
    failing.now_ms = 1_100
    await eventually(lambda: failing.reported)
    assert (queue.available, queue.has_runnable) == (1, True)
    assert [(load.available, load.log_seq) for load in loads.changed_since(before)[0]] == [(1, 7)]
    await asyncio.sleep(0.15)
    assert failing.reported == [JOB], "once, and nobody has to ask"


async def test_a_job_that_ended_while_a_task_waited_is_not_taken_up_again(failing):
    failing.loads.on_head(JOB, None)
    failing.now_ms = 1_100
    await asyncio.sleep(0.15)
    assert not failing.queue.knows(JOB)


async def test_what_came_after_a_pause_began_is_not_forgotten_at_its_end(failing):
    failing.ownership.follows = lambda _: False  # another scheduler acts now
    failing.loads.take_loads([pb.JobLoad(job_id=JOB, running=1, available=0, log_seq=8, head_revision=5)])
    failing.now_ms = 1_100
    await asyncio.sleep(0.15)
    assert (failing.queue.running(JOB), failing.queue.available) == (1, 0)


async def test_a_scheduler_that_has_not_seen_the_end_of_a_pause_takes_nothing_back(failing):
    failing.now_ms = 1_100
    failing.loads.on_commit(failing.job, failing.head)
    assert failing.queue.available == 1
    failing.ownership.follows = lambda _: False  # not yet, though this one has read the job
    failing.loads.take_loads([pb.JobLoad(job_id=JOB, running=2, available=0, log_seq=7, head_revision=5)])
    assert failing.queue.available == 1
    failing.loads.take_loads([pb.JobLoad(job_id=JOB, running=3, available=0, log_seq=8, head_revision=5)])
    assert failing.queue.available == 0
