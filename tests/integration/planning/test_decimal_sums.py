"""Sums and averages of decimals, drawn: in longs they give what Spark's own give, digit by digit, and fail as they do.

The gate draws the same few each time; for more:

    python -m tests.integration.planning.test_decimal_sums --draws 2000 --seed 1
"""

import argparse
import random  # noqa: TID251 seeded
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.selection import IS_ALL
from tests.support.spark.one_executor import CUT, OneExecutor, as_multiset, rows_of
from tests.support.spark.one_spark import SPARKS_SUMS, settings, stop_with_its_jvm

IN_THE_GATE = 60
_MOST = 38
_COLUMNS = 5
_KEYS = 4


class Draw(NamedTuple):
    """A table, and a query of it."""

    table: str
    query: str
    alone: list[str]
    """The same for each of its columns."""
    conf: dict[str, str]


def _decimal_type(rng: random.Random) -> tuple[int, int]:
    precision = rng.choice([rng.randint(1, _MOST), rng.randint(9, 18), 12, 18])
    return precision, rng.choice([0, rng.randint(0, precision), min(2, precision)])


def _value(rng: random.Random, precision: int, scale: int) -> str:
    most = 10**precision - 1
    digits = rng.choice([0, 1, -1, most, -most, most - 1, rng.randint(-most, most), rng.randint(-99, 99) % (most + 1)])
    if rng.random() < 0.15:
        return f"cast(null as decimal({precision},{scale}))"
    sign, text = "-" if digits < 0 else "", str(abs(digits)).rjust(scale + 1, "0")
    number = f"{text[:-scale]}.{text[-scale:]}" if scale else text
    return f"cast('{sign}{number}' as decimal({precision},{scale}))"


def _term(rng: random.Random, depth: int) -> str:
    if not depth or rng.random() < 0.2:
        return f"d{rng.randrange(_COLUMNS)}"
    a, b = _term(rng, depth - 1), _term(rng, depth - 1)
    precision, scale = _decimal_type(rng)
    return rng.choice(
        [
            f"{a} * {b}",
            f"({a} + {b})",
            f"({a} - {b})",
            f"(1 - {a})",
            f"{a} * (1 - {b})",
            f"{a} * (1 - {b}) * (1 + d0)",
            f"(-{a})",
            f"cast({a} as decimal({precision},{scale}))",
            f"case when k = 1 then {a} when k = 2 then {b} end",
            f"case when k = 1 then {a} else 0 end",
            f"if(k > 1, {a}, {b})",
            f"coalesce({a}, 0)",
            f"coalesce({a}, {b})",
            f"coalesce(cast({_text(rng)} as decimal({precision},{scale})), 0)",
            f"cast(k as decimal({precision},{scale}))",
            f"{a} * cast({_text(rng)} as decimal({precision},{scale}))",
            f"({a} + {b} / nullif(k, 1))",
            f"{a} * ({b} / d0)",
            f"{a} * cast(k as decimal(10,0))",
            f"({a} / 3)",
            f"{a} * 2.50",
            f"({a} + 12345678.9)",
        ]
    )


def _text(rng: random.Random) -> str:
    return rng.choice(["'1.5'", "if(k = 1, 'x', '2.25')", "cast(k as string)"])


def _row(rng: random.Random, types: list[tuple[int, int]]) -> str:
    return f"({rng.randrange(_KEYS)}, {', '.join(_value(rng, *each) for each in types)})"


def draw(seed: int) -> Draw:
    """Return what *seed* draws."""
    rng = random.Random(seed)
    types = [_decimal_type(rng) for _ in range(_COLUMNS)]
    rows = [_row(rng, types) for _ in range(rng.randint(1, 12))]
    table = f"select * from values {', '.join(rows)} as t(k, {', '.join(f'd{n}' for n in range(_COLUMNS))})"
    terms = [_term(rng, rng.randint(0, 3)) for _ in range(rng.randint(1, 3))]
    parts = []
    for term in terms:
        name = rng.choice(["sum", "sum", "avg", "try_sum", "try_avg"])
        shown = f"{name}({rng.choice(['', '', '', 'distinct '])}{term})"
        parts.append(shown + rng.choice(["", "", "", " filter (where k <> 1)", " filter (where k > 90)"]))
    parts += rng.choice([[], ["count(distinct k)"], ["count(distinct d0), count(distinct k)"], ["count(*)", "max(d1)"]])
    over = rng.choice(["", "", " where k > 1", " where k > 90"])
    grouped = rng.choice(["", " group by k", " group by k", " group by rollup(k)", " group by d1, k"])
    query, alone = (
        f"select {', '.join(parts)} from t{over}{grouped}",
        [f"select {each} from t{over}{grouped}" for each in parts],
    )
    if rng.random() < 0.1:
        query, alone = f"select {terms[0]}, sum({terms[0]}) over (partition by k) from t{over}", []
    ansi = str(rng.random() < 0.5).lower()
    return Draw(table, query, alone, {"spark.sql.ansi.enabled": ansi})


def _outcome(spark: SparkSession, query: str) -> Any:
    try:
        frame = spark.sql(query)
        return frame.schema.simpleString(), Counter(map(tuple, frame.collect()))
    except PySparkException as error:
        return error.getCondition()


def check(spark: SparkSession, seed: int) -> str:
    """Hold what *seed* draws against Spark's way; return what came of it: rows, or an error."""
    drawn = draw(seed)
    spark.sql(drawn.table).coalesce(1).createOrReplaceTempView("t")  # of several errors, the first row's is raised
    spark.sql("cache table t")  # else the optimizer computes all by itself
    try:
        ours, sparks = _both(spark, drawn, drawn.query)
        if isinstance(ours, str) and isinstance(sparks, str) and ours != sparks:
            # Of a row's errors, either may be the first.
            assert all(mine == plain for mine, plain in (_both(spark, drawn, each) for each in drawn.alone)), drawn
        else:
            assert ours == sparks, drawn
        return "error" if isinstance(ours, str) else "rows"
    finally:
        spark.sql("uncache table t")


def _both(spark: SparkSession, drawn: Draw, query: str) -> tuple[Any, Any]:
    """Return what comes of *query* in longs, and by Spark's own sums."""
    with settings(spark, drawn.conf):
        ours = _outcome(spark, query)
        with settings(spark, SPARKS_SUMS):
            return ours, _outcome(spark, query)


def test_drawn_sums_are_sparks(executor):
    seen = Counter(check(executor.spark, seed) for seed in range(2_000 if IS_ALL else IN_THE_GATE))
    assert seen["rows"] > seen["error"] > 0


SUMS = """
    select l_returnflag, sum(l_quantity), avg(l_quantity), sum(l_extendedprice * (1 - l_discount)),
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
        sum(case when l_shipmode = 'AIR' then l_extendedprice * (1 - l_discount) else 0 end)
    from lineitem group by l_returnflag"""


def _has_longs(spark: SparkSession, query: str) -> bool:
    """Return whether a plan of *query* adds up in longs, and nothing in decimals."""
    plan = spark.sql(query)._jdf.queryExecution().sparkPlan().toString()
    return "high#" in plan and "sum#" not in plan


def test_a_cut_query_sums_in_longs_and_gives_plain_sparks_rows(executor, tpch):
    got = executor.run(executor.plan_sql(SUMS, views=tpch, conf=CUT))
    (lineitem,) = [view.path for view in tpch if view.name == "lineitem"]
    executor.spark.read.parquet(lineitem).createOrReplaceTempView("lineitem")
    assert _has_longs(executor.spark, SUMS)
    with settings(executor.spark, SPARKS_SUMS):
        assert not _has_longs(executor.spark, SUMS)
        expected = rows_of(executor.spark.sql(SUMS).toArrow())
    assert as_multiset(got) == as_multiset(expected)


@pytest.mark.parametrize(
    "term", ["d0", "d0 * d1", "d1 * d1 * d1", "d0 - 1", "if(k = 1, d0, d1)", "coalesce(d1, 0)", "-d0"]
)
def test_longs_are_enough_for(executor, term):
    executor.spark.sql("select * from values (1, 1.5, 2.5) as t(k, a, b)").selectExpr(
        "k", "cast(a as decimal(12,2)) d0", "cast(b as decimal(12,2)) d1"
    ).createOrReplaceTempView("u")
    assert _has_longs(executor.spark, f"select sum({term}), avg({term}) from u group by k")


@pytest.mark.parametrize(
    "sum_of", ["sum(distinct a)", "sum(cast(a as decimal(30,2)) / 3)", "sum(coalesce(a, 0)) filter (where k = 1)"]
)
def test_spark_adds_up_by_itself(executor, sum_of):
    executor.spark.range(9).selectExpr("id k", "cast(id as decimal(12,2)) a").createOrReplaceTempView("u")
    assert not _has_longs(executor.spark, f"select {sum_of} from (select k, nullif(a, 2.5) a from u) group by k")


@pytest.mark.parametrize(
    "query",
    [
        # What Spark leaves out where the value before it is null, or null by an overflow, raises no error.
        "select sum(a * cast(s as decimal(10,2))) from values (null, 'x'), (2.50BD, '4') t(a, s)",
        "select sum(a - cast(s as decimal(10,2))) from values (null, 'x'), (2.50BD, '4') t(a, s)",
        """select sum(try_cast(a as decimal(9,0)) * (i + j))
            from values (1000000000000000BD, 2147483647, 1), (2BD, 1, 1) t(a, i, j)""",
        # Sums of several partitions, of both signs, and of more than a long.
        "select k, sum(a * b) from w group by k",
        "select sum(a * b), avg(a * b), sum(a), avg(a) from w",
        "select k, sum(a * b), sum(a) from w group by rollup(k)",
    ],
)
@pytest.mark.parametrize(
    "conf", [{}, {"spark.sql.codegen.fallback": "false"}, {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}]
)
def test_sums_are_sparks(executor, query, conf):
    numbers = executor.spark.range(0, 60, 1, 3)
    rows = numbers.selectExpr(
        "id % 3 k", "cast(if(id % 2 = 0, id, -id) * 123456789012 as decimal(18,4)) a", "a * 1000 b"
    )
    rows.selectExpr("k", "a", "cast(b as decimal(18,1)) b").createOrReplaceTempView("w")
    conf = conf | {"spark.sql.execution.combineAdjacentAggregation": "false"}
    if "NO_CODEGEN" in conf.values():
        conf |= {"spark.sql.codegen.wholeStage": "false"}
    with settings(executor.spark, conf):
        got = _outcome(executor.spark, query)
        with settings(executor.spark, SPARKS_SUMS):
            assert got == _outcome(executor.spark, query)
    assert not isinstance(got, str), got


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        executor = OneExecutor(Path(directory))
        seeds = range(arguments.seed * 1_000_000, arguments.seed * 1_000_000 + arguments.draws)
        print(dict(Counter(check(executor.spark, seed) for seed in seeds)))  # noqa: T201 - printing is its work
        executor.close()
        stop_with_its_jvm(executor.spark)


if __name__ == "__main__":
    main()
