"""What counts as the same result, and what is said when it is not."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from onager.testing.compare import Order, difference

INTS = pa.schema({"k": pa.int64(), "v": pa.int64()})
SUMS = pa.schema({"k": pa.int64(), "s": pa.float64()})


def compare(got, expected, schema=INTS, order=None, ordered=None, tolerance=1e-9):
    def table(rows):
        columns = list(zip(*rows, strict=True)) or [[] for _ in schema]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)

    return difference(table(got), table(expected), order or Order(), ordered=ordered, tolerance=tolerance)


def test_rows_are_a_multiset():
    assert compare([(1, 2), (3, 4), (1, 2)], [(1, 2), (1, 2), (3, 4)]) is None
    assert "too many: 1, among them\n  (1, 2)" in compare([(1, 2), (1, 2)], [(1, 2)])
    assert "missing: 1, among them\n  (1, 2)" in compare([(1, 2)], [(1, 2), (1, 2)])
    assert compare([], []) is None


def test_a_swapped_multiplicity_is_a_difference_though_the_sets_are_equal():
    text = compare([(1, 1), (1, 1), (2, 2)], [(1, 1), (2, 2), (2, 2)])
    assert "missing: 1" in text
    assert "too many: 1" in text


def test_doubles_may_differ_by_rounding_alone():
    assert compare([(1, 0.1 + 0.2)], [(1, 0.3)], SUMS) is None
    assert compare([(1, 0.3001)], [(1, 0.3)], SUMS) is not None
    assert compare([(1, 0.1 + 0.2)], [(1, 0.3)], SUMS, tolerance=0) is not None
    assert compare([(2, 0.1 + 0.2)], [(1, 0.3)], SUMS) is not None
    assert compare([(1, 1e-300)], [(1, 0.0)], SUMS) is not None


def test_every_double_finds_its_own_partner():
    close = [(1, 0.3), (1, 0.1 + 0.2)]
    assert compare(close, [(1, 0.3), (1, 0.3)], SUMS) is None
    assert "missing: 1" in compare([(1, 0.3)], close, SUMS)


def test_one_zero_and_one_nan():
    assert compare([(1, -0.0), (2, math.nan)], [(1, 0.0), (2, math.nan)], SUMS) is None
    assert compare([(1, math.nan)], [(1, None)], SUMS) is not None


def test_nested_values():
    schema = pa.schema(
        {
            "m": pa.map_(pa.string(), pa.float64()),
            "l": pa.list_(pa.int64()),
            "s": pa.struct({"a": pa.decimal128(38, 2), "b": pa.binary()}),
        }
    )
    row = ([("x", 0.3), ("y", 1.0)], [1, 2], {"a": Decimal("1.00"), "b": b"z"})
    turned = ([("y", 1.0), ("x", 0.1 + 0.2)], [1, 2], {"a": Decimal("1.00"), "b": b"z"})
    assert compare([turned], [row], schema) is None
    assert compare([(row[0], [2, 1], row[2])], [row], schema) is not None
    assert compare([(None, None, None)], [(None, None, None)], schema) is None


def test_order_counts_where_the_query_orders_and_ties_may_come_in_any():
    rows = [(1, 1), (1, 2), (2, 3)]
    by_k = Order(keys=(0,))
    assert compare([rows[1], rows[0], rows[2]], rows, order=by_k) is None
    assert compare([rows[1], rows[0], rows[2]], rows, order=by_k, ordered=True) is not None
    text = compare([rows[0], rows[2], rows[1]], rows, order=by_k)
    assert text.startswith("the rows are the same, but not their order: row 1 of 3 is\n  (2, 3)")
    assert compare([rows[0], rows[2], rows[1]], rows, order=by_k, ordered=False) is None
    assert compare([rows[2], rows[0], rows[1]], rows) is None
    assert compare([rows[2], rows[0], rows[1]], rows, ordered=True) is not None


def test_columns_that_only_order_are_not_compared_as_rows():
    order = Order(keys=(1,), columns=1)
    assert compare([(7, 1), (7, 2)], [(7, 1), (7, 2)], order=order) is None
    assert "row 0 of 2 is\n  (7,)" in compare([(7, 2), (7, 1)], [(7, 1), (7, 2)], order=order)


def test_a_limit_gets_a_hint():
    limited = Order(keys=(0,), is_limited=True)
    assert "add columns to ORDER BY" in compare([(1, 2)], [(1, 3)], order=limited)
    assert "ORDER BY" not in compare([(1, 2)], [(1, 3)])


def test_columns_that_differ():
    table = pa.table({"a": pa.array([1], pa.int32())})
    assert "got a int32, expected a int64" in difference(
        table, pa.table({"a": [1]}), Order(), ordered=None, tolerance=0
    )


def test_rows_without_columns_are_counted():
    none = pa.table({"a": [1, 2]}).select([])
    assert difference(none, none, Order(), ordered=None, tolerance=0) is None


@pytest.mark.parametrize("rows", [3, 400])
def test_many_rows_that_differ_are_shown_by_some(rows):
    text = compare([(i, 0) for i in range(rows)], [(i, 1) for i in range(rows)])
    assert f"missing: {rows}" in text
    assert text.count("\n  (") == 2 * min(rows, 5)
