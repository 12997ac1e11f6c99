"""Streams that end early: failures are distinguished from ends, and cancellation leaves nothing over."""

import os
import signal
import time

import pytest
from pyspark.sql import functions as fn
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from onager.executor.spark.running.streams import StreamSettings
from tests.integration.spark_streams.conftest import LIMITS, TOKENS
from tests.integration.spark_streams.streaming_job import busy, stream_use
from tests.support.processes.tcp_proxy import proxies_of_a_thread
from tests.support.spark.runner import cut
from tests.support.waiting import HANGS_S, until


def endless(spark):
    """An endless producer, and a reader that reads all rows."""
    return spark.range(0, 10**13, 1, 2).repartition(2, "id").groupBy().agg(fn.max("id"))


def producers_away(stage_id, partition):
    """Place the first stage with the second executor, and all others with the first."""
    del partition
    return 1 if stage_id == 1 else 0


@pytest.fixture
def proxy():
    """A way to the second executor that can be cut."""
    with proxies_of_a_thread() as make:
        yield make


def test_a_users_error_is_that_of_its_task_alone(spark, job):
    frame = spark.range(0, 100_000, 1, 2).selectExpr("id", "assert_true(id != 99000) ok").repartition(2, "id")
    stages = cut(spark, frame.groupBy().agg(fn.count("ok")))
    job.launch(stages)
    job.wait()
    failures = job.failures()
    assert failures.pop((1, 1)).error_class == "USER_RAISED_EXCEPTION"
    assert failures
    assert {failure.kind for failure in failures.values()} == {"io_error"}
    assert any("USER_RAISED_EXCEPTION" in failure.message for failure in failures.values())
    assert job.reports[stages[-1].stage_id, 0].HasField("failure")


def test_a_reader_of_sorted_runs_keys_learns_that_a_run_failed(spark, job):
    frame = spark.range(0, 1000, 1, 2).selectExpr("id % 7 n", "assert_true(id != 990) ok").orderBy("n")
    stages = cut(spark, frame, parallel_sort_bytes=0)
    job.launch(stages)
    failures = {key: report.failure for key, report in zip([(1, 1), (2, 0)], job.wait((1, 1), (2, 0)), strict=True)}
    assert failures[1, 1].error_class == "USER_RAISED_EXCEPTION"
    assert failures[2, 0].kind == "io_error"
    assert "USER_RAISED_EXCEPTION" in failures[2, 0].message


def test_a_python_function_whose_rows_break_off_is_not_at_fault(spark):
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    broken = jvm.onager.failure.BrokenStream("task 1 failed", None)
    said = jvm.java.util.HashMap({"msg": "EOFError", "traceback": "Traceback (most recent call last)"})
    maps = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$")
    error = jvm.org.apache.spark.api.python.PythonException(
        "PYTHON_EXCEPTION",
        getattr(maps, "from")(jvm.scala.jdk.javaapi.CollectionConverters.asScala(said)),
        jvm.java.io.UncheckedIOException(broken),  # what Spark's writer met, which fed the function
        gateway.new_array(jvm.org.apache.spark.QueryContext, 0),
        "",
    )
    described = jvm.onager.failure.Failures.describe(error, False)
    assert (described["kind"], described["message"]) == ("io_error", "task 1 failed")


def test_tasks_and_readers_of_an_executor_whose_jvm_is_killed_fail_and_do_not_end(spark, runner, start_other, new_job):
    doomed = start_other().connect()
    job = new_job(runner, doomed)
    stages = cut(spark, endless(spark))
    job.launch(stages, producers_away)
    until(lambda: stream_use(doomed)[0] > 0)
    assert doomed.is_alive()
    os.kill(doomed.jvm.pid, signal.SIGKILL)
    ended = {(report.failure.kind, report.failure.message.partition(":")[0]) for report in job.wait((1, 0), (1, 1))}
    assert ended == {("io_error", "the executor's JVM does not answer")}
    assert not doomed.is_alive()
    readers = job.wait((2, 0), (2, 1))
    assert {report.failure.kind for report in readers} == {"io_error"}
    assert f"the streams of {doomed.stream_address} cannot be reached" in readers[0].failure.message
    assert job.wait((3, 0))[0].failure.kind == "io_error"
    doomed.close_job(job.job_id)  # which is asked of an executor whose JVM is gone, too
    doomed.close()


def test_a_connection_that_breaks_for_a_moment_loses_and_repeats_no_row(spark, job, other, proxy, tmp_path):
    gate = tmp_path / "go"

    @udf(LongType())
    def waits(x):
        while x > 20_000 and not gate.exists():
            time.sleep(0.02)
        return x

    between, loop = proxy(other.stream_address)
    job.addresses[1] = between.address
    frame = spark.range(0, 100_000, 1, 2).selectExpr("id", "sha2(CAST(id AS STRING), 256) h").repartition(2, "id")
    stages = cut(spark, frame.select(waits("id").alias("n"), "h").groupBy().agg(fn.count("n"), fn.sum("n")))
    job.launch(stages, producers_away)
    until(lambda: between.has_connections and stream_use(other)[0] > 0)
    loop.call_soon_threadsafe(between.cut)
    until(lambda: between.counts["cut"])
    gate.touch()
    assert job.table(stages).to_pylist() == [{"count(n)": 100_000, "sum(n)": 100_000 * 99_999 // 2}]


def test_a_connection_that_stays_broken_is_a_failure(spark, job, other, proxy):
    between, loop = proxy(other.stream_address)
    job.addresses[1] = between.address
    stages = cut(spark, endless(spark))
    job.launch(stages, producers_away)
    until(lambda: between.has_connections)
    loop.call_soon_threadsafe(between.refuse)
    loop.call_soon_threadsafe(between.cut)
    readers = job.wait((2, 0), (2, 1))
    assert {report.failure.kind for report in readers} == {"io_error"}
    job.cancel()


def test_a_producer_that_never_comes_is_a_failure(spark, other, beside, new_job, token_file):
    hasty = StreamSettings(token_file=token_file, limits=LIMITS | {"absent_ms": 300, "poll_ms": 100})
    job = new_job(beside(hasty), other)
    stages = cut(spark, spark.range(0, 10, 1, 1).repartition(1))
    job.launch(stages, producers_away, only=[2])
    (report,) = job.wait((2, 0))
    assert report.failure.kind == "io_error"
    assert f"has not started at {other.stream_address}" in report.failure.message


@pytest.mark.parametrize("tokens", [["a-token-of-somebody-else"], []])
def test_a_reader_with_another_token_or_none_reads_nothing(spark, other, beside, new_job, tmp_path, tokens):
    path = tmp_path / "tokens"
    path.write_text("\n".join(tokens))
    stranger = beside(StreamSettings(token_file=path if tokens else None, limits=LIMITS))
    job = new_job(stranger, other)
    stages = cut(spark, spark.range(0, 1000, 1, 1).repartition(1))
    job.launch(stages, producers_away)
    (report,) = job.wait((2, 0))
    assert report.failure.kind == "io_error"
    assert f"the streams of {other.stream_address} refuse this executor" in report.failure.message


def test_a_token_may_be_replaced_while_executors_run(spark, beside, other, new_job, tmp_path):
    path = tmp_path / "tokens"
    path.write_text("a-token-of-somebody-else")
    early = beside(StreamSettings(token_file=path, limits=LIMITS))
    path.write_text(TOKENS[1] + "\n")  # the second line of the others' file, which counts, too
    job = new_job(early, other)
    stages = cut(spark, spark.range(0, 1000, 1, 2).repartition(2, "id"))
    assert job.result(stages, producers_away).num_rows == 1000


def test_cancelled_in_the_middle_everything_stops_and_nothing_is_left(spark, job, exchange_dir):
    stages = cut(spark, endless(spark))
    job.launch(stages)
    until(lambda: all(stream_use(executor)[2] > 0 for executor in job.executors))
    assert all(busy(executor) for executor in job.executors)
    job.cancel()
    # What is not cancelled yet when its readers are is done, and what still reads has lost its producer.
    reports = job.wait()
    wrong = [report.failure for report in reports if report.failure.kind not in {"task_killed", "io_error", ""}]
    assert not wrong, wrong[0].details
    for executor in job.executors:
        until(lambda e=executor: not busy(e))  # by itself it would go on for hours
    job.close()
    for executor in job.executors:
        held, _, tasks, waiting = stream_use(executor)
        assert (held, tasks, waiting) == (0, 0, 0)
    assert [path for path in (exchange_dir / job.job_id).rglob("*") if path.is_file()] == []


def test_cancelled_while_it_waits_for_a_broadcast(spark, job):
    @udf(LongType())
    def sleeps(x):
        time.sleep(2 * HANGS_S)
        return x

    few = spark.range(0, 4, 1, 1).select(sleeps("id").alias("v"))
    frame = spark.range(0, 20, 1, 2).selectExpr("id v").join(fn.broadcast(few), "v")
    stages = cut(spark, frame)
    job.launch(stages, producers_away)
    until(lambda: stream_use(job.executors[1])[3] > 0)
    job.cancel()
    assert {report.failure.kind for report in job.wait()} == {"task_killed"}
    for executor in job.executors:
        until(lambda e=executor: not busy(e))
    until(lambda: stream_use(job.executors[1])[3] == 0)


def broadcast_join(spark):
    few = spark.range(0, 4, 1, 1).selectExpr("id v")
    return cut(spark, spark.range(0, 20, 1, 2).selectExpr("id v").join(fn.broadcast(few), "v"))


def test_cancelled_before_it_begins_to_wait_for_a_broadcast(spark, runner, other, new_job, monkeypatch):
    job = new_job(runner, other)
    monkeypatch.setattr(runner.binder, "_check_address", lambda _: job.cancel())
    job.launch(broadcast_join(spark), producers_away, only=[2])  # whom it waits for never comes
    assert {report.failure.kind for report in job.wait()} == {"task_killed"}
    until(lambda: not busy(runner))


def test_a_cancelled_reader_does_not_stop_others_of_the_same_broadcast(spark, runner, other, new_job, monkeypatch):
    job = new_job(runner, runner, other)
    monkeypatch.setattr(runner.binder, "_check_address", lambda _: job.cancel((2, 0)))
    stages = broadcast_join(spark)
    job.launch(stages, lambda stage_id, partition: 2 if stage_id == 1 else partition)
    assert [report.failure.kind for report in job.wait((2, 0), (2, 1))] == ["task_killed", ""]


def test_more_than_an_executor_holds_for_a_broadcast_is_a_failure(spark, beside, other, new_job, token_file):
    small = StreamSettings(token_file=token_file, limits=LIMITS | {"held_bytes": 1000})
    job = new_job(beside(small), other)
    few = spark.range(0, 4000, 1, 1).selectExpr("id v", "sha2(CAST(id AS STRING), 256) h")
    stages = cut(spark, spark.range(0, 20, 1, 2).selectExpr("id v").join(fn.broadcast(few), "v"))
    job.launch(stages, producers_away)
    report = job.wait((stages[-1].stage_id, 0))[0]
    assert report.failure.kind == "io_error"
    assert "does not fit the 1000 bytes that an executor holds for such inputs" in report.failure.message


def test_what_was_streamed_is_kept_until_the_job_is_closed(spark, job, runner, other):
    stages = cut(spark, spark.range(0, 1000, 1, 2).repartition(2, "id"))
    job.launch(stages, lambda _, partition: partition, only=[1])
    job.wait((1, 0), (1, 1))
    assert [stream_use(executor)[2] for executor in job.executors] == [1, 1]
    assert runner.streamed_jobs() == runner.kept_jobs() == {job.job_id}
    job.close()
    assert [stream_use(executor)[2] for executor in job.executors] == [0, 0]
    assert runner.streamed_jobs() == runner.kept_jobs() == set()
