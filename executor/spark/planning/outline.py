"""The nodes of a physical plan with the facts that the planner needs, fetched from the JVM in one call."""

from dataclasses import dataclass, field
from typing import Any

from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel.plans import PlanTools


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

    def __init__(self, jvm: Jvm, plan: Any) -> None:
        lines, self._node = PlanTools(jvm).outline(plan)
        self.nodes: list[PlanNode] = []
        self._by_plan_id: dict[int, PlanNode] = {}
        self._fetched: dict[int, Any] = {}
        for line in lines:
            self._add(line)

    def _add(self, line: str) -> None:
        parent, role, kind, plan_id, letters, particulars = line.split("\t")
        node = PlanNode(
            len(self.nodes), kind, int(plan_id), "n" not in letters, "p" in letters, "o" in letters, particulars
        )
        self.nodes.append(node)
        self._by_plan_id.setdefault(node.plan_id, node)
        if role == "child" and parent != "-1":
            self.nodes[int(parent)].children.append(node)
        elif role == "subquery":
            self.nodes[int(parent)].subqueries.append(node)

    @property
    def root(self) -> PlanNode:
        """The node that gives the result."""
        return self.nodes[0]

    def handle(self, node: PlanNode) -> Any:
        """Return the JVM object of *node*."""
        if node.index not in self._fetched:
            self._fetched[node.index] = self._node(node.index)
        return self._fetched[node.index]

    def original(self, node: PlanNode) -> PlanNode:
        """Return *node*, or the exchange or subquery that it reuses."""
        while node.kind in {"ReusedExchangeExec", "ReusedSubqueryExec"}:
            node = self._by_plan_id[int(node.particulars.split(" ")[0])]
        return node
