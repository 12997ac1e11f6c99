"""The nodes of a physical plan with the facts that the planner needs, fetched from the JVM in one call."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class PlanNode:
    """A node of a physical plan."""

    index: int
    kind: str
    """Simple class name: ``HashAggregateExec``."""
    plan_id: int
    is_deterministic: bool
    """Whether every expression of the node gives the same value when it is evaluated again."""
    runs_python: bool
    aggregates_in_order: bool
    """Whether it has an aggregate that depends on the order of the rows, like ``first``."""
    particulars: str
    """Facts that depend on the class, such as ``HashPartitioning 5`` for an exchange."""
    functions: Sequence[Mapping[str, Any]] = ()
    """Its Python functions: ``name``, number of ``broadcasts``, and whether it ``has_accumulator``."""
    children: list["PlanNode"] = field(default_factory=list)
    subqueries: list["PlanNode"] = field(default_factory=list)

    @property
    def child(self) -> "PlanNode":
        """The only child."""
        (only,) = self.children
        return only

    @property
    def looks_at_all_partitions(self) -> bool:
        """Whether it joins so that what becomes of a row of its broadcast depends on matches in all partitions."""
        return self.kind == "BroadcastNestedLoopJoinExec" and self.particulars == "all"


class Outline:
    """The nodes of one physical plan, without code generation and row/column transitions."""

    def __init__(self, described: Iterable[dict[str, Any]]) -> None:
        """*described*: the nodes, parents first, as `JavaCutting.outline` gives them."""
        self.nodes: list[PlanNode] = []
        self._by_plan_id: dict[int, PlanNode] = {}
        for fields in described:
            self._add(**fields)

    def _add(self, parent: int, role: str, **fields: Any) -> None:
        node = PlanNode(len(self.nodes), **fields)
        self.nodes.append(node)
        self._by_plan_id.setdefault(node.plan_id, node)
        if role == "child" and parent >= 0:
            self.nodes[parent].children.append(node)
        elif role == "subquery":
            self.nodes[parent].subqueries.append(node)

    @property
    def root(self) -> PlanNode:
        """The node that gives the result."""
        return self.nodes[0]

    def original(self, node: PlanNode) -> PlanNode:
        """Return *node*, or the exchange or subquery that it reuses."""
        while node.kind in {"ReusedExchangeExec", "ReusedSubqueryExec"}:
            node = self._by_plan_id[int(node.particulars.split(" ")[0])]
        return node
