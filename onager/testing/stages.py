"""A query as stages: cut as Onager cuts it, each stage encoded once."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from onager.executor.spark import plan_codec
from onager.executor.spark.jvm import Jvm, jvm_session
from onager.executor.spark.kernel.plans import arrow_schema
from onager.executor.spark.planning.cut_stages import CutStage, CutTerms
from onager.executor.spark.planning.cutter import cut_plan
from onager.executor.spark.planning.frames import first_frame
from onager.executor.spark.planning.job_session import changed_settings, own_settings
from onager.executor.spark.planning.sizing import (
    CUT_SETTINGS,
    HASHED_BYTES,
    LEAF_PARALLELISM,
    MAX_HASHED_BYTES,
    MIN_SPLITS,
    SHUFFLE_PARTITIONS,
)
from onager.executor.spark.stage_plan import (
    ExchangeInput,
    HashOutput,
    LeafInput,
    ResultOutput,
    RoundRobinOutput,
    SortedOutput,
    StageOutput,
    StagePlan,
)
from onager.protocol import onager_pb2 as pb
from onager.testing.config import HarnessConfig
from onager.testing.kernel import jvm_with_kernel
from onager.testing.layout import Laid, Layout, lay_out

_PLANNING = threading.Lock()
"""Held while settings of a session are changed."""
OPEN_COST = "spark.sql.files.openCostInBytes"


@dataclass(frozen=True, slots=True)
class StageRead:
    """How a stage reads another one."""

    stage_id: int
    reads_all: bool
    """Whether every task reads all of it (a broadcast, a subquery) rather than its own buckets."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a query."""

    stage_id: int
    """From 1, producers before consumers."""
    name: str
    """A name for people: ``scan lineitem → partial aggregate``."""
    tasks: int
    inputs: tuple[StageRead, ...]
    """The stages that it reads, in the order in which its plan meets them."""
    sources: tuple[str, ...]
    """The sources that it reads itself: ``Parquet /data/lineitem (12 files)``."""
    partitioning: str
    """The layout of its output: ``hash(3)``, ``round robin(3)``, ``single``, ``sorted runs``, or ``result``."""
    plan: str
    """Its part of the physical plan, as Spark prints plans."""
    encoded: bytes = field(repr=False)
    """Its plan as tasks get it; every task decodes it separately."""
    may_fuse: bool = False
    """Whether one task may compute it together with stages that it reads, or that read it."""
    may_merge: bool = False
    """Whether a task may read neighbouring buckets: as planned, each task reads one."""
    may_split: frozenset[int] = frozenset()
    """The stages of which several tasks may read a bucket."""
    is_deterministic: bool = True
    """Whether it gives the same rows whenever it reads the same."""

    @property
    def reads(self) -> frozenset[int]:
        """The ids of the stages that it reads."""
        return frozenset(read.stage_id for read in self.inputs)

    @property
    def buckets(self) -> int:
        """The number of partitions of its output; 0 for the result."""
        inner = self.partitioning.partition("(")[2].rstrip(")")
        return int(inner) if inner else int(self.partitioning != "result")


@dataclass(frozen=True, slots=True)
class StageGraph:
    """The stages of a query, producers before consumers; the last one gives the result."""

    stages: tuple[Stage, ...]
    schema: bytes = field(repr=False)
    """The Arrow schema of the result, an IPC message."""
    frame: bytes = field(default=b"", repr=False)
    """What the rest of the query can be planned again from; empty where it is not, or cannot be."""

    @property
    def tasks(self) -> int:
        """How many tasks the query has."""
        return sum(stage.tasks for stage in self.stages)

    @property
    def is_cut(self) -> bool:
        """Whether there is more than one stage."""
        return len(self.stages) > 1

    def laid_out(self, layout: Layout) -> Mapping[int, Laid]:
        """Return the stages that run when they are laid out, by id."""
        return lay_out(layout, self.stages)

    def __str__(self) -> str:
        """Return the stages with their plans, for people."""
        return "\n".join(_shown(stage) for stage in self.stages)


def _shown(stage: Stage) -> str:
    reads = [f"stage {read.stage_id}{' (all of it)' if read.reads_all else ''}" for read in stage.inputs]
    read = ", ".join([*reads, *stage.sources]) or "nothing"
    lines = [
        f"stage {stage.stage_id}: {stage.name}",
        f"  tasks: {stage.tasks}, output: {stage.partitioning}, reads: {read}",
        *(f"  {line}" for line in stage.plan.rstrip().splitlines()),
    ]
    return "\n".join(lines)


def create_stages(frame: DataFrame, config: HarnessConfig | None = None) -> StageGraph:
    """Cut the query of *frame* as Onager would, and return its stages.

    Nothing runs, except for rows that the plan carries itself. The session's settings are changed while Spark plans,
    and restored afterwards. Raises `UnsupportedPlanError`, which names the operator, for a query that cannot be cut.
    """
    config = config or HarnessConfig()
    analyzed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  (PySpark shows it as text alone)
    return cut(frame, analyzed, list(frame.columns), config)


def cut(frame: DataFrame, analyzed: Any, column_names: list[str], config: HarnessConfig) -> StageGraph:
    """Cut *analyzed*, a logical plan of the session of *frame*."""
    session = frame.sparkSession
    jvm = jvm_with_kernel(session)
    sizes = {
        SHUFFLE_PARTITIONS: str(config.tasks),
        LEAF_PARALLELISM: str(config.tasks),
        MIN_SPLITS: str(config.tasks),
        OPEN_COST: "1",
    }
    with _PLANNING:
        own = own_settings(session)
        hashed = {HASHED_BYTES: own.get(HASHED_BYTES, str(MAX_HASHED_BYTES))}
        with changed_settings(session, own, sizes | hashed | dict(config.conf) | CUT_SETTINGS):
            return _cut(session, jvm, analyzed, column_names, config)


def _cut(session: SparkSession, jvm: Jvm, analyzed: Any, column_names: list[str], config: HarnessConfig) -> StageGraph:
    datasets = jvm.java_class("org.apache.spark.sql.classic.Dataset")
    execution = datasets.ofRows(jvm_session(session), analyzed).queryExecution()
    plan = execution.executedPlan()
    terms = CutTerms(tuple(column_names), config.parallel_sort_bytes)
    found = cut_plan(session, plan, terms)
    stages = tuple(_stage(stage) for stage in found.stages)
    has_frame = config.replans != "never" and len(stages) > 1
    frame = first_frame(session, execution, plan, found, terms) if has_frame else None
    schema = arrow_schema(jvm_session(session), jvm, plan, column_names)
    return StageGraph(stages, schema, b"" if frame is None else frame.content)


def _stage(stage: CutStage) -> Stage:
    return Stage(
        name=stage.name,
        plan=stage.text,
        may_fuse=stage.may_fuse,
        may_merge=stage.may_merge,
        may_split=stage.may_split,
        is_deterministic=stage.is_deterministic,
        **_of_plan(stage.stage_id, stage.plan, plan_codec.encode(stage.plan)),
    )


def stage_of(planned: pb.PlannedStage, encoded: bytes) -> Stage:
    """Return a stage that a planning task reports."""
    return Stage(
        name=planned.name,
        plan=planned.plan,
        may_fuse=planned.may_fuse,
        may_merge=planned.may_merge,
        may_split=frozenset(source.stage_id for source in planned.inputs if source.may_split),
        is_deterministic=planned.deterministic,
        **_of_plan(planned.stage_id, plan_codec.decode(encoded), encoded),
    )


def _of_plan(stage_id: int, plan: StagePlan, encoded: bytes) -> dict[str, Any]:
    reads = [StageRead(each.stage_id, each.reads_all) for each in plan.inputs if isinstance(each, ExchangeInput)]
    return {
        "stage_id": stage_id,
        "tasks": plan.partitions,
        "inputs": tuple(dict.fromkeys(reads)),
        "sources": tuple(source.label for source in plan.inputs if isinstance(source, LeafInput)),
        "partitioning": _partitioning(plan.output),
        "encoded": encoded,
    }


def _partitioning(output: StageOutput) -> str:
    match output:
        case HashOutput(buckets=buckets):
            return f"hash({buckets})"
        case RoundRobinOutput(buckets=buckets):
            return f"round robin({buckets})"
        case SortedOutput():
            return "sorted runs"
        case ResultOutput():
            return "result"
        case _:
            return "single"
