"""Growing stages: what planners and feeds report, what executors get, and what is kept and shown of them."""

import json
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from onager.cli.events import what
from onager.errors import UnsupportedPlanError
from onager.execution_graph import FeedEnded, PartitionsAdded, Streaming, TaskFailed, TaskMetrics, encode_event
from onager.ids import Partition, StageId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_TASKS_OF_STAGE
from onager.protocol.task_keys import by_key, task_id
from onager.scheduler.api.stage_lines import stage_info
from onager.scheduler.engine.planning import fed
from onager.scheduler.engine.query_coordinator import Cluster, QueryCoordinator, Share
from onager.scheduler.engine.reports import ReportReader
from onager.scheduler.jobs.blobs import BlobStore, blobs_of, digest_of
from onager.scheduler.jobs.job_writers import JobWriters
from tests.unit.execution_graph.builder import output
from tests.unit.scheduler.parts import executors
from tests.unit.scheduler.small_graphs import SLOT, graph, store
from tests.unit.scheduler.test_layouts import JOB

PLANNED = b"the files that planning found"


def outcome(*, portions=(PLANNED,)):
    """Return the plan of a scan of which two tasks are known."""
    source, scan = b"the source", b"the scan"
    feeding = pb.PlannedStage(
        stage_id=1, work=pb.FEED, plan_digest=digest_of(source), partitions=1, output=pb.OutputLayout(kind="control")
    )
    growing = pb.PlannedStage(
        stage_id=2,
        name="scan",
        plan_digest=digest_of(scan),
        partitions=2,
        output=pb.OutputLayout(kind="result"),
        feed_stage_id=1,
        portions=[pb.StagePortion(digest=digest_of(PLANNED), partitions=2)],
    )
    blobs = [pb.Blob(digest=digest_of(each), content=each) for each in (source, scan, *portions)]
    return pb.PlanOutcome(stages=[feeding, growing], blobs=blobs)


class AtWork:
    """A job whose stages may grow."""

    def __init__(self, backend, clock):
        self.backend, self.jobs = backend, store(backend, clock)
        self.coordinator = QueryCoordinator(JOB, JobWriters(self.jobs, clock), clock, Cluster(lambda: 2))

    async def graph(self):
        return (await self.jobs.get(JOB)).graph

    async def reported(self, stage_id, partition, success):
        """Report a success; return the event that it is, and what is launched."""
        key = TaskKey(JOB, StageId(stage_id), 0, Partition(partition), 0)
        reader = ReportReader(BlobStore(self.backend), None, SimpleNamespace(now_ms=lambda: 50), executors())
        events = await reader.read_reports(
            await self.graph(), SLOT, by_key([pb.TaskReport(task=task_id(key), success=success)])
        )
        return events[0], [each.task_set for each in await self.coordinator.record_statuses(events, Share(SLOT, 9))]


@pytest.fixture
async def job(backend, clock):
    made = AtWork(backend, clock)
    await made.jobs.submit(graph())
    await made.coordinator.launch_tasks([Share(SLOT, 1)])
    return made


def found(number, partitions, *, ended=False):
    content = f"portion {number}".encode()
    output = pb.TaskOutput(nonce=f"f{number}", shared=True, payload_digest=digest_of(content))
    return pb.TaskSuccess(
        output=output,
        blobs=[pb.Blob(digest=digest_of(content), content=content)],
        feed=pb.FeedOutcome(added=partitions, ended=ended),
    )


async def test_each_task_of_a_feed_gets_the_last_portion_and_readers_the_portion_that_they_read(job):
    _, launched = await job.reported(0, 0, pb.TaskSuccess(plan=outcome()))
    listing, scan = launched
    assert (listing.work, listing.portion.digest, listing.portion.first_partition) == (pb.FEED, digest_of(PLANNED), 2)
    assert (scan.partitions, scan.portion.first_partition, scan.portion.partitions) == (2, 0, 2)
    event, (listing, scan) = await job.reported(1, 0, found(1, 3))
    assert isinstance(event, PartitionsAdded)
    assert (listing.tasks[0].partition, listing.portion.digest) == (1, digest_of(b"portion 1"))
    assert [task.partition for task in scan.tasks] == [2, 3, 4]
    assert (scan.partitions, scan.portion.first_partition, scan.portion.digest) == (5, 2, digest_of(b"portion 1"))
    event, launched = await job.reported(1, 1, found(2, 0, ended=True))
    assert isinstance(event, FeedEnded)
    assert not launched
    assert stage_info((await job.graph()).stages[2]).name == "scan"


async def test_tasks_of_several_portions_are_launched_as_several_sets(job):
    await job.reported(0, 0, pb.TaskSuccess(plan=outcome()))
    await job.reported(1, 0, found(1, 3))
    repeated = await job.coordinator.reconcile_tasks(replace(SLOT, list_number=2), [])
    sets = [each.task_set for each in repeated if each.task_set.work == pb.QUERY]
    assert [[task.partition for task in each.tasks] for each in sets] == [[0, 1], [2, 3, 4]]
    assert [each.portion.first_partition for each in sets] == [0, 2]


async def test_what_portions_consist_of_is_kept_and_people_see_that_more_may_come(job):
    await job.reported(0, 0, pb.TaskSuccess(plan=outcome()))
    await job.reported(1, 0, found(1, 1))
    after = await job.graph()
    assert {digest_of(PLANNED), digest_of(b"portion 1")} <= blobs_of(after)
    assert stage_info(after.stages[2]).name == "scan (more tasks may come)"


async def test_a_plan_without_its_first_portion_is_not_taken(job):
    event, _ = await job.reported(0, 0, pb.TaskSuccess(plan=outcome(portions=())))
    assert isinstance(event, TaskFailed)
    assert "did not send the plan of stage 2" in event.failure.message


@pytest.mark.parametrize("field", ["feed", "output"])
async def test_a_task_of_a_feed_that_does_not_say_what_it_found_has_failed(job, field):
    await job.reported(0, 0, pb.TaskSuccess(plan=outcome()))
    success = found(1, 2)
    success.ClearField(field)
    event, _ = await job.reported(1, 0, success)
    assert isinstance(event, TaskFailed)


async def test_a_stage_that_would_get_too_many_tasks_fails(job):
    await job.reported(0, 0, pb.TaskSuccess(plan=outcome()))
    key = TaskKey(JOB, StageId(1), 0, Partition(0), 0)
    with pytest.raises(UnsupportedPlanError, match="200,001 partitions"):
        fed(await job.graph(), key, "e1", found(1, MAX_TASKS_OF_STAGE - 1), 9)


@pytest.mark.parametrize(("streaming", "reported"), [(None, True), (Streaming(), False)])
async def test_a_planner_learns_whether_stages_may_grow(backend, clock, streaming, reported):
    jobs = store(backend, clock)
    await jobs.submit(replace(graph(), streaming=streaming))
    (launch,) = await QueryCoordinator(JOB, JobWriters(jobs, clock), clock, Cluster(lambda: 2)).launch_tasks(
        [Share(SLOT, 1)]
    )
    assert launch.task_set.may_grow is reported


def test_people_read_what_was_found():
    event = PartitionsAdded(
        stage_id=1,
        stage_attempt=0,
        partition=2,
        task_attempt=0,
        executor_id="e1",
        output=output("n"),
        added=3,
        metrics=TaskMetrics(),
        at_ms=1,
    )
    text = what(SimpleNamespace(type=event.type, fields=json.loads(encode_event(event))))
    assert text == "stage 1, task 2 on e1: 3 more tasks for the stage that it feeds"
