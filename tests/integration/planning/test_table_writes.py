"""Statements that write tables: the rows that plain Spark writes, and the catalog, which changes with the job's end."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException

from onager.errors import CatalogConflictError, PlanningError, SinkError
from onager.executor.exchange import carry_out, held_partitions, plan_publish
from onager.ids import new_nonce
from onager.manifests import Manifest, TablePlaces
from onager.protocol import onager_pb2 as pb
from tests.support.catalog import MemoryCatalog
from tests.support.spark.one_executor import OneExecutor

MAKE = "CREATE TABLE p"


def plan(executor: OneExecutor, text: str) -> pb.PlanOutcome:
    return executor.plan(pb.JobSpec(sql=pb.SqlScript(text=text)))


def publish(outcome: pb.PlanOutcome, job_id: str, catalog: MemoryCatalog | None = None) -> TablePlaces | None:
    sink = pb.Sink(schema_json=outcome.schema_json)
    sink.MergeFrom(outcome.sink)
    held = held_partitions(catalog.read, sink.table) if sink.HasField("table") and catalog is not None else None
    manifest = plan_publish(job_id, sink, [outcome.fused_output], new_nonce(), held=held)
    carry_out(Manifest.from_bytes(manifest.to_bytes()))
    return manifest.table


def run(executor: OneExecutor, catalog: MemoryCatalog, *statements: str) -> None:
    """Run each statement as a job of its own, to its end."""
    for text in statements:
        outcome = plan(executor, text)
        written = publish(outcome, executor.job_id, catalog) if outcome.sink.path else None
        catalog.commit(outcome, written)


def rows(executor: OneExecutor, text: str) -> list[tuple]:
    return sorted(map(tuple, executor.run(plan(executor, text))), key=str)


def folder(catalog: MemoryCatalog, name: str) -> str:
    return str(catalog.table(name)["storage"]["location"]).removeprefix("file:").replace("///", "/")


@pytest.mark.parametrize("form", ["parquet", "orc", "csv", "json"])
def test_a_table_is_made_from_a_query_and_gets_more_and_other_rows(executor, catalog, form):
    run(executor, catalog, f"CREATE TABLE t USING {form} COMMENT 'of rows' AS SELECT id, string(id) AS s FROM range(3)")
    assert rows(executor, "SELECT * FROM t") == [(0, "0"), (1, "1"), (2, "2")]
    first = folder(catalog, "t")
    assert catalog.table("t")["comment"] == "of rows"
    run(executor, catalog, "INSERT INTO t VALUES (7, 'seven')", "INSERT INTO t (s, id) SELECT 'eight', 8")
    assert rows(executor, "SELECT * FROM t WHERE id > 2") == [(7, "seven"), (8, "eight")]
    assert folder(catalog, "t") == first
    run(executor, catalog, "INSERT OVERWRITE t SELECT 9, 'nine'")
    assert rows(executor, "SELECT * FROM t") == [(9, "nine")]
    assert folder(catalog, "t") != first
    assert list(Path(first).glob("part-*")), "who reads the old rows still finds them"


def test_folders_that_a_job_makes_and_those_that_it_replaces_are_reported(executor, catalog):
    made = plan(executor, "CREATE TABLE t AS SELECT 1 AS a")
    assert (list(made.catalog.folders_made), list(made.catalog.folders_retired)) == ([made.sink.path], [])
    publish(made, executor.job_id)
    catalog.commit(made)
    replaced = plan(executor, "INSERT OVERWRITE t SELECT 2")
    assert list(replaced.catalog.folders_made) == [replaced.sink.path]
    assert list(replaced.catalog.folders_retired) == [made.sink.path]
    publish(replaced, executor.job_id)
    catalog.commit(replaced)
    run(executor, catalog, "CREATE TABLE own (a INT) USING parquet LOCATION '/tmp/own-0123456789abcdef'")
    dropped = plan(executor, "DROP TABLE own; DROP TABLE t; CREATE TABLE u (a INT); DROP TABLE u")
    assert list(dropped.catalog.folders_retired) == [replaced.sink.path], "what has a place of its own stays"


def test_other_programs_read_what_was_written(executor, catalog):
    run(
        executor,
        catalog,
        "CREATE TABLE t OPTIONS (compression 'zstd') AS SELECT id, date'2026-01-31' AS d FROM range(5)",
    )
    table = ds.dataset(folder(catalog, "t"), format="parquet").to_table()
    assert (table.num_rows, table.column_names) == (5, ["id", "d"])
    assert executor.spark.read.parquet(folder(catalog, "t")).count() == 5
    assert list(Path(folder(catalog, "t")).glob("part-*.zstd.*"))


def test_nothing_is_there_before_the_job_ends(executor, catalog, tmp_path):
    outcome = plan(executor, "CREATE TABLE t AS SELECT 1 AS a")
    assert catalog.records == {}
    assert not Path(outcome.sink.path.removeprefix("file:")).exists()


def test_values_are_stored_as_spark_stores_them(executor, catalog):
    run(executor, catalog, "CREATE TABLE t (a TINYINT, b DECIMAL(5, 2) DEFAULT 1.5, c STRING) USING parquet")
    run(executor, catalog, "INSERT INTO t (a, c) VALUES (1, 'x')", "INSERT INTO t VALUES (2, 2.25, null)")
    assert [tuple(map(str, row)) for row in rows(executor, "SELECT * FROM t")] == [
        ("1", "1.50", "x"),
        ("2", "2.25", "None"),
    ]
    for wrong, why in (
        ("INSERT INTO t VALUES (1, 2)", "INSERT_COLUMN_ARITY_MISMATCH"),
        ("INSERT INTO t SELECT date'2026-01-31', 1, 'x'", "INCOMPATIBLE_DATA_FOR_TABLE"),
        ("INSERT INTO nowhere VALUES (1)", "TABLE_OR_VIEW_NOT_FOUND"),
        ("INSERT OVERWRITE t SELECT * FROM t", "UNSUPPORTED_OVERWRITE"),
        ("CREATE TABLE t AS SELECT 1 AS a", "TABLE_OR_VIEW_ALREADY_EXISTS"),
    ):
        with pytest.raises(AnalysisException, match=why):
            plan(executor, wrong)


def test_a_table_that_is_there_is_left_as_it_is(executor, catalog):
    run(executor, catalog, "CREATE TABLE t AS SELECT 1 AS a")
    outcome = plan(executor, "CREATE TABLE IF NOT EXISTS t AS SELECT 2 AS b")
    assert not outcome.sink.path
    assert not outcome.HasField("catalog")
    assert rows(executor, "SELECT * FROM t") == [(1,)]


def test_of_two_that_overwrite_the_second_gets_an_error(executor, catalog):
    run(executor, catalog, "CREATE TABLE t AS SELECT 0 AS a")
    first, second = (plan(executor, f"INSERT OVERWRITE t SELECT {n}") for n in (1, 2))
    assert first.sink.path != second.sink.path
    catalog.commit(first)
    with pytest.raises(CatalogConflictError, match=r"table default\.t"):
        catalog.commit(second)


def test_two_that_append_do_not_meet_and_neither_does_one_find_a_table_that_was_overwritten(executor, catalog):
    run(executor, catalog, "CREATE TABLE t AS SELECT 0 AS a", "ANALYZE TABLE t COMPUTE STATISTICS")
    assert "stats" in catalog.table("t")
    jobs = [(plan(executor, f"INSERT INTO t SELECT {n}"), executor.job_id) for n in (1, 2, 3)]
    for outcome, job_id in jobs[:2]:
        publish(outcome, job_id)
        catalog.commit(outcome)
    assert rows(executor, "SELECT a FROM t") == [(0,), (1,), (2,)]
    assert "stats" not in catalog.table("t"), "they were of other rows"
    run(executor, catalog, "INSERT OVERWRITE t SELECT 9")
    with pytest.raises(CatalogConflictError):
        catalog.commit(jobs[2][0])


def test_a_table_at_a_place_of_its_own_is_overwritten_there(executor, catalog, tmp_path):
    place = tmp_path / "place"
    run(executor, catalog, f"CREATE TABLE t (a INT) USING parquet LOCATION '{place}'")
    run(executor, catalog, "INSERT INTO t VALUES (1)", "INSERT OVERWRITE t VALUES (2)")
    assert rows(executor, "SELECT * FROM t") == [(2,)]
    assert Path(folder(catalog, "t")) == place


def test_a_script_writes_into_a_table_that_it_has_made(executor, catalog):
    run(
        executor,
        catalog,
        "CREATE TABLE t (a INT) USING parquet; WITH w AS (SELECT 5 AS a) INSERT INTO t SELECT * FROM w",
    )
    assert rows(executor, "SELECT * FROM t") == [(5,)]


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("INSERT INTO parquet.`/tmp/nowhere` SELECT 1", (AnalysisException, IllegalArgumentException), "parquet"),
        (f"{MAKE} USING binaryFile AS SELECT 'a' AS a", PlanningError, "cannot be written as binaryfile"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(executor, catalog, text, error, why):
    with pytest.raises(error, match=why):
        plan(executor, text)
    assert catalog.records == {}


def test_an_output_without_a_table_stays_out_of_the_folders_of_tables(executor, catalog, tmp_path):
    database = tmp_path / "sales"
    run(
        executor,
        catalog,
        f"CREATE DATABASE sales LOCATION '{database}'",
        "CREATE TABLE sales.p (v INT, d STRING) USING parquet PARTITIONED BY (d)",
        "INSERT INTO sales.p VALUES (1, 'a'), (2, 'b')",
    )
    (table,) = database.glob("p-*")
    places = {
        table: ("overwrite", "append"),
        table / "d=a": ("overwrite", "append"),
        table / "d=c": ("error",),
        database: ("overwrite", "append"),
    }
    query = "SELECT 1 AS v"
    for place, modes in places.items():
        jobs = [pb.JobSpec(sql=pb.SqlScript(text=query), sink=pb.Sink(path=str(place), mode=mode)) for mode in modes]
        text = f"INSERT OVERWRITE DIRECTORY '{place}' USING parquet {query}"
        for spec in (*jobs, pb.JobSpec(sql=pb.SqlScript(text=text))):
            spec.sink.format = "parquet" if spec.sink.path else ""
            with pytest.raises(SinkError, match=rf"{table.name}.*--conf onager\.overwrite\.anything=true"):
                executor.plan(spec)
            spec.conf["onager.overwrite.anything"] = "true"
            assert executor.plan(spec).sink.path == str(place)
    assert rows(executor, "SELECT v FROM sales.p") == [(1,), (2,)]
    beside = pb.Sink(path=str(database / "out"), format="parquet", mode="overwrite")
    assert executor.plan(pb.JobSpec(sql=pb.SqlScript(text=query), sink=beside)).sink.path == beside.path
