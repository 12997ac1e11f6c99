"""Whether two results are the same: as multisets, and in order as far as the query orders."""

import math
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

RELATIVE_TOLERANCE = 1e-9
"""For floating-point columns; everything else must be exact."""

Row = tuple[Any, ...]


def difference(mine: pa.Table, theirs: pa.Table, query: str) -> str | None:
    """Return in words how two results of *query* differ; None when they are equal."""
    if mine.schema.names != theirs.schema.names:
        return f"columns {mine.schema.names} against {theirs.schema.names}"
    if mine.num_rows != theirs.num_rows:
        return f"{mine.num_rows} rows against {theirs.num_rows}"
    my_rows, their_rows = _rows(mine), _rows(theirs)
    for number, pair in enumerate(zip(sorted(my_rows, key=_key), sorted(their_rows, key=_key), strict=True)):
        if not _is_same(*pair):
            return f"sorted row {number} is {pair[0]} against {pair[1]}"
    by = [mine.schema.names.index(name) for name in order_of(query)]
    for number, (my_row, their_row) in enumerate(zip(my_rows, their_rows, strict=True)):
        if not _is_same([my_row[i] for i in by], [their_row[i] for i in by]):
            return f"row {number} is ordered as {my_row} against {their_row}"
    return None


def order_of(query: str) -> list[str]:
    """Return the columns by which the result of *query* is ordered: its last ORDER BY, outside all parentheses."""
    position, depth, last = 0, 0, None
    for token in re.finditer(r"\(|\)|\bORDER\s+BY\b", query, re.IGNORECASE):
        depth += {"(": 1, ")": -1}.get(token.group(), 0)
        if depth == 0 and token.group() not in {"(", ")"}:
            position, last = token.end(), token
    if last is None:
        return []
    clause = re.split(r"\bLIMIT\b", query[position:], flags=re.IGNORECASE)[0]
    return [item.split()[0] for item in clause.split(",")]


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _key(row: Row) -> list[tuple[bool, Any]]:
    # Exact columns first, so that rounding in a float does not pair up different rows.
    exact = [v for v in row if not isinstance(v, float)]
    return [(v is not None, v if v is not None else 0) for v in [*exact, *(v for v in row if isinstance(v, float))]]


def _is_same(mine: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return all(_is_equal(a, b) for a, b in zip(mine, theirs, strict=True))


def _is_equal(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        both_nan = math.isnan(mine) and math.isnan(theirs)
        return both_nan or math.isclose(mine, theirs, rel_tol=RELATIVE_TOLERANCE)
    return bool(mine == theirs)
