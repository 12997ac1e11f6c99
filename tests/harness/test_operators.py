"""Operators of the 22 queries of TPC-H have, cut into stages, the rows that they have in plain Spark.

What is compared, query by query, as a multiset over all stages against the whole plan:
- scans, filters and final aggregates, each by its name and its rows;
- joins by their rows alone, because binding may turn a sort-merge join into a hash join.
What is not: partial aggregates and limits of parts (their rows depend on how many tasks there are), exchanges (the cut
job has them in another form), operators that count no rows, and what is below a join without rows, up to the next
exchange: one of its sides may be empty, and then the other one need not be read. Plain Spark runs what is below a sort
twice, the first time for a sample of its keys, and counts the rows of both times: there, half of them are compared.
"""

import base64
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from onager.execution_graph import metrics_text
from onager.execution_graph.operators import OperatorReport, with_reports
from onager.executor.spark.jvm import jvm_session
from onager.executor.spark.kernel.execution import Kernel
from onager.scheduler.api.operators import operators_of
from onager.testing import HarnessConfig, create_stages
from onager.testing.executors import executors
from onager.testing.job import JobRun
from onager.testing.kernel import jvm_with_kernel
from tests.harness.conftest import QUERIES
from tests.support.operators import metric
from tests.support.selection import IS_ALL

MAX_BYTES = 100
"""Of the metrics of a task, unless a job asks for all."""
NUMBERS = range(1, 23) if IS_ALL else (11, 13, 18, 21)
"""TPC-H's; all of them with `make test-all`."""
PASSED = ("WholeStageCodegen", "InputAdapter", "ColumnarToRow", "Sort", "AQEShuffleRead")
"""Operators that stand between an aggregate and the exchange that it reads."""


@dataclass(frozen=True)
class Node:
    name: str
    text: str
    rows: int | None
    children: tuple["Node", ...]

    def __iter__(self) -> Iterator["Node"]:
        yield self
        for child in self.children:
            yield from child


def counted(node: Node) -> tuple[str, int] | None:
    """Return what of an operator does not depend on how the query is cut, or None."""
    if node.rows is None:
        return None
    if "Join" in node.name:
        return "Join", node.rows
    if node.name.startswith("Scan parquet") or node.name == "Filter":
        return node.name, node.rows
    if node.name.endswith("Aggregate") and is_final(node):
        return node.name, node.rows
    return None


def is_final(aggregate: Node) -> bool:
    if "partial_" in aggregate.text or "merge_" in aggregate.text:
        return False
    return "functions=[]" not in aggregate.text or reads_exchange(aggregate)


def reads_exchange(node: Node) -> bool:
    (child,) = node.children
    while child.name.startswith(PASSED):
        (child,) = child.children
    return child.name == "Exchange" or child.name.startswith("Scan stage")


def comparable(nodes) -> Counter:
    return Counter(found for node in nodes if (found := counted(node)) is not None)


def once(node: Node, *, is_sampled: bool = False) -> Iterator[Node]:
    """Yield the operators of a plan that plain Spark has run, with the rows of one time."""
    is_sampled = is_sampled and "Exchange" not in node.name and node.name != "Subquery"
    assert not is_sampled or not (node.rows or 0) % 2
    yield replace(node, rows=node.rows // 2) if is_sampled and node.rows is not None else node
    for child in node.children:
        yield from once(child, is_sampled=is_sampled or "rangepartitioning" in node.text)


def asked_for(node: Node, *, may_be_idle: bool = False) -> Node:
    """Return the plan without rows of operators that a join without rows may never have asked: its other side is empty.

    Which side a join reads first is not the same for all kinds of joins, and the cut query may have another kind.
    """
    may_be_idle = may_be_idle and "Exchange" not in node.name and not node.name.startswith("Scan stage")
    below = may_be_idle or ("Join" in node.name and node.rows == 0)
    children = tuple(asked_for(child, may_be_idle=below) for child in node.children)
    return replace(node, rows=None if may_be_idle else node.rows, children=children)


def rows_of_all(node: Node) -> Counter:
    """Return the rows of operators; without broadcasts, of which an empty join may not have awaited the other one."""
    found = Counter({(node.name, node.rows): 1} if node.rows is not None else {})
    for child in node.children:
        found += Counter() if child.name == "BroadcastExchange" else rows_of_all(child)
    return found


def spark_node(plan) -> Node:
    """Return an operator of a plan that plain Spark has run, with all below it."""
    rows = plan.metrics().get("numOutputRows")
    below = [plan.children().apply(i) for i in range(plan.children().size())]
    below += [plan.subqueries().apply(i) for i in range(plan.subqueries().size())]
    name = str(plan.nodeName()).strip()
    value = rows.get().value() if rows.isDefined() else None
    return Node(name, str(plan.simpleString(25)), value, tuple(spark_node(each) for each in below))


def await_broadcasts(plan) -> None:
    """Let the broadcasts of a plan end before it runs: an empty join would not wait for them, and rows be missing."""
    for i in range(plan.children().size()):
        await_broadcasts(plan.children().apply(i))
    if str(plan.nodeName()).strip() == "BroadcastExchange":
        plan.executeBroadcast()


def node_of(operators, number=0) -> Node:
    each = operators[number]
    below = tuple(node_of(operators, child) for child in each.children)
    return Node(each.name, each.text, metric(each, "numOutputRows"), below)


def run_whole(spark, frame, directory) -> tuple[Node, Node]:
    """Return the plan of *frame* as plain Spark has run it: as Spark tells it, and as a job of one stage does."""
    jvm_with_kernel(spark)
    query = frame._jdf.queryExecution()
    await_broadcasts(query.executedPlan())
    kernel = Kernel(spark, str(directory), 1)
    try:
        spec = {"layout": "result", "directory": "plain", "nonce": "r", "names": frame.columns, "metrics": "rows"}
        event, _ = kernel.run_single_stage(jvm_session(spark), query, spec)
    finally:
        kernel.close()
    content = json.dumps({"nodes": event["operators"]}).encode()
    report = OperatorReport("whole", metrics_text(base64.b64decode(event["op_metrics"])))
    (totals,) = with_reports((), [report])
    return spark_node(query.executedPlan()), node_of(operators_of(content, totals))


def run_cut(frame) -> list[Node]:
    """Return the root of each stage's plan, as the tasks of all of its executors have reported it."""
    config = HarnessConfig()
    stages = {stage.stage_id: stage.encoded for stage in create_stages(frame, config).stages}
    with executors(frame.sparkSession, config) as made:
        job = JobRun(made.runners, made.job_id, stages)
        job.run(config.timeout_s)
    blobs = {blob.digest: blob.content for report in job.reports.values() for blob in report.success.blobs}
    roots = []
    for stage_id in stages:
        reports = [report.success for (stage, _), report in sorted(job.reports.items()) if stage == stage_id]
        assert max(len(success.op_metrics) for success in reports) <= MAX_BYTES
        totals = with_reports((), [OperatorReport(r.bound_plan, metrics_text(r.op_metrics)) for r in reports])
        assert sum(each.tasks for each in totals) == len(reports)
        roots.append(together([node_of(operators_of(blobs[each.bound_plan], each)) for each in totals]))
    return roots


def together(plans: Sequence[Node], *, is_before: bool = False) -> Node:
    """Return what executors that bound a stage have measured as one plan.

    They bind it alike, but what is below a broadcast has no rows yet where nobody has waited for it.
    """
    name = plans[0].name
    is_before = is_before or name == "BroadcastExchange" or name.startswith("Subquery")
    rows = [plan.rows for plan in plans if plan.rows is not None]
    children = zip(*(plan.children for plan in plans), strict=True)
    return replace(
        plans[0],
        rows=(max if is_before else sum)(rows) if rows else None,
        children=tuple(together(each, is_before=is_before) for each in children),
    )


@pytest.mark.parametrize("number", NUMBERS)
def test_operators_of_a_cut_query_have_plain_sparks_rows(spark, tpch, tmp_path, number):
    frame = spark.sql((QUERIES / f"q{number}.sql").read_text())
    plain, whole = run_whole(spark, frame, tmp_path)
    roots = run_cut(frame)

    assert rows_of_all(whole) == rows_of_all(plain)
    found = comparable(node for root in roots for node in asked_for(root))
    assert found == comparable(once(asked_for(plain)))
    assert any(name.startswith("Scan parquet") for name, _ in found)
    read = [node.rows for root in roots for node in root if node.name.startswith("Scan stage")]
    assert read
    assert None not in read  # also below broadcasts and subqueries, which have run when a stage is bound
