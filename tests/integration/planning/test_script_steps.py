"""Scripts with several effects: how they become steps, what a step runs, and values that are bound to places."""

import json

import pytest
from google.protobuf import json_format
from pyspark.errors import AnalysisException, ParseException

from onager.errors import PlanningError, SideEffectError
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.catalogs import planned_with
from tests.integration.planning.test_table_writes import run

MAKE = "CREATE TABLE t (v INT, k INT) USING parquet PARTITIONED BY (k)"
SCRIPT = """\
SET spark.sql.ansi.enabled=true;
CREATE TEMP VIEW few AS SELECT id FROM range(3);
INSERT OVERWRITE DIRECTORY '{out}/a' USING parquet SELECT * FROM few;
SET spark.sql.ansi.enabled=false;
CREATE TEMP VIEW again AS SELECT * FROM parquet.`{out}/a`;
DROP VIEW few;
WITH w AS (SELECT count(*) AS n FROM again)
INSERT OVERWRITE DIRECTORY '{out}/b' USING json SELECT * FROM w;
SELECT * FROM json.`{out}/b`"""


def split(executor, text, **fields):
    """Return the steps of a script: their names, and the statements that each runs."""
    outcome = executor.plan(pb.JobSpec(sql=pb.SqlScript(text=text), **fields), may_step=True)
    blobs = {blob.digest: json.loads(blob.content) for blob in outcome.blobs}
    assert all(stage.work == pb.STEP for stage in outcome.stages)
    assert [[i.stage_id for i in stage.inputs] for stage in outcome.stages] == [
        [] if n == 1 else [n - 1] for n in range(1, len(outcome.stages) + 1)
    ]
    return [(stage.name, blobs[stage.plan_digest]) for stage in outcome.stages]


def test_each_effect_is_a_step_that_runs_the_session_statements_before_it(executor, tmp_path):
    steps = split(executor, SCRIPT.format(out=tmp_path))
    assert [(name, spec["sql"]["statements"]) for name, spec in steps] == [
        ("statement 3, line 3", [1, 2, 3]),
        ("statement 7, line 7", [1, 2, 4, 5, 6, 7]),
        ("statement 8, line 9", [1, 2, 4, 5, 6, 8]),
    ]
    assert list(tmp_path.iterdir()) == [], "nothing was done while the script was split"


def test_a_step_runs_its_own_effect_alone(executor, tmp_path):
    script = SCRIPT.format(out=tmp_path)
    outcome = executor.plan(pb.JobSpec(sql=pb.SqlScript(text=script, statements=[1, 2, 3])), may_step=True)
    assert outcome.sink.path == f"{tmp_path}/a"
    assert outcome.sink.mode == "overwrite"
    assert outcome.fused_output.rows == 3


def test_an_error_in_a_step_points_into_the_whole_script(executor, tmp_path):
    script = SCRIPT.format(out=tmp_path)
    with pytest.raises(AnalysisException) as raised:
        executor.plan(pb.JobSpec(sql=pb.SqlScript(text=script, statements=[1, 2, 4, 5, 6, 7])))
    assert "PATH_NOT_FOUND" in str(raised.value)
    assert any("statement 5 (line 5)" in note for note in raised.value.__notes__)


def test_an_effect_at_the_end_only_stays_one_job(executor, tmp_path):
    text = f"CREATE TEMP VIEW v AS SELECT 1 AS a; INSERT OVERWRITE DIRECTORY '{tmp_path}/o' USING csv SELECT * FROM v"
    outcome = executor.plan(pb.JobSpec(sql=pb.SqlScript(text=text)), may_step=True)
    assert outcome.sink.path == f"{tmp_path}/o"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRUNCATE TABLE t; INSERT INTO t VALUES (1, 2)", [[1], [2]]),
        ("CREATE TABLE u (a INT); ALTER TABLE t DROP PARTITION (k = 1); INSERT INTO t VALUES (1, 2)", [[1, 2], [3]]),
        (
            "SET a=1; INSERT INTO t VALUES (1, 2); ALTER TABLE t RENAME TO u; INSERT INTO u VALUES (3, 4)",
            [[1, 2], [1, 3], [1, 4]],
        ),
    ],
)
def test_what_moves_rows_is_a_step_of_its_own_before_a_table_is_written(executor, text, expected):
    with planned_with(executor) as catalog:
        run(
            executor,
            catalog,
            MAKE,
            "INSERT INTO t VALUES (1, 1)",
        )
        assert [spec["sql"]["statements"] for _, spec in split(executor, text)] == expected


def test_what_makes_a_table_and_fills_it_is_one_job(executor):
    with planned_with(executor):
        text = f"DROP TABLE IF EXISTS t; {MAKE}; INSERT INTO t VALUES (1, 2)"
        outcome = executor.plan(pb.JobSpec(sql=pb.SqlScript(text=text)), may_step=True)
        assert outcome.sink.table.key == "tables/default/t"


def test_a_script_may_end_without_rows(executor, tmp_path):
    text = f"INSERT OVERWRITE DIRECTORY '{tmp_path}/o' USING csv SELECT 1; SET spark.sql.shuffle.partitions=3"
    assert [name for name, _ in split(executor, text)] == ["statement 1, line 1"]


def test_the_output_of_the_job_is_that_of_the_query(executor, tmp_path):
    sink = pb.Sink(path=f"{tmp_path}/result", format="parquet", mode="error")
    steps = split(executor, SCRIPT.format(out=tmp_path), sink=sink)
    assert ["sink" in spec for _, spec in steps] == [False, False, True]
    text = f"INSERT OVERWRITE DIRECTORY '{tmp_path}/o' USING csv SELECT 1"
    with pytest.raises(PlanningError, match="gives no rows"):
        split(executor, f"{text};{text}", sink=sink)


@pytest.mark.parametrize(
    ("rest", "error", "why"),
    [
        ("SELECT 2; {insert}", PlanningError, r"statement 2 \(line 1\): SELECT 2 is a query, but not the last"),
        ("DROP TABLE t; {insert}", SideEffectError, r"statement 2 \(line 1\): DROP TABLE t"),
        ("EXPLAIN ANALYZE SELECT 1; {insert}", PlanningError, "is not the last one"),
        ("INSERT OVERWRITE DIRECTORY '/x' STORED AS orc SELECT 1; SELECT 1", SideEffectError, "STORED AS"),
        ("SELEC 1", ParseException, "PARSE_SYNTAX_ERROR"),
        ("SET onager.weight=3; {insert}", PlanningError, "would have no effect"),
    ],
)
def test_whatever_would_be_refused_is_refused_before_anything_is_done(executor, tmp_path, rest, error, why):
    insert = f"INSERT OVERWRITE DIRECTORY '{tmp_path}/o' USING csv SELECT 1"
    with pytest.raises(error, match=why):
        split(executor, f"{insert};{rest.format(insert=insert)}")


def test_settings_count_for_the_parser_of_later_statements(executor, tmp_path):
    insert = f"INSERT OVERWRITE DIRECTORY '{tmp_path}/o' USING csv"
    text = f"{insert} SELECT 1; SET spark.sql.ansi.doubleQuotedIdentifiers=true; SET spark.sql.ansi.enabled=true; "
    steps = split(executor, text + f'{insert} SELECT "a" FROM VALUES (1) AS t(a)')
    assert len(steps) == 2


TABLES = """\
CREATE DATABASE shop;
USE shop;
CREATE TABLE sales (id BIGINT) USING parquet LOCATION '{out}/sales';
INSERT OVERWRITE DIRECTORY '{out}/a' USING parquet SELECT * FROM sales;
CREATE TEMP VIEW v AS SELECT 1;
CREATE VIEW kept AS SELECT * FROM sales;
DROP VIEW v;
INSERT OVERWRITE DIRECTORY '{out}/b' USING parquet SELECT * FROM kept;
DROP VIEW kept;
SET spark.sql.shuffle.partitions=3"""


def test_changes_of_the_catalog_belong_to_the_step_that_comes_next(executor, tmp_path):
    with planned_with(executor) as catalog:
        steps = split(executor, TABLES.format(out=tmp_path))
        assert [(name, spec["sql"]["statements"]) for name, spec in steps] == [
            ("statement 4, line 4", [1, 2, 3, 4]),
            ("statement 8, line 8", [2, 5, 6, 7, 8]),
            ("statement 9, line 9", [2, 5, 7, 9]),
        ]
        assert catalog.records == {}, "splitting a script changes nothing"
        for _, spec in steps:
            sql = pb.SqlScript(text=TABLES.format(out=tmp_path), statements=spec["sql"]["statements"])
            outcome = executor.plan(pb.JobSpec(sql=sql))
            catalog.commit(outcome)
        assert sorted(catalog.records) == ["databases/shop", "tables/shop/sales"]


def test_a_statement_that_the_catalog_refuses_is_refused_before_the_first_effect(executor, tmp_path):
    effect = f"INSERT OVERWRITE DIRECTORY '{tmp_path}/o' USING csv SELECT 1"
    with planned_with(executor), pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        split(executor, f"CREATE TABLE nowhere.t (a INT) USING parquet; {effect}; {effect}")
    with planned_with(executor), pytest.raises(SideEffectError, match="does not carry out: read the files in a query"):
        split(executor, f"{effect}; LOAD DATA INPATH '/tmp/x' INTO TABLE t; {effect}")


VARIABLES = """\
DECLARE x DOUBLE;
SET VAR x = rand();
DECLARE t TIMESTAMP DEFAULT now();
DECLARE n INT;
SET VAR n = (SELECT count(*) FROM csv.`{out}/one.csv`);
INSERT OVERWRITE DIRECTORY '{out}/a' USING csv SELECT x, n;
SET VAR x = x + 1;
SELECT x, t, n"""


def test_what_gave_a_variable_its_value_is_not_run_again_in_a_step(executor, tmp_path):
    (tmp_path / "one.csv").write_text("1\n2\n3\n")
    text = VARIABLES.format(out=tmp_path)
    specs = [json_format.ParseDict(spec, pb.JobSpec()) for _, spec in split(executor, text)]
    assert [[each.number for each in spec.sql.settled] for spec in specs] == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 7]]
    (tmp_path / "one.csv").write_text("1\n")
    for spec in specs:
        spec.sql.text = text
    [once, again] = [executor.run(executor.plan(specs[1])) for _ in range(2)]
    assert once == again
    assert once[0][2] == 3
    assert specs[0].sql.settled[1].variables["x"] != specs[1].sql.settled[5].variables["x"]


@pytest.mark.parametrize("made", ["CREATE TEMP VIEW v AS SELECT 1 AS a", "SET some.key = 1"])
def test_a_variable_that_would_be_of_what_a_step_writes_is_refused(executor, tmp_path, made):
    effect = f"INSERT OVERWRITE DIRECTORY '{tmp_path}/o' USING csv SELECT 1"
    value = "SELECT a FROM v" if "v" in made.split() else f"SELECT count(*) FROM csv.`{tmp_path}`"
    with pytest.raises(SideEffectError, match=r"statement 4 \(line 1\).* reads a table, a view or files after"):
        split(executor, f"DECLARE x INT; {effect}; {made}; SET VAR x = ({value}); {effect}")


def test_too_many_statements_are_refused(executor, tmp_path, monkeypatch):
    monkeypatch.setattr("onager.executor.spark.planning.script_steps.MAX_STATEMENTS", 3)
    monkeypatch.setattr("onager.executor.spark.planning.script_steps.MAX_STEPS", 1)
    insert = f"INSERT OVERWRITE DIRECTORY '{tmp_path}/o' USING csv SELECT 1;"
    with pytest.raises(PlanningError, match="4 statements, and several effects"):
        split(executor, insert * 4)
    with pytest.raises(PlanningError, match="2 statements with effects, more than 1"):
        split(executor, insert * 2)


def value(kind, text="", name=""):
    return pb.SqlParameter(name=name, type=kind, value=text)


def bound(executor, text, *parameters):
    spec = pb.JobSpec(sql=pb.SqlScript(text=text, parameters=parameters), conf={"onager.fusion.maxBytes": "1g"})
    return executor.run(executor.plan(spec))


def test_values_are_bound_by_name_in_every_statement(executor):
    rows = bound(
        executor,
        "CREATE TEMP VIEW v AS SELECT id FROM range(10) WHERE id > :least;\nSELECT max(id), :who, :day, :none FROM v",
        value("bigint", "3", "least"),
        value("string", "'; DROP TABLE x; --", "who"),
        value("date", "2026-03-01", "day"),
        value("null", name="none"),
    )
    assert [[str(each) for each in row] for row in rows] == [["9", "'; DROP TABLE x; --", "2026-03-01", "None"]]


def test_values_are_bound_by_position(executor):
    rows = bound(
        executor, "SELECT ?, ?, ?", value("decimal(4,2)", "12.30"), value("boolean", "true"), value("double", "1.5")
    )
    assert [[str(each) for each in row] for row in rows] == [["12.30", "True", "1.5"]]


@pytest.mark.parametrize(
    ("text", "parameters", "why"),
    [
        ("SELECT :a", [value("bigint", "x", "a")], "'x', given for :a, is no bigint"),
        ("SELECT ?", [value("int) OR (1", "1")], "cannot be of the type"),
        ("SELECT :a, ?", [value("bigint", "1", "a"), value("bigint", "1")], "all of them names, or none"),
        ("SELECT :a", [value("bigint", "1", "a"), value("bigint", "2", "a")], "given twice"),
        ("SET a=1; SELECT ?", [value("bigint", "1")], "use names"),
    ],
)
def test_values_that_cannot_be_bound_are_refused(executor, text, parameters, why):
    with pytest.raises(PlanningError, match=why):
        bound(executor, text, *parameters)


def test_a_place_without_a_value_is_reported(executor):
    with pytest.raises(AnalysisException, match="UNBOUND_SQL_PARAMETER") as raised:
        bound(executor, "SELECT :a, :b", value("bigint", "1", "a"))
    assert "--param NAME=VALUE" in raised.value.__notes__[-1]


def test_a_place_without_a_value_is_reported_before_anything_has_an_effect(executor, tmp_path):
    with pytest.raises(AnalysisException, match="UNBOUND_SQL_PARAMETER") as raised:
        split(executor, f"INSERT OVERWRITE DIRECTORY '{tmp_path}/a' USING csv SELECT 1;\nSELECT :day")
    assert "statement 2 (line 2)" in "".join(raised.value.__notes__)
    assert "--param NAME=VALUE" in raised.value.__notes__[-1]
