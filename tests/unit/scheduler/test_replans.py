"""The rest of a query is planned again: when a scheduler decides it, and what executors and people are shown."""

import json
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from onager.cli.events import what
from onager.errors import PlanningError
from onager.execution_graph import (
    AdaptivePolicy,
    StageInput,
    StageReplanned,
    SupersededStage,
    TaskMetrics,
    encode_event,
)
from onager.execution_graph.events import ReplanBegun, ReplanGivenUp
from onager.ids import Partition, StageId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import by_key, task_id
from onager.scheduler.api.stage_lines import stage_info
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.engine.planning import replanned
from onager.scheduler.engine.query_coordinator import Cluster, QueryCoordinator, Share
from onager.scheduler.engine.reports import ReportReader
from onager.scheduler.jobs.blobs import BlobStore, blobs_of, digest_of
from onager.scheduler.jobs.job_heads import head_of
from onager.scheduler.jobs.job_specs import terms_of
from onager.scheduler.jobs.job_writers import Decision, JobWriters
from onager.scheduler.policy.fair_queue import FairQueue
from tests.unit.scheduler.parts import executors
from tests.unit.scheduler.small_graphs import SLOT, graph, planned, store, succeeded
from tests.unit.scheduler.test_layouts import JOB, stage

REPLAN = TaskKey(JOB, StageId(4), 0, Partition(0), 0)
STAGES = [
    stage(1, 1),
    stage(2, 2),
    replace(
        stage(3, 2, kind="result"),
        inputs=(StageInput(1, "bucket", side="shuffled"), StageInput(2, "bucket", side="shuffled")),
    ),
]


async def at_work(backend, clock, *, mode="on"):
    """Return a job whose first stage, a side of a join, is about to be done, and the other has not begun."""
    jobs = store(backend, clock)
    await jobs.submit(replace(graph(), adaptive=AdaptivePolicy(fuse_bytes=0, replan=mode)))
    writers = JobWriters(jobs, clock)
    coordinator = QueryCoordinator(JOB, writers, clock, Cluster(lambda: 2))
    await coordinator.launch_tasks([Share(SLOT, 1)])
    plan = planned(1)
    summary = replace(plan.summary, result_stage_id=3, frame_digest="frame", broadcast_bytes=100)
    await writers.record_decision(JOB, lambda _: Decision([replace(plan, stages=tuple(STAGES), summary=summary)]))
    await coordinator.launch_tasks([Share(SLOT, 1)])
    return jobs, coordinator


def outcome(*, is_kept=False):
    """Return what a re-plan reports: a broadcast join over the other side, or nothing better."""
    if is_kept:
        return pb.PlanOutcome(decisions=["nothing better"])
    content = b"a plan"
    join = pb.PlannedStage(
        stage_id=5,
        name="broadcast join",
        plan_digest=digest_of(content),
        partitions=2,
        output=pb.OutputLayout(kind="result"),
        inputs=[pb.StageInput(stage_id=1, read="all", side="broadcast")],
        plan="as text",
    )
    blobs = [pb.Blob(digest=digest_of(each), content=each) for each in (content, b"frame 2")]
    return pb.PlanOutcome(
        stages=[join], blobs=blobs, frame_digest=digest_of(b"frame 2"), decisions=["joins 1 → 0"], estimates=[]
    )


async def report(backend, jobs, coordinator, success):
    found = (await jobs.get(JOB)).graph
    reader = ReportReader(BlobStore(backend), None, SimpleNamespace(now_ms=lambda: 50), executors())
    events = await reader.read_reports(found, SLOT, by_key([pb.TaskReport(task=task_id(REPLAN), success=success)]))
    launches = await coordinator.record_statuses(events, Share(SLOT, 5))
    return events, launches, (await jobs.get(JOB)).graph


async def test_the_report_that_makes_it_due_brings_the_re_plan_and_nothing_that_waits_for_it(backend, clock):
    jobs, coordinator = await at_work(backend, clock)
    (launch,) = await coordinator.record_statuses([succeeded(1, 0)], Share(SLOT, 5))
    task_set = launch.task_set
    assert (task_set.work, task_set.stage_id, len(task_set.tasks)) == (pb.REPLAN, 4, 1)
    task = task_set.replan
    assert (task.frame_digest, task.first_stage_id, task.falsify) == ("frame", 5, "")
    (begun,) = task.begun
    assert (begun.stage_id, begun.finished, begun.repeatable, begun.rows, begun.bytes) == (1, True, True, 1, 1)
    found = (await jobs.get(JOB)).graph
    assert found.replan is not None
    assert found.replan.held == (2, 3)
    assert "frame" in blobs_of(found)


async def test_a_re_plan_gets_what_rows_take_in_memory(backend, clock):
    _, coordinator = await at_work(backend, clock)
    metrics = TaskMetrics(run_ms=1, rows_out=1, bytes_out=1, plain_bytes_out=90)
    (launch,) = await coordinator.record_statuses([replace(succeeded(1, 0), metrics=metrics)], Share(SLOT, 5))
    (begun,) = launch.task_set.replan.begun
    assert (begun.rows, begun.bytes) == (1, 90)


async def test_sizes_are_made_up_where_re_plans_are_forced(backend, clock):
    _, coordinator = await at_work(backend, clock, mode="force")
    (launch,) = await coordinator.record_statuses([succeeded(1, 0)], Share(SLOT, 5))
    assert launch.task_set.replan.falsify == "job-1 4"


async def test_a_new_plan_goes_into_the_log_with_its_blobs_and_its_stages_are_launched(backend, clock):
    jobs, coordinator = await at_work(backend, clock)
    await coordinator.record_statuses([succeeded(1, 0)], Share(SLOT, 5))
    (event,), (launch,), found = await report(backend, jobs, coordinator, pb.TaskSuccess(plan=outcome()))
    assert (event.dropped, event.result_stage_id) == ((2, 3), 5)
    assert (launch.task_set.stage_id, launch.task_set.plan_digest) == (5, digest_of(b"a plan"))
    assert [(each.stage_id, len(each.outputs)) for each in launch.task_set.inputs] == [(1, 1)]
    assert {digest_of(b"a plan"), digest_of(b"frame 2"), event.explain_digest} <= blobs_of(found)
    infos = [stage_info(each, found.replans) for each in found.stages]
    assert infos[2].name == "s2 (superseded: planned again by stage 4)"
    why = "stage 1 has 0 rows in 0 bytes, few enough to be broadcast"
    assert infos[4].name == f"replan ({why}; a new plan: joins 1 → 0; without stages 2, 3)"
    head = head_of(found, terms_of(pb.JobSpec(), "c", 0))
    assert (head.stages, head.stages_done) == (6, 5)


async def test_a_re_plan_that_found_nothing_better_lets_go_what_waited(backend, clock):
    jobs, coordinator = await at_work(backend, clock)
    await coordinator.record_statuses([succeeded(1, 0)], Share(SLOT, 5))
    success = pb.TaskSuccess(plan=outcome(is_kept=True))
    (event,), (launch,), found = await report(backend, jobs, coordinator, success)
    assert (event.stages, event.decisions) == ((), ("nothing better",))
    assert launch.task_set.stage_id == 2
    assert stage_info(found.stages[4], found.replans).name.endswith("; the plan is kept: nothing better)")


async def test_a_re_plan_that_takes_too_long_is_given_up_by_whoever_launches_next(backend, clock):
    jobs, coordinator = await at_work(backend, clock)
    await coordinator.record_statuses([succeeded(1, 0)], Share(SLOT, 5))
    assert await coordinator.launch_tasks([Share(SLOT, 5)]) == []
    clock.advance(2_000)
    (launch,) = await coordinator.launch_tasks([Share(SLOT, 5)])
    assert launch.task_set.stage_id == 2
    assert isinstance((await jobs.get(JOB)).graph.stages[4], SupersededStage)


@pytest.mark.virtual_time
async def test_tasks_count_as_waiting_again_when_a_re_plan_has_had_its_time(backend, clock):
    jobs, coordinator = await at_work(backend, clock)
    await coordinator.record_statuses([succeeded(1, 0)], Share(SLOT, 5))
    job, received = await jobs.get(JOB), []
    queue = SimpleNamespace(update=lambda _, **load: received.append(load["available"]), remove=lambda _: None)
    alone = SimpleNamespace(is_mine=lambda _: True, follows=lambda _: True)
    loads = JobLoads(queue, FairQueue(), SimpleNamespace(revision=lambda _: 1), alone, clock)
    loads.on_commit(job, head_of(job.graph, terms_of(pb.JobSpec(), "c", 0)))
    assert received == [0], "its tasks wait"
    assert loads._pausing


def test_a_plan_that_nobody_waits_for_is_refused():
    with pytest.raises(PlanningError, match="nobody waits"):
        replanned(graph(), REPLAN, "e", pb.TaskSuccess(plan=outcome()), "d", 1)


def test_people_read_why_and_what():
    def reported(event):
        fields = json.loads(encode_event(event))
        return what(SimpleNamespace(type=event.type, fields=fields))

    begun = ReplanBegun(replan_id=4, basis=(), finished=(), held=(), why="stage 1 has no rows", at_ms=1)
    assert reported(begun) == "stage 4: stage 1 has no rows"
    ended = StageReplanned(
        replan_id=4,
        task_attempt=0,
        executor_id="e",
        basis=(),
        dropped=(2, 3),
        stages=(stage(5, 1),),
        decisions=("joins 1 → 0",),
        metrics=TaskMetrics(),
        at_ms=1,
    )
    assert reported(ended) == "stage 4: new stages 5, without stage 2-3: joins 1 → 0"
    assert reported(replace(ended, stages=(), dropped=())) == "stage 4: the plan is kept: joins 1 → 0"
    assert reported(ReplanGivenUp(replan_id=4, reason="too long", at_ms=1)) == "stage 4: the plan is kept: too long"
