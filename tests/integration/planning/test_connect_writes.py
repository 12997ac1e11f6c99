"""Writers of DataFrames over Spark Connect, and statements with an action behind them, against plain Spark."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as classic_functions
from pyspark.sql.connect import functions as connect_functions

from onager.protocol import onager_pb2 as pb
from tests.connect_writes.calls import Call, Drawn
from tests.connect_writes.sides import Comparison, Side
from tests.integration.planning.catalogs import planned_with
from tests.integration.planning.connect_client import ConnectClient, ConnectError
from tests.support.selection import some
from tests.support.spark.one_executor import OneExecutor

CALLS: dict[str, str] = {
    "two columns of a name": """
        rows.write.parquet('{dir}/p')
        rows.withColumns({'k': F.lit(1)}).select('a', 'k', 'a').write.mode('overwrite').parquet('{dir}/p')
        rows.toDF('a', 'A', 'k').write.mode('overwrite').parquet('{dir}/p')
        rows.toDF('a', 'A', 'k').write.mode('overwrite').json('{dir}/p')
        rows.toDF('a', 'A', 'k').write.csv('{dir}/c')
        rows.toDF('a', 'k', 'K').write.mode('ignore').orc('{dir}/none')
        rows.toDF('a', 'A', 'k').write.saveAsTable('t')
        rows.toDF('a', 'A', 'k').writeTo('t').create()
        spark.sql('CREATE TABLE t AS SELECT 1 AS a, 2 AS A').show()
        spark.conf.set('spark.sql.caseSensitive', 'true')
        rows.toDF('a', 'A', 'k').write.mode('overwrite').parquet('{dir}/p')""",
    "columns that are not the table's": """
        rows.write.saveAsTable('t')
        rows.drop('b').write.mode('append').saveAsTable('t')
        rows.withColumn('c', F.lit(1)).write.mode('append').saveAsTable('t')
        rows.withColumnRenamed('b', 'c').write.mode('append').saveAsTable('t')
        rows.withColumn('b', F.array('a')).write.mode('append').saveAsTable('t')
        rows.select('k', 'b', 'a').write.mode('append').saveAsTable('t')
        rows.toDF('A', 'B', 'K').write.mode('append').saveAsTable('t')
        rows.select('k', 'b', 'a').write.insertInto('t')
        rows.drop('b').write.insertInto('t')""",
    "another format or place": """
        rows.write.saveAsTable('t')
        rows.write.format('orc').mode('append').saveAsTable('t')
        rows.write.mode('append').option('path', '{dir}/p').saveAsTable('t')
        rows.write.format('nosuch').mode('append').saveAsTable('t')""",
    "other partitions": """
        rows.write.partitionBy('k').saveAsTable('t')
        rows.write.mode('append').partitionBy('a').saveAsTable('t')
        rows.write.mode('append').saveAsTable('t')
        rows.write.mode('append').partitionBy('K').saveAsTable('t')
        rows.write.partitionBy('k').insertInto('t')
        rows.write.partitionBy('nope').mode('overwrite').parquet('{dir}/p')
        rows.write.partitionBy('a', 'b', 'k').parquet('{dir}/p')
        rows.write.partitionBy('nope').saveAsTable('u')""",
    "other buckets": """
        rows.write.bucketBy(2, 'a').sortBy('b').saveAsTable('t')
        rows.write.mode('append').saveAsTable('t')
        rows.write.mode('append').bucketBy(3, 'a').sortBy('b').saveAsTable('t')
        rows.write.mode('append').bucketBy(2, 'a').sortBy('b').saveAsTable('t')
        rows.write.bucketBy(2, 'a').insertInto('t')
        rows.write.sortBy('a').insertInto('t')
        rows.write.sortBy('a').saveAsTable('u')
        rows.write.sortBy('a').parquet('{dir}/p')
        rows.write.bucketBy(2, 'a').parquet('{dir}/p')""",
    "a dataset": """
        rows.where('a > 1').write.parquet('{dir}/p')
        rows.write.partitionBy('K').mode('overwrite').json('{dir}/p')
        rows.write.option('mergeSchema', 'true').option('nothing', '1').mode('overwrite').parquet('{dir}/p')""",
    "what is there already": """
        rows.write.saveAsTable('t')
        rows.write.saveAsTable('t')
        rows.write.mode('ignore').saveAsTable('t')
        rows.write.parquet('{dir}/p')
        rows.write.parquet('{dir}/p')
        rows.write.mode('ignore').parquet('{dir}/p')
        rows.write.mode('overwrite').option('path', '{dir}/p').saveAsTable('u')
        rows.withColumn('a', F.lit(5)).write.mode('overwrite').option('path', '{dir}/p').saveAsTable('u')
        spark.sql("DROP TABLE u").show()
        spark.sql("CREATE TABLE u LOCATION '{dir}/p' AS SELECT 1 AS a").show()
        spark.sql("CREATE VIEW v AS SELECT 1 AS a").show()
        rows.select('a').write.mode('append').saveAsTable('v')
        rows.select('a').write.insertInto('v')""",
    "nowhere": """
        rows.write.format('noop').mode('overwrite').save()
        rows.write.format('noop').save()
        rows.select(F.raise_error(F.lit('no'))).write.format('noop').mode('append').save()
        rows.write.format('parquet').save()
        rows.write.format('nosuch').save('{dir}/p')""",
    "the second writer": """
        rows.writeTo('t').using('parquet').partitionedBy(F.col('k')).tableProperty('p', '1').create()
        rows.writeTo('t').using('parquet').create()
        rows.writeTo('u').using('parquet').partitionedBy(F.years('k')).create()
        rows.writeTo('u').using('parquet').partitionedBy(F.col('nope')).create()""",
    "times": """
        spark.sql("SELECT TIME'12:00:00' AS a").show()
        spark.sql("SELECT array(TIME'12:00:00') AS a").write.parquet('{dir}/p')
        spark.sql("SELECT TIME'12:00:00' AS a").write.mode('overwrite').json('{dir}/p')
        spark.sql("SELECT TIME'12:00:00' AS a").write.saveAsTable('t')
        spark.sql("SELECT TIME'12:00:00' AS a").writeTo('t').create()
        spark.sql("CREATE TABLE u AS SELECT TIME'12:00:00' AS a").collect()
        spark.sql("CREATE TABLE v (a TIME) USING parquet").collect()
        spark.sql("CREATE TEMPORARY VIEW few AS SELECT TIME'12:00:00' AS a").collect()
        spark.sql("SELECT * FROM few").show()""",
    "statements": """
        spark.sql('CREATE TABLE t (a INT, k INT) USING parquet PARTITIONED BY (k)').show()
        spark.sql('INSERT INTO t VALUES (1, 2), (3, 4)').collect()
        spark.sql('SHOW PARTITIONS t').toPandas()
        spark.sql('INSERT OVERWRITE t PARTITION (k = 2) SELECT 9').count()
        spark.sql('CREATE TABLE u AS SELECT * FROM t').collect()
        spark.sql('DROP TABLE t').show()""",
}


@pytest.fixture
def client(executor: OneExecutor) -> Iterator[ConnectClient]:
    with planned_with(executor) as catalog:
        made = ConnectClient(executor, catalog)
        yield made
        made.close()


@pytest.fixture
def comparison(executor: OneExecutor, client: ConnectClient, tmp_path: Path) -> Iterator[Comparison]:
    plain = executor.spark.newSession()
    # This thread may still be in the group of a request that another test has cancelled.
    plain.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    made = Comparison(
        Side("Spark", plain, classic_functions, tmp_path / "Spark"),
        Side("Onager", client.spark, connect_functions, tmp_path / "Onager"),
    )
    yield made
    for name in ("t", "u", "v", "seen", "t1", "t2"):
        made.plain.forget(name)
    plain.sql("DROP DATABASE IF EXISTS shop CASCADE")


@pytest.mark.parametrize("name", some(CALLS, one_in=4))
def test_a_writer_does_what_it_does_in_plain_spark(name: str, comparison: Comparison) -> None:
    rows = "spark.sql(\"SELECT 1 AS a, 'x' AS b, 2 AS k\")"
    for text in CALLS[name].split("\n")[1:]:
        touched = [name for name in ("t", "u", "v") if re.search(rf"\b{name}\b", text)]
        touched += ["path:p"] if "/p'" in text else []
        what = "saveAsTable" if "'overwrite'" in text else ""
        call = Call(text.strip().replace("rows", rows), tuple(touched), what)
        assert not comparison.give(call), text
    assert not comparison.counts["refused"]


def test_a_second_writer_appends_to_tables_by_name_and_wants_every_column(client: ConnectClient) -> None:
    rows = client.spark.sql("SELECT 1 AS a, 'x' AS b, 2 AS k")
    rows.writeTo("t").using("parquet").partitionedBy(connect_functions.col("k")).create()
    rows.select("k", "b", "a").writeTo("t").append()
    rows.selectExpr("3 AS a", "'y' AS b", "2 AS k").writeTo("t").overwritePartitions()
    rows.selectExpr("3 AS a", "'y' AS b", "5 AS k").writeTo("t").overwritePartitions()
    assert sorted(map(tuple, client.spark.table("t").collect())) == [(3, "y", 2), (3, "y", 5)]
    for wrong, condition in (
        (rows.drop("b"), "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_FIND_DATA"),
        (rows.withColumn("c", connect_functions.lit(1)), "INSERT_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS"),
    ):
        for write in (wrong.writeTo("t").append, wrong.writeTo("t").overwritePartitions):
            with pytest.raises(AnalysisException) as raised:
                write()
            assert raised.value.getCondition() == condition
    rows.drop("b").writeTo("t").createOrReplace()
    assert client.spark.table("t").columns == ["a", "k"]
    rows.writeTo("t").replace()
    assert client.spark.table("t").columns == ["a", "b", "k"]
    with pytest.raises(AnalysisException) as raised:
        rows.writeTo("nowhere").replace()
    assert raised.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"


def test_an_overwrite_of_some_partitions_of_a_dataset_is_refused_and_keeps_all(
    client: ConnectClient, tmp_path: Path
) -> None:
    rows = client.spark.sql("SELECT 1 AS a, 2 AS k")
    client.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    rows.write.mode("overwrite").partitionBy("k").parquet(f"{tmp_path}/out")
    with pytest.raises(Exception, match="partitionOverwriteMode=static"):
        rows.selectExpr("a", "3 AS k").write.mode("overwrite").partitionBy("k").parquet(f"{tmp_path}/out")
    assert [each.name for each in (tmp_path / "out").glob("k=*")] == ["k=2"]


def evolving(writer: Any) -> Any:
    """Return *writer* with what PySpark's has no method for, and Spark's other clients do."""
    writer._write.with_schema_evolution = True
    return writer


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "clustered": (lambda rows: rows.write.clusterBy("k").saveAsTable("u"), "clusterBy"),
    "clustered, to append": (lambda rows: rows.write.mode("append").clusterBy("k").saveAsTable("t"), "clusterBy"),
    "clustered, to insert": (lambda rows: rows.write.clusterBy("k").insertInto("t"), "clusterBy"),
    "clustered, second writer": (lambda rows: rows.writeTo("u").clusterBy("k").create(), "clusterBy"),
    "by a condition": (lambda rows: rows.writeTo("t").overwrite(connect_functions.col("k") == 2), "by a condition"),
    "more columns, second writer": (
        lambda rows: evolving(rows.withColumnRenamed("a", "c").writeTo("t")).append(),
        "withSchemaEvolution",
    ),
    "no more columns, second writer": (lambda rows: evolving(rows.writeTo("t")).append(), "withSchemaEvolution"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_writer_does_not_do_is_refused_by_name_and_changes_nothing(name: str, client: ConnectClient) -> None:
    client.sql("CREATE TABLE t USING parquet AS SELECT 1 AS a, 2 AS k")
    write, words = REFUSED[name]
    with pytest.raises(ConnectError, match=words) as raised:
        write(client.spark.sql("SELECT 3 AS a, 2 AS k"))
    assert raised.value.getCondition() == "UNSUPPORTED_FEATURE"
    table = client.spark.table("t")
    assert (table.columns, list(map(tuple, table.collect()))) == (["a", "k"], [(1, 2)])
    assert [row.tableName for row in client.spark.sql("SHOW TABLES").collect()] == ["t"]


@pytest.mark.parametrize("seed", some(range(3)))
def test_drawn_calls_do_what_they_do_in_plain_spark(seed: int, comparison: Comparison) -> None:
    comparison.plain.spark.sql("CREATE DATABASE shop")
    comparison.ours.spark.sql("CREATE DATABASE shop")
    drawn = Drawn(seed)
    for _ in range(20):
        comparison.give(drawn.call())
    assert not comparison.differences
    assert comparison.counts["same"] > 10


@pytest.mark.parametrize(
    "text", ["INSERT OVERWRITE DIRECTORY '{out}' USING parquet SELECT id, id AS ID FROM range(3)", ""]
)
def test_two_columns_of_a_name_are_not_written_by_any_job(text: str, executor: OneExecutor, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sql = pb.SqlScript(text=text.replace("{out}", str(out)) or "SELECT id, id AS ID FROM range(3)")
    sink = None if text else pb.Sink(path=str(out), format="parquet")
    with pytest.raises(AnalysisException) as raised:
        executor.plan(pb.JobSpec(sql=sql, sink=sink))
    assert raised.value.getCondition() == "COLUMN_ALREADY_EXISTS"
    exact = pb.JobSpec(sql=sql, sink=sink, conf={"spark.sql.caseSensitive": "true"})
    assert executor.plan(exact).sink.path == str(out)
