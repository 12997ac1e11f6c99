"""Whether two results are the same: as multisets of rows, and in order where the query orders."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

SHOWN_ROWS = 5
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a query's result."""

    keys: tuple[int, ...] = ()
    """The positions of the columns; none if it does not order."""
    columns: int = -1
    """How many of the columns are the query's own; the rest only serve the order. -1: all."""
    is_limited: bool = False
    """Whether it ends with a limit or an offset."""


@dataclass(frozen=True, slots=True)
class _Number:
    """Stands for a double where rows are compared except for their doubles."""


_DOUBLE = _Number()


def difference(
    got: pa.Table, expected: pa.Table, order: Order, *, ordered: bool | None, tolerance: float
) -> str | None:
    """Return how *got* differs from *expected*, for people, or None when it does not.

    *ordered*: whether the rows must come in the same order, ties included; None: as the query orders them. Doubles are
    first compared exactly, and then, for rows without a partner, within *tolerance* of the larger one: a sum depends on
    the order of additions.
    """
    if got.schema.types != expected.schema.types:
        return f"the columns differ: got {_schema(got)}, expected {_schema(expected)}"
    width = order.columns if order.columns >= 0 else expected.num_columns
    rows, right = _rows(got), _rows(expected)
    own, right_own = [row[:width] for row in rows], [row[:width] for row in right]
    missing = list((Counter(right_own) - Counter(own)).elements())
    extra = list((Counter(own) - Counter(right_own)).elements())
    missing, extra = _without_partners(missing, extra, tolerance)
    if missing or extra:
        return _difference(len(rows), len(right), missing, extra, order)
    if ordered is False or (ordered is None and not order.keys):
        return None
    keys = tuple(range(width)) if ordered else order.keys
    for i, (row, other) in enumerate(zip(rows, right, strict=True)):
        mine, its = [row[k] for k in keys], [other[k] for k in keys]
        if mine != its and not _is_close(mine, its, tolerance):
            return (
                f"the rows are the same, but not their order: row {i} of {len(rows)} is\n  {_shown(own[i])}\n"
                f"where plain Spark has\n  {_shown(right_own[i])}"
            )
    return None


def _schema(table: pa.Table) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in zip(table.schema.names, table.schema.types, strict=True))


def _rows(table: pa.Table) -> list[Row]:
    if not table.num_columns:
        return [()] * table.num_rows
    columns = [[_plain(value, column.type) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value that can be hashed: maps without an order, and only one zero and one NaN among doubles."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return "NaN" if math.isnan(value) else value + 0.0
    if pa.types.is_map(kind):
        entries = [(_plain(key, kind.key_type), _plain(item, kind.item_type)) for key, item in value]
        return ("map", *sorted(entries, key=repr))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return ("list", *(_plain(item, kind.value_type) for item in value))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return ("struct", *(_plain(value[field.name], field.type) for field in fields))
    return value


def _without_partners(missing: list[Row], extra: list[Row], tolerance: float) -> tuple[list[Row], list[Row]]:
    """Return the rows without a partner on the other side that is equal except for rounding."""
    if not missing or not extra or not tolerance:
        return missing, extra
    candidates: dict[Any, list[Row]] = defaultdict(list)
    for row in extra:
        candidates[_but_doubles(row)].append(row)
    alone = []
    for row in missing:
        like = candidates.get(_but_doubles(row), [])
        partner = next((other for other in like if _is_close(row, other, tolerance)), None)
        if partner is None:
            alone.append(row)
        else:
            like.remove(partner)
    return alone, [row for rows in candidates.values() for row in rows]


def _but_doubles(value: Any) -> Any:
    if isinstance(value, float):
        return _DOUBLE
    return tuple(_but_doubles(item) for item in value) if isinstance(value, tuple) else value


def _is_close(one: Any, other: Any, tolerance: float) -> bool:
    """Return whether two values are equal except for rounding of doubles within them."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=0.0)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(_is_close(a, b, tolerance) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _difference(got: int, expected: int, missing: Sequence[Row], extra: Sequence[Row], order: Order) -> str:
    lines = [f"{got:,} rows, where plain Spark gives {expected:,}"]
    for what, rows in (("missing", missing), ("too many", extra)):
        if rows:
            lines.append(f"{what}: {len(rows):,}, among them")
            lines += [f"  {_shown(row)}" for row in rows[:SHOWN_ROWS]]
    if order.is_limited and got == expected:
        lines.append(
            "the query ends with LIMIT or OFFSET: where rows tie, or nothing orders them, any of them are right; "
            "add columns to ORDER BY until it is total"
        )
    return "\n".join(lines)


def _shown(row: Row) -> str:
    text = repr(row)
    return text if len(text) <= 500 else f"{text[:500]}…"  # noqa: PLR2004
