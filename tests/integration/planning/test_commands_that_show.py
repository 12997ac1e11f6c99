"""SHOW, DESCRIBE, EXPLAIN, LIST and SET without a value: queries like any other, which change nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from onager.errors import PlanningError
from onager.executor.spark.planning.statement_classes import SHOWING
from tests.support.spark.one_executor import OneExecutor

SHOWN: dict[str, tuple[str, str]] = {
    "DescribeColumn": ("DESCRIBE shown.pages k", "k"),
    "DescribeFunction": ("DESCRIBE FUNCTION abs", "Abs"),
    "DescribeNamespace": ("DESCRIBE DATABASE shown", "shown"),
    "DescribeQueryCommand": ("DESCRIBE QUERY SELECT 1 AS x", "x"),
    "DescribeRelation": ("DESCRIBE shown.pages", "part"),
    "DescribeTablePartition": ("DESCRIBE shown.pages PARTITION (part = 1)", "part"),
    "DescribeRelationJsonCommand": ("DESCRIBE EXTENDED shown.pages AS JSON", "pages"),
    "ExplainCommand": ("EXPLAIN EXTENDED SELECT k FROM shown.pages", "Physical Plan"),
    "ShowCatalogsCommand": ("SHOW CATALOGS", "spark_catalog"),
    "ShowCollationsCommand": ("SHOW COLLATIONS LIKE 'UTF8_LCASE'", "UTF8_LCASE"),
    "ShowColumns": ("SHOW COLUMNS IN shown.pages", "part"),
    "ShowCreateTable": ("SHOW CREATE TABLE shown.pages", "CREATE TABLE"),
    "ShowCurrentNamespaceCommand": ("SHOW CURRENT NAMESPACE", "default"),
    "ShowFunctions": ("SHOW FUNCTIONS LIKE 'abs'", "abs"),
    "ShowNamespacesCommand": ("SHOW DATABASES", "shown"),
    "ShowPartitions": ("SHOW PARTITIONS shown.pages", "part=1"),
    "ShowTableProperties": ("SHOW TBLPROPERTIES shown.pages", "colour"),
    "ShowTablePartition": ("SHOW TABLE EXTENDED IN shown LIKE 'pages' PARTITION (part = 1)", "pages"),
    "ShowTables": ("SHOW TABLES IN shown", "pages"),
    "ShowTablesExtended": ("SHOW TABLE EXTENDED IN shown LIKE 'pages'", "pages"),
    "ShowViews": ("CREATE TEMP VIEW own AS SELECT 1; SHOW VIEWS", "own"),
    "SetCommand": ("SET spark.sql.ansi.enabled", "spark.sql.ansi.enabled"),
}
"""By the parsed class of a statement: the statement, and a word in its output."""
WITHOUT_ROWS = {
    "ListArchivesCommand": "LIST ARCHIVES",
    "ListFilesCommand": "LIST FILES",
    "ListJarsCommand": "LIST JARS",
}
WITH_SPARKS_ERROR = {
    "DescribeProcedureCommand": ("DESCRIBE PROCEDURE shown.p", "UNRESOLVED_ROUTINE"),
    "ShowProceduresCommand": ("SHOW PROCEDURES", "PROCEDURE"),
}
"""Spark's own catalog has no procedures."""


@pytest.fixture(scope="module")
def pages(executor: OneExecutor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A table in the catalog that all sessions share, such as an executor's own settings may give it."""
    spark = executor.spark
    spark.sql("CREATE DATABASE shown")
    directory = tmp_path_factory.mktemp("pages")
    spark.sql(
        f"CREATE TABLE shown.pages (k INT, part INT) USING parquet PARTITIONED BY (part) "
        f"LOCATION '{directory}' TBLPROPERTIES (colour = 'red')"
    )
    spark.sql("INSERT INTO shown.pages VALUES (1, 1)")
    yield
    spark.sql("DROP DATABASE shown CASCADE")


def rows(executor: OneExecutor, script: str, **options: Any) -> list[tuple[Any, ...]]:
    return executor.run(executor.plan_sql(script, **options))


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.usefixtures("pages")
def test_a_command_that_shows_gives_rows(executor, name):
    script, word = SHOWN[name]
    got = rows(executor, script, conf={})
    assert word in repr(got)
    assert all(isinstance(row, tuple) for row in got)


def test_every_command_that_is_allowed_is_tried():
    assert {*SHOWN, *WITHOUT_ROWS, *WITH_SPARKS_ERROR} == SHOWING | {"SetCommand"}


@pytest.mark.parametrize("name", [*SHOWN, *WITHOUT_ROWS, *WITH_SPARKS_ERROR])
def test_statements_are_parsed_to_what_they_are_listed_under(executor, name):
    script = SHOWN.get(name, WITH_SPARKS_ERROR.get(name, (WITHOUT_ROWS.get(name, ""), "")))[0]
    last = script.rpartition("; ")[2]
    parsed = executor.spark._jsparkSession.sessionState().sqlParser().parsePlan(last)
    assert parsed.getClass().getSimpleName().removesuffix("$") == name


@pytest.mark.parametrize("statement", WITHOUT_ROWS.values())
def test_a_list_of_nothing_is_empty(executor, statement):
    assert rows(executor, statement) == []


@pytest.mark.parametrize(("statement", "word"), WITH_SPARKS_ERROR.values())
def test_what_a_catalog_does_not_have_is_reported_by_spark(executor, statement, word):
    with pytest.raises(Exception, match=word):
        executor.plan_sql(statement)


def test_show_tables_shows_the_views_of_the_job(executor, tables):
    names = {row[1] for row in rows(executor, "SHOW TABLES", views=tables, conf={})}
    assert {view.name for view in tables} <= names


def test_what_is_shown_may_be_cut_like_any_query(executor):
    outcome = executor.plan_sql("SHOW FUNCTIONS")
    assert [stage.name for stage in outcome.stages] == ["local rows"]
    assert len(executor.run(outcome)) > 300


def test_explaining_a_command_does_not_run_it(executor, tmp_path):
    text = f"EXPLAIN INSERT OVERWRITE DIRECTORY '{tmp_path}/never' USING json SELECT 1"
    assert "InsertIntoDataSourceDirCommand" in repr(rows(executor, text))
    assert not (tmp_path / "never").exists()


def test_a_command_that_shows_is_refused_before_the_last_statement(executor):
    with pytest.raises(PlanningError, match=r"SHOW TABLES is a query, but not the last statement"):
        executor.plan_sql("SHOW TABLES; SELECT 1")


def test_a_function_may_ask_and_return_what_is_shown(executor):
    source = """
def query(spark):
    spark.range(3).createOrReplaceTempView("three")
    assert [row.tableName for row in spark.sql("SHOW TABLES").collect()] == ["three"]
    return spark.sql("DESCRIBE three")
"""
    assert executor.run(executor.plan_python(source)) == [("id", "bigint", None)]
