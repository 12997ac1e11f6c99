"""What travels from the planner to the task runner: one stage of a physical plan, complete in itself.

The fragment's leaves are placeholders, ``RDDScanExec(output, null, "onager-input:<index>", …)``, and
`StagePlan.inputs[index]` says what to put there. A placeholder may occur more than once (a reused exchange); each
occurrence names its own index.
"""

from dataclasses import dataclass, field

PLACEHOLDER_PREFIX = "onager-input:"
"""Followed by the decimal index into `StagePlan.inputs`."""


@dataclass(frozen=True, slots=True)
class ExchangeInput:
    """The output of another stage, as an RDD of `partitions` partitions.

    Partition i of it is bucket i of every producer's output; with `reads_all` (broadcasts, subqueries) there is one
    partition, and it holds all buckets. The stage's own partitions follow from its leaves as Spark's operators
    combine them: a union has the sum, a cartesian product the product, a join of two exchanges has theirs.
    """

    stage_id: int
    reads_all: bool
    partitions: int = 1
    is_alone: bool = False
    """Whether nothing else in the job reads that stage: what has been read of a stream need not be kept then."""
    ordering: bytes = b""
    """That of a producer with `SortedOutput`: partition i is range i of all of its runs. Otherwise empty."""


@dataclass(frozen=True, slots=True)
class LeafInput:
    """A source that the fragment reads itself (files, local rows, a range), described so that it can be made again.

    `description` is what `onager.executor.spark.leaves` wrote and alone reads: it gives back a leaf of a physical plan.
    """

    description: bytes
    label: str
    """For people: ``parquet /data/lineitem (12 files)``."""


StageSource = ExchangeInput | LeafInput


@dataclass(frozen=True, slots=True)
class HashOutput:
    """Bucket = the value of an expression over the fragment's output (Spark's own ``partitionIdExpression``)."""

    buckets: int
    expression: bytes
    """Java-serialised ``Expression``, not yet bound to the output."""


@dataclass(frozen=True, slots=True)
class RoundRobinOutput:
    """Rows are dealt out in turn, starting at a bucket that depends on the partition."""

    buckets: int


@dataclass(frozen=True, slots=True)
class SingleOutput:
    """All rows into bucket 0."""


@dataclass(frozen=True, slots=True)
class SortedOutput:
    """Each task's rows, which the fragment sorts, in bucket 0, and keys at even distances of them in bucket 1.

    The keys of all runs tell readers where ranges of about as many rows begin and end.
    """

    ordering: bytes
    """Java-serialised ``Seq[SortOrder]``, not yet bound to the output."""
    samples: int
    """The most keys of a run; an even number."""


@dataclass(frozen=True, slots=True)
class ResultOutput:
    """The job's result: Arrow batches for the client, or the files of a sink; the task set says which."""


StageOutput = HashOutput | RoundRobinOutput | SingleOutput | SortedOutput | ResultOutput


def buckets_of(output: StageOutput) -> int:
    """Return how many buckets a task writes into the exchange; 0 for the result, which goes elsewhere."""
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
    """Return the serialised expression by which rows are laid out, or nothing."""
    match output:
        case HashOutput(expression=expression):
            return expression
        case SortedOutput(ordering=ordering):
            return ordering
        case _:
            return b""


@dataclass(frozen=True, slots=True)
class MadeBy:
    """The versions under which a plan was made: what is in it is known to fit these, and most of it others."""

    spark: str
    kernel: str
    """As by `onager.executor.spark.kernel_jar.kernel_version`."""

    def __str__(self) -> str:
        """Return it for people."""
        return f"Spark {self.spark} with kernel {self.kernel}"


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage of a job: encoded once, decoded anew by every executor that runs tasks of it."""

    fragment: bytes
    """Java-serialised ``SparkPlan`` with placeholder leaves, without code generation and row/column transitions."""
    inputs: tuple[StageSource, ...]
    output: StageOutput
    partitions: int
    column_names: tuple[str, ...]
    """Names of the output as the user knows them (duplicates allowed); used by results and sinks."""
    conf: dict[str, str] = field(default_factory=dict)
    """Every ``spark.sql.*`` setting under which the stage was planned: runs under the same, and Spark's defaults."""
    made_by: MadeBy | None = field(default=None, compare=False)
    """Who made the bytes that it was decoded from; None for one of this process, and for bytes that do not say."""
