"""The plan of a job as Spark's SQL page draws it: the stages' plans, joined at their exchanges, with their metrics.

A stage's plan is the one that ran, with what its operators measured, where that was reported; else the planner's text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onager.execution_graph import ExecutionGraph, OperatorTotals, Stage
from onager.protocol import onager_pb2 as pb

_MAX_NODES: Final = 2_000
_MAX_DEPTH: Final = 200
"""Spark's reader is recursive."""
_TEXT_CHARS: Final = 2_000
_LINE: Final = re.compile(r"^((?:[: ]  )*)(:- |\+- )?(?:\*\(\d+\) )?(\S.*)$")
_NAME: Final = re.compile(r"^[A-Za-z]\w*(?: ?[a-z]+)?")
_COLUMN: Final = re.compile(r"\w+#\d+")
_READS_STAGE: Final = re.compile(r"^Scan stage (\d+)$")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a job beside its graph and its history."""

    script: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""
    """Spark's physical plan as text."""
    stage_texts: Mapping[str, str] = field(default_factory=dict)
    stage_plans: Mapping[int, Sequence[pb.FinalOperator]] = field(default_factory=dict)
    """The plans with which stages ran, and what their operators measured."""
    principal: str = ""


@dataclass(slots=True)
class Node:
    """An operator."""

    name: str
    text: str
    metrics: Sequence[pb.OperatorMetric] = ()
    children: list["Node"] = field(default_factory=list)


class PlanInfo:
    """A plan as JSON, and the values of its metrics by accumulator."""

    def __init__(self, root: Node) -> None:
        self.updates: list[tuple[int, int]] = []
        self._left = _MAX_NODES
        self.plan = self._info(root, 0)

    def _info(self, node: Node, depth: int) -> dict[str, Any]:
        self._left -= 1
        metrics = []
        for metric in node.metrics:
            metrics.append({"name": metric.name, "accumulatorId": len(self.updates), "metricType": metric.type})
            self.updates.append((len(self.updates), metric.value))
        children = [self._info(c, depth + 1) for c in node.children if depth < _MAX_DEPTH and self._left > 0]
        text = node.text[:_TEXT_CHARS]
        return {
            "nodeName": node.name,
            "simpleString": text,
            "children": children,
            "metadata": {},
            "metrics": metrics,
        }


def plan_info(graph: ExecutionGraph, known: Known) -> PlanInfo:
    """Return the plan of *graph*, as far as it is known."""
    result = graph.result_stage
    if result is None:
        return PlanInfo(Node("Onager job", graph.name))
    if not known.stage_plans and known.plan and len(graph.stages) <= 2:  # noqa: PLR2004 - planning, and a query that was not cut
        return PlanInfo(_parsed(known.plan) or Node("Query", graph.name))
    return PlanInfo(_of_stage(graph, result, known, set()))


def _of_stage(graph: ExecutionGraph, stage: Stage, known: Known, seen: set[int]) -> Node:
    stage_id = stage.spec.stage_id
    seen.add(stage_id)
    ran = known.stage_plans.get(stage_id)
    root = _tree(ran) if ran is not None else _parsed(known.stage_texts.get(str(stage_id), ""))
    root = root or Node(stage.spec.name, f"stage {stage_id}")
    inputs = {source.stage_id for source in stage.spec.inputs}
    leaves = [leaf for leaf in _leaves(root) if leaf.name]
    for leaf in leaves:
        found = _READS_STAGE.match(leaf.name)
        if found is not None and int(found[1]) in inputs:
            inputs.discard(int(found[1]))
            leaf.children.append(_exchange(graph, graph.stages[int(found[1])], known, seen))
    for source in sorted(inputs):
        made = _exchange(graph, graph.stages[source], known, seen)
        _reader(leaves, made).children.append(made)
    return root


def _reader(leaves: Sequence[Node], exchange: Node) -> Node:
    """Return which of *leaves* reads an exchange, where the plan does not say it: what has most columns of it."""
    columns = _columns(exchange.children[0]) if exchange.children else set()
    return max(reversed(leaves), key=lambda leaf: len(columns & _columns(leaf)))


def _columns(node: Node) -> set[str]:
    return set(_COLUMN.findall(node.text))


def _exchange(graph: ExecutionGraph, stage: Stage, known: Known, seen: set[int]) -> Node:
    spec, outputs = stage.spec, stage.ledger.outputs
    text = f"Exchange of stage {spec.stage_id}: {spec.partitions} tasks, {spec.output.buckets} buckets"
    if spec.stage_id in seen:
        return Node("ReusedExchange", text)
    metrics = [
        pb.OperatorMetric(name="shuffle records written", type="sum", value=sum(o.rows for o in outputs.values())),
        pb.OperatorMetric(name="shuffle bytes written", type="size", value=sum(o.bytes for o in outputs.values())),
    ]
    return Node("Exchange", text, metrics, [_of_stage(graph, stage, known, seen)])


def _tree(operators: Sequence[pb.FinalOperator]) -> Node:
    nodes = [Node(each.name, each.text, each.metrics) for each in operators]
    for node, operator in zip(nodes, operators, strict=True):
        node.children = [nodes[child] for child in operator.children]
    return nodes[0]


def _leaves(root: Node) -> Iterator[Node]:
    """Yield the leaves of a tree that is not changed meanwhile, left to right."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if not node.children:
            yield node
        waiting.extend(reversed(node.children))


def _parsed(text: str) -> Node | None:
    """Return the tree that Spark's text of a plan shows, None if there is none."""
    path: list[Node] = []
    for line in text.splitlines()[:_MAX_NODES]:
        found = _LINE.match(line)
        if found is None or line.startswith("=="):
            continue
        depth = len(found[1]) // 3 + bool(found[2])
        name = _NAME.match(found[3])
        node = Node(name[0] if name else found[3][:40], found[3])
        if not path and not depth:
            path = [node]
        elif 0 < depth <= len(path):
            path[depth - 1].children.append(node)
            path[depth:] = [node]
        elif path and not depth:
            break  # what follows the tree
    return path[0] if path else None


def chosen(totals: Sequence[OperatorTotals]) -> OperatorTotals | None:
    """Return the totals of the plan with which most tasks of a stage ran."""
    return max(totals, key=lambda each: each.tasks, default=None)
