"""When the benchmark calls two results equal."""

from decimal import Decimal

import pyarrow as pa
import pytest

from benchmarks.tpch import QUERY_NUMBERS, query_text
from benchmarks.tpch.comparison import difference, order_of

UNORDERED = "SELECT a, b FROM t"
BY_A = "SELECT a, b FROM t ORDER BY a"


def _table(*rows: tuple[object, object]) -> pa.Table:
    a, b = zip(*rows, strict=True)
    return pa.table({"a": list(a), "b": list(b)})


def test_rows_are_a_multiset():
    one = _table((1, "x"), (2, None), (1, "x"))
    assert difference(one, _table((1, "x"), (1, "x"), (2, None)), UNORDERED) is None
    assert "sorted row 1" in difference(one, _table((1, "x"), (2, None), (2, None)), UNORDERED)
    assert "3 rows against 2" in difference(one, one.slice(1), UNORDERED)


def test_order_counts_where_the_query_orders_and_ties_are_free():
    one = _table((1, "x"), (1, "y"), (2, "z"))
    assert difference(one, _table((1, "y"), (1, "x"), (2, "z")), BY_A) is None
    assert "is ordered as" in difference(one, _table((2, "z"), (1, "x"), (1, "y")), BY_A)


def test_decimals_are_exact_and_floats_nearly_so():
    assert difference(_table((1, 0.1 + 0.2)), _table((1, 0.3)), BY_A) is None
    assert difference(_table((1, 0.3)), _table((1, 0.3 + 1e-8)), BY_A) is not None
    assert difference(_table((1, float("nan"))), _table((1, float("nan"))), BY_A) is None
    assert difference(_table((1, Decimal("0.30"))), _table((1, Decimal("0.31"))), BY_A) is not None


def test_column_names_must_agree():
    assert "columns" in difference(_table((1, 2)), _table((1, 2)).rename_columns(["a", "c"]), UNORDERED)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT 1", []),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a) ", []),
        ("SELECT a, row_number() OVER (ORDER BY b) FROM t order by a desc, c\nLIMIT 3", ["a", "c"]),
    ],
)
def test_only_the_last_order_outside_parentheses_counts(query, columns):
    assert order_of(query) == columns


def test_every_tpch_query_that_orders_is_known_to():
    unordered = {number for number in QUERY_NUMBERS if not order_of(query_text(number))}
    assert unordered == {6, 14, 17, 19}
    assert order_of(query_text(18)) == ["o_totalprice", "o_orderdate"]
