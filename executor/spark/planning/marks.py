"""Marks how a stage may be laid out otherwise than it was planned, once the sizes of its inputs are known.

- *Merged*: a task reads several neighbouring buckets. Rows of equal keys stay together, so joins, aggregates and
  windows stay right; whatever needs rows in order sorts them itself, above what it reads, since an exchange has no
  order. As in Spark, not where the user gave the number of partitions.
- *Split*: several tasks read a bucket, each some producers' part of one input and all of the others. Only a join can be
  computed so, and nothing above it may need its rows of equal keys in one place.
- *Fused*: one task computes the stage, and others that read it or that it reads, in one plan.

What reads cached rows is neither: Spark has planned it by the partitions of these rows, and their order.

Source: Spark's CoalesceShufflePartitions and OptimizeSkewedJoin.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from onager.executor.spark.leaves import LEAVES
from onager.executor.spark.planning.nodes import BEGUN, CACHED, EXCHANGES, KNOWN, Tasks
from onager.executor.spark.planning.outline import Outline, PlanNode
from onager.executor.spark.stage_plan import JoinSide, ResultOutput, StageOutput

FREE_ORIGINS = frozenset(
    {"ENSURE_REQUIREMENTS", "REPARTITION_BY_COL", "REBALANCE_PARTITIONS_BY_NONE", "REBALANCE_PARTITIONS_BY_COL"}
)
"""Why Spark planned exchanges of which nobody asked for a number of partitions."""
_MERGED_PARTITIONINGS = frozenset({"HashPartitioning", "RoundRobinPartitioning"})
_KEEPS_BUCKETS = frozenset({Tasks.CHILD, Tasks.STREAMED, Tasks.EQUAL})
"""Task i of these operators reads partition i of each input."""
_DRAWS_BY_PARTITION = frozenset({"SampleExec"})
"""Operators that depend on a partition's number."""
_SPLIT_LEFT = frozenset({"Inner", "Cross", "LeftSemi", "LeftAnti", "LeftOuter"})
_SPLIT_RIGHT = frozenset({"Inner", "Cross", "RightOuter"})
_SPLIT_JOINS = frozenset({"SortMergeJoinExec", "ShuffledHashJoinExec"})
_BELOW_SPLIT = frozenset({"ProjectExec", "FilterExec", "SortExec"})
_SHUFFLES = frozenset({"ShuffleExchangeExec", BEGUN})
_BUILT_LEFT = frozenset({"Inner", "Cross", "RightOuter"})
_BUILT_RIGHT = frozenset({"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"})
"""The joins that can broadcast this side."""
_BROADCAST_JOINS = frozenset({"BroadcastHashJoinExec", "BroadcastNestedLoopJoinExec"})
_ABOVE_SPLIT = _BELOW_SPLIT | {
    "ExpandExec",
    "GenerateExec",
    "LocalLimitExec",
    "BroadcastHashJoinExec",
    "BatchEvalPythonExec",
    "ArrowEvalPythonExec",
}
"""Operators to which it is all the same which rows are in one partition; so it is to partial aggregates."""
_AGGREGATES = frozenset({"HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec"})


@dataclass(frozen=True, slots=True)
class Marks:
    """How a stage may be laid out."""

    may_fuse: bool
    may_merge: bool
    may_split: frozenset[int]
    """The indexes of the exchanges of which several tasks may read a bucket."""
    sides: Mapping[int, JoinSide]
    """How exchanges, by their indexes, become sides of joins that may be planned otherwise."""


def marks_of(
    outline: Outline,
    root: PlanNode,
    output: StageOutput,
    *,
    partitions: int,
    exchange: PlanNode | None = None,
    arriving: AbstractSet[int] = frozenset(),
) -> Marks:
    """Return how the stage that computes *root* in *partitions* tasks may be laid out.

    *exchange* carries its output; *arriving* are the indexes of nodes that another stage computes although they are
    not exchanges.
    """
    stage = _Stage(outline, root, arriving)
    is_pure = all(node.is_deterministic for node in (*stage.inside, *((exchange,) if exchange else ())))
    is_pure = is_pure and not any(node.kind in _DRAWS_BY_PARTITION for node in stage.inside)
    may_merge = is_pure and partitions > 1 and stage.may_merge()
    return Marks(
        may_fuse=is_pure and stage.may_fuse(is_result=isinstance(output, ResultOutput)),
        may_merge=may_merge,
        may_split=stage.may_split() if may_merge else frozenset(),
        sides=stage.sides(),
    )


class _Stage:
    """The part of a plan that a stage computes."""

    def __init__(self, outline: Outline, root: PlanNode, arriving: AbstractSet[int]) -> None:
        self._outline = outline
        self._root = root
        self._arriving = arriving
        walked = list(self._walk(root))
        self.inside = [node for node in walked if not self._is_input(node)]
        """The operators that its tasks run."""
        inputs = [node for node in walked if self._is_input(node)]
        self._arrives_whole = any(node.index in arriving for node in inputs)
        self._has_leaves = any(node.kind in LEAVES for node in inputs)
        read = [outline.original(node) for node in inputs if node.kind in EXCHANGES]
        self._reads_cached = any(node.kind == CACHED for node in read)
        self._buckets = [
            node.particulars.split(" ")[:3] for node in read if node.kind in _SHUFFLES
        ]  # partitioning, number, origin

    def _is_input(self, node: PlanNode) -> bool:
        return node.kind in EXCHANGES or node.kind in LEAVES or node.index in self._arriving

    def _walk(self, node: PlanNode) -> Iterator[PlanNode]:
        yield node
        if not self._is_input(node):
            for child in node.children:
                yield from self._walk(child)

    # ------------------------------------------------------------ merging

    def may_merge(self) -> bool:
        """Return whether a task may read neighbouring buckets."""
        return (
            bool(self._buckets)
            and not self._reads_cached
            and not self._has_leaves
            and not self._arrives_whole
            and all(KNOWN[node.kind].tasks in _KEEPS_BUCKETS for node in self.inside)
            and not any(node.looks_at_all_partitions for node in self.inside)
            and all(kind in _MERGED_PARTITIONINGS and why in FREE_ORIGINS for kind, _, why in self._buckets)
        )

    # ------------------------------------------------------------ fusing

    def may_fuse(self, *, is_result: bool) -> bool:
        """Return whether one task may compute it within another stage's plan, or with other stages in its own."""
        if any(node.looks_at_all_partitions for node in self.inside):
            return False  # it runs all that is below it twice
        if self._reads_cached:
            return False
        is_sized = any(number != "1" and why not in FREE_ORIGINS for _, number, why in self._buckets) or any(
            KNOWN[node.kind].tasks is Tasks.COALESCED and node.particulars != "1" for node in self.inside
        )
        if is_sized and (is_result or any(node.runs_python for node in self.inside)):
            return False  # the user asked for so many files, or workers
        if any(KNOWN[node.kind].sees_partitions for node in self.inside):
            is_many = self._has_leaves or any(KNOWN[node.kind].tasks is Tasks.SUM for node in self.inside)
            return not is_sized and not is_many
        return True

    # ------------------------------------------------------------ splitting

    def may_split(self) -> frozenset[int]:
        """Return the exchanges of which a bucket may be split."""
        join = self._root
        while join.kind not in _SPLIT_JOINS:
            if not _is_split_above(join):
                return frozenset()
            join = self._streamed(join)
        left, right = (self._exchange_below(side) for side in join.children)
        if left is None or right is None or self._outline.original(left) is self._outline.original(right):
            return frozenset()
        sides = [left] if join.particulars in _SPLIT_LEFT else []
        sides += [right] if join.particulars in _SPLIT_RIGHT else []
        return frozenset(self._outline.original(side).index for side in sides)

    # ------------------------------------------------------------ planning again

    def sides(self) -> dict[int, JoinSide]:
        """Return the exchanges that are sides of joins, shuffled ones that could be broadcast apart from others."""
        found: dict[int, JoinSide] = {}
        for join in self.inside:
            if join.kind not in _SPLIT_JOINS | _BROADCAST_JOINS:
                continue
            for child, built in zip(join.children, (_BUILT_LEFT, _BUILT_RIGHT), strict=True):
                exchange = self._exchange_below(child)
                if exchange is None:
                    continue
                original = self._outline.original(exchange)
                if original.kind == "BroadcastExchangeExec":
                    found[original.index] = "broadcast"
                else:
                    may_swap = join.kind in _SPLIT_JOINS and join.particulars in built
                    found.setdefault(original.index, "shuffled" if may_swap else "joined")
        return found

    def _streamed(self, node: PlanNode) -> PlanNode:
        if len(node.children) == 1:
            return node.child
        return next(c for c in node.children if self._outline.original(c).kind != "BroadcastExchangeExec")

    def _exchange_below(self, node: PlanNode) -> PlanNode | None:
        while node.kind in _BELOW_SPLIT and not self._is_input(node):
            node = node.child
        return node if node.kind in EXCHANGES and node.kind != CACHED else None


def _is_split_above(node: PlanNode) -> bool:
    is_partial = node.kind in _AGGREGATES and node.particulars == "partial"
    return is_partial or node.kind in _ABOVE_SPLIT
