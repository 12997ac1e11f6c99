"""Single-stage queries run with plain Spark by the kernel: one result, in order, however many partitions made it."""

import threading
import time

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql.functions import udf

from onager.executor.spark import failures
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel.plans import arrow_schema


def run_single_stage(runner, spark, frame, job_id, **spec):
    spec = {"nonce": "n0", "directory": f"{job_id}/1", "names": frame.columns, "layout": "result"} | spec
    return runner.kernel.run_single_stage(spark._jsparkSession, frame._jdf.queryExecution(), spec)


def test_a_small_result_is_one_inline_stream_in_order(spark, runner, job):
    event, inline = run_single_stage(runner, spark, spark.range(0, 100, 1, 7).selectExpr("id", "'x' id"), job.job_id)
    table = pa.ipc.open_stream(inline).read_all()
    assert table.column(0).to_pylist() == list(range(100))
    assert table.column_names == ["id", "id"]
    assert event["inline"]
    assert event["rows"] == 100
    assert event["bytes"] == len(inline)


def test_a_large_result_is_one_file_in_order(spark, runner, job, exchange_dir):
    frame = spark.range(0, 150_000, 1, 3).selectExpr("id", "IF(id < 50000, '', sha2(CAST(id AS STRING), 256)) h")
    event, inline = run_single_stage(runner, spark, frame, job.job_id)
    assert (event["inline"], inline, event["rows"]) == (False, b"", 150_000)
    (path,) = (exchange_dir / job.job_id / "1").iterdir()
    assert path.name == "0-n0.arrow"
    assert path.stat().st_size == event["bytes"]
    table = pa.ipc.open_stream(path.read_bytes()).read_all()
    assert table.column("id").to_pylist() == list(range(150_000))


def test_a_result_without_partitions_is_an_empty_stream(spark, runner, job):
    event, inline = run_single_stage(runner, spark, spark.sql("SELECT 1 AS x WHERE false"), job.job_id)
    assert event["rows"] == 0
    assert pa.ipc.open_stream(inline).read_all().column_names == ["x"]


def test_adaptive_execution_stays_on(spark, runner, job):
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        frame = spark.range(0, 1000, 1, 4).groupBy("id").count()
        _, inline = run_single_stage(runner, spark, frame.orderBy("id"), job.job_id)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    assert pa.ipc.open_stream(inline).read_all().column("id").to_pylist() == list(range(1000))


def test_a_dataset_is_staged_without_files_for_no_rows(spark, runner, job, tmp_path):
    spec = {"layout": "sink", "format": "parquet", "options": {}, "staging": str(tmp_path / ".out.onager-job")}
    event, _ = run_single_stage(runner, spark, spark.range(0, 9, 1, 3).where("id > 4"), job.job_id, **spec)
    assert event["rows"] == 4
    assert [name.split("-")[1] for name in event["files"]] == ["00001", "00002"]
    assert all((tmp_path / ".out.onager-job" / name).is_file() for name in event["files"])


def test_a_users_error_comes_out_as_sparks_own(spark, runner, job):
    with pytest.raises(ArithmeticException) as raised:
        run_single_stage(runner, spark, spark.sql("SELECT 1 / (id - 1) FROM RANGE(0, 3, 1, 2)"), job.job_id)
    failure = failures.from_exception(runner.kernel, raised.value)
    assert (failure.kind, failure.error_class) == ("user_error", "DIVIDE_BY_ZERO")
    assert "1 / (id - 1)" in failure.query_context


def test_the_arrow_schema_is_that_of_the_result(spark, runner, job):
    frame = spark.sql("SELECT id, MAKE_YM_INTERVAL(1, 2) ym, CAST(NULL AS DECIMAL(38, 3)) d FROM RANGE(0, 1, 1, 1)")
    plan = frame._jdf.queryExecution().executedPlan()
    message = arrow_schema(spark._jsparkSession, Jvm.of(spark), plan, ["a", "a", "b"])
    schema = pa.ipc.read_schema(pa.BufferReader(message))
    _, inline = run_single_stage(runner, spark, frame, job.job_id, names=["a", "a", "b"])
    assert schema == pa.ipc.open_stream(inline).schema
    assert schema.types == [pa.int64(), pa.string(), pa.decimal128(38, 3)]


def test_a_query_tells_how_far_it_is(spark, runner, job):
    slow = udf(lambda number: time.sleep(0.3) or number, "bigint")
    frame = spark.range(0, 8, 1, 8).select(slow("id"))

    def run():
        with runner.kernel.control("single", "single", "", lambda: True):
            run_single_stage(runner, spark, frame, job.job_id, names=["id"])

    thread = threading.Thread(target=run)
    thread.start()
    received = []
    while thread.is_alive():
        received += [reading["permille"] for reading in runner.kernel.readings(10) if reading["run"] == "single"]
        time.sleep(0.05)
    thread.join()
    assert any(0 < permille < 1000 for permille in received)
    assert received == sorted(received)
    assert not runner.kernel.readings(10)
