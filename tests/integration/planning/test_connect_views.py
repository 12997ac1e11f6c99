"""Views of Spark Connect's sessions: what they were made of, and what becomes of them."""

from pathlib import Path

import pytest
from pyspark.sql.connect import functions as connect_functions
from pyspark.sql.connect import plan as plans

from tests.integration.planning.connect_client import ConnectClient, ConnectError
from tests.integration.planning.connect_frames import lazy
from tests.support.selection import some
from tests.support.spark.one_executor import OneExecutor, rows_of


def test_a_view_keeps_the_database_that_was_current_when_it_was_made(client: ConnectClient) -> None:
    client.sql("CREATE DATABASE shop")
    client.sql("USE shop")
    client.sql("CREATE TABLE sales (a INT) USING parquet")
    client.sql("CREATE TEMPORARY VIEW recent AS SELECT a + 1 AS b FROM sales")
    client.view("old", lazy(client, "SELECT * FROM sales"))
    client.sql("USE default")
    assert client.rows(lazy(client, "SELECT current_database()")) == [("default",)]
    assert client.rows(lazy(client, "SELECT b FROM recent UNION ALL SELECT a FROM old")) == []


def test_a_view_keeps_the_settings_under_which_it_was_made(client: ConnectClient) -> None:
    client.set("spark.sql.ansi.enabled", "false")
    client.sql("CREATE TEMPORARY VIEW lenient AS SELECT CAST('x' AS INT) AS n")
    client.set("spark.sql.ansi.enabled", "true")
    assert client.rows(lazy(client, "SELECT n FROM lenient")) == [(None,)]
    assert client.rows(lazy(client, "SELECT try_cast(n AS STRING), 5 FROM lenient")) == [(None, 5)]
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        client.rows(lazy(client, "SELECT CAST('x' AS INT)"))


def test_a_view_of_what_is_gone_is_an_error_only_for_who_reads_it(client: ConnectClient, tmp_path: Path) -> None:
    client.sql("CREATE TABLE sales (a INT) USING parquet")
    client.sql("CREATE TEMPORARY VIEW of_sales AS SELECT * FROM sales")
    client.sql("CREATE TEMPORARY VIEW fine AS SELECT 1 AS a")
    client.sql("DROP TABLE sales")
    assert client.rows(lazy(client, "SELECT * FROM fine")) == [(1,)]
    with pytest.raises(ConnectError, match="sales") as raised:
        client.schema(lazy(client, "SELECT * FROM of_sales"))
    assert raised.value.failure.error_class == "TABLE_OR_VIEW_NOT_FOUND"
    assert "`of_sales`" not in str(raised.value).partition("SQLSTATE")[0]
    client.view("of_sales", client.spark.range(1))
    assert client.rows(lazy(client, "SELECT * FROM of_sales")) == [(0,)]


def test_a_view_of_what_is_gone_can_be_seen_and_dropped(client: ConnectClient) -> None:
    client.sql("CREATE TABLE sales (a INT) USING parquet")
    for view in ("one", "two", "three", "four"):
        client.sql(f"CREATE TEMPORARY VIEW {view} AS SELECT * FROM sales")
    client.sql("DROP TABLE sales")
    client.sql("DROP VIEW one")
    client.sql("DROP TABLE four")
    client.drop("two")
    assert [entry.name for entry in client.stored.entries] == ["three"]
    assert [row[1] for row in client.rows(lazy(client, "SHOW VIEWS"))] == ["three"]


def test_a_view_that_is_replaced_again_and_again_is_one_command(client: ConnectClient) -> None:
    totals = lazy(client, "SELECT id % 7 AS v, sum(id) AS sum FROM range(9) AS sum GROUP BY v")
    for name in ("v", "sum", "v", "sum", "v"):
        client.view(name, totals.select("v", (totals["sum"] + 1).alias("sum")))
    assert [entry.name for entry in client.stored.entries] == ["sum", "v"]


def test_a_global_view_is_of_its_session(client: ConnectClient) -> None:
    client.view("seen", client.spark.range(1), is_global=True)
    client.view("reader", client.spark.table("global_temp.seen"))
    assert client.rows(client.spark.table("reader")) == [(0,)]
    client.call(plans.DropGlobalTempView("seen"))
    with pytest.raises(ConnectError) as raised:
        client.schema(client.spark.table("global_temp.seen"))
    assert raised.value.failure.error_class == "TABLE_OR_VIEW_NOT_FOUND"
    assert client.rows(client.spark.table("reader")) == [(0,)]


READERS = {
    "table": lambda client: client.spark.table("seen"),
    "statement": lambda client: lazy(client, "SELECT * FROM (SELECT 1) WHERE 1 IN (SELECT id FROM SEEN)"),
    "with": lambda client: lazy(client, "WITH x AS (SELECT * FROM seen) SELECT * FROM x"),
    "expression": lambda client: client.spark.range(1).selectExpr("(SELECT max(id) FROM `seen`) AS m"),
    "identifier": lambda client: lazy(client, "SELECT * FROM IDENTIFIER('se' || 'en')"),
    "function": lambda client: client.spark.range(1).select(
        connect_functions.call_function("f", connect_functions.lit(1))
    ),
    "function in a statement": lambda client: lazy(client, "SELECT f(1)"),
    "function in an expression": lambda client: client.spark.range(1).where("f(1) > 0"),
    "table function": lambda client: lazy(client, "SELECT * FROM g(1)"),
    "generator": lambda client: lazy(client, "SELECT i FROM (SELECT array(f(1)) AS a) LATERAL VIEW explode(a) t AS i"),
    "function of a function": lambda client: lazy(client, "SELECT h(1)"),
}


@pytest.mark.parametrize("name", some(READERS))
def test_what_a_view_was_made_of_stays_as_it_was_then(name: str, client: ConnectClient) -> None:
    client.view("seen", client.spark.range(1, 3))
    client.sql("CREATE TEMPORARY FUNCTION f (x INT) RETURNS INT RETURN x + 1")
    client.sql("CREATE TEMPORARY FUNCTION g (x INT) RETURNS TABLE (y INT) RETURN SELECT x + 1")
    client.sql("CREATE TEMPORARY FUNCTION h (x INT) RETURNS INT RETURN (SELECT max(id) FROM seen) + f(x)")
    client.view("reader", READERS[name](client))
    before = client.rows(client.spark.table("reader"))
    assert before
    client.view("seen", client.spark.range(0).selectExpr("'other' AS id"))
    for function in "hgf":
        client.sql(f"DROP TEMPORARY FUNCTION {function}")
    assert client.rows(client.spark.table("reader")) == before


def test_a_view_of_sql_reads_what_is_called_so_now(executor: OneExecutor, client: ConnectClient) -> None:
    plain = executor.spark.newSession()

    def both(text: str) -> None:
        client.sql(text)
        plain.sql(text)

    both("CREATE TEMPORARY VIEW base AS SELECT 1 AS a")
    both("CREATE TEMPORARY FUNCTION f (x INT) RETURNS INT RETURN x + (SELECT max(a) FROM base)")
    both("CREATE TEMPORARY VIEW middle AS SELECT a, f(a) AS b FROM base")
    both("CREATE TEMPORARY VIEW top AS SELECT * FROM middle")
    for text in (
        "CREATE OR REPLACE TEMPORARY VIEW base AS SELECT 10 AS a",
        "CREATE OR REPLACE TEMPORARY FUNCTION f (x INT) RETURNS INT RETURN -x",
    ):
        both(text)
        for view in ("top", "middle", "base"):
            assert client.rows(client.spark.table(view)) == rows_of(plain.table(view).toArrow())


@pytest.mark.parametrize("text", ["ALTER VIEW old RENAME TO new", "ALTER VIEW OLD AS SELECT 2 AS id"])
def test_a_temporary_view_is_not_altered(text: str, client: ConnectClient) -> None:
    client.view("old", client.spark.range(1))
    with pytest.raises(ConnectError, match="make it anew"):
        client.sql(text)
    assert client.rows(lazy(client, "SELECT * FROM old")) == [(0,)]


def test_a_view_of_itself_is_made_again_in_its_order(client: ConnectClient) -> None:
    client.view("v", client.spark.range(10))
    client.view("v", lazy(client, "SELECT * FROM v WHERE id > 3"))
    client.view("w", lazy(client, "SELECT count(*) AS n FROM v"))
    client.sql("DROP VIEW v")
    assert client.rows(lazy(client, "SELECT * FROM w")) == [(6,)]
    with pytest.raises(ConnectError) as raised:
        client.schema(lazy(client, "SELECT * FROM v"))
    assert raised.value.failure.error_class == "TABLE_OR_VIEW_NOT_FOUND"
