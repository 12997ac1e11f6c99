"""Failures of tasks are classified, reported in the user's terms, and do not affect other tasks."""

import errno
import os
import re
import signal
from dataclasses import replace

import pandas as pd
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import IllegalArgumentException, PySparkTypeError
from pyspark.sql import functions as fn
from pyspark.sql.functions import pandas_udf, udf, udtf
from pyspark.sql.types import LongType

from onager.errors import (
    ExchangeFullError,
    InvalidSettingError,
    SinkError,
    TargetExistsError,
    UnsupportedPlanError,
    VersionMismatchError,
)
from onager.executor.spark import failures, plan_codec
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.stage_plan import MadeBy
from tests.integration.spark_runner.failed_tasks import failure_of
from tests.support.spark.runner import cut


def test_a_users_error_keeps_sparks_class_message_and_context(spark, job):
    failure = failure_of(job.run_all(cut(spark, spark.sql("SELECT 1 / (id - 1) q FROM RANGE(0, 2, 1, 1)"))))
    assert failure.kind == "user_error"
    assert failure.error_class == "DIVIDE_BY_ZERO"
    assert failure.sql_state == "22012"
    assert "1 / (id - 1)" in failure.query_context
    assert failure.message.startswith("[DIVIDE_BY_ZERO]")
    assert "DIVIDE_BY_ZERO" in failure.details
    assert len(failure.details) <= 16 * 1024


def test_one_partition_fails_alone(spark, job):
    stages = cut(spark, spark.sql("SELECT assert_true(id != 25) FROM RANGE(0, 40, 1, 4)"))
    reports = job.run_all(stages)
    assert [r.HasField("success") for r in reports] == [True, True, False, True]
    assert failure_of(reports).error_class == "USER_RAISED_EXCEPTION"


def test_a_python_functions_exception_comes_with_the_users_frames_and_no_others(spark, job):
    def planet(x):
        raise KeyError(f"no such planet: {x}")

    @udf(LongType())
    def picky(x):
        if x == 3:
            planet(x)
        if x == 4:
            raise ValueError("two\nlines")
        return x

    failure = failure_of(job.run_all(cut(spark, spark.range(0, 5, 1, 1).select(picky("id")))))
    assert failure.kind == "user_error"
    assert not failure.cause
    said, traceback, *frames = failure.message.split("\n")
    assert said == "KeyError: 'no such planet: 3'"
    assert traceback == "Traceback (most recent call last):"
    assert [line.split(", ")[0::2] for line in frames if line.startswith("  File")] == [
        [f'  File "{__file__}"', "in picky"],
        [f'  File "{__file__}"', "in planet"],
    ]
    assert 'raise KeyError(f"no such planet: {x}")' in failure.details
    assert not re.search(r"^\s*at [\w.$]+\(", failure.details, re.MULTILINE), "frames of the JVM"
    failure = failure_of(job.run_all(cut(spark, spark.range(4, 5, 1, 1).select(picky("id")))))
    assert failure.message.startswith("ValueError: two\nlines\nTraceback (most recent call last):\n  File")


@pytest.mark.parametrize("kind", ["pandas_udf", "mapInPandas", "udtf", "raised from another"])
def test_exceptions_of_every_kind_of_python_function_have_the_users_frames(spark, job, kind):
    def frames(parts):
        for part in parts:
            deep(part)
            yield part

    def deep(_):
        raise ArithmeticError("too deep")

    @pandas_udf(LongType())
    def scalar(x: pd.Series) -> pd.Series:
        deep(x)
        return x

    class Table:
        def eval(self, x):
            deep(x)
            yield (x,)

    @udf(LongType())
    def chained(x):
        try:
            planets = {}
            return planets[x]
        except KeyError as e:
            raise ArithmeticError("too deep") from e

    base = spark.range(0, 5, 1, 1)
    if kind == "udtf":
        spark.udtf.register("deep_table", udtf(Table, returnType="x bigint"))
    frame = {
        "pandas_udf": lambda: base.select(scalar("id")),
        "mapInPandas": lambda: base.mapInPandas(frames, base.schema),
        "udtf": lambda: spark.sql("SELECT t.x FROM RANGE(0, 5, 1, 1), LATERAL deep_table(id) t"),
        "raised from another": lambda: base.select(chained("id")),
    }[kind]()
    failure = failure_of(job.run_all(cut(spark, frame)))
    assert failure.kind == "user_error"
    assert failure.message.startswith("ArithmeticError: too deep\nTraceback (most recent call last):\n")
    files = re.findall(r'^  File "([^"]+)"', failure.message, re.MULTILINE)
    assert set(files) == {__file__}


@pytest.mark.parametrize(
    ("make", "kind", "cause"),
    [
        (lambda jvm: jvm.java.lang.IllegalArgumentException("made up"), "io_error", "internal_error"),
        (lambda jvm: jvm.java.lang.UnsupportedOperationException("made up"), "io_error", "internal_error"),
        (lambda jvm: jvm.java.lang.NumberFormatException("x"), "user_error", ""),
        (lambda jvm: jvm.java.io.NotSerializableException("scala.Thing"), "user_error", ""),
        (lambda jvm: jvm.java.lang.NullPointerException("plan"), "io_error", "internal_error"),
        (lambda jvm: jvm.java.lang.ClassCastException("A to B"), "io_error", "internal_error"),
        (lambda jvm: jvm.java.lang.IllegalStateException("bug"), "io_error", "internal_error"),
        (lambda jvm: jvm.java.lang.NoSuchMethodError("a.B.c"), "io_error", "internal_error"),
        (lambda jvm: jvm.java.io.InvalidClassException("a.B", "serialVersionUID"), "io_error", "internal_error"),
        (lambda jvm: jvm.java.lang.OutOfMemoryError("heap"), "io_error", ""),
        (lambda jvm: jvm.java.io.IOException("connection reset"), "io_error", ""),
    ],
)
def test_what_is_not_known_to_be_the_users_is_an_error_of_ours(spark, runner, make, kind, cause):
    """Their stack is that of who made them: py4j."""
    jvm = spark._jvm
    wrapped = jvm.java.lang.RuntimeException("task", make(jvm))
    failure = failures.from_kernel(runner.kernel.describe(wrapped))
    assert (failure.kind, failure.cause) == (kind, cause)
    assert ("not of the query" in failure.message) == (cause == "internal_error")


@pytest.mark.parametrize(
    "refused",
    [
        lambda spark, path: spark.read.csv(path, inferSchema=True, samplingRatio=-1.0),
        lambda spark, _: spark.range(1).sample(2.0, fraction=-1.0),
    ],
)
def test_what_spark_refuses_without_a_condition_is_the_users(spark, runner, tmp_path, refused):
    (tmp_path / "a.csv").write_text("1\n")
    with pytest.raises(IllegalArgumentException) as raised:
        refused(spark, str(tmp_path)).count()
    failure = failures.from_exception(runner.kernel, raised.value)
    assert (failure.kind, failure.cause) == ("user_error", "")
    assert "requirement failed" in failure.message


def test_what_onager_refuses_is_reported_without_the_name_of_a_class(spark, runner):
    refused = Jvm.of(spark).java_class("onager.failure.RefusedException")("it is too odd: leave it out")
    failure = failures.from_kernel(runner.kernel.describe(spark._jvm.java.lang.RuntimeException("planning", refused)))
    assert (failure.kind, failure.message) == ("user_error", "it is too odd: leave it out")


def test_a_call_that_the_jvm_refuses_is_no_lost_jvm(spark, runner):
    with pytest.raises(Py4JError) as raised:
        runner.kernel._java.noSuchMethod()
    failure = failures.from_exception(runner.kernel, raised.value)
    assert (failure.kind, failure.cause) == ("io_error", "internal_error")
    assert "does not answer" not in failure.message
    assert "noSuchMethod([]) does not exist" in failure.message


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("An error occurred while calling o1.take"),
        Py4JError("an.odd.Trace: does not exist in the JVM"),
        Py4JNetworkError("gone while it reported a Trace:\n"),
    ],
)
def test_a_call_without_an_answer_is_a_lost_jvm(runner, error):
    failure = failures.from_exception(runner.kernel, error)
    assert (failure.kind, failure.cause) == ("io_error", "")
    assert "the executor's JVM does not answer" in failure.message


@pytest.mark.parametrize(
    ("error", "kind", "cause"),
    [
        (PySparkTypeError("a column is wanted"), "user_error", ""),
        (UnsupportedPlanError("a stream", "read it whole"), "user_error", ""),
        (InvalidSettingError("onager.x", 1, "no"), "user_error", ""),
        (TargetExistsError("/data/out"), "user_error", ""),
        (KeyError("stage"), "io_error", "internal_error"),
        (AssertionError(), "io_error", "internal_error"),
        (RecursionError("too deep"), "io_error", "internal_error"),
        (VersionMismatchError("made by another"), "io_error", "other_version"),
        (ExchangeFullError("full"), "io_error", "no_space"),
        (FileNotFoundError(2, "not there"), "io_error", ""),
    ],
)
def test_exceptions_of_python_are_classified_likewise(runner, error, kind, cause):
    failure = failures.from_exception(runner.kernel, error)
    assert (failure.kind, failure.cause) == (kind, cause)
    if cause == "internal_error":
        assert "not of the query" in failure.message
        assert type(error).__name__ in failure.message


@pytest.mark.parametrize(("number", "cause"), [(errno.ENOSPC, "no_space"), (errno.EDQUOT, "no_space"), (errno.EIO, "")])
def test_a_full_disk_under_a_dataset_is_no_ones_fault(runner, number, cause):
    error = SinkError("publishing failed")
    error.__cause__ = OSError(number, "so it is")
    failure = failures.from_exception(runner.kernel, error)
    assert (failure.kind, failure.cause) == ("io_error", cause)


@pytest.mark.parametrize("shift", ["", "x"])
def test_a_text_that_is_cut_is_cut_between_characters(spark, job, shift):
    stages = cut(spark, spark.sql(f"SELECT raise_error('{shift}' || repeat('😀', 20000 + id)) FROM RANGE(0, 2, 1, 2)"))
    for report in job.run_all(stages):
        assert report.failure.error_class == "USER_RAISED_EXCEPTION"
        assert report.failure.details.rstrip("😀").endswith(shift)
        assert len(report.failure.details) > 8 * 1024


def test_an_outcome_that_cannot_be_taken_fails_its_task_alone(spark, new_job, exchange_dir, monkeypatch):
    stages = cut(spark, spark.range(0, 4, 1, 2).repartition(2, fn.col("id") + fn.monotonically_increasing_id()))
    job, other = new_job(), new_job()
    plain = failures.from_kernel

    def wrong(described, made_by):
        raise UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "surrogates not allowed")

    monkeypatch.setattr(failures, "from_kernel", wrong)
    failing = cut(spark, spark.sql("SELECT raise_error('no') FROM RANGE(0, 2, 1, 2)"))
    for report in job.run_all(failing):
        assert (report.failure.kind, report.failure.cause) == ("io_error", "internal_error")
        assert "surrogates not allowed" in report.failure.message
    monkeypatch.setattr(failures, "from_kernel", plain)
    assert all(report.HasField("success") for report in other.run_all(stages))


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_dead_python_worker_is_an_io_error(spark, job, how):
    @udf(LongType())
    def dies(x):
        os._exit(1) if how == "exit" else os.kill(os.getpid(), signal.SIGKILL)
        return x

    failure = failure_of(job.run_all(cut(spark, spark.range(0, 5, 1, 1).select(dies("id")))))
    assert failure.kind == "io_error"
    assert "Python worker died" in failure.message


LOST = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in "
    "stage 1.0 (TID 7) (host executor 1): ExecutorLostFailure (executor 1 exited)"
)
TEXTS_OF_SPARK = [
    LOST,
    "Python worker exited unexpectedly (crashed)",
    "Python worker failed to connect back.",
    "Job 3 cancelled because SparkContext was shut down",
    "Cannot call methods on a stopped SparkContext",
]


@pytest.mark.parametrize("text", TEXTS_OF_SPARK)
def test_a_user_who_writes_what_spark_says_is_taken_for_a_user(spark, job, text):
    failure = failure_of(job.run_all(cut(spark, spark.sql(f"SELECT raise_error('{text}') FROM RANGE(0, 1, 1, 1)"))))
    assert (failure.kind, failure.error_class) == ("user_error", "USER_RAISED_EXCEPTION")
    assert text in failure.message


def test_a_function_that_raises_what_spark_says_is_taken_for_a_users(spark, job):
    @udf(LongType())
    def raises(x):
        raise ValueError("; ".join(TEXTS_OF_SPARK))

    failure = failure_of(job.run_all(cut(spark, spark.range(0, 1, 1, 1).select(raises("id")))))
    assert failure.kind == "user_error"
    assert failure.message.startswith("ValueError: ")


def test_a_lost_process_of_a_cluster_is_reported_by_how_sparks_own_text_begins(spark, runner):
    jvm = spark._jvm
    kinds = [
        runner.kernel.describe(jvm.org.apache.spark.SparkException(f"{quoted}{LOST}"))["kind"]
        for quoted in ("", "Job aborted due to stage failure: a user wrote ")
    ]
    assert kinds == ["io_error", "user_error"]


def test_a_damaged_parquet_file_is_reported_by_name(spark, job, tmp_path):
    path = tmp_path / "t"
    spark.range(0, 100, 1, 1).write.parquet(str(path))
    (part,) = path.glob("part-*")
    stages = cut(spark, spark.read.parquet(str(path)).selectExpr("id + 1"))
    part.write_bytes(b"PAR1" + b"garbage" * 20 + b"PAR1")
    failure = failure_of(job.run_all(stages))
    assert part.name in failure.message
    assert failure.error_class.startswith("FAILED_READ_FILE")


# ------------------------------------------------------------ plans of other versions


def with_another_class(plan):
    """Return *plan* as a Spark has made it in which projections have other fields than in this one."""
    name = b"org.apache.spark.sql.execution.ProjectExec"
    at = plan.fragment.index(name) + len(name)
    return replace(plan, fragment=plan.fragment[:at] + bytes(8) + plan.fragment[at + 8 :])


def test_a_plan_of_another_version_that_cannot_be_read_names_both_versions(spark, job):
    (stage,) = cut(spark, spark.range(0, 4, 1, 2).selectExpr("id + 1"))
    made_by = MadeBy("4.3.9", "9.9-12345678")
    for report in job.run(1, replace(with_another_class(stage.plan), made_by=made_by)):
        assert (report.failure.kind, report.failure.cause) == ("io_error", "other_version")
        assert f"planned by {made_by}" in report.failure.message
        assert f"this executor ({plan_codec.here()}) cannot" in report.failure.message
        assert "InvalidClassException" in report.failure.message
    assert all(report.HasField("success") for report in job.run(1, replace(stage.plan, made_by=made_by), attempt=1))


def test_one_of_this_version_that_cannot_be_read_is_an_error_of_ours(spark, job):
    (stage,) = cut(spark, spark.range(0, 4, 1, 2).selectExpr("id + 1"))
    for report in job.run(1, replace(with_another_class(stage.plan), made_by=plan_codec.here())):
        assert (report.failure.kind, report.failure.cause) == ("io_error", "internal_error")


def test_a_hive_metastore_that_does_not_answer_is_reported_and_asked_again(spark, runner):
    jvm = Jvm.of(spark)
    away = jvm.java_class("org.apache.hadoop.hive.metastore.api.MetaException")(
        "Could not connect to meta store using any of the URIs provided. Most recent failure: refused\n\tat a.b.Socket"
    )
    error = jvm.java_class("java.lang.RuntimeException")("Unable to instantiate the client", away)
    described = failures.from_kernel(runner.kernel.describe(error))
    assert (described.kind, described.cause) == ("io_error", "")
    assert described.message == (
        "the Hive metastore does not answer, and tables are looked up there (MetaException: Could not connect to meta "
        "store using any of the URIs provided. Most recent failure: refused)"
    )
