"""Plannings and tasks tell in which directories they read, so that it can be checked whether they are the cluster's."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from onager.clock import SystemClock
from onager.errors import PlaceNotSeenError
from onager.executor.spark.place_checks import planning_in
from onager.executor.spark.running import task_runner
from onager.executor.spark.running.task_runner import StageRunner
from onager.place_files import WAREHOUSE
from onager.protocol import onager_pb2 as pb
from onager.testing.job import DistributedRunError
from tests.integration.planning.catalogs import planned_with
from tests.integration.planning.connect_client import ConnectClient, ConnectError
from tests.integration.planning.python_jobs import source
from tests.integration.planning.test_table_writes import folder, run
from tests.support.catalog import MemoryCatalog
from tests.support.places import judged
from tests.support.spark.one_executor import CUT, OneExecutor


@pytest.fixture
def files(executor: OneExecutor, tmp_path: Path) -> Path:
    for name in ("a", "b"):
        executor.spark.range(10).selectExpr("id", "id % 2 AS k").write.parquet(str(tmp_path / name))
    return tmp_path


@pytest.mark.parametrize("conf", [CUT, {}])
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT count(*) FROM a", ["a"]),
        ("SELECT * FROM a WHERE id IN (SELECT id FROM b)", ["a", "b"]),
        ("WITH x AS (SELECT * FROM a) SELECT (SELECT max(id) FROM b) + id FROM x", ["a", "b"]),
        ("SELECT * FROM parquet.`{files}/b` UNION ALL SELECT * FROM a", ["a", "b"]),
        ("SELECT 1 AS one FROM range(3)", []),
    ],
)
def test_it_tells_all_that_it_reads(executor, files, text, names, conf):
    views = [pb.View(name=name, path=str(files / name), format="parquet") for name in ("a", "b")]
    executor.plan(pb.JobSpec(sql=pb.SqlScript(text=text.format(files=files)), views=views, conf=conf))
    assert sorted(set(executor.read)) == [f"file:{files}/{name}" for name in names]


def test_it_tells_of_tables_though_no_partition_of_them_is_read(executor):
    with planned_with(executor) as catalog:
        run(executor, catalog, "CREATE TABLE t (v INT, d STRING) USING parquet PARTITIONED BY (d)")
        executor.plan(pb.JobSpec(sql=pb.SqlScript(text="SELECT count(*) AS n FROM t WHERE d = 'none'"), conf=CUT))
        assert set(executor.read) == {f"file:{folder(catalog, 't')}"}


@pytest.fixture
def table(executor: OneExecutor) -> Iterator[tuple[MemoryCatalog, str]]:
    """A catalog with a table ``t`` that has a partition, and where that lies."""
    with planned_with(executor) as catalog:
        run(
            executor,
            catalog,
            "CREATE TABLE t (v INT, d STRING) USING parquet PARTITIONED BY (d)",
            "INSERT INTO t VALUES (1, 'a')",
        )
        yield catalog, f"file:{folder(catalog, 't')}"


@pytest.mark.parametrize(
    "text",
    [
        "MSCK REPAIR TABLE t DROP PARTITIONS",
        "MSCK REPAIR TABLE t SYNC PARTITIONS",
        "ALTER TABLE t RECOVER PARTITIONS",
        "ANALYZE TABLE t COMPUTE STATISTICS",
        "ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS v; SELECT 1",
        "DECLARE n BIGINT; SET VAR n = (SELECT count(*) FROM t); SELECT n",
        "TRUNCATE TABLE t",
    ],
)
def test_it_tells_of_tables_that_are_in_no_query_that_is_left(executor, table, text):
    executor.plan(pb.JobSpec(sql=pb.SqlScript(text=text)))
    assert set(executor.read) == {table[1]}


@pytest.mark.parametrize("error", ["", "raise ValueError(n)"])
@pytest.mark.parametrize("read", ["spark.table('t')", "spark.read.parquet('{files}/a')"])
def test_it_tells_what_a_function_has_read_whatever_comes_of_it(executor, table, files, read, error):
    body = f"n = {read.format(files=files)}.count()\n    {error}\n    return spark.range(n)"
    with pytest.raises(Exception, match="ValueError") if error else nullcontext():
        executor.plan_python(source(body), conf={})
    assert set(executor.read) == {table[1] if "table" in read else f"file:{files}/a"}


def test_it_tells_where_the_schema_of_a_new_table_was_looked_for(executor, table, files):
    executor.plan(pb.JobSpec(sql=pb.SqlScript(text=f"CREATE TABLE n USING parquet LOCATION '{files}/a'")))
    assert f"file:{files}/a" in executor.read


@pytest.mark.parametrize(
    "text",
    ["SELECT 1", "CREATE DATABASE d", "CREATE TABLE n (v INT) USING parquet", "SHOW TABLES", "DECLARE n INT; SELECT n"],
)
def test_it_tells_of_no_table_where_none_is_needed(executor, table, text):
    executor.plan(pb.JobSpec(sql=pb.SqlScript(text=text)))
    assert executor.read == []


def test_sessions_look_at_no_table_in_a_directory_that_is_not_seen(executor, table):
    catalog, location = table
    warehouse = Path(location.removeprefix("file:")).parent
    places = judged({WAREHOUSE: warehouse}, refused=[WAREHOUSE])
    client = ConnectClient(executor, catalog, places=places)
    assert client.schema(client.spark.range(3)).names == ["id"]
    with pytest.raises(ConnectError, match="is not seen here: it is another one") as refused:
        client.schema(client.spark.table("t"))
    assert refused.value.failure.error_class == "PlaceNotSeenError"
    client.close()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_task_reads_no_files_in_a_directory_that_is_another_one(executor, files, when, monkeypatch):
    warehouse = files / "a"
    places = judged({WAREHOUSE: warehouse})
    runner = StageRunner(
        executor.spark,
        executor_id="executor-1",
        exchange_dir=str(executor.directory),
        slots=2,
        clock=SystemClock(),
        places=places,
    )
    monkeypatch.setattr(executor, "runner", runner)
    text = f"SELECT * FROM parquet.`{warehouse}`"
    outcome = executor.plan_sql(text, conf=CUT | {"spark.sql.files.ignoreMissingFiles": "true"})
    assert len(executor.run(outcome)) == 10

    def lose(*_: object) -> None:
        warehouse.rename(files / "away")
        warehouse.mkdir()

    try:
        if when == "before":
            lose()
        else:
            monkeypatch.setattr(task_runner, "check_places", lose)
        with pytest.raises(DistributedRunError, match=r"warehouse .* was lost"):
            executor.run(outcome)
    finally:
        runner.close()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_what_was_listed_in_a_directory_that_is_another_one_now_is_not_used(executor, files, when):
    warehouse = files / "warehouse"
    (files / "a").rename(warehouse)
    places = judged({WAREHOUSE: warehouse})
    spec = pb.JobSpec(sql=pb.SqlScript(text=f"SELECT count(*) AS n FROM parquet.`{warehouse}`"), conf=CUT)

    def lose() -> None:
        warehouse.rename(files / "away")
        executor.spark.range(3).selectExpr("id", "id % 2 AS k").write.parquet(str(warehouse))

    def planned() -> None:
        with planning_in(places) as note:
            executor.plan(spec)
            note(executor.read)
            if when == "meanwhile":
                lose()

    if when == "before":
        lose()
    with pytest.raises(PlaceNotSeenError, match="warehouse"):
        planned()
