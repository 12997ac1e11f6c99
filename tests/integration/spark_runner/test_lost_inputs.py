"""Inputs that are missing or damaged, and an exchange directory that cannot be used, are reported as such."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as fn
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from onager.executor.spark.planning.sizing import HASHED_BYTES
from tests.integration.spark_runner.failed_tasks import failure_of
from tests.support.spark.runner import JobRun, cut, settings


def rows_file(job: JobRun, exchange_dir: Path, partition: int) -> Path:
    return exchange_dir / job.job_id / "1" / f"{partition}-{job.outputs[1][partition].nonce}.rows"


def lose(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip_in_frame(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)


def flip_in_index(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)


def consumers(spark):
    @udf(LongType())
    def plus_one(x):
        return x + 1

    base = spark.range(0, 2000, 1, 2).selectExpr("id", "CAST(id AS STRING) s")
    return {
        "plain": base.repartition(2, "id"),
        "python": base.repartition(2, "id").select(plus_one("id")),
        "sorted": base.repartition(2, "id").sortWithinPartitions("s"),
    }


@pytest.mark.parametrize("damage", [lose, cut_short, flip_in_frame, flip_in_index])
def test_a_lost_or_damaged_input_is_a_fetch_failure(spark, job, exchange_dir, damage):
    first, second = cut(spark, consumers(spark)["plain"])
    job.run(1, first.plan)
    damage(rows_file(job, exchange_dir, 1))
    reports = job.run(2, second.plan)
    failed = [r for r in reports if r.HasField("failure")]
    assert len(failed) == (1 if damage is flip_in_frame else 2)  # a frame belongs to one bucket
    for report in failed:
        assert report.failure.kind == "fetch_failed"
        assert report.failure.fetch.input_stage_id == 1
        assert report.failure.fetch.input_partition == 1
        assert report.failure.fetch.nonce == job.outputs[1][1].nonce
        assert rows_file(job, exchange_dir, 1).name in report.failure.message


@pytest.mark.parametrize("through", ["python", "sorted"])
def test_a_fetch_failure_is_found_through_what_wraps_it(spark, job, exchange_dir, through):
    first, second = cut(spark, consumers(spark)[through])
    job.run(1, first.plan)
    lose(rows_file(job, exchange_dir, 0))
    kinds = {r.failure.kind for r in job.run(2, second.plan)}
    assert kinds == {"fetch_failed"}


def test_what_a_hash_table_cannot_be_built_from_fails_one_task_alone(spark, job, exchange_dir):
    left = spark.range(0, 2000, 1, 2).selectExpr("id % 50 k", "id v")
    right = spark.range(0, 50, 1, 1).selectExpr("id k", "id w")
    with settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        # Dealt out once more: the stage that gives the result keeps its order, and would sort.
        *sides, joined, _ = cut(spark, left.join(right, "k").repartition(2), {HASHED_BYTES: "1m"})
    for side in sides:
        job.run(side.stage_id, side.plan)
    (built,) = (side.stage_id for side in sides if side.plan.partitions == 1)
    flip_in_frame(exchange_dir / job.job_id / str(built) / f"0-{job.outputs[built][0].nonce}.rows")

    reports = job.run(joined.stage_id, joined.plan)

    assert failure_of(reports).kind == "fetch_failed"
    assert [report.task.partition for report in reports] == [0, 1, 2]


def test_a_fetch_failure_below_a_broadcast_fails_every_task(spark, job, exchange_dir):
    few = spark.range(0, 50, 1, 2).selectExpr("id % 7 v").distinct()
    stages = cut(spark, spark.range(0, 30, 1, 2).selectExpr("id v").join(fn.broadcast(few), "v"))
    for stage in stages[:-1]:
        job.run(stage.stage_id, stage.plan)
    producer = stages[-2].stage_id
    output = job.outputs[producer][0]
    lose(exchange_dir / job.job_id / str(producer) / f"0-{output.nonce}.rows")
    for report in job.run(stages[-1].stage_id, stages[-1].plan):
        assert report.failure.kind == "fetch_failed"
        assert report.failure.fetch.input_stage_id == producer
    # After the producer has run again, the same stage is bound again and succeeds.
    job.run(producer, stages[-2].plan)
    assert all(r.HasField("success") for r in job.run(stages[-1].stage_id, stages[-1].plan, attempt=1))


def test_other_rows_than_were_reported_are_a_fetch_failure(spark, job):
    first, second = cut(spark, consumers(spark)["plain"])
    job.run(1, first.plan)
    job.outputs[1][0].rows += 1
    failure = job.run(2, second.plan)[0].failure
    assert failure.kind == "fetch_failed"
    assert "were reported" in failure.message


# ------------------------------------------------------------ the exchange directory


def test_a_missing_exchange_directory_is_an_io_error_that_names_it(spark, job, exchange_dir):
    first, second = cut(spark, consumers(spark)["plain"])
    job.run(1, first.plan)
    away = exchange_dir.with_name("away")
    exchange_dir.rename(away)
    try:
        reports = job.run(1, first.plan) + job.run(2, second.plan)
    finally:
        away.rename(exchange_dir)
    for report in reports:
        assert report.failure.kind == "io_error"
        assert f"exchange directory {exchange_dir} is not there" in report.failure.message
        # What is made in its place is another directory, which the other machines do not see.
        assert ": mount the volume there" in report.failure.message
        assert "create" not in report.failure.message


def test_an_exchange_directory_that_cannot_be_written_is_named(spark, job, exchange_dir):
    (exchange_dir / job.job_id).write_text("in the way")
    first, _ = cut(spark, consumers(spark)["plain"])
    failure = job.run(1, first.plan)[0].failure
    assert failure.kind == "io_error"
    assert failure.message.startswith(f"exchange directory {exchange_dir} ")
    (exchange_dir / job.job_id).unlink()


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("No space left on device", "is full: free space"),
        ("Read-only file system", "cannot be written: check"),
        ("/exchange/job-1/x.rows: Read-only file system", "cannot be written: check"),
        ("/exchange/job-1/x.rows (Permission denied)", "cannot be written: check"),
        ("/exchange/read-only/x.rows: Input/output error", "could not be written ("),
        ("/exchange/permission denied/x.rows (Input/output error)", "could not be written ("),
        ("/exchange/Read-only file system: Permission denied/x.rows: Input/output error", "could not be written ("),
    ],
)
def test_a_full_or_read_only_exchange_directory_is_reported_with_advice(spark, error, advice):
    jvm = spark._jvm
    failure = jvm.onager.failure.ExchangeFailure.ofWrite("/exchange", jvm.java.io.IOException(error))
    assert failure.getMessage().startswith(f"exchange directory /exchange {advice}")


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        ("/data/x: Disk quota exceeded", True),
        ("The DiskSpace quota of /x is exceeded: org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", True),
        ("/data/quota/no space left/x: Permission denied", False),
    ],
)
def test_a_full_disk_is_distinguished_from_a_path_with_such_words(spark, error, is_full):
    jvm = spark._jvm
    assert getattr(jvm.onager.failure.NoSpace, "is")(jvm.java.io.IOException(error)) is is_full


def test_nothing_is_left_under_a_final_name_by_a_failed_task(spark, job, exchange_dir):
    frame = spark.range(0, 100_000, 1, 1).selectExpr("assert_true(id < 99999)", "id").repartition(2, "id")
    first, _ = cut(spark, frame)
    (report,) = job.run(1, first.plan)
    assert report.HasField("failure")
    assert not [p for p in (exchange_dir / job.job_id).rglob("*") if p.is_file()]


def test_inline_results_are_whole_streams(spark, job):
    (stage,) = cut(spark, spark.range(0, 10, 1, 3))
    for report in job.run(1, stage.plan):
        assert report.success.output.inline
        assert report.success.output.bytes == len(report.success.inline_result)
        pa.ipc.open_stream(report.success.inline_result).read_all()
