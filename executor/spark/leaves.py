"""The leaves of a physical plan, described so that any executor can rebuild them.

Spark's own leaves do not survive serialisation: a file scan's relation, local rows and a range are transient fields. A
description holds what planning decided (the files left after partition pruning, the columns, the filters, the rows), so
that every task of every attempt reads the same input, and no directory is listed twice.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onager.errors import UnsupportedPlanError
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel.leaves import LeafTools

LOCAL_ROWS_LIMIT_BYTES = 64 * 1024 * 1024
"""How many bytes of local rows a stage plan may carry."""

FILE_LEAF = "FileSourceScanExec"
SOURCE_LEAF = "BatchScanExec"
GROWING_LEAVES = frozenset({FILE_LEAF, SOURCE_LEAF})
ROW_LEAVES = frozenset({"LocalTableScanExec", "RDDScanExec", "CommandResultExec"})
LEAVES = frozenset({FILE_LEAF, SOURCE_LEAF, "RangeExec", "OneRowRelationExec", "EmptyRelationExec"}) | ROW_LEAVES

_LABELS = dict.fromkeys(ROW_LEAVES, "local rows") | {
    "RangeExec": "range",
    "OneRowRelationExec": "one row",
    "EmptyRelationExec": "no rows",
}


@dataclass(frozen=True, slots=True)
class DescribedLeaf:
    """The description of a leaf, and facts about it."""

    description: bytes
    label: str
    """For people: ``parquet /data/lineitem (12 files)``."""
    name: str
    """A short label for the stage's name: ``scan lineitem``."""
    input_bytes: int
    partitions: int
    """The number of tasks that read it under the conf of the session that described it; an estimate if it grows."""
    growth: "Growth | None" = None
    """Set if more of it is found while the first tasks run."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A leaf of which a part is known."""

    source: bytes
    """What finds the rest, for `LeafTools.next_portion`."""
    portion: bytes
    """The part that is known."""
    partitions: int
    """How many tasks read that part."""


GROWS_BY = 10
"""How many times more tasks a leaf that grows is taken to have than are known."""


def describe(jvm: Jvm, session: Any, kind: str, leaf: Any, scratch: Path, *, may_grow: bool = False) -> DescribedLeaf:
    """Describe *leaf*, a JVM plan node of class *kind*; the rows of an RDD are computed here, once.

    If it *may_grow*, files that are not listed yet, or more partitions of a data source, may be left to a feed.
    *scratch* is the path of a temporary file.

    Raises `UnsupportedPlanError` when the rows, or the partitions of a data source, are larger than a plan may carry,
    and when a data source waits for a subquery.
    """
    tools = LeafTools(jvm)
    if kind == FILE_LEAF:
        return _files(tools, leaf, scratch, may_grow=may_grow)
    if kind == SOURCE_LEAF:
        if may_grow and (growing := _growing_source(tools, leaf, scratch)) is not None:
            return growing
        source = tools.describe_source(leaf, scratch)
        if source is None:
            raise UnsupportedPlanError(
                "a data source that filters by the result of a subquery", "filter its rows in an outer query instead"
            )
        if scratch.stat().st_size > LOCAL_ROWS_LIMIT_BYTES:
            raise UnsupportedPlanError(
                f"a data source whose partitions hold more than {LOCAL_ROWS_LIMIT_BYTES // (1024 * 1024)} MiB",
                "let a partition only name what to read, such as a path or a range of keys",
            )
        size, partitions, name = source
        label = f"{name} ({partitions} partition{'' if partitions == 1 else 's'})"
        return DescribedLeaf(scratch.read_bytes(), label, f"scan {name}", size, partitions)
    if kind in ROW_LEAVES:
        rows = tools.describe_rows(leaf, session, LOCAL_ROWS_LIMIT_BYTES, scratch)
        if rows is None:
            limit = f"{LOCAL_ROWS_LIMIT_BYTES // (1024 * 1024)} MiB"
            raise UnsupportedPlanError(
                f"local data of more than {limit} (createDataFrame, parallelize)",
                "write it to files first (Parquet, say), and read these in the query",
            )
    else:
        rows = tools.describe_other(leaf, scratch)
    size, partitions = rows
    return DescribedLeaf(scratch.read_bytes(), _LABELS[kind], _LABELS[kind], size, partitions)


def _growing_source(tools: LeafTools, leaf: Any, scratch: Path) -> DescribedLeaf | None:
    source, portion = _beside(scratch)
    facts = tools.describe_growing_source(leaf, scratch, source, portion)
    if facts is None:
        return None
    size, partitions, name = facts
    label = f"{name} ({partitions} partition{'' if partitions == 1 else 's'} and more)"
    growth = Growth(source.read_bytes(), portion.read_bytes(), partitions)
    return DescribedLeaf(scratch.read_bytes(), label, f"scan {name}", size, max(2, GROWS_BY * partitions), growth)


def _beside(scratch: Path) -> tuple[Path, Path]:
    """Return the paths of two more temporary files."""
    return scratch.with_name(f"{scratch.name}-source"), scratch.with_name(f"{scratch.name}-portion")


def _files(tools: LeafTools, leaf: Any, scratch: Path, *, may_grow: bool) -> DescribedLeaf:
    source, portion = _beside(scratch)
    growing = tools.describe_growing(leaf, scratch, source, portion) if may_grow else None
    scan = growing or tools.describe_files(leaf, scratch)
    files = f"{scan.files} file{'' if scan.files == 1 else 's'}{' and more' if growing else ''}"
    label = f"{scan.file_format} {scan.root.removeprefix('file:')} ({files})"
    table = scan.root.rstrip("/").rpartition("/")[2].partition(".")[0]
    if growing is None:
        return DescribedLeaf(scratch.read_bytes(), label, f"scan {table}", scan.input_bytes, scan.partitions)
    growth = Growth(source.read_bytes(), portion.read_bytes(), scan.partitions)
    estimate = max(2, GROWS_BY * scan.partitions)
    return DescribedLeaf(scratch.read_bytes(), label, f"scan {table}", scan.input_bytes, estimate, growth)


def rebuild_growing(jvm: Jvm, session: Any, description: bytes, portion: bytes, first_partition: int) -> Any:
    """Return the leaf of a growing stage over *portion* of what its feed found, as `rebuild` does.

    It has as many partitions as there are up to the portion's last one.
    """
    return LeafTools(jvm).rebuild_growing(session, description, portion, first_partition)


def rebuild(jvm: Jvm, session: Any, description: bytes) -> Any:
    """Return the JVM plan leaf that *description* describes, for plans that run in the JVM session *session*.

    Under the conf of the stage plan, it has exactly the planned partitions, however many cores the executor has.
    """
    return LeafTools(jvm).rebuild(session, description)
