"""The operators of Spark's physical plans that Onager distributes, and what the cutter needs to know of each.

A plan with any other operator runs as a single stage: an operator that nobody has checked could depend on running in
one process, and give wrong results silently. Every row of the table has a test.
"""

from dataclasses import dataclass
from enum import StrEnum


class Tasks(StrEnum):
    """How many partitions an operator's output has, given those of its inputs."""

    CHILD = "as its only child"
    STREAMED = "as the child that is not broadcast"
    EQUAL = "as each of its children, which must agree"
    SUM = "the sum over its children"
    PRODUCT = "the product over its children"
    ONE = "one"
    COALESCED = "at most a given number"


@dataclass(frozen=True, slots=True)
class Operator:
    """Facts about one class of operators."""

    tasks: Tasks
    label: str
    """Part of a stage's name; empty for operators that every stage has (filters, projections)."""
    is_order_sensitive: bool = False
    """Whether its output as a multiset depends on the order of its input rows."""
    scrambles: bool = False
    """Whether the order of its output depends on more than its input, such as the available memory."""
    sees_partitions: bool = False
    """Whether the user's code sees where a partition begins and ends."""


def _python(label: str, tasks: Tasks = Tasks.CHILD, *, sees_partitions: bool = False) -> Operator:
    return Operator(tasks, label, is_order_sensitive=True, sees_partitions=sees_partitions)


KNOWN: dict[str, Operator] = {
    "FilterExec": Operator(Tasks.CHILD, ""),
    "ProjectExec": Operator(Tasks.CHILD, ""),
    "SortExec": Operator(Tasks.CHILD, "sort"),
    "ExpandExec": Operator(Tasks.CHILD, "expand"),
    "GenerateExec": Operator(Tasks.CHILD, "generate"),
    "SparkScriptTransformationExec": Operator(Tasks.CHILD, "script", is_order_sensitive=True, sees_partitions=True),
    "SampleExec": Operator(Tasks.CHILD, "sample", is_order_sensitive=True),
    "CollectMetricsExec": Operator(Tasks.CHILD, ""),
    "HashAggregateExec": Operator(Tasks.CHILD, "aggregate", scrambles=True),
    "ObjectHashAggregateExec": Operator(Tasks.CHILD, "aggregate", scrambles=True),
    "SortAggregateExec": Operator(Tasks.CHILD, "aggregate"),
    "MergingSessionsExec": Operator(Tasks.CHILD, "merge sessions", is_order_sensitive=True),
    "UpdatingSessionsExec": Operator(Tasks.CHILD, "sessions", is_order_sensitive=True),
    "WindowExec": Operator(Tasks.CHILD, "window", is_order_sensitive=True),
    "WindowGroupLimitExec": Operator(Tasks.CHILD, "window limit", is_order_sensitive=True),
    "LocalLimitExec": Operator(Tasks.CHILD, "limit", is_order_sensitive=True),
    "GlobalLimitExec": Operator(Tasks.CHILD, "limit", is_order_sensitive=True),
    "CollectLimitExec": Operator(Tasks.ONE, "limit", is_order_sensitive=True),
    "TakeOrderedAndProjectExec": Operator(Tasks.ONE, "top", is_order_sensitive=True),
    "CoalesceExec": Operator(Tasks.COALESCED, "coalesce"),
    "UnionExec": Operator(Tasks.SUM, "union"),
    "BroadcastHashJoinExec": Operator(Tasks.STREAMED, "broadcast join"),
    "BroadcastNestedLoopJoinExec": Operator(Tasks.STREAMED, "nested-loop join"),
    "SortMergeJoinExec": Operator(Tasks.EQUAL, "sort-merge join"),
    "SortMergeAsOfJoinExec": Operator(Tasks.EQUAL, "as-of join", is_order_sensitive=True),
    "ShuffledHashJoinExec": Operator(Tasks.EQUAL, "hash join"),
    "CartesianProductExec": Operator(Tasks.PRODUCT, "cartesian product"),
    "BatchEvalPythonExec": _python("Python"),
    "ArrowEvalPythonExec": _python("Python"),
    "BatchEvalPythonUDTFExec": _python("Python", sees_partitions=True),
    "ArrowEvalPythonUDTFExec": _python("Python", sees_partitions=True),
    "ArrowAggregatePythonExec": _python("Python aggregate"),
    "ArrowWindowPythonExec": _python("Python window"),
    "MapInPandasExec": _python("Python", sees_partitions=True),
    "MapInArrowExec": _python("Python", sees_partitions=True),
    "FlatMapGroupsInPandasExec": _python("Python groups"),
    "FlatMapGroupsInArrowExec": _python("Python groups"),
    "FlatMapCoGroupsInPandasExec": _python("Python groups", Tasks.EQUAL),
    "FlatMapCoGroupsInArrowExec": _python("Python groups", Tasks.EQUAL),
}

BEGUN = "ShuffleQueryStageExec"
"""A stage of an earlier plan, whose output a new plan reads."""
CACHED = "InMemoryTableScanExec"
"""A scan of what a program caches: rows of a stage of its own, in the partitions in which that gave them."""
EXCHANGES = frozenset({"ShuffleExchangeExec", "BroadcastExchangeExec", "ReusedExchangeExec", BEGUN, CACHED})
LIMITS_TO_ONE = frozenset({"TakeOrderedAndProjectExec", "CollectLimitExec"})
SUBQUERIES = frozenset({"SubqueryExec", "SubqueryBroadcastExec", "ReusedSubqueryExec"})

ADVICE: dict[str, str] = {
    "RowDataSourceScanExec": "write the table's rows to Parquet files first, and read these in the query",
    CACHED: "leave cache() and CACHE TABLE out: only sessions of Spark Connect keep rows",
    "ExternalRDDScanExec": "make the DataFrame with createDataFrame, or write the rows to files first",
    "AttachDistributedSequenceExec": "give the frame an index column instead of pandas-on-Spark's default index",
    "UnionLoopExec": "write the recursion out, or materialise its result as files first",
}
DEFAULT_ADVICE = "it is not among the operators that can be distributed; rewrite the query without it"
