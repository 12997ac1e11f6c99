"""The operators of a stage as it ran: those of a bound plan, with what tasks measured of them."""

from pydantic import BaseModel, ValidationError

from onager.errors import StateCorruptError
from onager.execution_graph import OperatorTotals
from onager.protocol import onager_pb2 as pb


class BoundMetric(BaseModel):
    """A metric of an operator in a bound plan: its index in reports, or its value if binding reported it."""

    name: str
    """Spark's, such as numOutputRows."""
    type: str
    """sum, size (bytes), timing (ms), nsTiming (ns), average (times ten)."""
    index: int | None = None
    value: int = 0


class BoundNode(BaseModel):
    """An operator of a bound plan."""

    id: int
    name: str
    text: str
    children: tuple[int, ...]
    metrics: tuple[BoundMetric, ...]


class BoundPlan(BaseModel):
    """The operators of a stage as an executor bound it; each has a smaller id than its children, which are its own."""

    nodes: tuple[BoundNode, ...]


def operators_of(bound_plan: bytes, totals: OperatorTotals) -> list[pb.FinalOperator]:
    """Return the operators of *bound_plan*, one at least, the root first, with what tasks measured.

    A metric that no task reported is 0. `StateCorruptError` for bytes that are not a bound plan.
    """
    values = {key // 2: value for key, value in totals.values}
    return [
        pb.FinalOperator(
            name=node.name,
            text=node.text,
            children=node.children,
            metrics=[
                pb.OperatorMetric(
                    name=each.name,
                    type=each.type,
                    value=each.value if each.index is None else values.get(each.index, 0),
                )
                for each in node.metrics
            ],
        )
        for node in _nodes(bound_plan)
    ]


def _nodes(bound_plan: bytes) -> tuple[BoundNode, ...]:
    try:
        nodes = BoundPlan.model_validate_json(bound_plan).nodes
    except ValidationError as error:
        raise StateCorruptError(f"a bound plan cannot be read: {error.errors(include_input=False)[:3]}") from error
    children = [child for node in nodes for child in node.children]
    is_tree = all(child > node.id for node in nodes for child in node.children) and len(children) == len(set(children))
    if not nodes or [node.id for node in nodes] != list(range(len(nodes))) or not is_tree:
        raise StateCorruptError("the operators of a bound plan are not a tree")
    if any(child >= len(nodes) for child in children):
        raise StateCorruptError("a bound plan lacks an operator")
    return nodes
