"""How partitions go through the operators of a plan."""

import math
from collections.abc import Iterator, Sequence

from onager.executor.spark import leaves
from onager.executor.spark.planning.boundaries import BegunStages, brings_buckets
from onager.executor.spark.planning.nodes import EXCHANGES, KNOWN, LIMITS_TO_ONE, SUBQUERIES, Tasks
from onager.executor.spark.planning.outline import Outline, PlanNode


def combined(rule: Tasks, counts: Sequence[int], most: int) -> int:
    """Return the partitions of an operator over children of *counts* partitions; only COALESCED uses *most*."""
    match rule:
        case Tasks.SUM:
            return sum(counts)
        case Tasks.PRODUCT:
            return math.prod(counts)
        case Tasks.COALESCED:
            return 1 if most == 1 else min(most, counts[0])
        case _:
            return counts[0]


def streamed_child(outline: Outline, join: PlanNode) -> PlanNode:
    """Return the child of a broadcast join whose rows are not broadcast."""
    return next(child for child in join.children if outline.original(child).kind != "BroadcastExchangeExec")


def growing_leaves(outline: Outline) -> frozenset[int]:
    """Return the scans of which a stage may get more partitions, one task each, while it runs.

    That is where each operator of the stage above the scan gives a partition for one of its input.
    """
    found: set[int] = set()
    tops = [outline.root, *(child for node in outline.nodes if _begins_stages(node) for child in node.children)]
    tops += [subquery for node in outline.nodes for subquery in node.subqueries]
    for top in tops:
        node: PlanNode | None = top
        while node is not None and node.kind not in EXCHANGES | leaves.LEAVES:
            node = _sole_input(outline, node)
        if node is not None and node.kind in leaves.GROWING_LEAVES and not node.subqueries:
            found.add(node.index)
    return frozenset(found)


def read_leaves(outline: Outline, begun: BegunStages) -> Iterator[PlanNode]:
    """Yield the leaves that the stages of a plan read, in the order of a walk, but for those that have *begun*."""
    below, seen = [outline.root], set[int]()
    while below:
        node = outline.original(below.pop())
        if node.index in seen or begun.read_at(node) is not None:
            continue
        seen.add(node.index)
        if node.kind in leaves.LEAVES:
            yield node
        below += reversed([*node.children, *(node.subqueries if _needs_subqueries(node) else ())])


def _needs_subqueries(node: PlanNode) -> bool:
    """Return whether a stage computes the subqueries of *node*; a join repeats filters of a source without files."""
    return node.kind not in EXCHANGES | leaves.LEAVES or node.kind == leaves.FILE_LEAF or brings_buckets(node)


def _begins_stages(node: PlanNode) -> bool:
    return node.kind in EXCHANGES | LIMITS_TO_ONE or node.looks_at_all_partitions or node.kind in SUBQUERIES


def _sole_input(outline: Outline, node: PlanNode) -> PlanNode | None:
    """Return the child of which *node* gives a partition for each, or None."""
    rule = None if node.looks_at_all_partitions or node.kind not in KNOWN else KNOWN[node.kind].tasks
    if rule is Tasks.CHILD:
        return node.child
    return streamed_child(outline, node) if rule is Tasks.STREAMED else None
