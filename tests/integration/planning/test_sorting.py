"""Queries that sort or range-partition, cut into tasks that each sort a part, against plain Spark."""

from pathlib import Path
from typing import Any

import pytest

from onager.protocol import onager_pb2 as pb
from tests.support.selection import some
from tests.support.spark.one_executor import CUT, OneExecutor

PARALLEL = {"onager.sort.parallelFromBytes": "0"}
LIMITED = {"spark.sql.execution.topKSortFallbackThreshold": "10"}
"""Limits above that are taken of what was sorted whole."""
ODD = """
    SELECT id,
        CASE WHEN id % 9 = 0 THEN NULL WHEN id % 7 = 0 THEN double('NaN') WHEN id % 5 = 0 THEN double('-Infinity')
            WHEN id % 4 = 0 THEN -0.0D ELSE id % 11 / 4 END AS x,
        nullif(element_at(array('b', 'B', 'a', 'A', 'ä', '', 'zz'), cast(id % 7 + 1 AS int)), 'zz') AS word,
        named_struct('k', nullif(k, 3), 'd', date_sub(day, cast(k AS int))) AS pair_of, maybe, k, price, day, s.b AS b
    FROM sales
"""


ORDERS = [
    "id DESC",
    "x DESC NULLS FIRST, id DESC",
    "x ASC NULLS LAST, word DESC, id",
    "word COLLATE UTF8_LCASE DESC, id",
    "cast(price AS decimal(38, 18)) * -1, id",
    "pair_of DESC, id",
    "array(maybe, k), id",
    "maybe NULLS LAST, day DESC, b",
    "hash(id), id",
    "interval 1 day * (k - 3), cast(b AS binary) DESC",
]


@pytest.mark.parametrize("by", some(ORDERS))
def test_rows_come_in_order(check: Any, by: str) -> None:
    outcome = check(f"SELECT id, x, word, price FROM ({ODD}) ORDER BY {by}", ordered=True, conf=PARALLEL)
    assert [stage.partitions for stage in outcome.stages] == [2, 3]


PLANS = [
    "SELECT k, count(*), max(name) FROM sales GROUP BY k ORDER BY 2, k DESC",
    "SELECT s.id, g.label FROM sales s JOIN groups g ON s.k = g.k ORDER BY g.label DESC, s.id",
    "SELECT id, sum(id) OVER (PARTITION BY k ORDER BY id) AS t FROM sales ORDER BY t, id",
    "SELECT id FROM sales ORDER BY maybe, id LIMIT 20 OFFSET 15",
    "SELECT id FROM sales ORDER BY id DESC OFFSET 290",
    "SELECT * FROM (SELECT id FROM sales ORDER BY id LIMIT 50) ORDER BY id DESC",
    "SELECT id, k FROM nothing ORDER BY id",
    "SELECT 1 AS one, 'x' AS x FROM sales ORDER BY one, x",
    "SELECT id FROM sales ORDER BY abs(id - (SELECT avg(id) FROM sales)), id",
    "SELECT id + part AS n FROM parts WHERE part IN (SELECT k FROM sales) ORDER BY n DESC",
    "SELECT id, sum(id) OVER (ORDER BY id) AS running FROM (SELECT id FROM sales ORDER BY k) ORDER BY running",
]


@pytest.mark.parametrize("query", some(PLANS))
def test_rows_of_larger_plans_come_in_order(check: Any, query: str) -> None:
    check(query, ordered=True, conf=PARALLEL | LIMITED)


RANGES = [
    "(SELECT id FROM sales ORDER BY id) UNION ALL (SELECT id FROM sales ORDER BY k)",
    "SELECT /*+ repartition_by_range(4, maybe) */ id, maybe FROM sales",
    "SELECT maybe, count(*) FROM (SELECT /*+ repartition_by_range(4, maybe) */ * FROM sales) GROUP BY maybe",
    "WITH r AS (SELECT /*+ repartition_by_range(3, id) */ * FROM sales) SELECT a.id FROM r a, r b WHERE a.id = b.k",
    "SELECT id FROM (SELECT /*+ repartition_by_range(5, name) */ id FROM sales ORDER BY id LIMIT 7)",
    "SELECT /*+ coalesce(2) */ id, name FROM (SELECT /*+ repartition_by_range(5, name) */ * FROM sales)",
]


@pytest.mark.parametrize("query", some(RANGES))
def test_ranges_in_larger_plans(check: Any, query: str) -> None:
    check(query, conf=PARALLEL)


def test_ranges_are_disjoint_and_of_about_the_same_size(executor: OneExecutor, tables: list[pb.View]) -> None:
    text = "SELECT spark_partition_id() AS p, id, k FROM (SELECT /*+ repartition_by_range(4, k, id) */ * FROM sales)"
    outcome = executor.plan_sql(text, views=tables, conf=CUT)
    assert outcome.stages[-1].partitions == 4
    by_range: dict[int, list[tuple[int, int]]] = {}
    for p, id_, k in executor.run(outcome):
        by_range.setdefault(p, []).append((k, id_))
    assert [len(by_range[p]) for p in range(4)] == [75, 75, 75, 75]
    assert all(max(by_range[p]) < min(by_range[p + 1]) for p in range(3))


def test_a_frequent_key_has_a_range_and_the_others_share_the_rest(executor: OneExecutor, tables: list[pb.View]) -> None:
    text = """
        SELECT p, count(*) FROM (SELECT spark_partition_id() AS p FROM (
            SELECT /*+ repartition_by_range(4, key) */ CASE WHEN id < 150 THEN 1 ELSE id END AS key FROM sales))
        GROUP BY p ORDER BY p
    """
    rows = executor.run(executor.plan_sql(text, views=tables, conf=CUT))
    assert rows == [(0, 150), (1, 50), (2, 50), (3, 50)]


def test_a_sort_of_little_is_one_task(executor: OneExecutor, tables: list[pb.View]) -> None:
    text = "SELECT id FROM lines_json ORDER BY k, id"
    assert executor.plan_sql(text, views=tables).stages[-1].partitions == 1
    (path,) = (table.path for table in tables if table.name == "lines_json")
    size = sum(file.stat().st_size for file in Path(path).iterdir())
    for at_least, tasks in ((size, 3), (size + 1, 1)):
        conf = CUT | {"onager.sort.parallelFromBytes": str(at_least)}
        assert executor.plan_sql(text, views=tables, conf=conf).stages[-1].partitions == tasks
