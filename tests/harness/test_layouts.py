"""Stages that are laid out otherwise than planned give plain Spark's rows: fused, with merged or split buckets.

Some queries in one of the ways, in turns; with ``ONAGER_TESTS=all`` (`make test-all`) all of them in all ways.
"""

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq, create_stages
from onager.testing.check import Comparison
from tests.harness.conftest import QUERIES
from tests.harness.more_shapes import MORE_ORDERED, MORE_SHAPES
from tests.harness.shapes import ORDERED, SHAPES
from tests.harness.test_python_shapes import FUNCTIONS
from tests.integration.planning.python_jobs import as_before, query_of
from tests.support.selection import IS_ALL, some

LAYOUTS = ("merged", "split", "fused", "fused whole")
NO_BROADCASTS = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
SORTED_SIDES = {"spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "0"}
"""Otherwise sides that turn out small are hashed after all."""
SOME_SHAPES = (
    "distinct aggregates",
    "merge full",
    "union of aggregates",
    "cartesian",
    "nested scalar subqueries",
    "in subquery in projection",
    "partition by join",
    "scalar in a join's key",
    "reused exchange",
    "top",
    "order by",
    "limit in subquery",
    "window over everything",
    "windows with a limit",
)
SOME_FUNCTIONS = ("udf in a subquery", "udtf over a table, by key")


def ways(number, **fields):
    return [HarnessConfig(layout=layout, **fields) for layout in (LAYOUTS if IS_ALL else LAYOUTS[number % 4 :][:1])]


@pytest.mark.parametrize("number", range(1, 23) if IS_ALL else (11, 21))
def test_query(spark, tpch, number):
    query = Comparison(spark.sql((QUERIES / f"q{number}.sql").read_text()))
    for config in ways(number, conf=NO_BROADCASTS if number % 2 else {}):
        query.check(config)


EVERY_SHAPE = SHAPES | MORE_SHAPES | ORDERED | MORE_ORDERED


@pytest.mark.parametrize("name", EVERY_SHAPE if IS_ALL else SOME_SHAPES[::3])
def test_shape(spark, tables, name):
    frame = spark.sql(EVERY_SHAPE[name])
    is_cut = create_stages(frame).is_cut
    query = Comparison(frame)
    for config in ways(list(EVERY_SHAPE).index(name), single_stage=not is_cut):
        query.check(config)


@pytest.mark.parametrize("name", FUNCTIONS if IS_ALL else SOME_FUNCTIONS)
def test_function(spark, tables, name):
    with as_before(spark):
        frame = query_of(FUNCTIONS[name])(spark, {})
        is_cut = create_stages(frame).is_cut
        for config in ways(list(FUNCTIONS).index(name), single_stage=not is_cut):
            assert_distributed_eq(frame, config)


SKEWED = "(select if(id % 4 = 0, id % 9, 3) k, id v from range(0, 120, 1, 4))"
OTHER = "(select if(id % 3 = 0, 3, id % 11) k, id w from range(0, 50, 1, 3))"


SPLITS = (("inner", 2), ("left semi", 1), ("left", 1), ("left anti", 1), ("right", 1), ("full", 0))


@pytest.mark.parametrize(
    ("way", "kind", "split"),
    some([*(("merge", *each) for each in SPLITS), *(("shuffle_hash", *each) for each in reversed(SPLITS))]),
)
def test_a_skewed_join(spark, way, kind, split):
    columns = "l.k, l.v" if kind in {"left semi", "left anti"} else "l.k, l.v, r.k, r.w"
    text = f"select /*+ {way}(r) */ {columns} from {SKEWED} l {kind} join {OTHER} r on l.k = r.k and l.v % 5 <> r.w % 7"
    frame = spark.sql(text)
    for conf in ({}, SORTED_SIDES):
        run = assert_distributed_eq(frame, HarnessConfig(layout="split", conf=conf))
        last = run.graph.stages[-1]
        assert len(last.may_split) == split
        assert len(run.tasks_of(last.stage_id)) == last.tasks * (2 if split else 1)


def test_a_fused_query_is_one_task(spark, tables):
    text = """
        select g.label, count(*) c, sum(s.amount)
        from sales s join (select distinct k, label from groups) g on s.k = g.k
        group by g.label order by c desc, g.label limit 5"""
    run = assert_distributed_eq(spark.sql(text), HarnessConfig(layout="fused whole", conf=NO_BROADCASTS))
    (task,) = run.tasks
    assert len(run.graph.stages) > 3
    assert task.bytes_read == 0


def test_leaves_run_before_the_rest_is_fused(spark, tables):
    text = "select k, c from (select k, count(*) c from sales group by k) order by c desc, k"
    run = assert_distributed_eq(spark.sql(text), HarnessConfig(layout="fused"))
    assert len(run.graph.stages) == 3
    assert {task.stage_id for task in run.tasks} == {1, 3}
    (last,) = run.tasks_of(3)
    assert 0 < last.bytes_read <= sum(task.bytes for task in run.tasks_of(1))


def test_merged_buckets_are_read_by_fewer_tasks(spark, tables):
    run = assert_distributed_eq(
        spark.sql("select k, count(*) from sales group by k"), HarnessConfig(tasks=5, layout="merged")
    )
    assert [len(run.tasks_of(stage)) for stage in (1, 2)] == [run.graph.stages[0].tasks, 3]


def test_a_layout_is_checked():
    with pytest.raises(ValueError, match="layout is 'streamed'"):
        HarnessConfig(layout="streamed")
    with pytest.raises(ValueError, match="runs as it was planned"):
        HarnessConfig(layout="fused", exchange="streams")
