"""Statements about the catalog and about rows of tables, each in a job of its own, against plain Spark's catalog."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onager.errors import SideEffectError
from tests.integration.planning.statements import BEFORE_ERRORS, ERRORS, REFUSED_OTHERWISE, SCRIPTS
from tests.integration.planning.test_table_writes import publish
from tests.support.catalog import MemoryCatalog
from tests.support.selection import some
from tests.support.spark.one_executor import OneExecutor, rows_of

REPORTED_OTHERWISE = re.compile(
    r"-[0-9a-f]{16}(?=[/\s']|$)|#\d+L?|transient_lastDdlTime=\d+"
    r"|(?<=Created Time)[^\n]*|(?<=Create Time)[^\n]*|(?<=Last Access)[^\n]*|(?<=Created By)[^\n]*"
)
"""Times, the ids in the places of managed tables, and those of columns."""


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


@pytest.mark.parametrize("name", some(SCRIPTS, one_in=6))
def test_gives_what_plain_spark_gives(
    executor: OneExecutor, catalog: MemoryCatalog, plain: SparkSession, data: Path, name: str
) -> None:
    for statement in SCRIPTS[name]:
        text = statement.replace("{data}", str(data))
        outcome = executor.plan_sql(text, conf={})
        if outcome.sink.path:
            got = []
            catalog.commit(outcome, publish(outcome, executor.job_id, catalog))
        else:
            got = executor.run(outcome)
            catalog.commit(outcome)
        for each in text.split("; "):
            frame = plain.sql(each)
        expected = rows_of(frame.toArrow())
        assert comparable(got) == comparable(expected), text


def test_refuses_what_plain_spark_refuses(
    executor: OneExecutor, catalog: MemoryCatalog, plain: SparkSession, data: Path
) -> None:
    for statement in BEFORE_ERRORS:
        catalog.commit(executor.plan_sql(statement.replace("{data}", str(data)), conf={}))
        plain.sql(statement.replace("{data}", str(data)))
    for text in some(ERRORS):
        with pytest.raises(PySparkException) as expected:  # noqa: PT012 - one of them is refused
            for each in text.split("; "):
                plain.sql(each)
        with pytest.raises(type(expected.value)) as refused:
            executor.plan_sql(text, conf={})
        assert refused.value.getCondition() == expected.value.getCondition(), text


@pytest.mark.parametrize("text", REFUSED_OTHERWISE)
def test_refuses_in_words_of_its_own_what_plain_spark_refuses(
    executor: OneExecutor, catalog: MemoryCatalog, plain: SparkSession, data: Path, text: str
) -> None:
    with pytest.raises(PySparkException):
        plain.sql(text)
    with pytest.raises(
        SideEffectError, match="Onager does not carry out: rows of a table are not changed where they are"
    ):
        executor.plan_sql(text, conf={})


def comparable(rows: list[tuple[object, ...]]) -> list[str]:
    """Return rows without what differs from run to run, lists in any order, and without owners: default has none."""
    texts = [REPORTED_OTHERWISE.sub("", str(cell) if cell is not None else "-") for row in rows for cell in row]
    texts = [re.sub(r"\[([^\[\]]*)\]", lambda found: str(sorted(found[1].split(", "))), text) for text in texts]
    width = len(rows[0]) if rows else 1
    lines = ["\t".join(texts[i : i + width]) for i in range(0, len(texts), width)]
    return sorted(line for line in lines if not line.startswith(("Created Time", "Last Access", "Owner")))
