"""Concurrent runs: each has its share of the slots, and its own settings and limits."""

import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from onager.clock import SystemClock
from onager.errors import VersionMismatchError
from onager.executor.spark.control_tasks import ControlTasks
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel.execution import check_lookups
from onager.executor.spark.planning import cutter, sizing, statement_classes
from onager.executor.work import Assignment
from onager.protocol import onager_pb2 as pb
from tests.support.spark.runner import cut
from tests.support.waiting import HANGS_S, until


@contextmanager
def given_to_the_process(spark, **settings):
    """Have *settings* in the context's own conf, as those given to the process at its start are."""
    conf = spark.sparkContext._jsc.sc().conf()
    for key, value in settings.items():
        conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            conf.remove(key)


def sleeping(seconds):
    @udf(LongType())
    def slow(x):
        time.sleep(seconds)
        return x

    return slow


def whole(runner, spark, frame, job_id):
    spec = {"nonce": "n0", "directory": f"{job_id}/1", "names": frame.columns, "layout": "result"}
    event, inline = runner.kernel.run_single_stage(spark._jsparkSession, frame._jdf.queryExecution(), spec)
    return event, inline


# ------------------------------------------------------------ fair shares


def test_a_query_of_many_tasks_leaves_slots_to_others(spark, runner, job):
    """Of two thousand tasks a few end while another job's only task waits and runs; in turn it would be all of them."""
    (small,) = cut(spark, spark.range(0, 10, 1, 1).selectExpr("id + 1 AS n"))
    job.run(1, small.plan)  # bound and compiled
    tasks = 2000
    frame = spark.range(0, tasks, 1, tasks).select(sleeping(0.02)("id").alias("id"))
    tracker, ended = spark.sparkContext.statusTracker(), threading.Event()

    def run_many(key, assignment, cancellation):
        del key, assignment, cancellation
        whole(runner, spark, frame, "job-many")
        return pb.TaskSuccess()

    control = ControlTasks(runner.kernel, {pb.PLAN: run_many}, SystemClock())
    task_set = pb.TaskSet(job_id="job-many", work=pb.PLAN, tasks=[pb.TaskAttempt()])
    control.start(Assignment(task_set, {}), lambda _: ended.set())

    def done():
        active = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return max((s.numCompletedTasks for s in active if s and s.numTasks == tasks), default=0)

    try:
        while not done():
            assert not ended.wait(0.01)
        before = done()
        (report,) = job.run(1, small.plan)
        after = done()
    finally:
        control.close_job("job-many")
        assert ended.wait(HANGS_S)
    assert report.HasField("success")
    assert not before > after, "the query of many tasks was over first"
    assert after - before < tasks / 10


def test_pools_are_used_again(spark, runner, job):
    """Spark keeps each pool that it has learned of for ever."""
    (stage,) = cut(spark, spark.range(0, 4, 1, 4).selectExpr("id + 1 AS n"))
    for _ in range(20):
        job.run(1, stage.plan)
    pools = spark.sparkContext._jsc.sc().getAllPools()
    names = {pools.apply(i).name() for i in range(pools.size())}
    assert len({name for name in names if name.startswith("onager-")}) <= 6


# ------------------------------------------------------------ settings of the process


def test_a_stage_runs_under_what_it_was_planned_under_whatever_the_process_was_given(spark, runner):
    name = "spark.sql.parquet.filterPushdown"
    of_process = {"spark.sql.caseSensitive": "true", name: "false", "spark.sql.shuffle.partitions": "7"}
    with given_to_the_process(spark, **of_process):
        assert spark.newSession().conf.get(name) == "false", "so it would be"
        session = runner.binder.session({"spark.sql.shuffle.partitions": "5", "spark.sql.session.timeZone": "UTC"})
    conf = session.conf()
    assert conf.get("spark.sql.shuffle.partitions") == "5"
    assert conf.get("spark.sql.caseSensitive") == "false"
    assert conf.get(name) == "true"


# ------------------------------------------------------------ large results of many tasks


def test_the_results_of_many_tasks_together_are_no_more_than_spark_takes(spark, runner, job):
    """Each is small enough to come along with its outcome; all of them are not."""
    frame = spark.range(0, 200, 1, 200).selectExpr("id", "repeat('x', 100000) AS text")
    with given_to_the_process(spark, **{"spark.driver.maxResultSize": "4m"}):
        event, inline = whole(runner, spark, frame, job.job_id)
    assert (event["rows"], event["inline"], inline) == (200, False, b"")
    path = f"{job.exchange_dir}/{job.job_id}/1/0-n0.arrow"
    with pa.OSFile(path) as source:
        table = pa.ipc.open_stream(source).read_all()
    assert table.column("id").to_pylist() == list(range(200))


# ------------------------------------------------------------ what Spark has to have


def test_a_setting_that_spark_does_not_know_is_refused_at_the_start(spark, monkeypatch):
    sizing.check_settings_known(spark)
    monkeypatch.setitem(sizing.CUT_SETTINGS, "spark.sql.adaptive.enabled.ofOld", "false")
    with pytest.raises(VersionMismatchError, match=r"has no setting spark\.sql\.adaptive\.enabled\.ofOld"):
        sizing.check_settings_known(spark)


def test_a_step_of_preparing_a_plan_that_is_gone_is_no_step_left_out(spark, runner):
    jvm = spark._jvm
    check_lookups(spark, cutter.LOOKED_UP | statement_classes.LOOKED_UP)
    execution = jvm.java.lang.Class.forName("org.apache.spark.sql.execution.QueryExecution$").getField("MODULE$")
    none = jvm.scala.Option.apply(None)
    steps = execution.get(None).preparations(spark._jsparkSession, none, False)
    assert jvm.onager.spark43.Lookups.picked(steps).size() == 2
    names = [steps.apply(i).getClass().getSimpleName() for i in range(steps.size())]
    with pytest.raises(Py4JJavaError, match=r"no step \[CollapseCodegenStages\]"):
        jvm.onager.spark43.Lookups.picked(steps.take(names.index("CollapseCodegenStages")))


def test_a_class_of_an_operator_that_is_gone_is_named(spark):
    with pytest.raises(Py4JJavaError, match="there is no class MapInNothingExec here"):
        check_lookups(spark, {*cutter.LOOKED_UP, *statement_classes.LOOKED_UP, "MapInNothingExec"})


# ------------------------------------------------------------ what is left behind


def test_a_cancel_that_comes_after_the_end_leaves_nothing_behind(spark, runner, job):
    (stage,) = cut(spark, spark.range(0, 2, 1, 2).select(sleeping(2)("id")))
    jvm = spark._jvm
    task_sets = _field(jvm.java.lang.Class.forName("onager.Kernel"), runner.kernel._java, "runs")
    runs = _field(task_sets.getClass(), task_sets, "runs")
    job.runner.run(job.task_set(1, stage.plan, [0, 1]), stage.plan, lambda _: None)
    (name,) = until(lambda: list(runs))
    run = runs[name]
    run.join()
    cancel = run.getClass().getDeclaredMethod("cancel", _types(spark, "java.util.List"))
    cancel.setAccessible(True)
    cancel.invoke(run, _array(spark, "java.lang.Object", [Jvm.of(spark).java_list([0])]))
    unwanted = _field(jvm.java.lang.Class.forName("onager.jobs.UnwantedTasks"), None, "UNWANTED")
    assert not [entry for entry in unwanted if entry.startswith(f"{name}/")]


def test_a_part_of_a_result_is_closed_when_the_whole_cannot_be_written(spark, runner, exchange_dir):
    jvm = spark._jvm
    store = _field(jvm.java.lang.Class.forName("onager.Kernel"), runner.kernel._java, "store")
    part = store.create("job-parts/1/0-n.arrow")
    part.write(bytes(100), 0, 100)
    part.commit()
    results = jvm.java.lang.Class.forName("onager.run.ResultFile")
    (make,) = results.getDeclaredConstructors()
    make.setAccessible(True)
    whole = make.newInstance(_array(spark, "java.lang.Object", [store, "job-parts/1/0-whole.arrow", None, 8, False]))
    (append,) = [method for method in results.getDeclaredMethods() if method.getName() == "append"]
    append.setAccessible(True)
    with pytest.raises(Py4JJavaError, match="is not that of a result"):
        append.invoke(whole, _array(spark, "java.lang.Object", [store.open("job-parts/1/0-n.arrow"), "crc32:0"]))
    process = spark.sparkContext._gateway.proc
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    assert process.poll() is None
    open_files = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    assert str(exchange_dir / "job-parts/1/0-n.arrow") not in open_files


def _field(of_class, instance, name):
    field = of_class.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(instance)


def _types(spark, *names):
    return _array(spark, "java.lang.Class", [spark._jvm.java.lang.Class.forName(name) for name in names])


def _array(spark, kind, items):
    made = spark._jvm.java.lang.reflect.Array.newInstance(spark._jvm.java.lang.Class.forName(kind), len(items))
    for i, item in enumerate(items):
        made[i] = item
    return made
