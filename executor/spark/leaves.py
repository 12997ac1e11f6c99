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
from onager.executor.spark.kernel import LeafTools

LOCAL_ROWS_LIMIT_BYTES = 64 * 1024 * 1024
"""How many bytes of local rows a stage plan may carry."""

FILE_LEAF = "FileSourceScanExec"
SOURCE_LEAF = "BatchScanExec"
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
    """The number of tasks that read it under the conf of the session that described it."""


def describe(jvm: Jvm, session: Any, kind: str, leaf: Any, scratch: Path) -> DescribedLeaf:
    """Describe *leaf*, a JVM plan node of class *kind*; the rows of an RDD are computed here, once.

    *scratch* is the path of a temporary file. Raises `UnsupportedPlanError` when the rows, or the partitions of a data
    source, are larger than a plan may carry, and when a data source waits for a subquery.
    """
    tools = LeafTools(jvm)
    if kind == FILE_LEAF:
        scan = tools.describe_files(leaf, scratch)
        label = (
            f"{scan.file_format} {scan.root.removeprefix('file:')} ({scan.files} file{'' if scan.files == 1 else 's'})"
        )
        table = scan.root.rstrip("/").rpartition("/")[2].partition(".")[0]
        return DescribedLeaf(scratch.read_bytes(), label, f"scan {table}", scan.input_bytes, scan.partitions)
    if kind == SOURCE_LEAF:
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


def rebuild(jvm: Jvm, session: Any, description: bytes) -> Any:
    """Return the JVM plan leaf that *description* describes, for plans that run in the JVM session *session*.

    Under the conf of the stage plan, it has exactly the planned partitions, however many cores the executor has.
    """
    return LeafTools(jvm).rebuild(session, description)
