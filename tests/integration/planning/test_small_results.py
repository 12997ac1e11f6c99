"""Small results that the driver computes or collects by itself: the rows and errors of plain Spark, in fewer jobs."""

from collections.abc import Callable

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.support.spark.one_executor import OneExecutor, rows_of

COMPUTED = [
    "SELECT 1 AS a, 'x' AS b, CAST(NULL AS INT) AS c",
    "VALUES (1, DATE '2026-01-01'), (2, NULL) AS t(a, b)",
    "SELECT id, id * 2 AS twice FROM range(0, 1000, 1, 7) WHERE id % 3 = 0",
    "SELECT id FROM range(5) UNION ALL SELECT a FROM VALUES (7), (NULL) AS t(a) UNION ALL SELECT 9",
    "SELECT id, spark_partition_id() AS p, monotonically_increasing_id() AS m FROM range(0, 20, 1, 4)",
    "SELECT id, rand(7) AS r FROM range(0, 20, 1, 4)",
    "SELECT current_database() AS d, timestamp_seconds(id) AS t FROM range(3)",
    "SELECT id FROM range(0, 1000, 1, 4) WHERE id > 2000",
    "SELECT id FROM range(0, 1000, 1, 4) WHERE id > 300 LIMIT 7",
    "SELECT id FROM range(0, 1000, 1, 4) LIMIT 0",
    "SELECT map('k', array(named_struct('x', id))) AS nested FROM range(3)",
]
COLLECTED = [
    "SELECT id FROM range(0, 1000000, 1, 4) WHERE id > 300 LIMIT 7",
    "SELECT id FROM range(0, 1000000, 1, 4) LIMIT 7 OFFSET 300000",
    "SELECT k, count(*) AS n FROM (SELECT id % 7 AS k FROM range(1000)) GROUP BY k LIMIT 100",
]
BY_TASKS = [
    "SELECT id FROM range(0, 20000, 1, 4)",
    "SELECT id FROM range(6000) UNION ALL SELECT id FROM range(6000)",
    "SELECT sum(id) AS s FROM range(10)",
    "SELECT aggregate(sequence(1, 10), 0L, (a, x) -> a + x) + id AS s FROM range(3)",
    "SELECT id FROM range(0, 1000000, 1, 4) WHERE id > 300 LIMIT 5000",
]
ERRORS = [
    "SELECT 1 / id AS x FROM range(0, 3, 1, 1)",
    "SELECT CAST('x' || id AS INT) AS n FROM range(0, 3, 1, 1)",
    "SELECT raise_error('no ' || id) FROM range(0, 3, 1, 1)",
    "SELECT CAST('x' || id AS INT) AS n FROM range(0, 1000000, 1, 1) LIMIT 3",
]


def jobs_of(executor: OneExecutor, text: str, **conf: str) -> tuple[list[tuple[object, ...]], int]:
    """Return the rows of a query that is not cut, and how many jobs of Spark gave them."""
    scheduler = executor.spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    outcome = executor.plan_sql(text, conf=conf)
    assert outcome.HasField("fused_output")
    return executor.run(outcome), scheduler.numTotalJobs() - before


@pytest.mark.parametrize("text", COMPUTED)
def test_what_is_computed_without_a_job(executor: OneExecutor, text: str) -> None:
    rows, jobs = jobs_of(executor, text)
    assert rows == rows_of(executor.spark.sql(text).toArrow())
    assert jobs == 0


@pytest.mark.parametrize("text", COLLECTED)
def test_what_is_collected(executor: OneExecutor, text: str) -> None:
    rows, jobs = jobs_of(executor, text)
    assert sorted(rows) == sorted(rows_of(executor.spark.sql(text).toArrow()))
    assert jobs > 0


@pytest.mark.parametrize("text", BY_TASKS)
def test_what_tasks_compute(executor: OneExecutor, text: str) -> None:
    rows, jobs = jobs_of(executor, text)
    assert sorted(rows) == sorted(rows_of(executor.spark.sql(text).toArrow()))
    assert jobs > 0


def test_the_settings_of_the_job_count(executor: OneExecutor) -> None:
    """Also where rows are computed: of time zones, and of what is an error."""
    text = "SELECT CAST(timestamp_seconds(id) AS STRING) AS t, CAST('x' || id AS INT) AS n FROM range(2)"
    conf = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.ansi.enabled": "false"}
    rows, jobs = jobs_of(executor, text, **conf)
    assert rows == [("1970-01-01 09:00:00", None), ("1970-01-01 09:00:01", None)]
    assert jobs == 0


@pytest.mark.parametrize(
    ("text", "conf", "row"),
    [
        (
            "SELECT map_values(map(id, 1, id, 2)) AS v FROM range(3)",
            {"spark.sql.mapKeyDedupPolicy": "LAST_WIN"},
            ([2],),
        ),
        (
            "SELECT date_format(timestamp_seconds(id), 'u') AS u FROM range(3)",
            {"spark.sql.legacy.timeParserPolicy": "LEGACY", "spark.sql.session.timeZone": "UTC"},
            ("4",),
        ),
    ],
)
@pytest.mark.parametrize("limit", ["", " LIMIT 3"])
@pytest.mark.parametrize("generated", ["true", "false"])
def test_settings_that_are_read_late_count(executor: OneExecutor, text, conf, row, limit, generated) -> None:
    rows, jobs = jobs_of(executor, text + limit, **conf, **{"spark.sql.codegen.wholeStage": generated})
    assert (rows, jobs) == ([row] * 3, 0)


def said(run: Callable[[], object]) -> tuple[str, str]:
    """Return condition and message of the error of Spark that *run* raises."""
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        run()
    error = raised.value
    origin = error._origin if isinstance(error, PySparkException) else error.java_exception
    while origin.getCause() is not None:
        origin = origin.getCause()
    return str(origin.getClass().getName()), str(origin.getMessage())


@pytest.mark.parametrize("text", ERRORS)
def test_errors_are_those_of_spark(executor: OneExecutor, text: str) -> None:
    expected = said(lambda: executor.spark.sql(text).collect())
    assert said(lambda: executor.plan_sql(text, conf={})) == expected
