"""Statements that write partitions of tables: the rows that are there then, and what becomes of partitions."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from tests.integration.planning.test_table_writes import folder, plan, rows, run
from tests.support.catalog import MemoryCatalog

MAKE = "CREATE TABLE t (v INT, d STRING, h INT) USING parquet PARTITIONED BY (d, h)"


def places(catalog: MemoryCatalog) -> dict[str, str]:
    """Return where partitions lie, from the table's folder."""
    home = folder(catalog, "t")
    found = {path: str(each["storage"]["location"]) for path, each in catalog.partitions("t").items()}
    return {path: at.removeprefix("file:").removeprefix(home).strip("/") for path, at in found.items()}


def test_a_partitioned_table_is_made_and_gets_rows(executor, catalog):
    run(
        executor, catalog, "CREATE TABLE t PARTITIONED BY (d) AS SELECT id AS v, concat('d', id % 2) AS d FROM range(4)"
    )
    assert places(catalog) == {"d=d0": "d=d0", "d=d1": "d=d1"}
    run(executor, catalog, "INSERT INTO t VALUES (9, 'd1'), (10, 'd2'), (11, NULL)")
    assert rows(executor, "SELECT * FROM t WHERE d = 'd1'") == [(1, "d1"), (3, "d1"), (9, "d1")]
    assert rows(executor, "SELECT v FROM t WHERE d IS NULL") == [(11,)]
    assert rows(executor, "SHOW PARTITIONS t") == [("d=__HIVE_DEFAULT_PARTITION__",), ("d=d0",), ("d=d1",), ("d=d2",)]
    assert executor.spark.read.parquet(folder(catalog, "t")).count() == 7


def test_static_partitions_are_added_to_and_replaced(executor, catalog):
    run(executor, catalog, MAKE, "INSERT INTO t PARTITION (d = 'a', h = 1) SELECT 1")
    run(executor, catalog, "INSERT INTO t PARTITION (d = 'a', h) SELECT 2, 2", "INSERT INTO t VALUES (3, 'b', 1)")
    assert rows(executor, "SELECT * FROM t") == [(1, "a", 1), (2, "a", 2), (3, "b", 1)]
    run(executor, catalog, "INSERT OVERWRITE t PARTITION (d = 'a', h) SELECT 4, 3")
    assert rows(executor, "SELECT * FROM t") == [(3, "b", 1), (4, "a", 3)]
    run(executor, catalog, "INSERT OVERWRITE t PARTITION (d = 'b', h = 1) SELECT 5")
    assert rows(executor, "SELECT * FROM t") == [(4, "a", 3), (5, "b", 1)]
    run(executor, catalog, "INSERT OVERWRITE t PARTITION (d = 'b', h = 1) SELECT 5 WHERE false")
    assert rows(executor, "SELECT * FROM t") == [(4, "a", 3)]
    assert rows(executor, "SHOW PARTITIONS t") == [("d=a/h=3",), ("d=b/h=1",)], "it was named, so it stays"


def test_dynamic_partitions_are_replaced(executor, catalog):
    run(executor, catalog, MAKE, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    before = places(catalog)
    dynamic = "SET spark.sql.sources.partitionOverwriteMode = dynamic; "
    run(executor, catalog, dynamic + "INSERT OVERWRITE t SELECT * FROM VALUES (3, 'b', 2), (4, 'c', 3)")
    assert rows(executor, "SELECT * FROM t") == [(1, "a", 1), (3, "b", 2), (4, "c", 3)]
    after = places(catalog)
    assert after["d=a/h=1"] == before["d=a/h=1"]
    assert after["d=b/h=2"] != before["d=b/h=2"]
    assert list(Path(folder(catalog, "t"), before["d=b/h=2"]).glob("part-*")), "who reads the old rows still finds them"
    run(executor, catalog, "INSERT INTO t VALUES (5, 'b', 2)")
    assert rows(executor, "SELECT v FROM t WHERE d = 'b'") == [(3,), (5,)]


def test_all_partitions_are_replaced(executor, catalog):
    run(executor, catalog, MAKE, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    first = folder(catalog, "t")
    run(executor, catalog, "INSERT OVERWRITE t VALUES (3, 'b', 2)")
    assert folder(catalog, "t") != first
    assert places(catalog) == {"d=b/h=2": "d=b/h=2"}
    assert rows(executor, "SELECT * FROM t") == [(3, "b", 2)]


def test_rows_do_not_come_back_in_a_partition_that_was_dropped_and_made_again(executor, catalog):
    run(executor, catalog, MAKE, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    run(executor, catalog, "ALTER TABLE t DROP PARTITION (d = 'a')", "INSERT INTO t VALUES (7, 'a', 1), (8, 'b', 2)")
    assert rows(executor, "SELECT * FROM t") == [(2, "b", 2), (7, "a", 1), (8, "b", 2)]


def test_nor_does_a_partition_that_is_added_by_a_statement_have_rows(executor, catalog):
    run(executor, catalog, MAKE, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    run(executor, catalog, "ALTER TABLE t DROP PARTITION (d = 'a')", "ALTER TABLE t ADD PARTITION (d = 'a', h = 1)")
    run(executor, catalog, "ALTER TABLE t DROP PARTITION (d = 'b'); ALTER TABLE t ADD PARTITION (d = 'b', h = 2)")
    assert rows(executor, "SELECT * FROM t") == [(3, "c", 3)]
    run(executor, catalog, "INSERT INTO t VALUES (7, 'a', 1), (8, 'b', 2)")
    assert rows(executor, "SELECT * FROM t") == [(3, "c", 3), (7, "a", 1), (8, "b", 2)]


def test_the_first_rows_of_a_table_go_to_where_the_catalog_says(executor, catalog):
    run(
        executor,
        catalog,
        MAKE,
        "ALTER TABLE t ADD PARTITION (d = 'x', h = 1)",
        "ALTER TABLE t DROP PARTITION (d = 'x')",
    )
    run(executor, catalog, "INSERT INTO t VALUES (1, 'a', 1)")
    assert rows(executor, "SELECT * FROM t") == [(1, "a", 1)]


VALUES = [
    "v1..v2",
    "..",
    "a/b",
    "x=y",
    "%41",
    "ä ö",
    "a:b",
    "",
    " ",
    "'",
    "x" * 200,
    "日本\u3000",
    "a\u0301",
    "*?",
    "a\\b",
]


def test_values_of_all_kinds_become_partitions(executor, catalog):
    run(executor, catalog, "CREATE TABLE t (v INT, d STRING) USING parquet PARTITIONED BY (d)")
    texts = [value.replace("\\", "\\\\").replace("'", "\\'") for value in VALUES]

    def given(number: int) -> str:
        return ", ".join(f"({number}, '{text}')" for text in texts)

    def expected(*numbers: int) -> Counter:
        return Counter((number, value or None) for number in numbers for value in VALUES)

    run(executor, catalog, f"INSERT INTO t VALUES {given(1)}", f"INSERT INTO t VALUES {given(2)}")
    assert Counter(rows(executor, "SELECT v, d FROM t")) == expected(1, 2)
    run(
        executor,
        catalog,
        f"SET spark.sql.sources.partitionOverwriteMode = dynamic; INSERT OVERWRITE t VALUES {given(3)}",
    )
    assert Counter(rows(executor, "SELECT v, d FROM t")) == expected(3)


def test_truncated_tables_and_partitions_are_empty(executor, catalog):
    run(executor, catalog, MAKE, "INSERT INTO t VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 1)")
    run(executor, catalog, "TRUNCATE TABLE t PARTITION (d = 'a', h = 01)", "TRUNCATE TABLE t PARTITION (d = 'b')")
    assert rows(executor, "SELECT v FROM t") == [(2,)]
    run(executor, catalog, "INSERT INTO t VALUES (4, 'a', 1)", "TRUNCATE TABLE t")
    assert rows(executor, "SELECT v FROM t") == []
    assert len(rows(executor, "SHOW PARTITIONS t")) == 3, "they are there, and empty"
    run(
        executor, catalog, "CREATE TABLE plain AS SELECT 1 AS a", "TRUNCATE TABLE plain", "INSERT INTO plain VALUES (2)"
    )
    assert rows(executor, "SELECT * FROM plain") == [(2,)]
    run(executor, catalog, "CREATE TABLE theirs (a INT) USING parquet LOCATION '/tmp/theirs-onager'")
    for wrong, why in (
        ("TRUNCATE TABLE t PARTITION (d = 'a', h = 7)", "PARTITIONS_NOT_FOUND"),
        ("TRUNCATE TABLE plain PARTITION (a = 1)", "partition"),
        ("TRUNCATE TABLE theirs", "external table"),
        ("TRUNCATE TABLE none", "TABLE_OR_VIEW_NOT_FOUND"),
    ):
        with pytest.raises(AnalysisException, match=why):
            plan(executor, wrong)


def test_rows_go_to_partitions_that_lie_elsewhere(executor, catalog, tmp_path):
    run(executor, catalog, MAKE, f"ALTER TABLE t ADD PARTITION (d = 'a', h = 1) LOCATION '{tmp_path}/far/a'")
    run(executor, catalog, "INSERT INTO t VALUES (1, 'a', 1), (2, 'a', 2)")
    assert list((tmp_path / "far" / "a").glob("part-*"))
    assert rows(executor, "SELECT v FROM t") == [(1,), (2,)]


def test_partitions_of_a_table_with_a_place_of_its_own_are_replaced_beside_the_others(executor, catalog, tmp_path):
    place = tmp_path / "with space"
    run(executor, catalog, f"{MAKE} LOCATION '{place}'", "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1)")
    run(executor, catalog, "INSERT OVERWRITE t PARTITION (d = 'a', h) VALUES (3, 1)")
    assert rows(executor, "SELECT v FROM t") == [(2,), (3,)]
    run(executor, catalog, "INSERT OVERWRITE t VALUES (4, 'c', 1)")
    assert rows(executor, "SELECT v FROM t") == [(4,)]
    assert rows(executor, "SHOW PARTITIONS t") == [("d=c/h=1",)]
    assert list((place / "d=b" / "h=1").glob("part-*")), "who reads the old rows still finds them"


def test_tables_with_buckets_are_written_and_joined_as_spark_does(executor, catalog):
    run(
        executor,
        catalog,
        "CREATE TABLE t USING parquet PARTITIONED BY (d) CLUSTERED BY (k) SORTED BY (v) INTO 3 BUCKETS "
        "AS SELECT id % 10 AS k, id AS v, concat('d', id % 2) AS d FROM range(100)",
        "INSERT INTO t SELECT id % 10, id, 'd1' FROM range(100, 200)",
        "CREATE TABLE u (k BIGINT, w BIGINT) USING orc CLUSTERED BY (k) INTO 3 BUCKETS",
        "INSERT INTO u SELECT id, id * 2 FROM range(10)",
    )
    names = [path.name for path in Path(folder(catalog, "t")).rglob("part-*")]
    assert {name.rpartition("_")[2][:5] for name in names} == {"00000", "00001", "00002"}
    joined = "SELECT d, sum(v * w) AS s, count(*) AS n FROM t JOIN u USING (k) GROUP BY d"
    expected = [("d0", *_sums(range(0, 100, 2))), ("d1", *_sums([*range(1, 100, 2), *range(100, 200)]))]
    assert rows(executor, joined) == expected
    assert rows(executor, f"SET spark.sql.autoBroadcastJoinThreshold = -1; {joined}") == expected
    assert executor.spark.read.parquet(folder(catalog, "t")).count() == 200


def _sums(values):
    values = list(values)
    return sum(v * 2 * (v % 10) for v in values), len(values)
