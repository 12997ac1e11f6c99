"""Tables that Spark has made in a Hive metastore are read by jobs; the metastore is killed and comes back."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import onager
from onager.errors import JobFailedError
from tests.metastore import Metastore, Postgres, free_port

CUT = {"onager.fusion.maxBytes": "0"}
SPARK = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").enableHiveSupport().config("spark.ui.enabled", "false")
    .config("spark.hadoop.hive.metastore.uris", sys.argv[1]).config("spark.sql.warehouse.dir", sys.argv[2])
    .config("spark.hadoop.hive.exec.dynamic.partition.mode", "nonstrict").getOrCreate()
)
for statement in sys.argv[3:]:
    spark.sql(statement)
"""
MADE = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.sales (id BIGINT, amount DECIMAL(10, 2)) PARTITIONED BY (day STRING) STORED AS PARQUET",
    "INSERT INTO shop.sales SELECT id, id, concat('2026-01-0', 1 + id % 3) FROM range(30)",
    "CREATE TABLE shop.misspelt STORED AS parquet TBLPROPERTIES ('parquet.compress' = 'SNAPPY') AS SELECT 1 AS a",
    "CREATE TABLE shop.names USING orc AS SELECT id, concat('n', id) AS name FROM range(10)",
    "CREATE TABLE shop.lines (a INT, b STRING)",
    "INSERT INTO shop.lines VALUES (1, 'x')",
    "CREATE TABLE shop.elsewhere (line STRING) LOCATION '/dev/shm'",
    "CREATE VIEW shop.by_day AS SELECT day, sum(amount) AS amount FROM shop.sales GROUP BY day",
)


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    postgres = Postgres()
    made = Metastore(tmp_path_factory.mktemp("metastore"), postgres)
    run_in_spark(made, *MADE)
    yield made
    made.kill()
    postgres.close()


def run_in_spark(metastore: Metastore, *statements: str) -> None:
    """Run statements in a plain Spark with the metastore."""
    given = [f"thrift://127.0.0.1:{metastore.port}", metastore.warehouse.as_uri()]
    subprocess.run([sys.executable, "-c", SPARK, *given, *statements], check=True, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory, metastore: Metastore) -> Iterator[onager.OnagerClient]:
    directory = tmp_path_factory.mktemp("cluster")
    address = f"127.0.0.1:{free_port()}"
    settings = ["spark.sql.catalogImplementation=hive"]
    settings += [f"spark.hadoop.hive.metastore.uris=thrift://127.0.0.1:{metastore.port}"]
    settings += ["spark.hadoop.hive.metastore.connect.retries=1"]
    given = [word for setting in settings for word in ("--spark-conf", setting)]
    command = [Path(sys.executable).with_name("onager"), "standalone", "--listen", address, "--no-http", *given]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--state-dir", directory / "state"], stdout=log, stderr=log)
    with onager.connect(address, connect_timeout_s=120) as made:
        yield made
    process.terminate()
    process.wait(60)


def rows(client: onager.OnagerClient, text: str, conf: dict[str, str] | None = None) -> list[tuple]:
    return [tuple(row.values()) for row in client.sql(text, conf=conf or {}).to_arrow().to_pylist()]


def test_queries_read_its_tables_and_views(client):
    by_day = "SELECT day, CAST(sum(amount) AS INT) FROM shop.{} GROUP BY day ORDER BY day"
    expected = [("2026-01-01", 135), ("2026-01-02", 145), ("2026-01-03", 155)]
    for conf in ({}, CUT):
        assert rows(client, by_day.format("sales"), conf) == expected
        assert rows(client, by_day.format("by_day"), conf) == expected
    joined = "SELECT name FROM shop.sales JOIN shop.names USING (id) WHERE day = '2026-01-01' ORDER BY 1"
    assert rows(client, joined, CUT) == [("n0",), ("n3",), ("n6",), ("n9",)]
    assert rows(client, "SELECT * FROM shop.lines") == [(1, "x")]
    assert rows(client, "SELECT * FROM shop.misspelt", CUT) == [(1,)]
    names = [name for _, name, _ in rows(client, "SHOW TABLES IN shop")]
    assert names == ["by_day", "elsewhere", "lines", "misspelt", "names", "sales"]


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO shop.lines VALUES (2, 'y')", "CREATE TABLE shop.new AS SELECT 1 AS a", "DROP TABLE shop.lines"],
)
def test_it_is_not_changed(client, statement):
    with pytest.raises(JobFailedError, match="tables of a Hive metastore, which are read and not changed"):
        client.sql(statement).wait()
    assert rows(client, "SELECT * FROM shop.lines") == [(1, "x")]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM text.`http://127.0.0.1:1/x`",
        "SELECT * FROM text.`hdfs://127.0.0.1:1/x`",
        "SELECT * FROM text.`/proc/self/environ`",
        "SELECT TRANSFORM(id) USING 'env' AS (l STRING) FROM shop.sales",
        "CREATE TEMPORARY FUNCTION f AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFReflect2'; SELECT 1",
        "CREATE TEMPORARY VIEW v USING jdbc OPTIONS (url 'jdbc:derby:memory:x', dbtable 'x'); SELECT 1",
        "SELECT * FROM shop.sales WITH ('fs.file.impl' = 'any.Class')",
        "SELECT * FROM shop.elsewhere",
    ],
)
def test_it_opens_nothing_but_its_tables(client, statement):
    with pytest.raises(JobFailedError, match=r"may use|is refused|is the system's"):
        client.sql(statement).wait()


def test_rows_become_a_partition_by_an_output_and_a_statement_to_the_metastore(client, metastore, tmp_path):
    day = tmp_path / "day=2026-01-04"
    client.sql("SELECT id, amount FROM shop.sales WHERE id < 5", output=day).wait()
    run_in_spark(metastore, f"ALTER TABLE shop.sales ADD PARTITION (day = '2026-01-04') LOCATION '{day}'")
    assert rows(client, "SELECT count(*) FROM shop.sales WHERE day = '2026-01-04'", CUT) == [(5,)]
    run_in_spark(metastore, "ALTER TABLE shop.sales DROP PARTITION (day = '2026-01-04')")


def test_one_that_does_not_answer_is_reported_and_found_again(client, metastore):
    metastore.kill()
    job = client.sql("SELECT count(*) FROM shop.sales")
    with pytest.raises(JobFailedError, match=r"the Hive metastore does not answer.*Connection refused") as raised:
        job.wait()
    assert "\n" not in str(raised.value).strip()
    metastore.start()
    assert rows(client, "SELECT count(*) FROM shop.sales") == [(30,)]
    metastore.kill()
    job = client.sql("SELECT count(*) FROM shop.sales")
    metastore.start()
    assert job.to_arrow().to_pylist() == [{"count(1)": 30}]
