"""The inputs of a stage: few are sent with each launch, many as the digest of a blob."""

import pytest
from msgspec.structs import replace

from onager.execution_graph import OutputLayout, StageInput, StageSpec, StageWork
from onager.ids import BlobDigest, JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.engine.query_coordinator import Cluster, QueryCoordinator, Share
from onager.scheduler.engine.stage_inputs import INLINE_BYTES, StageInputs
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.job_writers import Decision, JobWriters
from onager.state_backend import OutcomeUnknown
from tests.unit.scheduler.small_graphs import SLOT, graph, planned, store, succeeded

JOB = JobId("job-1")
READERS = 4


async def launched(backend, clock, producers, *, blobs=None):
    """Return the launches of a stage that reads from *producers* tasks, each of one task."""
    jobs = store(backend, clock)
    await jobs.submit(graph())
    writers = JobWriters(jobs, clock)
    inputs = StageInputs(blobs or BlobStore(backend))
    coordinator = QueryCoordinator(JOB, writers, clock, Cluster(lambda: 1, inputs=inputs))
    await coordinator.launch_tasks([Share(SLOT, 1)])
    plan = planned(producers)
    writes = replace(plan.stages[0], output=OutputLayout("exchange", READERS))
    reads = StageSpec(
        stage_id=2,
        name="two",
        work=StageWork.QUERY,
        plan_digest="q",
        partitions=READERS,
        inputs=(StageInput(1, "bucket"),),
        output=OutputLayout("result"),
    )
    plan = replace(plan, stages=(writes, reads), summary=replace(plan.summary, result_stage_id=2))
    await writers.record_decision(JOB, lambda _: Decision([plan]))
    first = await coordinator.launch_tasks([Share(SLOT, producers)])
    assert not any(launch.task_set.inputs_digest for launch in first)
    await coordinator.record_statuses([succeeded(1, n) for n in range(producers)], Share(SLOT, 0))
    return [launch.task_set for _ in range(READERS) for launch in await coordinator.launch_tasks([Share(SLOT, 1)])]


def places(task_set):
    return [output.nonce for location in task_set.inputs for output in location.outputs]


async def test_few_inputs_go_with_each_launch(backend, clock):
    task_sets = await launched(backend, clock, 10)
    assert [places(task_set) for task_set in task_sets] == [[f"n{n}" for n in range(10)]] * READERS
    assert not any(task_set.inputs_digest for task_set in task_sets)


async def test_many_inputs_are_stored_once_and_given_by_their_digest(backend, clock):
    task_sets = await launched(backend, clock, 2_000)
    (digest,) = {task_set.inputs_digest for task_set in task_sets}
    assert all(task_set.ByteSize() < 300 and not task_set.inputs for task_set in task_sets)
    content = await BlobStore(backend).get(BlobDigest(digest))
    assert len(content) > INLINE_BYTES
    assert places(pb.TaskSet.FromString(content)) == [f"n{n}" for n in range(2_000)]


async def test_inputs_that_cannot_be_stored_go_with_the_launch(backend, clock, monkeypatch):
    class Unsure:
        async def put_txn(self, *_, **__):
            return OutcomeUnknown("no answer")

        async def read_txn(self, *args, **kwargs):
            return await backend.read_txn(*args, **kwargs)

    monkeypatch.setattr("onager.scheduler.timing.BLOB_PAUSE_S", 0.0)
    task_sets = await launched(backend, clock, 2_000, blobs=BlobStore(Unsure()))
    assert [len(places(task_set)) for task_set in task_sets] == [2_000] * READERS


@pytest.mark.parametrize("producers", [10, 2_000])
async def test_the_tasks_are_the_same_whichever_way(backend, clock, producers):
    task_sets = await launched(backend, clock, producers)
    assert [task.partition for task_set in task_sets for task in task_set.tasks] == list(range(READERS))
    assert {task_set.plan_digest for task_set in task_sets} == {"q"}
