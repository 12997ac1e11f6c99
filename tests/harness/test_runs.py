"""What a run tells, what it leaves alone, and what the assertion does not let through."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import SparkRuntimeException

from onager.testing import HarnessConfig, assert_distributed_eq, create_stages
from onager.testing.kernel import jvm_with_kernel
from tests.harness.faults import fault

SUMS = "select k, count(*) n, sum(id) s from sales group by k"
ROOT = Path(__file__).resolve().parents[2]


# ---------------------------------------------------------------- what a run tells


def test_tasks_say_what_they_read_and_gave(spark, tables):
    run = assert_distributed_eq(spark.sql(SUMS), HarnessConfig(tasks=4))
    assert [(task.stage_id, task.partition) for task in run.tasks] == [
        (stage.stage_id, partition) for stage in run.graph.stages for partition in range(stage.tasks)
    ]
    scans, sums = run.tasks_of(1), run.tasks_of(2)
    assert len(scans) >= 3
    assert len(sums) == 4
    assert sum(task.rows_read for task in scans) == 300
    assert 7 <= sum(task.rows for task in scans) <= 7 * len(scans)
    assert all((task.bytes > 0) == (task.rows > 0) for task in scans)
    assert all((task.bytes_read > 0) == (task.rows > 0) for task in sums)
    assert [task.rows_read for task in sums] == [0, 0, 0, 0]
    assert [task.rows for task in sums] == [part.num_rows for part in run.partitions]
    assert pa.concat_tables(run.partitions) == run.table
    assert sorted(run.rows) == [(k, 43 if k < 6 else 42, sum(range(k, 300, 7))) for k in range(7)]
    assert run.spilled_bytes == 0


def test_runs_side_by_side_do_not_meet(spark, tables):
    texts = [SUMS, "select id, k from sales order by id", "select max(id) from groups join sales using (k)"] * 2
    with ThreadPoolExecutor(3) as threads:
        runs = list(threads.map(lambda text: assert_distributed_eq(spark.sql(text)), texts))
    assert [run.table.num_rows for run in runs] == [7, 300, 1] * 2


def test_a_graph_tells_of_its_stages_before_anything_runs(spark, tables):
    graph = create_stages(spark.sql("select raise_error('never run') from sales group by k"))
    assert graph.is_cut
    assert "raise_error" in graph.stages[-1].plan


# ---------------------------------------------------------------- what a run leaves alone


def test_the_session_is_as_it_was(spark, tables):
    def state():
        listeners = spark.sparkContext._jsc.sc().listenerBus().listeners()
        ours = [name for each in list(listeners) if (name := str(each.getClass().getName())).startswith("onager")]
        active = jvm_with_kernel(spark).java_class("org.apache.spark.sql.classic.SparkSession").getActiveSession()
        return (
            sorted(map(tuple, spark.sql("set").collect())),
            sorted(table.name for table in spark.catalog.listTables()),
            sorted(function.name for function in spark.catalog.listFunctions()),
            ours,
            active.isDefined() and active.get().equals(spark._jsparkSession),
            spark.sparkContext.getLocalProperty("spark.jobGroup.id"),
            len(spark.sparkContext._jsc.getPersistentRDDs()),
        )

    spark.sql(SUMS).collect()
    before = state()
    config = HarnessConfig(conf={"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.ansi.enabled": "false"})
    assert_distributed_eq(spark.sql(SUMS), config)
    assert state() == before
    with pytest.raises(AssertionError, match="another result"):
        assert_distributed_eq(spark.sql(SUMS), config, plant=fault("lose", 2))
    assert state() == before


def test_a_frame_can_be_checked_again_and_collected(spark, tables):
    frame = spark.sql(SUMS)
    first, second = assert_distributed_eq(frame), assert_distributed_eq(frame, HarnessConfig(tasks=2))
    assert sorted(first.rows) == sorted(second.rows) == sorted(map(tuple, frame.collect()))


# ---------------------------------------------------------------- what the assertion does not let through


@pytest.mark.parametrize("text", ["select id from sales where k = 1", "select 1", "select id from range(10)"])
def test_a_query_that_is_not_cut_has_to_be_marked(spark, tables, text):
    with pytest.raises(AssertionError, match="the query is one stage, so nothing was exchanged"):
        assert_distributed_eq(spark.sql(text))
    run = assert_distributed_eq(spark.sql(text), HarnessConfig(single_stage=True))
    assert not run.graph.is_cut


def test_a_marked_query_that_is_cut_fails(spark, tables):
    with pytest.raises(AssertionError, match="marked as a single stage, and has 2"):
        assert_distributed_eq(spark.sql(SUMS), HarnessConfig(single_stage=True))


def test_what_cannot_be_cut_is_named(spark, tables):
    counter = spark.sparkContext.accumulator(0)
    seen = spark.sparkContext.broadcast([1, 2])

    def look(x):
        counter.add(1)
        return x in seen.value

    spark.udf.register("look", look, "boolean")
    with pytest.raises(AssertionError, match="cannot be distributed, so there is nothing to compare"):
        assert_distributed_eq(spark.sql("select look(k), count(*) from sales group by 1"))


@pytest.mark.parametrize(
    "config",
    [
        {"tasks": 0},
        {"executors": 0},
        {"exchange": "pigeons"},
        {"channel_frames": 0},
        {"timeout_s": 0},
        {"relative_tolerance": 1.0},
    ],
    ids=str,
)
def test_a_config_that_means_nothing_is_refused(config):
    with pytest.raises(ValueError, match=f"HarnessConfig.{next(iter(config))} is"):
        HarnessConfig(**config)


# ---------------------------------------------------------------- what counts as the same


def test_nan_zero_and_null_are_compared_as_spark_groups_them(spark, tables):
    text = """
        select v, count(*) n from (
          select case k when 0 then double('nan') when 1 then -0.0d when 2 then 0.0d when 3 then null
                        when 4 then double('infinity') else 0.1d * id end v
          from sales) group by v"""
    run = assert_distributed_eq(spark.sql(text))
    values = [v for v, _ in run.rows]
    assert values.count(None) == 1
    assert sum(v is not None and v != v for v in values) == 1  # noqa: PLR0124
    assert values.count(0.0) == 1


def test_columns_of_one_name_are_compared_each(spark, tables):
    run = assert_distributed_eq(spark.sql("select k as x, count(*) as x, sum(id) as X from sales group by k"))
    assert run.table.schema.names == ["x", "x", "X"]
    assert len(run.rows[0]) == 3


def test_rows_without_columns_are_counted(spark, tables):
    frame = spark.sql("select /*+ repartition(3) */ id from sales").select()
    assert assert_distributed_eq(frame).rows == [()] * 300
    with pytest.raises(AssertionError, match="299 rows, where plain Spark gives 300"):
        assert_distributed_eq(frame, plant=fault("lose", 1))


def test_an_error_of_plain_spark_is_raised_as_it_is(spark, tables):
    with pytest.raises(SparkRuntimeException, match="in both"):
        assert_distributed_eq(spark.sql("select raise_error('in both'), count(*) from sales group by 1"))


# ---------------------------------------------------------------- a project of its own

PROJECT = {
    "conftest.py": """
import json, pathlib
import pytest
from pyspark.sql import SparkSession
from onager.testing import HarnessConfig

LINES = pathlib.Path(__file__).parent / "t.json"

@pytest.fixture(scope="session")
def spark():
    session = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate())
    LINES.write_text("".join(json.dumps({"id": n, "k": n % 5}) + "\\n" for n in range(100)))
    session.read.schema("id long, k long").json(str(LINES)).createOrReplaceTempView("t")
    yield session
    session.stop()

@pytest.fixture
def onager_config():
    return HarnessConfig(tasks=2)
""",
    "test_queries.py": """
def test_right(spark, assert_distributed_eq):
    for exchange in ("files", "streams"):
        run = assert_distributed_eq(spark.sql("select k, sum(id) from t group by k"), exchange=exchange)
        assert run.graph.stages[0].buckets == 2

def test_function_that_counts(spark, assert_distributed_eq):
    seen = []

    def number(x):
        seen.append(x)
        return len(seen)

    spark.udf.register("number", number, "int")
    assert_distributed_eq(spark.sql("select sum(number(id)) from t"))

def test_forgotten_mark(spark, assert_distributed_eq):
    assert_distributed_eq(spark.sql("select id from t"))
""",
}


@pytest.mark.long
def test_a_project_finds_the_fixtures_and_reads_what_is_wrong(tmp_path):
    for name, content in PROJECT.items():
        (tmp_path / name).write_text(content)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "-W",
        "ignore",
        "-p",
        "no:schemathesis",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    printed = done.stdout
    assert "PASSED test_queries.py::test_right" in printed, printed + done.stderr
    assert "FAILED test_queries.py::test_function_that_counts" in printed, printed
    assert "AssertionError: distributed, the query gives another result" in printed, printed
    assert "FAILED test_queries.py::test_forgotten_mark" in printed, printed
    assert "AssertionError: the query is one stage" in printed, printed
    assert "onager/testing" not in printed, printed
