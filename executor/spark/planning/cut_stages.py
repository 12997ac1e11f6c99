"""What a physical plan is cut into."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onager.executor.spark.stage_plan import JoinSide, MetricsWanted, StagePlan


@dataclass(frozen=True, slots=True)
class CutTerms:
    """How a query is cut, whenever that happens."""

    column_names: tuple[str, ...]
    parallel_sort_bytes: int
    """A sort that reads at least this much runs in several tasks."""
    metrics: MetricsWanted = "rows"
    is_sink: bool = False


@dataclass(frozen=True, slots=True)
class CutStage:
    """One stage of a plan, ready to be encoded."""

    stage_id: int
    """From 1, producers before consumers."""
    name: str
    plan: StagePlan
    is_deterministic: bool
    text: str
    """The fragment, as Spark prints plans."""
    input_bytes: int
    """The input of its leaves."""
    expected_rows: int = -1
    """How many rows Spark expected of it; -1 where it had no idea."""
    may_fuse: bool = False
    """Whether one task may compute it together with stages that it reads, or that read it."""
    may_merge: bool = False
    """Whether a task may read neighbouring buckets."""
    may_split: frozenset[int] = frozenset()
    """The stages of which several tasks may read a bucket, each some producers' part."""
    sides: Mapping[int, JoinSide] = field(default_factory=dict)
    """How what stages give, by their ids, becomes a side of a join that may be planned otherwise."""
    feed: "CutFeed | None" = None
    """Set if it gets more partitions while it runs."""
    is_feed: bool = False
    """Whether it finds partitions for another stage; then its plan's fragment is the source."""
    fingerprint: str = ""
    """The digest of what it computes, from which inputs and under which settings; empty: it is not to be reused."""


@dataclass(frozen=True, slots=True)
class CutFeed:
    """Where a stage gets its partitions from."""

    stage_id: int
    portion: bytes
    """What its first tasks read."""
    partitions: int
    """The number of these."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A plan that was cut."""

    stages: list[CutStage]
    exchanges: Mapping[int, int]
    """The stages that end at exchanges from which a new plan could read, by these' ids in the plan."""
    subqueries: Mapping[str, int]
    """The stages that give the values of subqueries, by these' names."""
