"""A query that cannot be distributed runs as a single stage, and its plan says why."""

import sys

import pytest

from onager.errors import UnsupportedPlanError
from onager.executor.spark import leaves
from onager.executor.spark.planning import plan_job
from onager.executor.spark.planning.nodes import KNOWN
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.python_jobs import compare, source

RECURSION = """
with recursive t(n) as (select 1 union all select n + 1 from t where n < 5)
select t.n, count(*) from t join sales on t.n = sales.k group by t.n"""


def why(outcome):
    """Return why a query was not cut, as its only stage and its plan tell."""
    (stage,) = outcome.stages
    assert (stage.work, stage.partitions) == (pb.Work.QUERY, 1)
    assert outcome.HasField("fused_output")
    whole, _, reason = stage.name.partition(", because of ")
    assert whole == "whole query on one executor"
    for text in (stage.plan, outcome.plan):
        assert text.startswith(f"{stage.name}.\nTo distribute it: ")
    return reason


def test_a_recursion(check):
    outcome = check(RECURSION)
    assert why(outcome) == "UnionLoopExec in the physical plan"
    assert "write the recursion out" in outcome.plan
    assert "UnionLoop" in outcome.plan.partition("\n\n")[2], "the plan itself follows"


def test_whatever_it_reads(executor, tables):
    """A setting that cuts the smallest query does not keep this one from running whole."""
    outcome = executor.plan_sql(RECURSION, views=tables, conf={"onager.fusion.maxBytes": "0"})
    assert min(executor.run(outcome)) == (1, 43)


def test_into_a_dataset(executor, tables, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="json", mode="error")
    spec = pb.JobSpec(sql=pb.SqlScript(text=RECURSION), views=tables, sink=sink)
    spec.conf["onager.fusion.maxBytes"] = "0"
    outcome = executor.plan(spec)
    assert why(outcome) == "UnionLoopExec in the physical plan"
    assert outcome.stages[0].output.kind == "sink"
    assert len(outcome.fused_output.files) > 0


def test_an_operator_that_nobody_has_looked_at(check, monkeypatch):
    """The guard: an operator that is not in the table is not distributed."""
    text = "select id, explode(pair) from sales"
    assert not check(text).HasField("fused_output")
    monkeypatch.delitem(KNOWN, "GenerateExec")
    assert why(check(text)) == "GenerateExec in the physical plan"


def test_a_table_of_another_database(executor, tables):
    body = """
    url = 'jdbc:derby:memory:shop;create=true'
    database = spark._jvm.java.sql.DriverManager.getConnection(url)
    statement = database.createStatement()
    if not database.getMetaData().getTables(None, None, 'ITEMS', None).next():
        statement.execute('create table items (k int, label varchar(20))')
        statement.execute("insert into items values (1, 'one'), (2, 'two')")
    items = spark.read.format('jdbc').options(url=url, dbtable='items').load()
    return spark.table('sales').join(items, 'k').groupBy('label').count()"""
    assert why(compare(executor, tables, body)) == "RowDataSourceScanExec in the physical plan"


def test_a_table_that_lies_in_the_memory_of_one_process(executor, tables):
    body = """
    spark.table('groups')._jdf.persist()
    return spark.table('groups').groupBy('label').count()"""
    assert why(compare(executor, tables, body)) == "InMemoryTableScanExec in the physical plan"


def test_more_rows_of_the_planning_process_than_a_plan_carries(executor, tables, monkeypatch):
    body = "return spark.createDataFrame([(i, 'x' * 10) for i in range(100)], 'a int, b string').groupBy('b').count()"
    assert not compare(executor, tables, body).HasField("fused_output")
    monkeypatch.setattr(leaves, "LOCAL_ROWS_LIMIT_BYTES", 1000)
    assert "local data of more than" in why(compare(executor, tables, body))


def test_a_plan_too_large_for_a_message(executor, tables, monkeypatch):
    monkeypatch.setattr(sys.modules[plan_job.__module__], "MAX_PLAN_BYTES", 5000)
    rows = "[(i, str(hash(i * 7.3))) for i in range(900)]"
    body = f"return spark.createDataFrame({rows}, 'a int, b string').groupBy('b').count()"
    assert "more than the 5,000 that fit a message" in why(compare(executor, tables, body))


def test_a_broadcast_variable_of_a_function(executor, tables):
    body = """
    known = spark.sparkContext.broadcast({1: 'x'})
    def look_up(k):
        return known.value.get(k)
    return spark.table('sales').select('id', udf(look_up, 'string')('k').alias('v'))"""
    reason = why(compare(executor, tables, body))
    assert reason == "a broadcast variable in the Python function look_up"


def test_a_function_so_large_that_spark_makes_a_broadcast_variable_of_it(executor, tables):
    body = """
    import random
    table = [random.Random(7).randbytes(2 << 20)]
    def one(k):
        return table[0][k]
    return spark.table('sales').select('id', udf(one, 'int')('k').alias('v'))"""
    assert why(compare(executor, tables, body)) == "a broadcast variable in the Python function one"


def test_an_accumulator_of_a_function(executor, tables):
    body = """
    seen = spark.sparkContext.accumulator(0)
    def count(k):
        seen.add(1)
        return k
    return spark.table('sales').select(udf(count, 'long')('k').alias('v'))"""
    assert why(compare(executor, tables, body)) == "an accumulator in the Python function count"


def test_the_index_of_pandas_on_spark(executor, tables):
    body = """
    import warnings
    warnings.simplefilter('ignore')
    frame = spark.table('sales').select('id', 'k').coalesce(1).pandas_api()
    return frame.to_spark(index_col='place')"""
    reason = why(compare(executor, tables, body))
    assert reason == "AttachDistributedSequenceExec in the physical plan"


def test_a_plan_that_holds_a_broadcast_variable_of_sparks_own(executor, tables):
    """Spark's second interface for files keeps Hadoop's settings in one; elsewhere it would be another value."""
    body = "return spark.read.parquet(paths['sales']).groupBy('k').count()"
    outcome = compare(executor, tables, body, **{"spark.sql.sources.useV1SourceList": ""})
    assert why(outcome) == "org.apache.spark.broadcast.Broadcast, which cannot be sent to another process"


def test_barrier_mode_is_refused(executor, tables):
    body = """
    def same(frames):
        yield from frames
    return spark.table("groups").mapInPandas(same, "k long, label string", barrier=True)"""
    with pytest.raises(UnsupportedPlanError, match="barrier"):
        executor.plan_python(source(body), views=tables)
