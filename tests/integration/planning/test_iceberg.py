"""Tables of an Iceberg catalog: read as PyIceberg has written them, and written so that PyIceberg reads them."""

import datetime as dt
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, UUIDType
from pyspark.errors import AnalysisException, IllegalArgumentException

from onager.errors import CatalogUnavailableError, PlanningError, SideEffectError, SinkError
from onager.executor.exchange import carry_out, plan_publish
from onager.executor.foreign import ForeignTables, parse_catalog
from onager.ids import new_nonce
from onager.manifests import Manifest
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.catalogs import planned_with
from tests.support.spark.one_executor import CUT, FOREIGN, OneExecutor
from tests.support.waiting import until

NEW = "INSERT INTO ice.shop.sales (id) VALUES (9)"
PART = "INSERT OVERWRITE ice.shop.sales PARTITION"
DYNAMIC = "SET spark.sql.sources.partitionOverwriteMode = dynamic; INSERT OVERWRITE ice.shop.sales (id, country)"
SALES = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "country": ["DE", "FR", None],
        "amount": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(10, 2)),
        "at": pa.array(
            [dt.datetime(2026, 3, day, 23, 30, tzinfo=dt.UTC) for day in (1, 2, 3)], pa.timestamp("us", "UTC")
        ),
    }
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    made = load_catalog("ice", uri=f"sqlite:///{tmp_path}/ice.db", warehouse=f"file://{tmp_path}/ice")
    made.create_namespace("shop")
    yield made
    made.close()


@pytest.fixture
def executor(executor: OneExecutor, catalog: Catalog, tmp_path: Path) -> Iterator[OneExecutor]:
    given = f"{FOREIGN}=iceberg:sqlite:///{tmp_path}/ice.db?warehouse=file://{tmp_path}/ice"
    executor.foreign = ForeignTables([parse_catalog(given)])
    with planned_with(executor):
        yield executor
    executor.foreign.close()
    executor.foreign = None


def made(catalog: Catalog, name: str = "shop.sales", rows: pa.Table = SALES, by: dict[str, str] | None = None) -> Table:
    table = catalog.create_table(name, rows.schema)
    if by:
        with table.update_spec() as update:
            for column, transform in by.items():
                update.add_field(column, transform)
    table.append(rows)
    return table


def rows(executor: OneExecutor, text: str, conf: dict[str, str] | None = None) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, executor.run(executor.plan_sql(text, conf=conf or {}))), key=str)


def manifest_of(executor: OneExecutor, text: str, conf: dict[str, str] | None = None) -> Manifest:
    """Run a statement that writes as a job, up to its publishing."""
    outcome = executor.plan_sql(text, conf=conf or {})
    sink = pb.Sink(schema_json=outcome.schema_json)
    sink.MergeFrom(outcome.sink)
    return plan_publish(executor.job_id, sink, [outcome.fused_output], new_nonce())


def write(executor: OneExecutor, text: str, conf: dict[str, str] | None = None) -> str:
    """Run a statement that writes as a job, to its end; return its id."""
    manifest = manifest_of(executor, text, conf)
    publish(executor, manifest)
    return manifest.job_id


def publish(executor: OneExecutor, manifest: Manifest) -> None:
    manifest = Manifest.from_bytes(manifest.to_bytes())
    if not executor.foreign.has_committed(manifest.foreign, manifest.job_id):
        carry_out(manifest)
        executor.foreign.commit(manifest.foreign, manifest.job_id, [move.name for move in manifest.moves])


@pytest.mark.parametrize("by", [{}, {"country": "identity"}], ids=str)
def test_a_table_is_read_as_it_is(executor, catalog, by):
    made(catalog, by=by)
    expected = sorted((row["id"], row["country"], row["amount"], row["at"]) for row in SALES.to_pylist())
    for conf in ({}, CUT):
        assert rows(executor, "SELECT * FROM ice.shop.sales", conf) == expected
    assert rows(executor, "SELECT id FROM ice.shop.sales WHERE country IS NULL OR amount = 1.5", CUT) == [(1,), (3,)]
    assert rows(executor, "SELECT country, count(*) FROM ice.shop.sales GROUP BY country", CUT) == [
        ("DE", 1),
        ("FR", 1),
        (None, 1),
    ]


def read(table: Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table as PyIceberg reads them."""
    return sorted((tuple(row.values()) for row in table.refresh().scan().to_arrow().to_pylist()), key=str)


@pytest.mark.parametrize("by", [{}, {"country": "identity", "at": "day"}, {"at": "month"}, {"at": "hour"}], ids=str)
def test_rows_that_are_written_are_read_by_others(executor, catalog, by):
    table = catalog.create_table("shop.sales", SALES.schema)
    with table.update_spec() as update:
        for column, transform in by.items():
            update.add_field(column, transform)
    more = """
      SELECT id, country, CAST(id AS DECIMAL(10, 2)) AS amount,
        TIMESTAMP'2026-03-01 23:30:00.000001Z' + make_interval(0, 0, 0, 0, CAST(id AS INT)) AS at
      FROM range(4) CROSS JOIN VALUES ('DE'), (''), (CAST(NULL AS STRING)) AS t(country)"""
    job_id = write(executor, f"INSERT INTO ice.shop.sales {more}", {"spark.sql.session.timeZone": "Asia/Tokyo"})
    found = read(table)
    assert len(found) == 12
    assert {row[1] for row in found} == {"DE", "", None}
    assert rows(executor, "SELECT * FROM ice.shop.sales", CUT) == found
    assert table.current_snapshot().summary["onager.job"] == job_id
    partitions = {str(task.file.partition) for task in table.scan().plan_files()}
    assert len(partitions) == (6 if "country" in by else 4 if by.get("at") == "hour" else 1)
    write(executor, f"INSERT OVERWRITE ice.shop.sales {more} LIMIT 1")
    assert len(read(table)) == 1


def test_columns_are_found_by_their_ids_where_names_have_changed(executor, catalog):
    table = made(catalog)
    with table.update_schema() as update:
        update.rename_column("country", "land")
        update.delete_column("amount")
    with table.update_schema() as update:
        update.add_column("country", LongType())
        update.add_column("amount", StringType())
    write(executor, "INSERT INTO ice.shop.sales (id, land, country) VALUES (4, 'IT', 7)")
    expected = [(1, "DE", None, None), (2, "FR", None, None), (3, None, None, None), (4, "IT", 7, None)]
    for conf in ({}, CUT):
        assert rows(executor, "SELECT id, land, country, amount FROM ice.shop.sales", conf) == expected
    assert [
        tuple(row.values()) for row in table.refresh().scan(selected_fields=("land", "country")).to_arrow().to_pylist()
    ]


def test_an_earlier_state_is_read_by_snapshot_tag_and_time(executor, catalog):
    table = made(catalog)
    first = table.current_snapshot()
    table.manage_snapshots().create_tag(first.snapshot_id, "monday").commit()
    with table.update_schema() as update:
        update.add_column("note", StringType())
    until(lambda: time.time_ns() // 1_000_000 > first.timestamp_ms + 1, "a later millisecond")
    between = dt.datetime.fromtimestamp((first.timestamp_ms + 1) / 1000, dt.UTC).isoformat()
    write(executor, "INSERT OVERWRITE ice.shop.sales (id) VALUES (9)")
    assert rows(executor, "SELECT id, note FROM ice.shop.sales") == [(9, None)]
    for version in (f"VERSION AS OF {first.snapshot_id}", "VERSION AS OF 'monday'", f"TIMESTAMP AS OF '{between}'"):
        assert rows(executor, f"SELECT count(*), max(id) FROM ice.shop.sales {version}", CUT) == [(3, 3)]
        with pytest.raises(AnalysisException, match="note"):
            rows(executor, f"SELECT note FROM ice.shop.sales {version}")
    with pytest.raises(IllegalArgumentException, match="it has no snapshot 77"):
        rows(executor, "SELECT * FROM ice.shop.sales VERSION AS OF 77")


def test_a_planning_sees_a_table_at_one_snapshot_and_its_tasks_too(executor, catalog):
    table = made(catalog)
    outcome = executor.plan_sql("SELECT a.id FROM ice.shop.sales a JOIN ice.shop.sales b ON a.id = b.id", conf=CUT)
    table.overwrite(SALES.slice(0, 1))
    assert sorted(executor.run(outcome)) == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("INSERT OVERWRITE ice.shop.sales (id, country) VALUES (7, 'DE')", [(7, "DE")]),
        (f"{PART} (country = 'DE') (id) VALUES (7)", [(2, "FR"), (3, None), (7, "DE")]),
        (f"{PART} (country = NULL) (id) VALUES (7)", [(1, "DE"), (2, "FR"), (7, None)]),
        (f"{DYNAMIC} VALUES (7, 'FR'), (8, 'IT')", [(1, "DE"), (3, None), (7, "FR"), (8, "IT")]),
    ],
    ids=["all", "named", "null", "dynamic"],
)
def test_rows_replace_others_as_a_whole_or_by_partitions(executor, catalog, statement, left):
    table = made(catalog, by={"country": "identity"})
    before = table.current_snapshot().snapshot_id
    manifest = manifest_of(executor, statement)
    publish(executor, manifest)
    publish(executor, manifest)
    assert [row[:2] for row in read(table)] == left
    assert rows(executor, "SELECT id, country FROM ice.shop.sales", CUT) == left
    assert len(table.history()) == 2
    assert (table.current_snapshot().parent_snapshot_id, table.current_snapshot().summary["onager.job"]) == (
        before,
        manifest.job_id,
    )


def test_a_job_commits_once_however_many_publish_it(executor, catalog):
    table = made(catalog)
    manifest = manifest_of(executor, "INSERT INTO ice.shop.sales (id) SELECT id FROM range(10, 20)")
    others = [manifest_of(executor, f"INSERT INTO ice.shop.sales (id) VALUES ({n})") for n in (100, 101)]
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(publish, executor, each) for each in (manifest, *others) * 2]:
            done.result()
    assert [row[0] for row in read(table)] == sorted([*range(1, 4), *range(10, 20), 100, 101], key=str)
    marks = [snapshot.summary["onager.job"] for snapshot in table.snapshots()[1:]]
    assert sorted(marks) == sorted(each.job_id for each in (manifest, *others))


def test_files_that_were_moved_by_who_died_then_are_committed(executor, catalog):
    table = made(catalog)
    manifest = manifest_of(executor, NEW)
    carry_out(manifest)
    assert [row[0] for row in rows(executor, "SELECT id FROM ice.shop.sales")] == [1, 2, 3]
    publish(executor, manifest)
    assert [row[0] for row in read(table)] == [1, 2, 3, 9]


@pytest.mark.parametrize("is_made", [True, False])
def test_a_commit_that_is_not_known_to_be_made_is_found_again_or_made(executor, catalog, monkeypatch, is_made):
    table = made(catalog)
    manifest = manifest_of(executor, NEW)

    def lost(self: Table, updates: Any, requirements: Any) -> None:
        if is_made:
            commit(self, updates, requirements)
        raise OSError("the answer is lost")

    commit = Table._do_commit
    with monkeypatch.context() as patched:
        patched.setattr(Table, "_do_commit", lost)
        with pytest.raises(CatalogUnavailableError, match=r"whether ice\.shop\.sales has the rows of .* is not known"):
            publish(executor, manifest)
    publish(executor, manifest)
    assert [row[0] for row in read(table)] == [1, 2, 3, 9]


def test_what_somebody_else_has_changed_is_not_replaced(executor, catalog):
    table = made(catalog, by={"country": "identity"})
    whole = manifest_of(executor, "INSERT OVERWRITE ice.shop.sales (id) SELECT max(id) FROM ice.shop.sales")
    part = manifest_of(executor, "INSERT OVERWRITE ice.shop.sales PARTITION (country = 'FR') (id) VALUES (7)")
    write(executor, "INSERT INTO ice.shop.sales (id, country) VALUES (4, 'DE')")
    with pytest.raises(SinkError, match=r"rows of ice\.shop\.sales that the job was to replace were changed"):
        publish(executor, whole)
    assert not Path(whole.target).exists()
    publish(executor, part)
    assert [row[:2] for row in read(table)] == [(1, "DE"), (3, None), (4, "DE"), (7, "FR")]


@pytest.mark.parametrize("by", [{}, {"country": "identity"}], ids=str)
def test_no_rows_replace_others_and_a_job_without_rows_commits_too(executor, catalog, by):
    table = made(catalog, by=by)
    job_id = write(executor, "INSERT INTO ice.shop.sales SELECT * FROM ice.shop.sales WHERE id < 0")
    assert len(read(table)) == 3
    assert table.current_snapshot().summary["onager.job"] == job_id
    job_id = write(executor, "INSERT OVERWRITE ice.shop.sales SELECT * FROM ice.shop.sales WHERE id < 0")
    assert read(table) == []
    assert table.current_snapshot().summary["onager.job"] == job_id


def test_what_has_been_committed_is_done_even_if_its_files_have_been_rewritten_since(executor, catalog):
    table = made(catalog)
    manifest = manifest_of(executor, NEW)
    publish(executor, manifest)
    table.refresh().overwrite(table.scan().to_arrow())
    shutil.rmtree(manifest.target)
    publish(executor, manifest)
    assert [row[0] for row in read(table)] == [1, 2, 3, 9]


def test_files_in_private_directories_are_not_read(executor, catalog, tmp_path):
    made(catalog)
    conf = executor.spark.sparkContext._jsc.sc().conf()
    for private in (tmp_path / "ice" / "shop", tmp_path / "ice" / "shop" / "sales" / "data"):
        conf.set("spark.onager.privatePaths", str(private))
        try:
            rows(executor, "SELECT 1")  # in a session that was made before
            with pytest.raises(IllegalArgumentException, match="where Onager keeps files of its own"):
                rows(executor, "SELECT * FROM ice.shop.sales")
        finally:
            conf.remove("spark.onager.privatePaths")


def test_a_table_that_is_another_by_then_is_not_written(executor, catalog):
    table = made(catalog)
    dropped, other, partitioned = (manifest_of(executor, NEW) for _ in range(3))
    with table.update_spec() as update:
        update.add_field("country", "identity")
    with pytest.raises(SinkError, match=r"the partitions of ice\.shop\.sales have been changed"):
        publish(executor, partitioned)
    catalog.drop_table("shop.sales")
    with pytest.raises(SinkError, match=r"ice\.shop\.sales has been dropped"):
        publish(executor, dropped)
    made(catalog)
    with pytest.raises(SinkError, match=r"ice\.shop\.sales is another table"):
        publish(executor, other)


def test_columns_with_others_in_them_are_written_by_name(executor, catalog):
    nested = pa.schema(
        [
            ("id", pa.int32()),
            ("place", pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])),
            ("prices", pa.map_(pa.string(), pa.date32())),
        ]
    )
    table = catalog.create_table("shop.nested", nested)
    row = "1, named_struct('x', 1.5, 'tags', array('a', NULL)), map('k', DATE'2026-01-02')"
    write(executor, f"INSERT INTO ice.shop.nested SELECT {row}")
    assert read(table) == [(1, {"x": 1.5, "tags": ["a", None]}, [("k", dt.date(2026, 1, 2))])]
    (found,) = rows(executor, "SELECT id, place.x, place.tags, prices FROM ice.shop.nested", CUT)
    assert found == (1, 1.5, ["a", None], [("k", dt.date(2026, 1, 2))])
    with table.update_schema() as update:
        update.rename_column("id", "number")
    with pytest.raises(Exception, match="doesn't contain any field Ids"):
        rows(executor, "SELECT number FROM ice.shop.nested")


def test_what_there_is_is_shown(executor, catalog):
    made(catalog, by={"country": "identity"})
    assert rows(executor, "SHOW TABLES IN ice.shop") == [("shop", "sales", False)]
    assert rows(executor, "SHOW NAMESPACES IN ice") == [("shop",)]
    described = rows(executor, "DESCRIBE TABLE EXTENDED ice.shop.sales")
    assert {("country", "string", None), ("Provider", "iceberg", "")} <= set(described)
    assert rows(executor, "USE ice.shop; SELECT count(*) FROM sales") == [(3,)]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM ice.shop.nothing", r"TABLE_OR_VIEW_NOT_FOUND.*`ice`\.`shop`\.`nothing`"),
        ("SHOW TABLES IN ice.nowhere", "SCHEMA_NOT_FOUND"),
        ("SELECT colour FROM ice.shop.sales", r"UNRESOLVED_COLUMN.*`colour`"),
        ("INSERT INTO ice.shop.sales (colour) VALUES (1)", "colour"),
        ("INSERT INTO ice.shop.sales VALUES (1)", "NOT_ENOUGH_DATA_COLUMNS"),
        ("INSERT INTO ice.shop.sales (id) VALUES ('x')", "CANNOT_SAFELY_CAST"),
        ("DELETE FROM ice.shop.sales", "rows of a table are not changed where they are"),
        ("UPDATE ice.shop.sales SET id = 1", "rows of a table are not changed"),
        (
            "MERGE INTO ice.shop.sales t USING ice.shop.sales s ON t.id = s.id WHEN MATCHED THEN DELETE",
            "does not carry out",
        ),
        ("DROP TABLE ice.shop.sales", "it is about the catalog ice, which is not Onager's"),
        ("ALTER TABLE ice.shop.sales ADD COLUMN x INT", "it is about the catalog ice"),
        ("CREATE TABLE ice.shop.made (a INT)", "it is about the catalog ice"),
        ("CREATE TABLE ice.shop.made AS SELECT 1 AS a", "it makes a table of the catalog ice"),
        ("TRUNCATE TABLE ice.shop.sales", "ice"),
        (
            "INSERT INTO ice.shop.sales REPLACE WHERE id = 1 SELECT * FROM ice.shop.sales",
            "ice.shop.sales is not partitioned by the values of id",
        ),
        ("SELECT * FROM ice.shop.odd", "the column u has the type uuid, which Spark does not have"),
    ],
)
def test_what_cannot_be_is_reported_by_name(executor, catalog, statement, message):
    made(catalog)
    catalog.create_table("shop.odd", Schema(NestedField(1, "u", UUIDType())))
    with pytest.raises((AnalysisException, IllegalArgumentException, PlanningError, SideEffectError), match=message):
        rows(executor, statement)
    assert len(catalog.load_table("shop.sales").snapshots()) == 1


def test_tables_with_delete_files_and_partitions_that_cannot_be_written_are_refused(executor, catalog, monkeypatch):
    table = made(catalog)
    manifest = table.current_snapshot().manifests(table.io)[0]
    with monkeypatch.context() as patched:
        patched.setattr(type(manifest), "content", property(lambda _: ManifestContent.DELETES))
        with pytest.raises(IllegalArgumentException, match=r"ice\.shop\.sales cannot be read: it has delete files"):
            rows(executor, "SELECT * FROM ice.shop.sales")
    with table.update_spec() as update:
        update.add_field("id", "bucket[4]")
    with pytest.raises(PlanningError, match=r"ice\.shop\.sales is partitioned by bucket\[4\]\(id\)"):
        rows(executor, "INSERT INTO ice.shop.sales (id) VALUES (1)")


def test_a_catalog_that_is_not_there_is_reported(executor, tmp_path):
    executor.foreign = ForeignTables([parse_catalog(f"{FOREIGN}=iceberg:sqlite:///{tmp_path}/none/ice.db?warehouse=x")])
    with pytest.raises(
        CatalogUnavailableError, match=r"the catalog ice cannot be used: .*unable to open database file"
    ):
        rows(executor, "SELECT * FROM ice.shop.sales")
    executor.foreign = ForeignTables()
    with pytest.raises(CatalogUnavailableError, match="this executor was started without it; start all executors with"):
        rows(executor, "SELECT * FROM ice.shop.sales")
