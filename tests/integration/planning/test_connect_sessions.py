"""Sessions of Spark Connect, made anew for each request: what programs see is what plain Spark shows."""

import datetime as dt
import itertools
import re
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from py4j.protocol import MEMORY_COMMAND_NAME
from pyspark.errors import PySparkException
from pyspark.sql import functions as classic_functions
from pyspark.sql.connect import functions as connect_functions
from pyspark.sql.connect import plan as plans
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.proto import ExecutePlanResponse, FetchErrorDetailsResponse, Plan
from pyspark.sql.types import LongType, StructField, StructType

from onager.executor.spark.connect.requests import failure_of
from onager.executor.work import SparkLostError
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.connect_client import ConnectClient, ConnectError
from tests.integration.planning.connect_frames import Build, built, lazy
from tests.support.catalog import MemoryCatalog
from tests.support.selection import some
from tests.support.spark.one_executor import OneExecutor, as_multiset, rows_of

QUERIES: dict[str, Build] = {
    "aggregate": lambda spark, f: spark.range(100).groupBy((f.col("id") % 7).alias("k")).agg(f.sum("id").alias("s")),
    "join": lambda spark, _: spark.range(20).alias("a").join(spark.range(0, 40, 3).alias("b"), "id", "left"),
    "function": lambda spark, f: spark.range(5).select(f.udf(lambda x: x * 2, LongType())("id").alias("twice")),
    "statement": lambda spark, _: spark.sql("SELECT id % 2 AS k, collect_list(id) AS l FROM range(4) GROUP BY 1"),
    "nested": lambda spark, f: spark.range(2).select(
        f.struct("id", f.array(f.lit("x"))).alias("s"), f.map_from_arrays(f.array(f.lit(1)), f.array("id")).alias("m")
    ),
    "transpose": lambda spark, f: spark.range(2).select("id", (f.col("id") + 1).alias("v")).transpose(),
    "transpose by a column": lambda spark, f: spark.range(3).select((f.col("id") * 2).alias("v"), "id").transpose("id"),
    "nothing": lambda spark, _: spark.range(3).where("id > 5"),
}

MISTAKES: dict[str, Build] = {
    "column": lambda spark, _: spark.range(3).select("nope"),
    "table": lambda spark, _: spark.table("nowhere"),
    "types": lambda spark, _: spark.sql("SELECT array(1) + 1"),
    "syntax": lambda spark, _: spark.sql("SELEC 1"),
    "arguments": lambda spark, _: spark.sql("SELECT upper(1, 2)"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_rows_and_schemas_are_those_of_plain_spark(name: str, executor: OneExecutor, client: ConnectClient) -> None:
    frame, plain = built(client, QUERIES[name]), QUERIES[name](executor.spark, classic_functions)
    assert client.schema(frame) == plain.schema
    assert as_multiset(client.rows(frame)) == as_multiset(rows_of(plain.toArrow()))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_as_plain_spark_tells_it(name: str, executor: OneExecutor, client: ConnectClient) -> None:
    with pytest.raises(PySparkException) as plain:
        MISTAKES[name](executor.spark, classic_functions).collect()
    with pytest.raises(ConnectError) as raised:
        client.schema(built(client, MISTAKES[name]))
    check_reported(raised.value.failure, plain.value)


def test_a_mistake_in_a_command_is_reported_as_plain_spark_tells_it(
    executor: OneExecutor, client: ConnectClient
) -> None:
    text = "CREATE TEMPORARY VIEW wrong AS SELECT id, nope FROM range(3)"
    with pytest.raises(PySparkException) as plain:
        executor.spark.sql(text)
    with pytest.raises(ConnectError) as raised:
        client.sql(text)
    check_reported(raised.value.failure, plain.value)
    assert not client.stored.entries
    with pytest.raises(ConnectError) as raised:
        client.view("wrong", client.spark.range(3).select("nope"))
    assert raised.value.failure.error_class == plain.value.getCondition()


def check_reported(failure: pb.ConnectFailure, error: PySparkException) -> None:
    assert (failure.error_class, failure.sql_state) == (error.getCondition(), error.getSqlState())
    details = FetchErrorDetailsResponse.FromString(failure.details)
    cause = details.errors[details.root_error_idx]
    assert cause.spark_throwable.error_class == error.getCondition()
    assert cause.spark_throwable.message_parameters == error.getMessageParameters()
    # Where a program of plain PySpark calls is known only in its own process.
    expected = [context for context in error.getQueryContext() if context.contextType().name == "SQL"]
    assert [(c.start_index, c.stop_index, c.fragment) for c in cause.spark_throwable.query_contexts] == [
        (c.startIndex(), c.stopIndex(), c.fragment()) for c in expected
    ]
    assert cause.stack_trace


def test_calls_of_the_catalog_change_it_as_statements_do(client: ConnectClient, tmp_path: Path) -> None:
    schema = StructType([StructField("a b", LongType(), nullable=False, metadata={"comment": "it's"})])
    client.call(plans.CreateDatabase("shop", if_not_exists=True, properties={"comment": "it's", "k": "v"}))
    client.call(
        plans.CreateTable("shop.sales", path=None, source="csv", schema=schema, description="d", options={"sep": "'"})
    )
    client.call(
        plans.CreateTable("files", path=str(tmp_path), source="parquet", schema=schema, description="", options={})
    )
    assert client.rows(lazy(client, "SHOW TABLES IN shop")) == [("shop", "sales", False)]
    created = client.rows(lazy(client, "SHOW CREATE TABLE shop.sales"))[0][0]
    assert "`a b` BIGINT COMMENT 'it\\'s'" in created
    assert "USING csv" in created
    assert "COMMENT 'd'" in created
    assert client.rows(lazy(client, "SELECT * FROM files")) == []
    client.call(plans.AnalyzeTable("files", no_scan=True))
    client.call(plans.TruncateTable("shop.sales"))
    client.view("mine", client.spark.range(1))
    client.call(plans.DropView("mine", if_exists=False))
    assert not client.stored.entries
    client.call(plans.DropTable("files", if_exists=False, purge=False))
    client.call(plans.DropTable("files", if_exists=True, purge=True))
    client.call(plans.DropDatabase("shop", if_exists=False, cascade=True))
    assert [row[0] for row in client.rows(lazy(client, "SHOW DATABASES"))] == ["default"]
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        client.call(plans.DropTable("files", if_exists=False, purge=False))


def test_what_is_cached_is_known_to_who_asks(client: ConnectClient) -> None:
    def is_cached(name: str) -> bool:
        (response,) = [each for each in client.call(plans.IsCached(name)) if each.HasField("arrow_batch")]
        return bool(pa.ipc.open_stream(response.arrow_batch.data).read_all()[0][0].as_py())

    client.sql("CREATE TABLE sales (a INT) USING parquet")
    client.call(plans.CacheTable("sales"))
    client.sql("CACHE TABLE default.sales")
    assert is_cached("spark_catalog.default.sales")
    assert len(client.stored.entries) == 1
    assert client.rows(client.spark.table("sales")) == []
    client.call(plans.UncacheTable("SALES"))
    assert not client.stored.entries
    assert not is_cached("sales")
    client.sql("CACHE LAZY TABLE sales")
    client.call(plans.ClearCache())
    assert not client.stored.entries
    with pytest.raises(ConnectError) as raised:
        client.call(plans.CacheTable("absent"))
    assert raised.value.failure.error_class == "TABLE_OR_VIEW_NOT_FOUND"


def test_the_defaults_of_all_settings_are_reported_in_a_few_calls_of_the_jvm(
    executor: OneExecutor, client: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    jvm = executor.spark._sc._gateway._gateway_client
    send = jvm.send_command

    def counted(command: str, *at: Any, **how: Any) -> Any:
        if not command.startswith(MEMORY_COMMAND_NAME):  # Python's garbage collector gives back objects at any time
            calls.append(command)
        return send(command, *at, **how)

    monkeypatch.setattr(jvm, "send_command", counted)
    defaults = client.defaults()
    # The second time: the first one also looks up classes.
    before = len(calls)
    assert client.defaults() == defaults
    assert len(calls) - before < 50
    plain = executor.spark.newSession().conf
    assert len(defaults.conf) > 300
    for key, value in defaults.conf.items():
        assert (value, key in defaults.fixed) == (plain.get(key), not plain.isModifiable(key)), key


def test_what_a_jvm_that_is_lost_would_say_is_no_error_of_the_client(
    client: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(client._requests, "_within", refused)
    with pytest.raises(SparkLostError):
        client.schema(client.spark.range(3))


def test_advice_of_spark_that_does_not_help_here_is_followed_by_advice_that_does(
    executor: OneExecutor, tmp_path: Path
) -> None:
    (tmp_path / "rows.json").write_text("{")
    frame = executor.spark.read.schema("a INT, _corrupt_record STRING").json(str(tmp_path)).select("_corrupt_record")
    with pytest.raises(PySparkException) as raised:
        frame.collect()
    failure = failure_of(executor.spark, raised.value)
    details = FetchErrorDetailsResponse.FromString(failure.details)
    of_task = executor.runner.kernel.describe(raised.value._origin)
    for message in (failure.message, details.errors[details.root_error_idx].message, of_task["message"]):
        assert "cache() keeps no rows: call checkpoint()" in message


NOT_DONE = {
    "MERGE INTO t USING (SELECT 1 AS a) s ON t.a = s.a WHEN MATCHED THEN DELETE": "rows of a table are not changed",
    "UPDATE t SET a = 2": "rows of a table are not changed",
    "DELETE FROM t WHERE a = 1": "rows of a table are not changed",
    "CREATE OR REPLACE TABLE t AS SELECT 2 AS a": "DROP TABLE",
    "CREATE OR REPLACE TABLE t (b INT) USING parquet": "DROP TABLE",
    "REPLACE TABLE t AS SELECT 2 AS a": "DROP TABLE",
}


@pytest.mark.parametrize("text", NOT_DONE)
def test_a_statement_that_is_not_done_is_refused_as_such_and_changes_nothing(text: str, client: ConnectClient) -> None:
    client.sql("CREATE TABLE t USING parquet AS SELECT 1 AS a")
    with pytest.raises(ConnectError, match=NOT_DONE[text]) as raised:
        client.spark.sql(text).collect()
    assert raised.value.getCondition() == "UNSUPPORTED_FEATURE"
    assert "would change something" not in str(raised.value)
    assert client.rows(lazy(client, "SELECT * FROM t")) == [(1,)]


TIMES = ("SELECT TIME'12:00:00'", "SELECT current_time()", "SELECT array(TIME'12:00:00')")


@pytest.mark.parametrize("text", TIMES)
def test_times_are_switched_on_by_their_setting_only(text: str, executor: OneExecutor, client: ConnectClient) -> None:
    with pytest.raises(PySparkException) as raised:
        client.rows(lazy(client, text))
    assert raised.value.getCondition() == "UNSUPPORTED_TIME_TYPE"
    client.set("spark.sql.timeType.enabled", "true")
    assert len(client.rows(lazy(client, text))) == 1


def test_every_setting_that_a_client_asks_for_is_known(client: ConnectClient) -> None:
    defaults, package = client.defaults(), Path(pyspark.__file__).parent
    asked: set[str] = set()
    for path in (package / "sql" / "connect").rglob("*.py"):
        asked.update(re.findall(r'"(spark\.(?:sql|connect)\.[\w.]*\w)"', path.read_text()))
    for path in package.glob("jars/connect-repl/spark-connect-client-j*.jar"):
        with zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                # A text in a class file: a byte 1, its length in two bytes, and it.
                asked.update(
                    re.findall(
                        r"\x01\x00.(spark\.(?:sql|connect)\.[\w.]*\w)", jar.read(name).decode("latin-1"), re.DOTALL
                    )
                )
    assert asked - {*defaults.conf, *defaults.known} == {"spark.connect.SparkConnectService", "spark.connect.remote"}
    assert defaults.conf["spark.connect.session.planCompression.threshold"] == "10485760"


def test_a_function_of_another_python_is_refused_by_both_versions(client: ConnectClient) -> None:
    plan = client._plan(client.spark.range(3).select(connect_functions.udf(lambda x: x, LongType())("id")))
    (function,) = plan.root.project.expressions
    function.common_inline_user_defined_function.python_udf.python_ver = "3.9"
    with pytest.raises(Exception, match=r"(?s)PYTHON_VERSION_MISMATCH.*3\.9"):
        client.rows(plan)


COMMANDS = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.sales (a INT, day DATE) USING parquet PARTITIONED BY (day)",
    "ALTER TABLE shop.sales ADD PARTITION (day = DATE'2026-01-01')",
    "SHOW PARTITIONS shop.sales",
    "ANALYZE TABLE shop.sales COMPUTE STATISTICS NOSCAN",
    "CREATE VIEW shop.seen AS SELECT a FROM shop.sales",
    "SHOW TABLES IN shop",
    "DESCRIBE shop.sales",
    "DROP VIEW shop.seen",
    "TRUNCATE TABLE shop.sales",
    "SET spark.sql.shuffle.partitions = 3",
    "CREATE TEMPORARY VIEW three AS SELECT * FROM range(3)",
    "SHOW VIEWS",
    "DROP VIEW three",
    "DROP DATABASE shop CASCADE",
)


def test_a_command_gives_the_dataframe_that_it_gives_in_plain_spark(
    executor: OneExecutor, client: ConnectClient
) -> None:
    # The client would otherwise make a DataFrame of the text, and carry the command out again with each action.
    spark = executor.spark.newSession()  # without the views of other tests
    for text in COMMANDS:
        (result,) = [answer.sql_command_result for answer in client.sql(text) if answer.HasField("sql_command_result")]
        frame = Plan(root=result.relation)
        plain = spark.sql(text)
        assert client.schema(frame) == plain.schema, text
        assert client.rows(frame) == rows_of(plain.toArrow()), text


def test_settings_of_onager_are_set_by_statements_too(client: ConnectClient) -> None:
    client.sql("SET onager.fusion.maxBytes = 1")
    assert dict(client.stored.conf) == {"onager.fusion.maxBytes": "1"}


def test_variables_of_programs_are_kept_by_the_names_that_they_give(client: ConnectClient) -> None:
    """pandas on Spark keeps its options so."""
    client.set("pandas_on_Spark.compute.max_rows", "1000")
    client.sql("SET report.day = 2026-03-01")
    kept = {"pandas_on_Spark.compute.max_rows": "1000", "report.day": "2026-03-01"}
    assert dict(client.stored.conf) == kept
    assert client.rows(lazy(client, "SELECT '${report.day}' AS day")) == [("2026-03-01",)]
    client.sql("RESET report.day")
    assert dict(client.stored.conf) == {"pandas_on_Spark.compute.max_rows": "1000"}
    with pytest.raises(ConnectError, match="a setting of executors"):
        client.spark.conf.set("fs.file.impl", "any.Class")


SHOWN: dict[str, Build] = {
    "aggregate": lambda spark, f: (
        spark.range(100).groupBy((f.col("id") % 7).alias("k")).agg(f.sum("id").alias("s")).orderBy("k")
    ),
    "few": lambda spark, f: (
        spark.range(3).select(f.lit("x" * 30).alias("a"), f.lit(None).alias("日本"), "id").orderBy("id")
    ),
    "none": lambda spark, _: spark.range(3).where("id > 5").orderBy("id"),
    "nested": lambda spark, f: (
        spark.range(2)
        .orderBy("id")
        .select(
            f.struct("id", f.array(f.lit(1.5), f.lit(None))).alias("s"),
            f.map_from_arrays(f.array(f.lit(1)), f.array("id")).alias("m"),
        )
    ),
    "twice": lambda spark, f: spark.range(2).orderBy("id").select("id", (f.col("id") + 1).alias("id")),
    "moments": lambda spark, f: (
        spark.range(2)
        .orderBy("id")
        .select(
            f.lit(dt.datetime(2026, 1, 31, 12, 0, tzinfo=dt.UTC)).alias("t"),
            f.lit(b"\x01a").alias("b"),
            f.lit(2).cast("decimal(9,3)").alias("d"),
        )
    ),
}


@pytest.mark.parametrize(("name", "max_bytes"), some(itertools.product(SHOWN, ["0", "64m"])))
def test_show_prints_what_plain_spark_prints(
    name: str, max_bytes: str, executor: OneExecutor, client: ConnectClient
) -> None:
    client.set("onager.fusion.maxBytes", max_bytes)
    frame, plain = built(client, SHOWN[name]), SHOWN[name](executor.spark, classic_functions)
    for rows, truncate, vertical in ((20, 20, False), (2, 0, False), (1, 5, True), (0, 3, False), (-1, 20, False)):
        show = plans.ShowString(child=frame._plan, num_rows=rows, truncate=truncate, vertical=vertical)
        expected = plain._jdf.showString(rows, truncate, vertical)
        assert client.rows(DataFrame(show, client.spark)) == [(expected,)]
        assert (client.stages > 1) == (max_bytes == "0")
    html = DataFrame(plans.HtmlString(child=frame._plan, num_rows=2, truncate=20), client.spark)
    assert client.rows(html) == [(plain._jdf.htmlString(2, 20),)]


@pytest.mark.parametrize("max_bytes", ["0", "64m"])
def test_what_a_query_observes_is_reported_with_its_end(max_bytes: str, client: ConnectClient) -> None:
    client.set("onager.fusion.maxBytes", max_bytes)
    numbers = client.spark.range(10).observe(
        "seen", connect_functions.sum("id").alias("s"), connect_functions.lit(None).alias("n")
    )
    assert len(client.rows(numbers.groupBy((numbers.id % 3).alias("k")).count())) == 3
    (seen,) = ExecutePlanResponse.FromString(client.observed).observed_metrics
    assert (seen.name, list(seen.keys), seen.values[0].long) == ("seen", ["s", "n"], 45)
    assert client.rows(client.spark.range(1)) == [(0,)]
    assert client.observed == b""


def test_a_function_that_was_dropped_is_gone_and_the_session_goes_on(client: ConnectClient) -> None:
    client.sql("CREATE TEMPORARY FUNCTION one_more (x INT) RETURNS INT RETURN x + 1")
    client.function("plus", lambda x: x + 10, LongType())
    assert client.rows(lazy(client, "SELECT one_more(1), plus(id) FROM range(1)")) == [(2, 10)]
    client.sql("DROP TEMPORARY FUNCTION one_more")
    client.sql("DROP TEMPORARY FUNCTION IF EXISTS never_made")
    assert [entry.name for entry in client.stored.entries] == ["plus"]
    assert client.rows(lazy(client, "SELECT plus(1)")) == [(11,)]
    with pytest.raises(ConnectError) as raised:
        client.schema(lazy(client, "SELECT one_more(1)"))
    assert raised.value.failure.error_class == "UNRESOLVED_ROUTINE"


def test_sessions_know_nothing_of_each_other(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    one, other = ConnectClient(executor, catalog), ConnectClient(executor, catalog)
    try:
        one.view("mine", one.spark.range(1))
        one.set("spark.sql.shuffle.partitions", "17")
        assert other.rows(lazy(other, "SELECT 1 WHERE 1 = 0")) == []
        with pytest.raises(ConnectError, match="mine"):
            other.schema(lazy(other, "SELECT * FROM mine"))
        assert not other.stored.conf
    finally:
        one.close()
        other.close()
