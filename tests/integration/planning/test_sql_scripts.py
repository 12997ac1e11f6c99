"""Scripts of several statements: which are allowed before and as the last one, and the error messages."""
# ruff: noqa: E501  (a query reads best on one line)

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException

from onager.errors import InvalidSettingError, PlanningError, SideEffectError
from onager.executor.spark.failures import from_exception
from onager.executor.spark.planning.statements import Statement, parse
from onager.protocol import onager_pb2 as pb


def test_session_statements_before_the_query(executor, tables):
    script = """
-- a comment; with a semicolon
SET spark.sql.ansi.enabled=true; SET TIME ZONE 'America/New_York';
CREATE OR REPLACE TEMP VIEW few AS SELECT * FROM groups WHERE label <> 'a;b' /* ; */ AND k < 3;
CREATE TEMPORARY FUNCTION twice(x BIGINT) RETURNS BIGINT RETURN x * 2;
DECLARE VARIABLE most BIGINT DEFAULT 1; SET VAR most = 2;
CREATE TEMP VIEW gone AS SELECT 1; DROP VIEW gone;
CACHE TABLE groups; REFRESH TABLE groups; USE default; RESET spark.sql.ansi.enabled;
SELECT twice(k), ';', current_timezone() FROM few WHERE k <= most;;
"""
    outcome = executor.plan_sql(script, views=tables)
    assert sorted(executor.run(outcome)) == [(2 * k, ";", "America/New_York") for k in range(3)]


def test_nothing_of_a_job_is_seen_by_the_next(executor, tables):
    executor.plan_sql("create temp view mine as select 1; set spark.sql.caseSensitive=true; select * from mine")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        executor.plan_sql("select * from mine")
    assert executor.spark.conf.get("spark.sql.caseSensitive") == "false"


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t SELECT 1",
        "INSERT OVERWRITE DIRECTORY '/tmp/never' USING json SELECT 1",
        "CREATE TABLE t (a INT)",
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "CREATE GLOBAL TEMPORARY VIEW v AS SELECT 1",
        "CREATE FUNCTION f AS 'x.Y'",
        "CREATE DATABASE d",
        "DROP TABLE t",
        "DROP VIEW not_a_temporary_one",
        "DROP FUNCTION f",
        "TRUNCATE TABLE t",
        "DELETE FROM t",
        "UPDATE t SET a = 1",
        "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE",
        "ALTER TABLE t RENAME TO u",
        "LOAD DATA INPATH 'x' INTO TABLE t",
        "ANALYZE TABLE t COMPUTE STATISTICS",
        "MSCK REPAIR TABLE t",
        "ADD JAR '/tmp/x.jar'",
        "CACHE TABLE c AS SELECT 1",
        "EXECUTE IMMEDIATE 'DROP TABLE t'",
        "EXPLAIN EXECUTE IMMEDIATE 'DROP TABLE t'",
        "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
        "WITH a AS (SELECT 1) INSERT INTO IDENTIFIER('t' || '') SELECT * FROM a",
        "CREATE FUNCTION IDENTIFIER('f' || '') AS 'a.B'",
        "CREATE GLOBAL TEMP VIEW IDENTIFIER('g' || '') AS SELECT 1",
        "DROP VIEW IDENTIFIER('not_a_temporary' || '_one')",
    ],
)
def test_a_statement_that_changes_something_is_refused_by_name_and_line(executor, statement):
    with pytest.raises(SideEffectError) as refused:
        executor.plan_sql(f"SET a=1;\n\n-- why\n{statement};\nSELECT 1")
    assert f"statement 2 (line 4): {statement[:60]}" in str(refused.value)
    assert "would change something while the job is planned" in str(refused.value)


@pytest.mark.parametrize("script", ["ADD JAR '/tmp/x.jar'", "ADD FILE '/tmp/x'; SELECT 1", "ADD ARCHIVE '/tmp/x.zip'"])
def test_what_all_jobs_would_share_is_refused_with_what_to_do_instead(executor, script):
    with pytest.raises(
        SideEffectError, match=r"give a jar to all executors \(--spark-conf spark.driver.extraClassPath"
    ):
        executor.plan_sql(script)


@pytest.mark.parametrize("explain", ["EXPLAIN", "EXPLAIN EXTENDED", "EXPLAIN EXPLAIN"])
def test_what_is_explained_is_not_run(executor, tmp_path, explain):
    text = f"{explain} EXECUTE IMMEDIATE \"INSERT OVERWRITE DIRECTORY '{tmp_path}/out' USING json SELECT 1\""
    with pytest.raises(SideEffectError, match=f"{explain} EXECUTE IMMEDIATE"):
        executor.plan_sql(text)
    with pytest.raises(SideEffectError, match=f"{explain} EXECUTE IMMEDIATE"):
        executor.plan_python(f"def query(spark):\n    return spark.sql({text!r})\n")
    assert not list(tmp_path.iterdir())


def test_a_temporary_view_that_an_expression_names(executor):
    assert executor.run(executor.plan_sql("CREATE TEMP VIEW IDENTIFIER('a' || 'b') AS SELECT 7; FROM ab")) == [(7,)]


@pytest.mark.parametrize(("case_sensitive", "dropped"), [("true", "Made"), ("false", "mADE")])
def test_a_temporary_view_is_dropped_by_its_name(executor, case_sensitive, dropped):
    made = f"SET spark.sql.caseSensitive={case_sensitive}; CREATE TEMP VIEW Made AS SELECT 1"
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        executor.plan_sql(f"{made}; DROP VIEW {dropped}; FROM Made")


def test_a_statement_is_looked_at_when_those_before_it_have_taken_effect(executor):
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        executor.plan_sql("CREATE TEMP VIEW broken AS SELECT * FROM nowhere; DROP TABLE t; SELECT 1")
    with pytest.raises(SideEffectError, match=r"statement 2 \(line 1\): DROP TABLE t"):
        executor.plan_sql("SET a=1; DROP TABLE t; CREATE TEMP VIEW broken AS SELECT * FROM nowhere; SELECT 1")
    with pytest.raises(SideEffectError, match=r"statement 2 \(line 1\): \$\{word\} TABLE t"):
        executor.plan_sql("SET word=DROP; ${word} TABLE t; SELECT 1")


def test_a_setting_of_onager_within_a_script_is_refused(executor):
    with pytest.raises(PlanningError, match=r"would have no effect: give onager\.fusion\.maxBytes with the job"):
        executor.plan_sql("SET onager.fusion.maxBytes=0; SELECT 1")


def test_a_view_that_a_script_names_by_other_means(executor, tables):
    by_variable = executor.plan_sql("SET t=gro; SELECT count(*) FROM ${t}ups", views=tables)
    assert executor.run(by_variable) == [(20,)]
    by_expression = executor.plan_sql("SELECT count(*) FROM IDENTIFIER('gro' || 'ups')", views=tables)
    assert executor.run(by_expression) == [(20,)]


@pytest.mark.parametrize(
    "last",
    [
        "INSERT INTO t SELECT 1",
        "CREATE TABLE t AS SELECT 1",
        "DROP TABLE t",
        "EXECUTE IMMEDIATE 'DROP TABLE t'",
        "CREATE FUNCTION IDENTIFIER('f' || '') AS 'a.B'",
        "WITH a AS (SELECT 1) INSERT INTO IDENTIFIER('t' || '') SELECT * FROM a",
        "FROM g INSERT OVERWRITE DIRECTORY '/a' USING json SELECT 1 INSERT OVERWRITE DIRECTORY '/b' USING json SELECT 2",
        "INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' STORED AS parquet SELECT 1",
    ],
)
def test_the_last_statement_gives_rows(executor, last):
    with pytest.raises(SideEffectError, match=r"the last one must be a query|USING parquet"):
        executor.plan_sql(last)


def test_a_script_without_a_query(executor):
    with pytest.raises(
        PlanningError, match=r"statement 2 \(line 1\): SET b=2 is the last statement, but it gives no rows"
    ):
        executor.plan_sql("SET a=1; SET b=2")
    with pytest.raises(PlanningError, match="no statement"):
        executor.plan_sql("-- nothing\n;;")


@pytest.mark.parametrize(
    "query", ["SELECT 1", "VALUES (1), (2)", "WITH a AS (SELECT 1) SELECT * FROM a", "FROM range(2)"]
)
def test_a_query_before_the_last_statement_is_refused(executor, query):
    with pytest.raises(PlanningError) as refused:
        executor.plan_sql(f"{query}; SELECT 2")
    assert f"statement 1 (line 1): {query} is a query, but not the last statement" in str(refused.value)


def test_a_path_that_is_not_there_is_reported_with_its_view(executor):
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND") as refused:
        executor.plan_sql("SELECT * FROM orders", views=[pb.View(name="orders", path="/nowhere/o.parquet")])
    (note,) = refused.value.__notes__
    assert note == "in view orders: executors read /nowhere/o.parquet on their own machines"


def test_a_script_with_control_flow_is_no_statement_among_others(executor):
    for script in (
        "BEGIN SELECT 1; SELECT 2; END",
        "begin\nend",
        "mine: BEGIN SELECT 1; END",
        "SET a=1; BEGIN SELECT 1; END",
    ):
        with pytest.raises(SideEffectError, match=r"a script with control flow \(BEGIN … END\)"):
            executor.plan_sql(script)
    assert executor.run(executor.plan_sql("SELECT begin FROM (SELECT 1 AS begin)")) == [(1,)]


def test_insert_overwrite_directory_becomes_a_sink(executor, tables, tmp_path):
    outcome = executor.plan_sql(
        f"WITH few AS (SELECT k FROM groups WHERE k < 5) "
        f"INSERT OVERWRITE DIRECTORY '{tmp_path}/out' USING csv OPTIONS (header 'true') SELECT * FROM few",
        views=tables,
    )
    assert (outcome.sink.path, outcome.sink.format, outcome.sink.mode) == (f"{tmp_path}/out", "csv", "overwrite")
    assert dict(outcome.sink.options) == {"header": "true"}
    assert not (tmp_path / "out").exists()
    kinds = [(stage.work, stage.output.kind) for stage in outcome.stages]
    assert kinds == [(pb.Work.QUERY, "sink")], "publishing is appended by the scheduler, the same for every job"


def test_two_sinks_are_refused(executor, tmp_path):
    script = f"INSERT OVERWRITE DIRECTORY '{tmp_path}/a' USING json SELECT 1"
    spec = pb.JobSpec(sql=pb.SqlScript(text=script), sink=pb.Sink(path=f"{tmp_path}/b", format="json"))
    with pytest.raises(PlanningError, match="has an output, too"):
        executor.plan(spec)


def test_a_sink_of_an_unknown_format_is_refused(executor, tmp_path):
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"), sink=pb.Sink(path=f"{tmp_path}/b", format="avro"))
    with pytest.raises(PlanningError, match="cannot be written as avro: give parquet, csv, json, orc, text, xml"):
        executor.plan(spec)


def test_errors_of_spark_keep_their_class_message_and_context(executor, tables):
    with pytest.raises(ParseException) as parse:
        executor.plan_sql("SET a=1;\nSELECT 1 +")
    assert parse.value.getCondition() == "PARSE_SYNTAX_ERROR"
    assert parse.value.__notes__ == ["in statement 2 (line 2): SELECT 1 +"]
    message = from_exception(executor.runner.kernel, parse.value).message
    assert "(line 2, pos 10)" in message
    assert "== SQL ==\nSELECT 1 +\n----------^^^" in message
    with pytest.raises(AnalysisException) as second:
        executor.plan_sql("SET a=1;\n\n  /* why */ SELECT nope\nFROM range(1)")
    assert "== SQL (line 3, position 20) ==" in second.value.getQueryContext()[0].summary()
    with pytest.raises(AnalysisException) as column:
        executor.plan_sql("SELECT nope FROM groups", views=tables)
    assert column.value.getCondition() == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert "nope" in column.value.getQueryContext()[0].fragment()
    with pytest.raises(AnalysisException) as path:
        executor.plan_sql("SELECT * FROM v", views=[pb.View(name="v", path="/no/such/dir.parquet")])
    assert path.value.getCondition() == "PATH_NOT_FOUND"


def test_five_megabytes_of_sql(executor):
    numbers = ",".join(str(n) for n in range(1_000))
    text = f"SELECT id, length('{'x' * 5_000_000}') AS n FROM range(3) WHERE id IN ({numbers})"
    outcome = executor.plan_sql(text)
    assert sorted(executor.run(outcome)) == [(n, 5_000_000) for n in range(3)]
    assert len(outcome.plan) < 100_000


def test_a_query_nested_too_deeply_fails_clearly(executor):
    text = "SELECT " + "(" * 1_500 + "1" + ")" * 1_500
    with pytest.raises((PlanningError, ParseException)) as failed:
        executor.plan_sql(text)
    assert "too deeply" in str(failed.value) or "FAILED_TO_PARSE_TOO_COMPLEX" in str(failed.value)


def test_a_statement_is_not_nested_too_deeply_for_what_it_says(executor):
    text = "SELECT 'java.lang.StackOverflowError'"
    statement = Statement(1, line=1, column=0, text=text, is_procedure=False, analyzed_from=0)
    with pytest.raises(Py4JJavaError):  # as where Spark's parser fails and quotes what it was given
        parse(lambda text: executor.spark._jvm.java.util.Objects.requireNonNull(None, text), statement)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("spark.sql.warehouse.dir", "/x", "fixed when Spark starts"),
        ("spark.executor.memory", "1g", "give it to the executors"),
        ("spark.sql.no.such.setting", "1", "Spark has no such setting"),
        ("spark.sql.shuffle.partitions", "many", "It should be a/an 'int' value"),
        ("onager.no.such", "1", "there is no such setting; a job knows onager.fusion.maxBytes"),
        ("onager.fusion.maxBytes", "lots", "give a number of bytes"),
        ("parquet.block.size", "1", "start with spark. or onager."),
    ],
)
def test_settings_that_a_job_cannot_make(executor, key, value, words):
    with pytest.raises(InvalidSettingError) as refused:
        executor.plan_sql("SELECT 1", conf={key: value})
    assert key in str(refused.value)
    assert words in str(refused.value)


def test_views_of_every_format_and_their_options(executor, tmp_path):
    (tmp_path / "semi.csv").write_text("a;b\n1;2\n")
    (tmp_path / "tabs.tsv").write_text("a\tb\n3\t4\n")
    (tmp_path / "lines.jsonl").write_text('{"a": 5, "b": 6}\n')
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "part-0.txt").write_text("seven\n")
    views = [
        pb.View(name="semi", path=f"{tmp_path}/semi.csv", options={"sep": ";"}),
        pb.View(name="tabs", path=f"{tmp_path}/tabs.tsv"),
        pb.View(name="lines", path=f"{tmp_path}/lines.jsonl"),
        pb.View(name="words", path=f"{tmp_path}/words"),
    ]
    text = "SELECT a + b FROM semi UNION ALL SELECT a + b FROM tabs UNION ALL SELECT a + b FROM lines"
    assert sorted(executor.run(executor.plan_sql(text, views=views))) == [(3,), (7,), (11,)]
    assert executor.run(executor.plan_sql("SELECT * FROM words", views=views)) == [("seven",)]
    with pytest.raises(PlanningError, match="does not tell the format of view odd"):
        executor.plan_sql("SELECT * FROM odd", views=[_odd(tmp_path)])


def _odd(tmp_path):
    (tmp_path / "odd").mkdir()
    return pb.View(name="odd", path=str(tmp_path / "odd"))
