"""Scripts that change the catalog: all or nothing, and only the catalog."""

import json
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException

from onager.errors import PlanningError, SideEffectError
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.catalogs import commit, rows
from tests.support.catalog import MemoryCatalog
from tests.support.spark.one_executor import CUT, OneExecutor


def test_a_script_changes_all_or_nothing_and_only_the_catalog(
    executor: OneExecutor, catalog: MemoryCatalog, people: str
) -> None:
    before = sorted(executor.directory.parent.rglob("*"))
    outcome = executor.plan_sql(
        f"""CREATE DATABASE shop;
        CREATE TABLE shop.people USING csv OPTIONS (header 'true') LOCATION '{people}';
        CREATE TABLE shop.managed (a INT, p INT) PARTITIONED BY (p);
        ALTER TABLE shop.managed ADD PARTITION (p = 1);
        CREATE VIEW shop.names AS SELECT DISTINCT name FROM shop.people;
        SELECT * FROM shop.names ORDER BY name""",
        conf={},
    )
    assert executor.run(outcome) == [("Ann",), ("Bob",)]
    keys = [put.key for put in outcome.catalog.puts]
    assert keys == ["databases/shop", "tables/shop/managed", "tables/shop/names", "tables/shop/people"]
    assert [put.expected_revision for put in outcome.catalog.puts] == [0, 0, 0, 0]
    assert not catalog.records, "nothing is changed before the job ends"
    catalog.commit(outcome)
    managed = catalog.record("tables/shop/managed")
    assert managed["spark"]["storage"]["location"].endswith(f"/warehouse/shop.db/managed-{managed['id']}")
    assert catalog.record("tables/shop/names")["kind"] == "view"
    assert list(catalog.partitions("managed", "shop")) == ["p=1"]
    assert sorted(executor.directory.parent.rglob("*")) == before
    assert [row.namespace for row in executor.spark.sql("SHOW DATABASES").collect()] == ["default"]


def test_a_table_that_is_made_anew_lies_elsewhere(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    commit(executor, catalog, "CREATE TABLE t (a INT, p INT) PARTITIONED BY (p)")
    first = catalog.record("tables/default/t")
    commit(executor, catalog, "ALTER TABLE t ADD PARTITION (p = 1)")
    Path(first["spark"]["storage"]["location"].removeprefix("file:")).mkdir(parents=True)
    outcome = commit(executor, catalog, "DROP TABLE t; CREATE TABLE t (a INT, p INT) PARTITIONED BY (p)")
    assert [list(put.removed_pages_of) for put in outcome.catalog.puts] == [[first["id"]]]
    assert catalog.record("tables/default/t")["spark"]["storage"]["location"] != first["spark"]["storage"]["location"]
    assert executor.run(executor.plan_sql("SHOW PARTITIONS t", conf={})) == []


def test_a_renamed_table_keeps_its_partitions_and_files(
    executor: OneExecutor, catalog: MemoryCatalog, sales: str
) -> None:
    before = catalog.record("tables/default/sales")
    outcome = commit(
        executor, catalog, "ALTER TABLE sales RENAME TO sold; ALTER TABLE sold DROP PARTITION (region = 0)"
    )
    assert [list(put.removed_pages_of) for put in outcome.catalog.puts] == [[], []]
    after = catalog.record("tables/default/sold")
    assert "tables/default/sales" not in catalog.records
    assert (after["id"], after["spark"]["storage"]) == (before["id"], before["spark"]["storage"])
    assert rows(executor, "SELECT count(*) FROM sold") == [(300,)]


def test_partitions_are_changed_without_the_tables_record(
    executor: OneExecutor, catalog: MemoryCatalog, sales: str
) -> None:
    outcome = executor.plan_sql(
        """ALTER TABLE sales ADD PARTITION (region = 7, day = 7);
        ALTER TABLE sales ADD IF NOT EXISTS PARTITION (region = 8, day = 8);
        ALTER TABLE sales DROP PARTITION (region = 0, day = 0)""",
        conf={},
    )
    assert not outcome.catalog.puts
    (change,) = outcome.catalog.partitions
    record = catalog.record("tables/default/sales")
    assert (change.key, change.table_id) == ("tables/default/sales", record["id"])
    assert change.location == record["spark"]["storage"]["location"]
    assert {path: bool(text) for path, text in change.set.items()} == {
        "region=7/day=7": True,
        "region=8/day=8": True,
        "region=0/day=0": False,
    }
    assert set(change.expected) == {"region=7/day=7", "region=0/day=0"}
    assert change.expected["region=7/day=7"] == ""
    assert json.loads(change.expected["region=0/day=0"]) == catalog.partitions("sales")["region=0/day=0"]


def test_what_a_newer_version_keeps_in_a_record_stays(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    commit(executor, catalog, "CREATE TABLE t (a INT)")
    catalog.put("tables/default/t", json.dumps(catalog.record("tables/default/t") | {"merged": 0, "x": [1]}).encode())
    commit(executor, catalog, "ALTER TABLE t SET TBLPROPERTIES (a = '1')")
    assert catalog.record("tables/default/t")["x"] == [1]
    catalog.put("tables/default/t", json.dumps(catalog.record("tables/default/t") | {"version": 2}).encode())
    with pytest.raises(Exception, match="was written by a newer Onager"):
        executor.plan_sql("SELECT * FROM t", conf={})


def test_a_new_table_needs_its_database_to_stay(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    commit(executor, catalog, "CREATE DATABASE d")
    outcome = executor.plan_sql("CREATE TABLE d.t (a INT)", conf={})
    _, revision = catalog.records["databases/d"]
    assert [(read.key, read.revision) for read in outcome.catalog.reads] == [("databases/d", revision)]


def test_replacing_a_table_is_refused_with_what_to_do(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    with pytest.raises(SideEffectError, match=r"statement 1 \(line 1\)") as raised:
        executor.plan_sql("CREATE OR REPLACE TABLE u AS SELECT 1 AS a", conf={})
    assert "would change something" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "LOAD DATA INPATH '/tmp/x' INTO TABLE t",
        "CREATE FUNCTION f AS 'java.lang.String' USING JAR '/tmp/x.jar'",
        "ADD JAR '/tmp/x.jar'",
        "EXECUTE IMMEDIATE 'DROP TABLE t'",
        "UPDATE t SET a = 1",
    ],
)
def test_statements_that_are_not_planned_are_refused(executor: OneExecutor, catalog: MemoryCatalog, text: str) -> None:
    commit(executor, catalog, "CREATE TABLE t (a INT)")
    for script in (text, f"{text}; SELECT 1"):
        with pytest.raises(SideEffectError, match=r"statement 1 \(line 1\)"):
            executor.plan_sql(script, conf={})


def test_a_script_that_changes_far_too_much_is_refused_before_all_of_it_is_planned(
    executor: OneExecutor, catalog: MemoryCatalog
) -> None:
    # What a script makes and drops again is no change.
    script = "CREATE VIEW v AS SELECT 1 AS a; DROP VIEW v;" * 3
    script += ";".join(f"CREATE VIEW v{number} AS SELECT 1 AS a" for number in range(1_000))
    with pytest.raises(IllegalArgumentException, match=r"(?s)more than 200 records of the catalog.*in statement 208"):
        executor.plan(pb.JobSpec(sql=pb.SqlScript(text=script)))


def test_a_statement_about_another_catalog_is_refused(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    for script in ("CREATE NAMESPACE other.n", "USE other; CREATE NAMESPACE n"):
        with pytest.raises(SideEffectError, match="about the catalog other, which is not Onager's"):
            executor.plan_sql(script)


def test_a_script_that_ends_with_a_change_has_no_output(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    spec = pb.JobSpec(sql=pb.SqlScript(text="CREATE TABLE t (a INT)"), sink=pb.Sink(path="/tmp/none", format="csv"))
    with pytest.raises(PlanningError, match="gives no rows"):
        executor.plan(spec)
    for conf in ({}, CUT):
        outcome = executor.plan_sql("CREATE TABLE t (a INT)", conf=conf)
        assert executor.run(outcome) == []
        assert (len(outcome.stages), outcome.HasField("fused_output")) == (1, True)
