"""Where one stage of a plan ends and another begins: at an exchange whose stage is cut, or at one that was cut before.

The cutter walks a plan once, and asks what there is at each exchange. A plan that is made again, while the query runs,
reads what earlier stages have given or will give. Their exchanges are leaves of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onager.executor.spark.planning.nodes import BEGUN
from onager.executor.spark.planning.outline import PlanNode


@dataclass(frozen=True, slots=True)
class Boundary:
    """The output of a stage of an earlier plan, as a new one reads it."""

    stage_id: int
    partitions: int
    is_sorted: bool
    """Whether its tasks write sorted runs, of which a reader takes a range."""


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


NOTHING_BEGUN = BegunStages()
