"""Whether a stage gives the same rows when it runs again.

When a part of its output is lost, a deterministic stage runs only the lost tasks again; any other stage runs all of
them. As in Spark, rows from an exchange count as unordered, so an operator whose result depends on their order is not
deterministic. Neither is a data source that is not made of files.
"""

from collections.abc import Set as AbstractSet

from onager.executor.spark.leaves import LEAVES, SOURCE_LEAF
from onager.executor.spark.planning.nodes import EXCHANGES, KNOWN
from onager.executor.spark.planning.outline import Outline, PlanNode
from onager.executor.spark.stage_plan import RoundRobinOutput, StageOutput


def is_deterministic(
    outline: Outline,
    root: PlanNode,
    output: StageOutput,
    *,
    limit: PlanNode | None = None,
    arriving: AbstractSet[int] = frozenset(),
) -> bool:
    """Return whether the stage that computes *root*, and a limit above it, gives the same rows each time.

    *arriving* are the indexes of nodes that another stage computes although they are not exchanges.

    Not deterministic are expressions like ``rand()`` or ``first()``, and limits, windows, Python code and round-robin
    output over unordered rows. Sorted runs repeat except for ties, and ranges follow from them.
    """
    repeats, is_ordered = _judge(outline, root, arriving)
    if limit is not None or isinstance(output, RoundRobinOutput):
        return repeats and is_ordered
    return repeats


def _judge(outline: Outline, node: PlanNode, arriving: AbstractSet[int]) -> tuple[bool, bool]:
    """Return whether *node* gives the same rows each time, and whether in the same order."""
    if node.kind in EXCHANGES or node.index in arriving:
        return True, False
    if node.kind == SOURCE_LEAF:
        return False, False
    if node.kind in LEAVES:
        return node.is_deterministic, True
    operator = KNOWN[node.kind]
    judged = [_judge(outline, child, arriving) for child in node.children]
    repeats = node.is_deterministic and all(same for same, _ in judged)
    is_ordered = all(ordered for _, ordered in judged)
    if (operator.is_order_sensitive or node.aggregates_in_order) and not is_ordered:
        repeats = False
    return repeats, is_ordered and not operator.scrambles
