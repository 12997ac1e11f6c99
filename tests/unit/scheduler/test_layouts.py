"""Stages that are laid out: when a scheduler decides it, what executors and people are shown, and the settings."""

import base64
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from onager.errors import InvalidSettingError
from onager.execution_graph import (
    AdaptivePolicy,
    FusedStage,
    OutputLayout,
    StageInput,
    StageSpec,
    StageWork,
    TaskRead,
    UnresolvedStage,
    sizes_text,
)
from onager.execution_graph.stages import StageLayout
from onager.ids import JobId, Partition, StageId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import by_key, task_id
from onager.scheduler.api.stage_lines import stage_info
from onager.scheduler.engine.planning import planned as plan_of
from onager.scheduler.engine.query_coordinator import Cluster, QueryCoordinator, Share
from onager.scheduler.engine.reports import ReportReader
from onager.scheduler.jobs.blobs import blobs_of
from onager.scheduler.jobs.job_adaptive import adaptive_of
from onager.scheduler.jobs.job_heads import head_of
from onager.scheduler.jobs.job_specs import terms_of
from onager.scheduler.jobs.job_writers import Decision, JobWriters
from tests.unit.scheduler.parts import executors
from tests.unit.scheduler.small_graphs import SLOT, graph, planned, store, succeeded

JOB = JobId("job-1")
BUCKETS = 4


def stage(stage_id, partitions, reads=(), *, kind="exchange", **more):
    return StageSpec(
        stage_id=stage_id,
        name=f"s{stage_id}",
        work=StageWork.QUERY,
        plan_digest=f"plan-{stage_id}",
        partitions=partitions,
        inputs=tuple(StageInput(i, "bucket") for i in reads),
        output=OutputLayout(kind, BUCKETS if kind == "exchange" else 1),
        **more,
    )


async def at_work(backend, clock, *stages):
    """Return the coordinator of a job whose first stage, of two tasks, was launched."""
    jobs = store(backend, clock)
    await jobs.submit(replace(graph(), adaptive=AdaptivePolicy()))
    writers = JobWriters(jobs, clock)
    coordinator = QueryCoordinator(JOB, writers, clock, Cluster(lambda: 2))
    await coordinator.launch_tasks([Share(SLOT, 1)])
    plan = planned(1)
    plan = replace(plan, stages=stages, summary=replace(plan.summary, result_stage_id=len(stages)))
    await writers.record_decision(JOB, lambda _: Decision([plan]))
    await coordinator.launch_tasks([Share(SLOT, 2)])
    return jobs, coordinator


def measured(partition):
    made = succeeded(1, partition)
    return replace(made, output=replace(made.output, bucket_sizes=sizes_text(bytes([1] * BUCKETS), BUCKETS, 2)))


async def test_small_stages_are_launched_as_one_with_all_their_plans(backend, clock):
    stages = [stage(1, 2), stage(2, 4, [1], may_fuse=True), stage(3, 4, [2], kind="result", may_fuse=True)]
    jobs, coordinator = await at_work(backend, clock, *stages)
    (launch,) = await coordinator.record_statuses([measured(0), measured(1)], Share(SLOT, 5))
    task_set = launch.task_set
    assert (task_set.stage_id, task_set.plan_digest, task_set.partitions, len(task_set.tasks)) == (3, "plan-3", 1, 1)
    assert [(each.stage_id, each.plan_digest) for each in task_set.fused] == [(2, "plan-2")]
    assert [(each.stage_id, len(each.outputs)) for each in task_set.inputs] == [(1, 2)]
    assert not task_set.reads
    found = (await jobs.get(JOB)).graph
    assert {"plan-1", "plan-2", "plan-3"} <= blobs_of(found), "the plan of a fused stage is kept"
    head = head_of(found, terms_of(pb.JobSpec(), "c", 0))
    assert (head.stages, head.stages_done) == (4, 3)


async def test_tasks_get_the_buckets_that_they_read_at_every_launch(backend, clock):
    stages = [stage(1, 2), stage(2, BUCKETS, [1], kind="result", may_merge=True)]
    _, coordinator = await at_work(backend, clock, *stages)
    (launch,) = await coordinator.record_statuses([measured(0), measured(1)], Share(SLOT, 5))
    assert [(r.first_bucket, r.end_bucket) for r in launch.task_set.reads] == [(0, BUCKETS)]
    assert launch.task_set.partitions == 1
    (repeated,) = await coordinator.reconcile_tasks(replace(SLOT, list_number=2), [])
    assert repeated.task_set.reads == launch.task_set.reads


async def test_sizes_are_taken_of_the_buckets_that_there_are_and_where_they_are_wanted(backend, clock):
    jobs, _ = await at_work(backend, clock, stage(1, 2), stage(2, BUCKETS, [1], kind="result"))
    found = (await jobs.get(JOB)).graph
    reader = ReportReader(None, None, SimpleNamespace(now_ms=lambda: 9), executors())

    async def taken(graph_now, sizes):
        key = TaskKey(JOB, StageId(1), 0, Partition(0), 0)
        success = pb.TaskSuccess(output=pb.TaskOutput(nonce="n", shared=True), bucket_sizes=sizes)
        (event,) = await reader.read_reports(
            graph_now, SLOT, by_key([pb.TaskReport(task=task_id(key), success=success)])
        )
        return base64.b64decode(event.output.bucket_sizes)

    assert await taken(found, b"\1\2\3\4") == b"\1\2\3\4"
    assert await taken(found, b"\1\2\3") == b""
    assert await taken(replace(found, adaptive=None), b"\1\2\3\4") == b""


def test_a_plan_says_what_stages_allow():
    stage = pb.PlannedStage(
        stage_id=1,
        plan_digest="d",
        partitions=1,
        output=pb.OutputLayout(kind="exchange", buckets=2),
        leaf_bytes=77,
        may_fuse=True,
        may_merge=True,
    )
    reader = pb.PlannedStage(
        stage_id=2,
        plan_digest="d",
        partitions=2,
        output=pb.OutputLayout(kind="result"),
        inputs=[pb.StageInput(stage_id=1, read="bucket", may_split=True)],
    )
    success = pb.TaskSuccess(plan=pb.PlanOutcome(stages=[stage, reader]))
    one, two = plan_of(TaskKey(JOB, StageId(0), 0, Partition(0), 0), "e", success, "digest", 1).stages
    assert (one.leaf_bytes, one.may_fuse, one.may_merge) == (77, True, True)
    assert (two.leaf_bytes, two.may_fuse, two.may_merge) == (0, False, False)
    assert two.inputs == (StageInput(1, "bucket", may_split=True),)


def test_people_see_how_a_stage_was_laid_out():
    spec = stage(9, 1)
    assert stage_info(FusedStage(spec=spec, attempt=0, into=12)).name == "s9 (fused into stage 12)"
    fused = replace(spec, layout=StageLayout(planned_partitions=3, fused=(1, 2, 4, 5, 6, 7, 8)))
    text = stage_info(UnresolvedStage(spec=fused)).name
    assert text == "s9 (with stages 1, 2, 4, 5, 6 and 2 more, by what was measured)"
    reads = (TaskRead(first_bucket=0, end_bucket=200),)
    merged = replace(spec, layout=StageLayout(planned_partitions=200, reads=reads))
    assert stage_info(UnresolvedStage(spec=merged)).name == "s9 (reads 200 buckets in 1 task, by what was measured)"


@pytest.mark.parametrize(
    ("conf", "policy"),
    [
        ({}, AdaptivePolicy(replan="on")),
        ({"onager.adaptive": " ON "}, AdaptivePolicy(replan="on")),
        ({"onager.adaptive": "force"}, AdaptivePolicy(replan="force")),
        ({"onager.adaptive": "off"}, None),
        ({"onager.adaptive": "on", "onager.exchange": "streaming"}, None),
        (
            {"onager.adaptive": "on", "onager.adaptive.fuseBytes": "1k", "onager.shuffle.targetBytes": "2MiB"},
            AdaptivePolicy(fuse_bytes=1024, target_bytes=2 << 20, replan="on"),
        ),
        (
            {"onager.adaptive": "on", "onager.adaptive.fuseBytes": "0", "onager.shuffle.targetBytes": "0"},
            AdaptivePolicy(fuse_bytes=0, target_bytes=1, replan="on"),
        ),
    ],
)
def test_the_settings_of_a_job_say_by_which_sizes(conf, policy):
    assert adaptive_of(pb.JobSpec(conf=conf)) == policy


@pytest.mark.parametrize(
    "conf", [{"onager.adaptive": "maybe"}, {"onager.adaptive.fuseBytes": "some"}, {"onager.shuffle.targetBytes": "-1"}]
)
def test_a_setting_that_makes_no_sense_is_refused(conf):
    with pytest.raises(InvalidSettingError):
        adaptive_of(pb.JobSpec(conf=conf))
