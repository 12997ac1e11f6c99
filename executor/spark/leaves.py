"""The leaves of a physical plan, described so that any executor can rebuild them.

Spark's own leaves do not survive serialisation: a file scan's relation, local rows and a range are transient fields. A
description holds what planning decided (the files left after partition pruning, the columns, the filters, the rows), so
that every task of every attempt reads the same input, and no directory is listed twice.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onager.errors import UnsupportedPlanError
from onager.executor.spark.kernel.plans import Digests, JavaCutting

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
    digest: str = ""
    """Equal ones describe the same input; empty: it has none."""


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


def describe(
    cutting: JavaCutting, leaves: Mapping[int, str], may_grow: Container[int], digests: Digests
) -> dict[int, DescribedLeaf]:
    """Describe *leaves*, places with classes, in their order; the rows of an RDD are computed here, once.

    Of those that *may_grow*, files that are not listed yet, or more partitions of a data source, may be left to a feed.
    Raises `UnsupportedPlanError` when the rows, or the partitions of a data source, are larger than a plan may carry,
    and when a data source waits for a subquery.
    """
    wanted = [(node, node in may_grow) for node in leaves]
    described = cutting.describe(wanted, LOCAL_ROWS_LIMIT_BYTES, digests)
    return {
        node: _described(kind, facts, cutting.leaf(node))
        for (node, kind), facts in zip(leaves.items(), described, strict=False)
    }


def _described(kind: str, facts: Mapping[str, Any] | None, written: Path) -> DescribedLeaf:
    if facts is None:
        raise _not_described(kind, is_large=written.exists())
    size, partitions, name = facts["bytes"], facts["partitions"], facts["name"]
    more = " and more" if facts["grows"] else ""
    label = short = _LABELS.get(kind, "")
    if kind == FILE_LEAF:
        label = f"{facts['format']} {name.removeprefix('file:')} ({_count(facts['files'], 'file')}{more})"
        short = f"scan {name.rstrip('/').rpartition('/')[2].partition('.')[0]}"
    elif kind == SOURCE_LEAF:
        label, short = f"{name} ({_count(partitions, 'partition')}{more})", f"scan {name}"
    growth = None
    if facts["grows"]:
        source, portion = (written.with_name(f"{written.name}-{each}").read_bytes() for each in ("source", "portion"))
        growth = Growth(source, portion, partitions)
        partitions = max(2, GROWS_BY * partitions)
    return DescribedLeaf(written.read_bytes(), label, short, size, partitions, growth, facts["digest"])


def _not_described(kind: str, *, is_large: bool) -> UnsupportedPlanError:
    limit = f"more than {LOCAL_ROWS_LIMIT_BYTES // (1024 * 1024)} MiB"
    if kind != SOURCE_LEAF:
        return UnsupportedPlanError(
            f"local data of {limit} (createDataFrame, parallelize)",
            "write it to files first (Parquet, say), and read these in the query",
        )
    if is_large:
        return UnsupportedPlanError(
            f"a data source whose partitions hold {limit}",
            "let a partition only name what to read, such as a path or a range of keys",
        )
    return UnsupportedPlanError(
        "a data source that filters by the result of a subquery", "filter its rows in an outer query instead"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
