"""Variables of SQL in sessions of Spark Connect: what programs see is what plain Spark shows."""

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.integration.planning.connect_client import ConnectClient, ConnectError
from tests.integration.planning.connect_frames import lazy
from tests.support.spark.one_executor import OneExecutor, rows_of

TYPES = (
    "true",
    "7Y",
    "-3",
    "9223372036854775807L",
    "CAST('NaN' AS DOUBLE)",
    "CAST(-0.0 AS FLOAT)",
    "1234567890123456789012345678.0123456789BD",
    "'it''s \\\\ a\\nline'",
    "'x' COLLATE UNICODE_CI",
    "X'007F'",
    "DATE'0001-01-01'",
    "TIMESTAMP'2026-03-29 02:30:00 Europe/Berlin'",
    "TIMESTAMP_NTZ'2026-03-29 02:30:00.123456'",
    "INTERVAL '1-2' YEAR TO MONTH",
    "INTERVAL '1 02:03:04.5' DAY TO SECOND",
    "make_interval(1, 2, 0, 3, 4, 5, 6.7)",
    "CAST(NULL AS STRUCT<a: INT>)",
    "array(1, NULL, 3)",
    "map('k', array(named_struct('a', 1BD, 'b', 'x')))",
    "parse_json('{\"a\": [1, null]}')",
)
SCRIPTS = {
    "declared": ["DECLARE x INT", "DECLARE VARIABLE y = 5", "SELECT x, y, y + 1, system.session.y, session.y"],
    "set": ["DECLARE x INT DEFAULT 5", "SET VAR x = x + 1", "SELECT x", "SET VAR x = DEFAULT", "SELECT x"],
    "set from a query": [
        "DECLARE a INT",
        "DECLARE b STRING",
        "SET VAR (a, b) = (SELECT max(id), 'z' FROM range(5))",
        "SELECT a, b",
        "SET VAR a = (SELECT id FROM range(0))",
        "SELECT a, b",
    ],
    "more than one row": ["DECLARE x INT", "SET VAR x = (SELECT id FROM range(2))", "SELECT x"],
    "replaced": [
        "DECLARE x INT DEFAULT 1",
        "DECLARE x STRING",
        "DECLARE OR REPLACE x STRING DEFAULT 'a'",
        "SELECT x",
    ],
    "dropped": [
        "DECLARE x INT DEFAULT 1",
        "DROP TEMPORARY VARIABLE x",
        "SELECT x",
        "DROP TEMPORARY VARIABLE x",
        "DROP TEMPORARY VARIABLE IF EXISTS x",
        "DECLARE x INT DEFAULT 2",
        "SELECT x",
    ],
    "another case": ["DECLARE Limit_ INT DEFAULT 3", "SELECT LIMIT_, `limit_`", "SET VAR lImIt_ = 4", "SELECT limit_"],
    "case counts": [
        "SET spark.sql.caseSensitive = true",
        "DECLARE x INT DEFAULT 1",
        "DECLARE X INT DEFAULT 2",
        "SELECT x, X",
        "DROP TEMPORARY VARIABLE x",
        "SELECT X",
        "SELECT x",
    ],
    "columns come first": [
        "DECLARE id INT DEFAULT 99",
        "SELECT id FROM range(2)",
        "SELECT id, session.id FROM range(1)",
    ],
    "a limit and a name": [
        "DECLARE n INT DEFAULT 2",
        "DECLARE what STRING DEFAULT 'nothing'",
        "CREATE TEMPORARY VIEW nothing AS SELECT 1 AS one",
        "SELECT id FROM range(10) LIMIT n",
        "SELECT * FROM IDENTIFIER(what)",
    ],
    "a view reads it anew": [
        "DECLARE x INT DEFAULT 1",
        "CREATE TEMPORARY VIEW v AS SELECT x AS a",
        "SELECT a FROM v",
        "SET VAR x = 2",
        "SELECT a FROM v",
        "DROP TEMPORARY VARIABLE x",
        "SELECT a FROM v",
    ],
    "a function reads it": [
        "DECLARE x INT DEFAULT 1",
        "CREATE TEMPORARY FUNCTION plus(n INT) RETURNS INT RETURN n + x",
        "SELECT plus(1)",
    ],
    "fields": ["DECLARE s = named_struct('a', 1, 'b', array(5, 6))", "SELECT s.a, s.b[1], session.s.a"],
    "types of a wrong value": ["DECLARE x INT", "SET VAR x = 'nope'", "SELECT x", "SET VAR nowhere = 1"],
    "time zones": [
        "SET spark.sql.session.timeZone = America/New_York",
        "DECLARE t = TIMESTAMP'2026-01-01 00:00:00'",
        "SET spark.sql.session.timeZone = UTC",
        "SELECT CAST(t AS STRING)",
    ],
} | {
    f"type of {literal}": [f"DECLARE x = {literal}", "SELECT CAST(x AS STRING), typeof(x), x IS NULL"]
    for literal in TYPES
}


def plainly(spark, statement):
    frame = spark.sql(statement)
    return rows_of(frame.toArrow()) if statement.startswith("SELECT") else []


def over_connect(client, statement):
    if statement.startswith("SELECT"):
        return client.rows(lazy(client, statement))
    client.sql(statement)
    return []


def outcome(run, *arguments):
    try:
        return run(*arguments)
    except PySparkException as error:
        return error.getCondition()
    except Py4JJavaError as error:
        return error.java_exception.getCondition()
    except ConnectError as error:
        return error.failure.error_class


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_statement_gives_what_plain_spark_gives(name: str, executor: OneExecutor, client: ConnectClient) -> None:
    spark = executor.spark.newSession()
    for statement in SCRIPTS[name]:
        expected = outcome(plainly, spark, statement)
        assert repr(outcome(over_connect, client, statement)) == repr(expected), statement


def test_what_gave_a_value_is_not_run_again(client: ConnectClient) -> None:
    client.sql("DECLARE x DOUBLE")
    client.sql("SET VAR x = rand()")
    client.sql("DECLARE t TIMESTAMP DEFAULT now()")
    client.sql("CREATE TABLE sales AS SELECT 1 AS a")
    client.sql("DECLARE n INT")
    client.sql("SET VAR n = (SELECT count(*) FROM sales)")
    first = client.rows(lazy(client, "SELECT x, t, n"))
    client.sql("DROP TABLE sales")
    assert client.rows(lazy(client, "SELECT x, t, n")) == first
    client.sql("SET VAR x = rand()")
    assert client.rows(lazy(client, "SELECT x, t, n")) != first


def test_a_view_of_a_frame_keeps_the_value_that_it_was_made_of(client: ConnectClient) -> None:
    client.sql("DECLARE x INT DEFAULT 1")
    client.view("fixed", client.spark.range(1).select("x"))
    client.sql("SET VAR x = 2")
    assert client.rows(client.spark.table("fixed").join(client.spark.range(1).selectExpr("x AS y"))) == [(1, 2)]
    client.sql("DROP TEMPORARY VARIABLE x")
    assert client.rows(client.spark.table("fixed")) == [(1,)]
    with pytest.raises(ConnectError, match="UNRESOLVED_COLUMN"):
        client.schema(client.spark.range(1).select("x"))


def test_a_variable_that_is_set_again_and_again_is_one_entry(client: ConnectClient) -> None:
    client.sql("DECLARE x INT DEFAULT 1")
    for number in range(5):
        client.sql(f"SET VAR x = {number}")
    client.sql("SET VAR x = 4")
    assert [(entry.kind, entry.name) for entry in client.stored.entries] == [("variable", "x")]
    client.sql("DROP TEMPORARY VARIABLE x")
    assert not client.stored.entries
