"""The leaves of a physical plan, described so that any executor can make them again.

Spark's own leaves do not survive serialisation: a file scan's relation, local rows and a range are transient there. A
description holds what was decided when the query was planned (the files left after partition pruning, the columns, the
filters, the rows), so every task of every attempt reads the same, and nothing is listed twice.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onager.errors import UnsupportedPlanError
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel import LeafTools

LOCAL_ROWS_LIMIT_BYTES = 64 * 1024 * 1024
"""How much data of the planning process a stage plan may carry."""

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
    """A leaf of a plan, and what its description says."""

    description: bytes
    label: str
    """For people: ``parquet /data/lineitem (12 files)``."""
    name: str
    """In a word or two, for the stage's name: ``scan lineitem``."""
    input_bytes: int
    partitions: int
    """How many tasks it takes to read it under the conf of the session that described it."""


def describe(jvm: Jvm, session: Any, kind: str, leaf: Any, scratch: Path) -> DescribedLeaf:
    """Describe *leaf*, a JVM plan node of class *kind*; rows of an RDD are computed for that, here and once.

    *scratch* is a file to be made on the way. Raises `UnsupportedPlanError` when the rows are more than a plan carries,
    when a data source waits for a subquery, and when its partitions are more than a plan carries.
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
                "let a partition say what to read, such as a path or a range of keys, and its reader hold the rest",
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
    """Return the JVM plan leaf of a description, for plans that run in the JVM session *session*.

    Under the conf of the stage plan it reads in exactly the tasks that were planned, whatever the executor's cores.
    """
    return LeafTools(jvm).rebuild(session, description)
