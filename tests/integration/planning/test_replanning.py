"""The rest of a query is planned again while it runs: what becomes of joins, and the rows, which stay the same."""

from dataclasses import replace
from pathlib import Path

import pytest

from onager.execution_graph import bytes_in_memory
from onager.executor.spark.planning import replan
from onager.executor.spark.planning.frames import Frame
from onager.protocol import onager_pb2 as pb
from tests.support.selection import IS_ALL, some
from tests.support.spark.adaptive_run import replans_of, run_adaptively
from tests.support.spark.one_executor import CUT, as_multiset, rows_of

QUERIES = Path(__file__).resolve().parents[3] / "benchmarks" / "tpch" / "queries"
ADAPTIVE = CUT | {"onager.adaptive": "on", "spark.sql.autoBroadcastJoinThreshold": "4k"}
FORCED = ADAPTIVE | {"onager.adaptive": "force"}
TABLES = {
    "orders": (20_000, "id as order_id, id % 97 as customer_id, concat('c', id) as comment, id % 7 as day"),
    "lines": (60_000, "id % 20000 as order_id, id as line, cast(id % 50 as double) as price, concat('l', id) as text"),
    "customers": (97, "id as customer_id, concat('name ', id) as name, id % 5 as nation"),
}
FEW = """
    select day, count(*) as n, sum(price) as p from orders join lines on orders.order_id = lines.order_id
    where comment like '%c777%' group by day order by day"""


@pytest.fixture(scope="module")
def shop(executor, tmp_path_factory):
    """Tables of which Spark cannot know how little a filter leaves."""
    root = tmp_path_factory.mktemp("shop")
    for name, (rows, columns) in TABLES.items():
        executor.spark.sql(f"select {columns} from range(0, {rows}, 1, 4)").write.parquet(str(root / name))
    return [pb.View(name=name, path=str(root / name)) for name in TABLES]


@pytest.fixture
def adapted(executor):
    """Run a query with re-plans, hold its rows against plain Spark's, and return how it ran."""

    def run(text, views, conf=ADAPTIVE, **how):
        outcome = executor.plan_sql(text, views=views, conf=conf)
        got, job = run_adaptively(executor, outcome, mode=conf["onager.adaptive"], **how)
        for view in views:
            executor.spark.read.parquet(view.path).createOrReplaceTempView(view.name)
        expected = rows_of(executor.spark.sql(text).toArrow())
        assert as_multiset(got) == as_multiset(expected), replans_of(job)
        return job

    return run


def test_a_side_that_turns_out_small_is_broadcast_and_the_others_exchange_is_dropped(adapted, shop):
    job = adapted(FEW, shop)
    (found,) = job.graph.replans
    assert found.is_taken, replans_of(job)
    assert found.why.startswith("stage 1 has 11 rows")
    assert found.decisions == ("sort-merge joins 1 → 0, broadcast joins 0 → 1, exchanges 3 → 2",)
    assert found.dropped == (2, 3, 4, 5)
    assert not job.graph.stages[2].ledger.wasted, "the other side was never begun"
    assert job.graph.stages[7].spec.name == "scan lines → broadcast join → partial aggregate"


def test_no_rows_make_the_rest_an_empty_relation(adapted, shop):
    job = adapted(FEW.replace("%c777%", "nothing like it"), shop)
    (found,) = job.graph.replans
    assert (found.is_taken, found.why) == (True, "stage 1 has no rows"), replans_of(job)
    assert [stage.spec.partitions for stage in job.graph.stages[7:]] == [0]


def test_nothing_is_planned_again_where_nothing_small_was_found(adapted, shop):
    assert not adapted(FEW.replace("%c777%", "%7%"), shop).graph.replans


def test_a_side_is_as_small_as_its_rows_are_in_memory(adapted, shop):
    """What compresses well is small as written, and nobody holds it as it is written."""
    text = """
        select sum(length(fat)), sum(price) from (
            select order_id, repeat(cast(day as string), 20000) as fat from orders where comment like '%c777%'
        ) join lines using (order_id)"""
    job = adapted(text, shop)
    assert not job.graph.replans, replans_of(job)
    stage = job.graph.stages[1]
    written, in_memory = stage.ledger.metrics.bytes_out, bytes_in_memory(stage)
    assert stage.ledger.metrics.rows_out == 11
    assert written < 4096 < 11 * 20_000 < in_memory
    forced = adapted(text, shop, FORCED)
    assert [each.bytes for each in forced.asked[0].begun if each.finished] == [in_memory]


PLANS = {
    "subqueries": """
        select day, count(*) from orders join lines using (order_id) where price > (select avg(price) from lines)
        group by day having count(*) > (select min(day) from orders)""",
    "union": """
        select k, count(*) as n from (select order_id as k from orders where comment like '%77%'
        union all select order_id from lines) group by k order by k limit 20""",
    "a reused exchange": """
        select count(*) from lines a join lines b on a.line = b.line join orders o on o.order_id = a.order_id
        where o.comment like '%c777%'""",
    "distinct aggregate": """
        select o.day, s.n, s.d from (select order_id, count(*) as n, count(distinct price) as d from lines
        group by order_id) s join orders o on o.order_id = s.order_id where o.comment like '%777%'""",
    "window": """
        select * from (select o.day, l.price, row_number() over (partition by o.day order by l.line) as r
        from orders o left join lines l on o.order_id = l.order_id where o.comment like '%77%') where r < 3""",
    "anti join": """
        select count(*), sum(price) from lines l
        where not exists (select 1 from orders o where o.order_id = l.order_id and comment like '%9%')""",
}
"""By name, queries whose rest is planned again."""


@pytest.mark.parametrize("name", some(PLANS, one_in=2))
def test_any_plan_gives_the_right_rows(adapted, shop, name):
    adapted(PLANS[name], shop)
    assert adapted(PLANS[name], shop, FORCED).graph.replans


@pytest.mark.parametrize("number", range(1, 23) if IS_ALL else (9, 18))
def test_tpch_by_sizes_that_are_made_up(adapted, tpch, number, tell):
    text = (QUERIES / f"q{number}.sql").read_text()
    job = adapted(text, tpch, FORCED | {"spark.sql.autoBroadcastJoinThreshold": "20k"}, slots=2)
    taken = sum(each.is_taken for each in job.graph.replans)
    tell(f"q{number}: {len(job.graph.replans)} re-plans, {taken} taken")


def test_a_frame_of_another_version_keeps_the_plan(executor, shop):
    outcome = executor.plan_sql(FEW, views=shop, conf=ADAPTIVE)
    (content,) = [blob.content for blob in outcome.blobs if blob.digest == outcome.frame_digest]
    frame = Frame.decoded(content)
    assert replace(frame, made_by="").encoded() == content
    other = content.replace(frame.made_by.encode(), b"?" * len(frame.made_by), 1)
    kept = replan(pb.ReplanTask(frame_digest="d"), executor.spark, {"d": other})
    assert not kept.stages
    assert "was planned by ???" in kept.decisions[0]
    with pytest.raises(ValueError, match="not a frame"):
        Frame.decoded(b"?")


def test_a_query_without_joins_keeps_no_frame_and_neither_does_one_that_does_not_adapt(executor, shop):
    assert executor.plan_sql(FEW, views=shop, conf=ADAPTIVE).frame_digest
    assert not executor.plan_sql(FEW, views=shop, conf=ADAPTIVE | {"onager.adaptive": "off"}).frame_digest
    assert not executor.plan_sql(FEW, views=shop, conf=ADAPTIVE | {"onager.exchange": "streaming"}).frame_digest
    plain = "select day, count(*) from orders group by day"
    assert not executor.plan_sql(plain, views=shop, conf=ADAPTIVE).frame_digest
