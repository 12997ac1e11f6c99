"""Statements about databases, tables, views and functions, each in a job of its own, against plain Spark's catalog."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.integration.planning.catalogs import planned_with
from tests.support.catalog import MemoryCatalog
from tests.support.spark.one_executor import OneExecutor, rows_of

SALES = """CREATE TABLE sales (id BIGINT COMMENT 'a number', country STRING, day DATE) USING parquet
    PARTITIONED BY (country, day) LOCATION '{data}/sales' COMMENT 'what was sold' TBLPROPERTIES (b = '2', a = '1')"""
SCRIPTS: dict[str, list[str]] = {
    "databases": [
        "CREATE DATABASE one COMMENT 'first' WITH DBPROPERTIES (x = '1')",
        "CREATE DATABASE IF NOT EXISTS one",
        "ALTER DATABASE one SET DBPROPERTIES (y = '2')",
        "COMMENT ON DATABASE one IS 'another'",
        "ALTER DATABASE one SET LOCATION '{data}/one'",
        "SHOW DATABASES",
        "SHOW DATABASES LIKE 'o*'",
        "DESCRIBE DATABASE EXTENDED one",
        "DESCRIBE DATABASE default",
        "USE one; SHOW CURRENT NAMESPACE",
        "CREATE TABLE one.t (a INT)",
        "CREATE VIEW one.v AS SELECT 1 AS x",
        "SHOW TABLES IN one",
        "SHOW VIEWS IN one",
        "USE one; DESCRIBE t",
        "DROP DATABASE one CASCADE",
        "SHOW DATABASES",
        "DROP DATABASE IF EXISTS one",
    ],
    "tables": [
        "CREATE TABLE plain (a INT NOT NULL, b STRING DEFAULT 'x', c DECIMAL(10, 2), d VARCHAR(5), e CHAR(3))",
        "CREATE TABLE IF NOT EXISTS plain (z INT)",
        (
            "CREATE TABLE buckets (k INT, s STRUCT<a: INT, b: ARRAY<STRING>>) USING orc CLUSTERED BY (k) SORTED "
            "BY (k) INTO 4 BUCKETS"
        ),
        "CREATE TABLE lower (name STRING COLLATE UTF8_LCASE, `Mixed Case` INT) USING parquet",
        "CREATE TABLE commas USING csv OPTIONS (header 'true', inferSchema 'true', sep ',') LOCATION '{data}/people'",
        "CREATE TABLE copy LIKE plain USING json LOCATION '{data}/copy'",
        "CREATE TABLE clusters (a INT, b INT) CLUSTER BY (a)",
        "SHOW TABLES",
        "SHOW TABLES LIKE 'c*'",
        "DESCRIBE plain",
        "DESCRIBE EXTENDED plain",
        "DESCRIBE EXTENDED buckets",
        "DESCRIBE EXTENDED lower",
        "DESCRIBE EXTENDED commas",
        "DESCRIBE EXTENDED clusters",
        "DESCRIBE EXTENDED copy",
        "DESCRIBE plain b",
        "SHOW COLUMNS IN buckets",
        "SHOW CREATE TABLE commas",
        "SHOW CREATE TABLE buckets",
        "SHOW CREATE TABLE lower",
        "SHOW TABLE EXTENDED LIKE 'commas'",
        "SELECT * FROM commas",
        "SELECT name, count(*) FROM commas GROUP BY name",
    ],
    "alterations": [
        SALES,
        "ALTER TABLE sales SET TBLPROPERTIES (c = '3', a = '4')",
        "ALTER TABLE sales UNSET TBLPROPERTIES (b)",
        "SHOW TBLPROPERTIES sales",
        "ALTER TABLE sales ADD COLUMNS (note STRING COMMENT 'said')",
        "ALTER TABLE sales ALTER COLUMN id COMMENT 'its number'",
        "COMMENT ON TABLE sales IS 'sold'",
        "ALTER TABLE sales SET SERDEPROPERTIES (p = 'q')",
        "DESCRIBE EXTENDED sales",
        "ALTER TABLE sales RENAME TO sold",
        "SHOW TABLES",
        "DESCRIBE EXTENDED sold",
        "ALTER TABLE sold SET LOCATION '{data}/elsewhere'",
        "DESCRIBE EXTENDED sold",
        "DROP TABLE sold",
        "DROP TABLE IF EXISTS sold",
        "SHOW TABLES",
    ],
    "partitions": [
        SALES,
        "SHOW PARTITIONS sales",
        (
            "ALTER TABLE sales ADD PARTITION (country = 'DE', day = '2025-01-01') LOCATION "
            "'{data}/sales/country=DE/day=2025-01-01'"
        ),
        "ALTER TABLE sales ADD IF NOT EXISTS PARTITION (country = 'DE', day = '2025-01-01')",
        "SELECT * FROM sales",
        "MSCK REPAIR TABLE sales",
        "SHOW PARTITIONS sales",
        "SHOW PARTITIONS sales PARTITION (country = 'FR')",
        "SELECT * FROM sales",
        "SELECT id FROM sales WHERE country = 'DE'",
        "SELECT count(*) FROM sales WHERE day > DATE'2025-01-01'",
        "SELECT day, sum(id) FROM sales GROUP BY day",
        "DESCRIBE EXTENDED sales PARTITION (country = 'FR', day = '2025-01-03')",
        "SHOW TABLE EXTENDED LIKE 'sales' PARTITION (country = 'FR', day = '2025-01-03')",
        "ALTER TABLE sales DROP PARTITION (country = 'DE', day = '2025-01-01')",
        "SHOW PARTITIONS sales",
        "ALTER TABLE sales RECOVER PARTITIONS",
        (
            "ALTER TABLE sales PARTITION (country = 'FR', day = '2025-01-03') RENAME TO PARTITION (country = "
            "'NL', day = '2025-01-03')"
        ),
        "SHOW PARTITIONS sales",
        "SELECT * FROM sales",
        (
            "ALTER TABLE sales PARTITION (country = 'NL', day = '2025-01-03') SET LOCATION "
            "'{data}/sales/country=DE/day=2025-01-02'"
        ),
        "SELECT * FROM sales",
        "ALTER TABLE sales ADD PARTITION (country = 'a/b=c d', day = '2025-02-01')",
        "SHOW PARTITIONS sales",
        "ALTER TABLE sales DROP IF EXISTS PARTITION (country = 'XX')",
        "MSCK REPAIR TABLE sales SYNC PARTITIONS",
        "SHOW PARTITIONS sales",
    ],
    "statistics": [
        SALES,
        "MSCK REPAIR TABLE sales",
        "ANALYZE TABLE sales COMPUTE STATISTICS",
        "DESCRIBE EXTENDED sales",
        "ANALYZE TABLE sales COMPUTE STATISTICS FOR ALL COLUMNS",
        "DESCRIBE EXTENDED sales id",
        "ANALYZE TABLE sales PARTITION (country, day) COMPUTE STATISTICS",
        "DESCRIBE EXTENDED sales PARTITION (country = 'DE', day = '2025-01-02')",
        "SET spark.sql.statistics.histogram.enabled = true; ANALYZE TABLE sales COMPUTE STATISTICS FOR COLUMNS id",
        "DESCRIBE EXTENDED sales id",
        "ANALYZE TABLES COMPUTE STATISTICS NOSCAN",
        "EXPLAIN COST SELECT id FROM sales",
    ],
    "views": [
        "CREATE TABLE people USING csv OPTIONS (header 'true', inferSchema 'true') LOCATION '{data}/people'",
        (
            "CREATE VIEW names (who COMMENT 'a name', n) COMMENT 'few' TBLPROPERTIES (p = '1') AS SELECT name, "
            "count(*) AS c FROM people GROUP BY name"
        ),
        "CREATE OR REPLACE VIEW more AS SELECT who FROM names WHERE n > 0",
        "SELECT * FROM more",
        "DESCRIBE EXTENDED names",
        "SHOW CREATE TABLE names",
        "SHOW VIEWS",
        "ALTER VIEW names SET TBLPROPERTIES (q = '2')",
        "ALTER VIEW names UNSET TBLPROPERTIES (p)",
        "SHOW TBLPROPERTIES names",
        "ALTER VIEW more AS SELECT upper(who) AS loud FROM names",
        "SELECT * FROM more",
        "ALTER VIEW more WITH SCHEMA COMPENSATION",
        "ALTER VIEW more RENAME TO louder",
        "SHOW VIEWS",
        "SELECT * FROM louder JOIN names ON lower(loud) = lower(who)",
        "DROP VIEW louder",
        "SHOW TABLES",
        "CREATE TEMPORARY VIEW own AS SELECT * FROM names; SELECT * FROM own",
    ],
    "functions": [
        "CREATE FUNCTION plus_one (x INT) RETURNS INT COMMENT 'one more' RETURN x + 1",
        "SELECT plus_one(id) FROM VALUES (1), (2) AS t(id)",
        "CREATE FUNCTION rows_of (n INT) RETURNS TABLE (i INT) RETURN SELECT n AS i UNION ALL SELECT n + 1",
        "SELECT * FROM rows_of(5)",
        "CREATE FUNCTION by_class AS 'org.apache.spark.sql.catalyst.expressions.Upper'",
        "SHOW USER FUNCTIONS",
        "DESCRIBE FUNCTION by_class",
        "DESCRIBE FUNCTION EXTENDED plus_one",
        "CREATE OR REPLACE FUNCTION by_class AS 'org.apache.spark.sql.catalyst.expressions.Lower'",
        "DESCRIBE FUNCTION by_class",
        "REFRESH FUNCTION by_class",
        "CREATE VIEW raised AS SELECT plus_one(id) AS n FROM VALUES (1), (2) AS t(id)",
        "SELECT * FROM raised",
        "DROP FUNCTION by_class",
        "DROP FUNCTION IF EXISTS by_class",
        "SHOW USER FUNCTIONS",
        "DROP VIEW raised",
        "DROP FUNCTION plus_one",
        "DROP FUNCTION rows_of",
    ],
}
ERRORS = [
    "CREATE DATABASE default",
    "DROP DATABASE default",
    "DROP DATABASE nowhere",
    "CREATE TABLE nowhere.t (a INT)",
    "DROP TABLE nowhere",
    "SELECT * FROM nowhere",
    "SELECT nowhere(1)",
    "ALTER TABLE nowhere SET TBLPROPERTIES (a = '1')",
    "CREATE VIEW v AS SELECT * FROM nowhere",
    "DROP FUNCTION nowhere",
    "CREATE TABLE people (a INT)",
    "CREATE VIEW people AS SELECT 1",
    "ALTER TABLE people ADD PARTITION (a = 1)",
    "ALTER TABLE people RENAME TO people",
    "MSCK REPAIR TABLE people",
    "DROP VIEW people",
    "ALTER TABLE people DROP COLUMN name",
    "CREATE TABLE `a-b` (a INT)",
    "DESCRIBE nowhere",
    "USE nowhere; SELECT 1",
]
TOLD_OTHERWISE = re.compile(
    r"-[0-9a-f]{16}(?=[/\s']|$)|#\d+L?|transient_lastDdlTime=\d+"
    r"|(?<=Created Time)[^\n]*|(?<=Create Time)[^\n]*|(?<=Last Access)[^\n]*|(?<=Created By)[^\n]*"
)
"""Times, the ids in the places of managed tables, and those of columns."""


@pytest.fixture
def catalog(executor: OneExecutor) -> Iterator[MemoryCatalog]:
    with planned_with(executor) as made:
        yield made


@pytest.fixture(scope="module")
def data(executor: OneExecutor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files over which tables are made."""
    directory = tmp_path_factory.mktemp("data")
    spark = executor.spark
    sold = [(1, "DE", "2025-01-01"), (2, "DE", "2025-01-02"), (3, "FR", "2025-01-02"), (4, "FR", "2025-01-03")]
    frame = spark.createDataFrame(sold, "id BIGINT, country STRING, day STRING").coalesce(1)
    frame.write.partitionBy("country", "day").parquet(f"{directory}/sales")
    people = directory / "people"
    people.mkdir()
    (people / "people.csv").write_text("name,age\nAnn,30\nBob,40\nAnn,50\n")
    return directory


@pytest.fixture
def plain(executor: OneExecutor) -> Iterator[SparkSession]:
    """A session over Spark's own catalog, which is left as it was."""
    session = executor.spark.newSession()
    yield session
    session.sql("USE default")
    for row in session.sql("SHOW TABLES").collect():
        is_view = session.catalog.getTable(row.tableName).tableType == "VIEW"
        session.sql(f"DROP {'VIEW' if is_view else 'TABLE'} {row.tableName}")


@pytest.mark.parametrize("name", SCRIPTS)
def test_gives_what_plain_spark_gives(
    executor: OneExecutor, catalog: MemoryCatalog, plain: SparkSession, data: Path, name: str
) -> None:
    for statement in SCRIPTS[name]:
        text = statement.replace("{data}", str(data))
        outcome = executor.plan_sql(text, conf={})
        got = executor.run(outcome)
        catalog.commit(outcome)
        for each in text.split("; "):
            frame = plain.sql(each)
        expected = rows_of(frame.toArrow())
        assert comparable(got) == comparable(expected), text


@pytest.mark.parametrize("text", ERRORS)
def test_refuses_what_plain_spark_refuses(
    executor: OneExecutor, catalog: MemoryCatalog, plain: SparkSession, data: Path, text: str
) -> None:
    people = f"CREATE TABLE people USING csv OPTIONS (header 'true') LOCATION '{data}/people'"
    catalog.commit(executor.plan_sql(people, conf={}))
    plain.sql(people)
    with pytest.raises(PySparkException) as expected:  # noqa: PT012 - one of them is refused
        for each in text.split("; "):
            plain.sql(each)
    with pytest.raises(type(expected.value)) as refused:
        executor.plan_sql(text, conf={})
    assert refused.value.getCondition() == expected.value.getCondition()


def comparable(rows: list[tuple[object, ...]]) -> list[str]:
    """Return rows without what differs from run to run, lists in any order, and without owners: default has none."""
    texts = [TOLD_OTHERWISE.sub("", str(cell) if cell is not None else "-") for row in rows for cell in row]
    texts = [re.sub(r"\[([^\[\]]*)\]", lambda found: str(sorted(found[1].split(", "))), text) for text in texts]
    width = len(rows[0]) if rows else 1
    lines = ["\t".join(texts[i : i + width]) for i in range(0, len(texts), width)]
    return sorted(line for line in lines if not line.startswith(("Created Time", "Last Access", "Owner")))
