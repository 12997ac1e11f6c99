"""One stage of a physical plan, self-contained, as the planner sends it to the task runner.

The fragment's leaves are placeholders, ``RDDScanExec(output, null, "onager-input:<index>", …)``;
`StagePlan.inputs[index]` says what replaces them. An input may occur more than once (a reused exchange); each
occurrence has its own index.
"""

from dataclasses import dataclass, field
from typing import Literal

MetricsWanted = Literal["off", "rows", "full"]
"""Which metrics of operators tasks report: none, those that count rows, all."""
JoinSide = Literal["shuffled", "broadcast", "joined"]
"""How an input becomes a side of a join: shuffled, and could be broadcast; broadcast; otherwise."""
PLACEHOLDER_PREFIX = "onager-input:"
"""Followed by the decimal index into `StagePlan.inputs`."""


@dataclass(frozen=True, slots=True)
class ExchangeInput:
    """The output of another stage, as an RDD of `partitions` partitions.

    Partition i is bucket i of every producer's output; with `by_producer` it is what the i-th of them gave; with
    `reads_all` (broadcasts, subqueries) there is one partition with all buckets. The number of the stage's own
    partitions follows from its leaves and operators: a union has their sum, a cartesian product their product, and a
    join of two exchanges as many as each of them.
    """

    stage_id: int
    reads_all: bool
    partitions: int = 1
    is_sole_reader: bool = False
    """Whether this is the only input that reads that stage; a stream's rows are then dropped once they are read."""
    ordering: bytes = b""
    """The ordering of a producer with `SortedOutput`: partition i is range i of its sorted runs. Otherwise empty."""
    by_producer: bool = False
    """Whether its rows keep their partitions and their order: those of cached rows."""


@dataclass(frozen=True, slots=True)
class LeafInput:
    """A source that the fragment reads itself (files, local rows, a range), described so that it can be rebuilt."""

    description: bytes
    """Only `onager.executor.spark.leaves` writes and reads it."""
    label: str
    """For people: ``parquet /data/lineitem (12 files)``."""
    grows: bool = False
    """Whether what it reads is given with each task set (`portion`)."""


StageSource = ExchangeInput | LeafInput


@dataclass(frozen=True, slots=True)
class HashOutput:
    """A row's bucket is the value of an expression over it, Spark's ``partitionIdExpression``."""

    buckets: int
    expression: bytes
    """Java-serialised ``Expression``, not yet bound to the output."""


@dataclass(frozen=True, slots=True)
class RoundRobinOutput:
    """Rows are assigned to buckets in turn, starting at a bucket that depends on the partition."""

    buckets: int


@dataclass(frozen=True, slots=True)
class SingleOutput:
    """All rows go into bucket 0."""


@dataclass(frozen=True, slots=True)
class SortedOutput:
    """A sorted run: bucket 0 has the task's rows, which the fragment sorts, and bucket 1 evenly spaced keys of them.

    From the keys of all runs, readers compute ranges of about equal size.
    """

    ordering: bytes
    """Java-serialised ``Seq[SortOrder]``, not yet bound to the output."""
    samples: int
    """The maximum number of sampled keys per run; even."""


@dataclass(frozen=True, slots=True)
class ResultOutput:
    """The job's result: Arrow batches for the client, or files of a sink; the task set says which."""


StageOutput = HashOutput | RoundRobinOutput | SingleOutput | SortedOutput | ResultOutput


def buckets_of(output: StageOutput) -> int:
    """Return how many buckets a task writes to the exchange; 0 for the result, which is not part of it."""
    match output:
        case HashOutput(buckets=buckets) | RoundRobinOutput(buckets=buckets):
            return buckets
        case SingleOutput():
            return 1
        case SortedOutput():
            return 2
        case ResultOutput():
            return 0


def expression_of(output: StageOutput) -> bytes:
    """Return the serialised hash expression or ordering of *output*; empty if it has none."""
    match output:
        case HashOutput(expression=expression):
            return expression
        case SortedOutput(ordering=ordering):
            return ordering
        case _:
            return b""


@dataclass(frozen=True, slots=True)
class MadeBy:
    """The versions that made a plan; other versions may be unable to run it."""

    spark: str
    kernel: str
    """See `onager.executor.spark.kernel_jar.kernel_version`."""

    def __str__(self) -> str:
        """Return it for people."""
        return f"Spark {self.spark} with kernel {self.kernel}"


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage of a job, encoded once, and decoded by every executor that runs its tasks."""

    fragment: bytes
    """Java-serialised ``SparkPlan`` with placeholder leaves, without code generation and row/column transitions."""
    inputs: tuple[StageSource, ...]
    output: StageOutput
    partitions: int
    column_names: tuple[str, ...]
    """The output's column names as the user knows them (may repeat); for results and sinks."""
    conf: dict[str, str] = field(default_factory=dict)
    """The ``spark.sql.*`` settings under which the stage was planned; it runs under these and Spark's defaults."""
    metrics: MetricsWanted = "rows"
    made_by: MadeBy | None = field(default=None, compare=False)
    """The versions that encoded it; None for a plan made in this process, and for bytes that do not say."""
