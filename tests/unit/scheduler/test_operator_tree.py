"""A bound plan joined with what tasks measured; what an executor sends need not be a plan."""

import base64
import json
from types import SimpleNamespace

import pytest

from onager.errors import StateCorruptError
from onager.execution_graph import ExecutorSlot, OperatorTotals, metrics_text
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import by_key
from onager.scheduler.api.operators import operators_of
from onager.scheduler.engine.reports import ReportReader
from onager.scheduler.jobs.blobs import blobs_of, digest_of
from tests.support.operators import metric
from tests.unit.execution_graph.builder import planned, stage
from tests.unit.scheduler.parts import executors


def node(number, name, children=(), **metrics):
    each = [{"name": n, "type": "sum"} | m for n, m in metrics.items()]
    return {"id": number, "name": name, "text": f"{name} text", "children": list(children), "metrics": each}


def plan(*nodes) -> bytes:
    return json.dumps({"nodes": nodes}).encode()


JOIN = plan(
    node(0, "Join", [1, 2], numOutputRows={"index": 1}, peakMemory={"index": 0}),
    node(1, "Scan a", (), numOutputRows={"index": 2}, numFiles={"value": 4}),
    node(2, "Scan b", (), numOutputRows={"index": 3}),
)


def test_operators_have_their_values():
    totals = OperatorTotals(bound_plan="p", tasks=2, values=((1, 900), (2, 7), (4, 20)))
    rows = [pb.OperatorMetric(name="numOutputRows", type="sum", value=value) for value in (7, 20, 0)]
    memory, files = (pb.OperatorMetric(name=n, type="sum", value=v) for n, v in (("peakMemory", 900), ("numFiles", 4)))
    assert operators_of(JOIN, totals) == [
        pb.FinalOperator(name="Join", text="Join text", metrics=[rows[0], memory], children=[1, 2]),
        pb.FinalOperator(name="Scan a", text="Scan a text", metrics=[rows[1], files]),
        pb.FinalOperator(name="Scan b", text="Scan b text", metrics=[rows[2]]),
    ]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xff", id="no JSON"),
        pytest.param(b"{}", id="no nodes"),
        pytest.param(plan(), id="empty"),
        pytest.param(plan(node(0, "a", [0])), id="its own child"),
        pytest.param(plan(node(0, "a", [1, 1]), node(1, "b")), id="a child twice"),
        pytest.param(plan(node(0, "a", [1, 2]), node(1, "b", [2]), node(2, "c")), id="a child of two"),
        pytest.param(plan(node(0, "a", [1])), id="a child that is not there"),
        pytest.param(plan(node(1, "a")), id="numbered otherwise"),
    ],
)
def test_what_is_no_plan_is_damage(content):
    with pytest.raises(StateCorruptError):
        operators_of(content, OperatorTotals(bound_plan="p", tasks=0, values=()))


class Blobs:
    def __init__(self):
        self.kept = set()

    async def put(self, _job_id, contents):
        self.kept |= {digest_of(each) for each in contents}


DIGEST = digest_of(JOIN)
METRICS = b"\x01\x02\x07"


def report(job, partition, *, blob=False, plan_digest=DIGEST, metrics=METRICS):
    task = pb.TaskId(job_id="job-1", stage_id=1, partition=partition, task_attempt=job.held(1, partition).attempt)
    success = pb.TaskSuccess(output=pb.TaskOutput(nonce=f"n{partition}"), op_metrics=metrics, bound_plan=plan_digest)
    if blob:
        success.blobs.add(digest=digest_of(JOIN), content=JOIN)
    return pb.TaskReport(task=task, success=success)


@pytest.fixture
def job():
    job = planned(stage(1, 4))
    job.launch("a", 4)
    return job


async def read(job, *reports):
    blobs = Blobs()
    reader = ReportReader(blobs, None, SimpleNamespace(now_ms=lambda: 9), executors())
    return await reader.read_reports(job.graph, ExecutorSlot("a", "a1", 1), by_key(reports)), blobs.kept


@pytest.mark.parametrize("first", [0, 1])
async def test_the_first_report_brings_the_plan_that_later_ones_mean(job, first):
    """Whichever task ended first: together they come in the order of their launches."""
    events, kept = await read(job, *(report(job, partition, blob=partition == first) for partition in (0, 1)))
    assert [event.bound_plan for event in events] == [digest_of(JOIN)] * 2
    assert kept == {digest_of(JOIN)}
    for event in events:
        assert job.feed(event)
    assert digest_of(JOIN) in blobs_of(job.graph)

    (event,), _ = await read(job, report(job, 2))
    assert (event.bound_plan, event.op_metrics) == ("", metrics_text(METRICS))
    assert job.feed(event)
    (totals,) = job.stage(1).ledger.operators
    assert (totals.tasks, totals.values) == (3, ((2, 21),))
    assert metric(operators_of(JOIN, totals)[0], "numOutputRows") == 21


async def test_metrics_of_a_plan_that_never_came_count_as_not_reported(job):
    (event,), _ = await read(job, report(job, 0, plan_digest="f" * 64))
    assert (event.bound_plan, event.op_metrics) == ("", "")


async def test_metrics_that_cannot_be_read_do_not_fail_a_task(job):
    (event,), _ = await read(job, report(job, 0, blob=True, metrics=b"\x07what?"))
    assert (event.type, event.op_metrics) == ("task_succeeded", "")
    assert base64.b64decode(metrics_text(METRICS)) == METRICS
