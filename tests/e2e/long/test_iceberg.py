"""Tables of an Iceberg catalog on a real cluster, whose executors die between a commit and its report."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from onager.errors import JobFailedError
from tests.e2e.conftest import UNFUSED
from tests.support.processes.cluster import Cluster
from tests.support.trees import below
from tests.support.waiting import HANGS_S, until

DIE_ONCE = """
import os, signal
from pathlib import Path
from onager.executor.foreign import ForeignTables
commit = ForeignTables.commit

def committed(*arguments):
    commit(*arguments)
    try:
        Path(os.environ["ONAGER_TEST_DEATH"]).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

ForeignTables.commit = committed
"""
"""Kills the executor once it has committed, if there is a file that says so; it is gone then."""


PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.range(3).writeTo("ice.shop.numbers").append()
spark.range(3, 5).write.insertInto("ice.shop.numbers")
spark.range(5, 6).write.mode("append").saveAsTable("ice.shop.numbers")
print(sorted(row.id for row in spark.table("ice.shop.numbers").collect()), spark.catalog.tableExists("ice.shop.none"))
spark.range(7, 8).writeTo("ice.shop.numbers").overwritePartitions()
spark.sql("INSERT INTO ice.shop.numbers SELECT max(id) + 1 FROM ice.shop.numbers")
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Iterator[Catalog]:
    directory = tmp_path_factory.mktemp("iceberg")
    made = load_catalog("ice", uri=f"sqlite:///{directory}/ice.db", warehouse=f"file://{directory}/tables")
    made.create_namespace("shop")
    yield made
    made.close()


@pytest.fixture(scope="module")
def death(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("death") / "due"


@pytest.fixture(scope="module")
def cluster(make_module_cluster, catalog, death) -> Cluster:
    made = make_module_cluster()
    made.start_scheduler()
    given = f"ice=iceberg:{catalog.properties['uri']}?warehouse={catalog.properties['warehouse']}"
    environment = {
        "ONAGER_EXECUTOR_CATALOGS": json.dumps([given, "gone=iceberg:sqlite:////nowhere/gone.db?warehouse=x"]),
        "ONAGER_TEST_DEATH": str(death),
    }
    for name in ("e-1", "e-2"):
        made.launch_executor(name, slots=1, code=DIE_ONCE, **environment)
    made.await_executors("e-1", "e-2")
    return made


def read_in_python(spark):
    return spark.table("ice.shop.by_day").orderBy("day")


def test_a_program_reads_and_writes_tables_and_others_read_them(cluster, catalog):
    import pyarrow as pa

    sales = catalog.create_table("shop.sales", pa.schema([("id", pa.int64()), ("day", pa.date32())]))
    by_day = catalog.create_table("shop.by_day", pa.schema([("day", pa.date32()), ("n", pa.int64())]))
    with sales.update_spec() as update:
        update.add_field("day", "month")
    job = cluster.client.sql(
        "INSERT INTO ice.shop.sales SELECT id, DATE'2026-01-30' + CAST(id % 4 AS INT) FROM range(1000);"
        "INSERT OVERWRITE ice.shop.by_day SELECT day, count(*) FROM ice.shop.sales GROUP BY day;"
        "SELECT sum(n) AS n FROM ice.shop.by_day",
        conf=UNFUSED,
    )
    assert job.to_arrow().to_pylist() == [{"n": 1000}]
    assert sorted(sales.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(1000))
    assert len({str(task.file.partition) for task in sales.scan().plan_files()}) == 2
    expected = by_day.refresh().scan().to_arrow().sort_by("day").to_pylist()
    assert [row["n"] for row in expected] == [250] * 4
    assert cluster.client.python(read_in_python).to_arrow().to_pylist() == expected
    marks = [each.current_snapshot().summary["onager.job"] for each in (sales, by_day)]
    assert marks == [f"{job.id}.1", f"{job.id}.2"]
    cluster.client.sql("INSERT OVERWRITE ice.shop.sales SELECT * FROM ice.shop.sales WHERE id < 0", conf=UNFUSED).wait()
    assert sales.refresh().scan().to_arrow().num_rows == 0


def test_a_program_of_pyspark_reads_and_writes_tables(cluster, catalog):
    import pyarrow as pa

    table = catalog.create_table("shop.numbers", pa.schema([("id", pa.int64())]))
    program = [sys.executable, "-c", PROGRAM, f"sc://{cluster.address}"]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert (ended.returncode, ended.stdout) == (0, "[0, 1, 2, 3, 4, 5] False\n"), ended.stderr
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [7, 8]
    assert len(table.snapshots()) == 5


def test_a_job_commits_once_when_its_executor_dies_before_it_can_say_so(cluster, catalog, death):
    import pyarrow as pa

    table = catalog.create_table("shop.once", pa.schema([("id", pa.int64())]))
    death.touch()
    job = cluster.client.sql("INSERT INTO ice.shop.once SELECT id FROM range(100)", conf=UNFUSED)
    job.wait()
    assert not death.exists()
    assert len(cluster.living_executors()) == 1
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(100))
    assert [snapshot.summary["onager.job"] for snapshot in table.snapshots()] == [job.id]
    published = cluster.tasks(job.id)[max(cluster.tasks(job.id))]
    assert (published["attempts"], published["state"]) == (2, "successful")


def test_a_catalog_that_is_not_there_and_a_table_that_is_dropped_are_reported(cluster, catalog):
    with pytest.raises(JobFailedError, match=r"the catalog gone cannot be used: .*unable to open database file"):
        cluster.client.sql("SELECT * FROM gone.shop.sales").wait()
    with pytest.raises(JobFailedError, match=r"TABLE_OR_VIEW_NOT_FOUND.*`ice`\.`shop`\.`nothing`"):
        cluster.client.sql("INSERT INTO ice.shop.nothing VALUES (1)").wait()
    refused = cluster.cli("executor", "--exchange-dir", str(cluster.exchange_dir), "--catalog", "ice=delta:x")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--catalog='ice=delta:x': give NAME=iceberg:URI?PROPERTY=VALUE&…" in refused.stderr
    until(
        lambda: not below(Path(catalog.properties["warehouse"].removeprefix("file://")), ".*.onager-*"),
        "clean",
    )
