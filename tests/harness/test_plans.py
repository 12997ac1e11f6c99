"""What queries are cut into, and that they come to an end with the smallest channels."""
# ruff: noqa: E501  (a query reads best on one line)

import dataclasses
import itertools

import pytest
from pyspark.sql.types import LongType

from onager.testing import HarnessConfig, assert_distributed_eq, create_stages
from tests.support.selection import some
from tests.support.waiting import HANGS_S

TINY = HarnessConfig(exchange="streams", channel_frames=1, frame_bytes=64)


def test_stages_come_in_order_with_what_they_read(spark, tables):
    text = """
        select g.label, s.total from groups g join (select k, sum(id) total from sales group by k) s on g.k = s.k
        where s.total > (select avg(id) from sales)"""
    before = spark.conf.get("spark.sql.adaptive.enabled"), spark.conf.get("spark.sql.shuffle.partitions")
    graph = create_stages(spark.sql(text), HarnessConfig(tasks=4))
    assert (spark.conf.get("spark.sql.adaptive.enabled"), spark.conf.get("spark.sql.shuffle.partitions")) == before
    assert [stage.stage_id for stage in graph.stages] == list(range(1, len(graph.stages) + 1))
    for stage in graph.stages:
        assert all(read.stage_id < stage.stage_id for read in stage.inputs)
    last = graph.stages[-1]
    assert last.partitioning == "result"
    assert any(read.reads_all for read in last.inputs)
    hashed = [stage for stage in graph.stages if stage.partitioning == "hash(4)"]
    assert len(hashed) == 1
    assert hashed[0].buckets == 4
    assert hashed[0].sources[0].startswith("Parquet ")
    assert "HashAggregate" in hashed[0].plan
    assert f"stage {last.stage_id}: {last.name}\n  tasks: 4, output: result" in str(graph)
    assert graph.tasks == sum(stage.tasks for stage in graph.stages)


CIRCLES = {
    "merge join with itself": "select /*+ merge(b) */ a.id, b.k from sales a join sales b on a.id = b.id",
    "cte": "with t as (select k, sum(id) s from sales group by k) select x.s, y.s from t x join t y on x.k = y.k + 1",
    "diamond": """with t as (select /*+ repartition(3, id) */ id, k from sales), u as (select k, count(*) n from t group by k)
        select /*+ merge(u) */ t.id, u.n from t join u on t.k = u.k""",
    "union": "with t as (select /*+ repartition(2) */ * from sales) select id from t union all select k from t",
    "broadcast of itself": """with t as (select /*+ repartition(3, id) */ id, k from sales)
        select /*+ broadcast(b) */ a.id, b.k from t a join t b on a.id = b.id""",
    "subqueries": """with t as (select /*+ repartition(3, id) */ id, k from sales)
        select id, (select max(id) from t), (select min(k) from t) from t order by id""",
    "cartesian": "select * from (select /*+ repartition(3, id) */ id from sales) a cross join (select /*+ repartition(2) */ k from groups) b",
    "window": "select id, k, sum(k) over (partition by k order by id) from (select /*+ repartition(3) */ id, k from sales)",
}
"""Queries in which a stage is read in several ways, or two are read in turn."""


@pytest.mark.parametrize(("name", "pinned"), some(itertools.product(CIRCLES, [True, False])))
def test_no_query_waits_in_a_circle_with_the_smallest_channels(spark, tables, name, pinned):
    conf = {"spark.sql.autoBroadcastJoinThreshold": "-1"} if pinned else {}
    assert_distributed_eq(spark.sql(CIRCLES[name]), dataclasses.replace(TINY, conf=conf, timeout_s=HANGS_S))


@pytest.mark.parametrize(
    "text",
    [
        "select id, name from sales order by name desc, id",
        "select /*+ repartition_by_range(4, id) */ id, k from sales",
        "select /*+ coalesce(2) */ id from (select /*+ repartition_by_range(5, name) */ * from sales)",
        "select id from nothing order by id",
    ],
)
def test_ranges_of_sorted_runs_with_the_smallest_channels(spark, tables, text):
    run = assert_distributed_eq(spark.sql(text), TINY)
    assert run.graph.stages[-2].partitioning == "sorted runs"
    assert run.graph.stages[-1].tasks > 1
    assert sum(task.rows > 0 for task in run.tasks_of(2)) == (len(run.tasks_of(2)) if run.rows else 0)


def test_ranges_of_sorted_runs_below_a_join_that_looks_at_all_partitions(spark, tables):
    text = """
        select /*+ broadcast(a) */ a.id, b.label from sales a full join (
            select /*+ coalesce(1) */ k, label from (select /*+ repartition_by_range(3, k) */ * from groups)
        ) b on a.k > b.k + 3"""
    run = assert_distributed_eq(spark.sql(text), TINY)
    assert "sorted runs" in {stage.partitioning for stage in run.graph.stages}
    assert "BroadcastNestedLoopJoin" in run.graph.stages[-1].plan


def test_views_functions_and_settings_of_the_session_count(spark, tables):
    spark.udf.register("plus_one", lambda x: x + 1, LongType())
    spark.range(5).createOrReplaceTempView("five")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        text = "select k, max(plus_one(id)), max(cast('2024-01-01' as timestamp)) from sales where k in (table five) group by k"
        run = assert_distributed_eq(spark.sql(text))
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert run.table.num_rows == 5
