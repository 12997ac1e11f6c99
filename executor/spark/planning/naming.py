"""Names of stages for people: what happens to the rows, from the source to the exchange."""

from collections.abc import Set as AbstractSet

from onager.executor.spark.leaves import LEAVES, DescribedLeaf
from onager.executor.spark.planning.nodes import CACHED, EXCHANGES, KNOWN
from onager.executor.spark.planning.outline import Outline, PlanNode

MAX_PARTS = 6


def stage_name(
    outline: Outline,
    root: PlanNode,
    described: dict[int, DescribedLeaf],
    *,
    limit: PlanNode | None = None,
    arriving: AbstractSet[int] = frozenset(),
) -> str:
    """Return a name such as ``scan lineitem → broadcast join → partial aggregate``.

    *arriving* are the indexes of nodes that another stage computes although they are not exchanges.
    """
    parts: list[str] = []
    node: PlanNode | None = root
    while node is not None:
        if node.kind in LEAVES:
            parts.append(described[node.index].name)
            break
        if node.kind == CACHED:
            parts.append("cached rows")
        if node.kind in EXCHANGES or node.index in arriving:
            break
        label = KNOWN[node.kind].label
        if label == "aggregate" and node.particulars == "partial":
            label = "partial aggregate"
        if label and not _is_implied(label, parts):
            parts.append(label)
        node = _main_child(outline, node)
    parts.reverse()
    if limit is not None:
        parts.append(KNOWN[limit.kind].label)
    return " → ".join(_shortened(parts)) or "rearrange"


def _is_implied(label: str, above: list[str]) -> bool:
    """Return whether the operator above implies a sort of its input."""
    return label == "sort" and bool(above) and above[-1] in {"sort-merge join", "window", "window limit", "aggregate"}


def _main_child(outline: Outline, node: PlanNode) -> PlanNode | None:
    """Return the child to follow: preferably one that this stage computes, not one from another stage."""
    read_here = [c for c in node.children if outline.original(c).kind != "BroadcastExchangeExec"]
    inner = [c for c in read_here if not _comes_from_exchange(c)]
    return next(iter(inner or read_here), None)


def _comes_from_exchange(node: PlanNode) -> bool:
    while node.kind in {"SortExec", "ProjectExec", "FilterExec"}:
        node = node.child
    return node.kind in EXCHANGES


def _shortened(parts: list[str]) -> list[str]:
    """Collapse repetitions (``broadcast join x3``), and leave out the middle of a long name."""
    counted: list[tuple[str, int]] = []
    for part in parts:
        if counted and counted[-1][0] == part:
            counted[-1] = (part, counted[-1][1] + 1)
        else:
            counted.append((part, 1))
    short = [part if count == 1 else f"{part} x{count}" for part, count in counted]
    if len(short) > MAX_PARTS:
        half = MAX_PARTS // 2
        short = [*short[:half], "…", *short[-half + 1 :]]
    return short
