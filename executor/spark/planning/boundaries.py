"""Where one stage of a plan ends and another begins: at an exchange whose stage is cut, or at one that was cut before.

The cutter walks a plan once, and asks what there is at each exchange. A plan that is made again, while the query runs,
reads what earlier stages have given or will give. Their exchanges are leaves of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onager.executor.spark.planning.nodes import BEGUN
from onager.executor.spark.planning.outline import PlanNode

HASH_PARTITIONINGS = frozenset({"HashPartitioning", "ShufflePartitionIdPassThrough"})
"""The partitionings with an expression for the bucket; the second one is that of `repartitionById`."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The output of a stage of an earlier plan, as a new one reads it."""

    stage_id: int
    partitions: int
    is_sorted: bool
    """Whether its tasks write sorted runs, of which a reader takes a range."""
    input_bytes: int = 0
    """Of a stage whose rows are cached: what its plan reads."""


@dataclass(frozen=True, slots=True)
class BegunStages:
    """The stages of earlier plans that a plan may read; none, while a query is planned for the first time."""

    sorted_stages: frozenset[int] = frozenset()
    subqueries: Mapping[str, int] = field(default_factory=dict)
    """The stages that give the values of subqueries, by these' names."""

    def at(self, exchange: PlanNode) -> Boundary | None:
        """Return what is read at *exchange*; None where the plan's own stages meet."""
        if exchange.kind == "SubqueryExec" and exchange.particulars in self.subqueries:
            return Boundary(self.subqueries[exchange.particulars], 1, is_sorted=False)
        if exchange.kind != BEGUN:
            return None
        _, partitions, _, stage_id = exchange.particulars.split(" ")
        return Boundary(int(stage_id), int(partitions), is_sorted=int(stage_id) in self.sorted_stages)

    def read_at(self, exchange: PlanNode) -> Boundary | None:
        """Return what is read at *exchange*, as `at` does; a broadcast can read an earlier stage just as it is."""
        if exchange.kind == "BroadcastExchangeExec":
            found = self.at(exchange.child)
            return None if found is None or found.is_sorted else found
        return self.at(exchange)


NOTHING_BEGUN = BegunStages()


def brings_buckets(exchange: PlanNode) -> bool:
    """Return whether rows carry their bucket through *exchange* as a column, because a subquery determines it."""
    partitioning = exchange.particulars.split(" ")[0]
    return exchange.kind == "ShuffleExchangeExec" and partitioning in HASH_PARTITIONINGS and bool(exchange.subqueries)
