"""The plan as it ran, as schedulers tell it to clients: in pages, and without what is gone from the store."""

import json

import pytest
from msgspec.structs import replace

from onager.execution_graph import ExecutionGraph, OperatorTotals
from onager.protocol import onager_pb2 as pb
from onager.scheduler.api import final_plan as module
from onager.scheduler.api.final_plan import final_plan
from onager.scheduler.api.stage_lines import stage_info
from onager.scheduler.engine.planning import explanation
from onager.scheduler.jobs.blobs import BlobStore, digest_of
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.execution_graph.builder import chain, planned
from tests.unit.execution_graph.test_operators import text
from tests.unit.scheduler.test_operator_tree import JOIN

PLANNED = pb.PlanOutcome(plan="a plan", estimates=[pb.StageEstimate(stage_id=1, rows=700)])


@pytest.fixture
def blobs():
    return BlobStore(MemoryBackend(MemoryStore()))


@pytest.fixture
async def graph(blobs) -> ExecutionGraph:
    """Return a job of three stages, the first of which has ended: two of its three tasks reported operators."""
    explained = explanation(PLANNED)
    await blobs.put("job-1", [JOIN, explained])
    job = planned(*chain(3, partitions=3))
    job.launch("a", 3)
    for partition, rows in ((0, 10), (1, 5)):
        event = job.success(1, partition)
        assert job.feed(replace(event, bound_plan=digest_of(JOIN), op_metrics=text((2, rows))))
    job.succeed(1, 2)
    assert job.stage(1).ledger.operators == (OperatorTotals(bound_plan=digest_of(JOIN), tasks=2, values=((2, 15),)),)
    return replace(job.graph, plan=replace(job.graph.plan, explain_digest=digest_of(explained)))


async def plan_of(graph, blobs, first=0) -> pb.FinalPlan:
    return await final_plan(graph, [stage_info(stage) for stage in graph.stages], blobs, first)


async def test_stages_have_their_operators_and_what_spark_expected(graph, blobs):
    plan = await plan_of(graph, blobs)
    assert [stage.info.stage_id for stage in plan.stages] == [0, 1, 2, 3]
    assert (plan.next, plan.state) == (0, pb.RUNNING)
    first, second = plan.stages[1], plan.stages[2]
    assert (first.has_estimate, first.estimated_rows, first.reported) == (True, 700, 2)
    assert (second.has_estimate, second.reported, list(second.plans)) == (False, 0, [])
    assert [(each.stage_id, each.read) for each in second.inputs] == [(1, "bucket")]
    (bound,) = first.plans
    join, scan, _ = bound.operators
    assert (bound.tasks, join.name, list(join.children)) == (2, "Join", [1, 2])
    assert [(m.name, m.type, m.value) for m in join.metrics] == [
        ("numOutputRows", "sum", 15),
        ("peakMemory", "sum", 0),
    ]
    assert ("numFiles", 4) in {(m.name, m.value) for m in scan.metrics}


async def test_what_the_store_lacks_is_left_out(graph):
    plan = await plan_of(graph, BlobStore(MemoryBackend(MemoryStore())))
    first = plan.stages[1]
    assert (first.reported, first.has_estimate) == (2, False)
    assert [(bound.tasks, list(bound.operators)) for bound in first.plans] == [(2, [])]


async def test_what_is_no_plan_is_left_out(graph, blobs):
    (content,) = [json.dumps({"nodes": []}).encode()]
    await blobs.put("job-1", [content])
    stage = graph.stages[1]
    damaged = OperatorTotals(bound_plan=digest_of(content), tasks=1, values=())
    stage = replace(stage, ledger=replace(stage.ledger, operators=(damaged, *stage.ledger.operators)))
    graph = replace(graph, stages=(graph.stages[0], stage, *graph.stages[2:]))
    plan = await plan_of(graph, blobs)
    assert [len(bound.operators) for bound in plan.stages[1].plans] == [0, 3]


async def test_a_large_plan_comes_in_pages(graph, blobs, monkeypatch):
    whole = await plan_of(graph, blobs)
    monkeypatch.setattr(module, "_PAGE_BYTES", 10)
    stages, first = [], 0
    for _ in range(len(whole.stages)):
        page = await plan_of(graph, blobs, first)
        assert len(page.stages) == 1
        stages += page.stages
        first = page.next
    assert first == 0
    assert stages == list(whole.stages)
    assert not (await plan_of(graph, blobs, 2**32 - 1)).stages
