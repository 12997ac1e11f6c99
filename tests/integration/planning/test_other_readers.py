"""Tables that Onager has written, read from their folders by plain Spark, pyarrow and DuckDB: they find equal rows."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest

from onager.executor.exchange.table_folders import REPLACED, remove_table_folder
from onager.private_paths import NO_PATHS
from tests.integration.planning.test_table_writes import folder, run
from tests.support.catalog import MemoryCatalog
from tests.support.spark.one_executor import OneExecutor

COLUMNS = "v BIGINT, s STRING, f DOUBLE, d DECIMAL(10, 2), t TIMESTAMP, b BINARY, a ARRAY<INT>, day DATE"
ROWS = """
SELECT id, IF(id % 5 = 0, NULL, concat('s', id)), id / 3, CAST(id / 8 AS DECIMAL(10, 2)),
       TIMESTAMP '2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, 0, id), CAST(string(id) AS BINARY),
       array(int(id), NULL), DATE '2026-03-01' + INT(id % 3)
FROM range({}, {})"""
MADE = {
    "plain": f"CREATE TABLE x ({COLUMNS}) USING parquet",
    "partitions": f"CREATE TABLE x ({COLUMNS}) USING parquet PARTITIONED BY (day)",
    "buckets": f"CREATE TABLE x ({COLUMNS}) USING parquet CLUSTERED BY (v) SORTED BY (v) INTO 3 BUCKETS",
    "both": f"CREATE TABLE x ({COLUMNS}) USING parquet PARTITIONED BY (day) CLUSTERED BY (v) INTO 2 BUCKETS",
}
ALL = "SELECT v, s, f, d, t, b, a, day FROM x"


def by_spark(executor: OneExecutor, place: str) -> list[Any]:
    return executor.spark.read.parquet(place).select(*names()).toArrow().to_pylist()


def by_pyarrow(_: OneExecutor, place: str) -> list[Any]:
    return ds.dataset(place, format="parquet", partitioning="hive").to_table(columns=names()).to_pylist()


def by_duckdb(_: OneExecutor, place: str) -> list[Any]:
    files = f"read_parquet('{place}/**/*.parquet', hive_partitioning = true)"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql(f"SELECT {', '.join(names())} FROM {files}").to_arrow_table().to_pylist()


READERS = {"Spark": by_spark, "pyarrow": by_pyarrow, "DuckDB": by_duckdb}


def names() -> list[str]:
    return [part.split()[0] for part in COLUMNS.replace("10, 2", "10").split(", ")]


def plain_rows(found: list[Any]) -> list[str]:
    return sorted(str([_plain(row[name]) for name in names()]) for row in found)


def _plain(value: Any) -> str:
    if isinstance(value, datetime):  # without a time zone: as UTC, which pyarrow finds in Spark's files
        return f"{(value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp():.6f}"
    return str(bytes(value) if isinstance(value, bytearray) else value)


@pytest.mark.parametrize("made", MADE)
def test_they_find_the_rows_that_were_inserted_and_those_that_replace_all(executor, catalog, made):
    run(executor, catalog, MADE[made], f"INSERT INTO x {ROWS.format(0, 40)}", f"INSERT INTO x {ROWS.format(40, 50)}")
    _agree(executor, catalog, 50)
    run(executor, catalog, f"INSERT OVERWRITE x {ROWS.format(7, 30)}")
    _agree(executor, catalog, 23)


def test_once_replaced_files_are_gone_all_but_spark_find_the_rows_of_partitions_by_the_folder_alone(executor, catalog):
    run(executor, catalog, MADE["partitions"], f"INSERT INTO x {ROWS.format(0, 30)}")
    few = f"({ROWS.format(100, 109)}) AS few(v, s, f, d, t, b, a, day)"
    run(executor, catalog, f"INSERT OVERWRITE x PARTITION (day = '2026-03-02') SELECT * EXCEPT (day) FROM {few}")
    for replaced in list(Path(folder(catalog, "x")).rglob(REPLACED)):
        remove_table_folder(str(replaced), NO_PATHS)
    _agree(executor, catalog, 29, readers=("pyarrow", "DuckDB"))


def _agree(executor: OneExecutor, catalog: MemoryCatalog, count: int, readers: Any = READERS) -> None:
    asked = executor.run(executor.plan_sql(ALL, conf={"spark.sql.session.timeZone": "UTC"}))
    expected = plain_rows([dict(zip(names(), row, strict=True)) for row in asked])
    assert len(expected) == count
    for reader in readers:
        assert plain_rows(READERS[reader](executor, folder(catalog, "x"))) == expected, reader
