"""Waiting in streams: bounded memory, producers whose readers come late or never, and cycles."""

import time

from pyspark.sql import functions as fn
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from onager.executor.spark.running.streams import StreamSettings
from tests.integration.spark_streams.conftest import LIMITS
from tests.integration.spark_streams.streaming_job import stream_use
from tests.support.spark.runner import cut
from tests.support.waiting import until

PATIENT = LIMITS | {"patience_ms": 60_000, "reader_patience_ms": 60_000}


def gated(spark, gate):
    """Return a function of rows that takes the first and then waits until the file *gate* is there."""

    @udf(LongType())
    def waits(x):
        while not gate.exists():
            time.sleep(0.02)
        return x

    return waits


def long_rows(spark, rows, partitions=1):
    return spark.range(0, rows, 1, partitions).selectExpr("id", "sha2(CAST(id AS STRING), 512) h")


def test_a_writer_waits_while_its_reader_has_enough(spark, beside, other, new_job, token_file, tmp_path):
    patient = beside(StreamSettings(token_file=token_file, limits=PATIENT))
    gate = tmp_path / "go"
    job = new_job(other, patient)
    frame = long_rows(spark, 100_000).repartition(1).select(gated(spark, gate)("id").alias("n"), "h")
    stages = cut(spark, frame.selectExpr("n", "length(h) l"))
    job.launch(stages, lambda stage_id, _: 2 - stage_id)  # the producer at the patient one
    until(lambda: stream_use(patient)[0] >= LIMITS["channel_bytes"] - LIMITS["frame_bytes"])
    for _ in range(10):
        held, spilled, _, _ = stream_use(patient)
        assert held <= LIMITS["channel_bytes"]
        assert spilled == 0
        time.sleep(0.05)
    assert not job.has_reported(1)
    gate.touch()
    assert job.table(stages).num_rows == 100_000
    assert stream_use(patient)[1] == 0


def test_a_writer_whose_reader_does_not_come_ends_all_the_same(spark, runner, other, new_job):
    job = new_job()
    before = stream_use(other)[1]
    stages = cut(spark, long_rows(spark, 60_000).repartition(2, "id").selectExpr("id", "length(h) n"))
    job.launch(stages, lambda stage_id, _: stage_id % 2, only=[1])
    (report,) = job.wait((1, 0))
    assert report.HasField("success")
    held, spilled, _, _ = stream_use(other)
    assert held <= LIMITS["memory_bytes"]
    assert spilled - before > 4 << 20
    assert report.success.metrics.spill_bytes >= spilled - before
    job.launch(stages, lambda stage_id, _: stage_id % 2, only=[2])
    assert job.table(stages).num_rows == 60_000


def test_a_limit_stops_its_producers_early(spark, job):
    numbers = spark.range(0, 10**12, 1, 2).selectExpr("id", "sha2(CAST(id AS STRING), 512) h").repartition(2, "id")
    stages = cut(spark, numbers.limit(10).selectExpr("length(h) n"))
    table = job.result(stages)
    assert table.column("n").to_pylist() == [128] * 10
    for report in job.wait():  # the producers end by themselves: nobody cancels them
        assert report.HasField("success")


def test_two_paths_that_part_and_meet_do_not_stop(spark, job):
    base = long_rows(spark, 60_000, 2).repartition(2, "id")
    left = base.groupBy("id").agg(fn.max("h").alias("h"))
    right = base.selectExpr("id + 1 AS id", "h AS h2").repartition(2, "id")
    frame = left.join(right.hint("merge"), "id").groupBy().agg(fn.count("id"), fn.sum(fn.length("h2")))
    stages = cut(spark, frame)
    assert job.result(stages).to_pylist() == frame.toArrow().to_pylist()


def test_a_self_join_does_not_stop(spark, job):
    base = long_rows(spark, 40_000, 2).repartition(2, "h")
    frame = base.join(base.selectExpr("id AS id2", "h").hint("merge"), "h").groupBy().agg(fn.count("id"))
    assert job.result(cut(spark, frame)).to_pylist() == [{"count(id)": 40_000}]


def test_a_stage_that_waits_for_its_broadcast_is_waited_for(spark, beside, other, new_job, token_file, tmp_path):
    hasty = beside(StreamSettings(token_file=token_file, limits=LIMITS | {"absent_ms": 300, "poll_ms": 100}))
    gate = tmp_path / "go"
    few = spark.range(0, 10, 1, 1).select(gated(spark, gate)("id").alias("v"))
    frame = spark.range(0, 1000, 1, 2).selectExpr("id v").join(fn.broadcast(few), "v").repartition(2, "v")
    stages = cut(spark, frame)
    job = new_job(hasty, other)
    job.launch(stages, lambda stage_id, _: 0 if stage_id == stages[-1].stage_id else 1)
    for _ in range(15):
        assert not job.failures()
        time.sleep(0.1)
    gate.touch()
    assert job.table(stages).num_rows == 10
    waited = [r.success.metrics for r in job.wait() if r.task.stage_id == stages[-1].stage_id]
    assert all(0 < metrics.fetch_ms <= metrics.run_ms for metrics in waited)
    assert max(metrics.fetch_ms for metrics in waited) >= 1_000


def test_readers_of_a_stage_that_cannot_be_made_ready_learn_of_it(spark, job):
    few = spark.range(0, 10, 1, 1).selectExpr("id v", "isnull(assert_true(id < 0)) ok")
    frame = spark.range(0, 1000, 1, 2).selectExpr("id v").join(fn.broadcast(few), "v").repartition(2, "v")
    stages = cut(spark, frame)
    job.launch(stages)
    failures = [report.failure for report in job.wait(*[(stage.stage_id, 0) for stage in stages])]
    assert [failure.kind for failure in failures] == ["user_error", "io_error", "io_error"]
    assert "could not start" in failures[2].message
