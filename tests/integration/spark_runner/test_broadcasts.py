"""Broadcasts: shared by the stages of a job, about as large in memory as their rows, and limited."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from py4j.protocol import Py4JJavaError

from onager.executor.spark import failures
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.running.binder import stage_key
from tests.support.spark.runner import cut
from tests.support.waiting import HANGS_S, until

MIB = 1024 * 1024
TABLES = 6
FACTS = "SELECT id, concat('K', id % 7) AS k, id % 5 AS n FROM RANGE(0, 300, 1, 2)"
NAMES = "SELECT concat('K', id) AS k, id % 3 AS m, id AS w FROM RANGE(0, 6, 1, 2)"
ORDERLESS = "SELECT /*+ REPARTITION(2) */ * FROM ({}) AS q"


@pytest.fixture
def no_limit(runner) -> Iterator[None]:
    """Let the runner broadcast as before at the end."""
    yield
    runner.kernel.limit_broadcasts(1 << 40)


def used(runner) -> tuple[int, int, int]:
    """Return broadcasts that are held, those ever begun, bytes of Spark's memory for them."""
    held, begun, size = runner.kernel.broadcast_use()
    return held, begun, size


def many_joins(tables: int) -> str:
    dims = [
        f"(SELECT concat('K', id) AS k, id + {i} AS v{i}, id % 2 AS odd FROM RANGE(0, 7, 1, 1)) AS d{i}"
        for i in range(tables)
    ]
    joins = " ".join(f"JOIN {dim} ON f.k = d{i}.k" for i, dim in enumerate(dims))
    total = " + ".join(f"v{i}" for i in range(tables))
    return f"SELECT f.n, d0.odd, sum({total}) AS t, count(*) AS c FROM ({FACTS}) AS f {joins} GROUP BY f.n, d0.odd"


def rows_of(table) -> list:
    return sorted(map(str, table.to_pylist()))


def plans_of(job, stages) -> str:
    return "".join(
        job.runner.binder.bound(job.task_set(stage.stage_id, stage.plan, []), stage.plan).java.text()
        for stage in stages
    )


def test_a_table_takes_about_the_memory_of_its_rows(spark, runner, job):
    text = many_joins(TABLES)
    expected = rows_of(spark.sql(text).toArrow())  # before: plain Spark broadcasts, too
    before = used(runner)[2]

    table = job.result(cut(spark, spark.sql(text)))

    assert rows_of(table) == expected
    assert used(runner)[2] - before < TABLES * 6 * MIB


def test_stages_of_a_job_hold_a_broadcast_once_and_its_end_gives_it_back(spark, runner, job):
    joined = many_joins(TABLES)
    both = "j AS a JOIN j AS b ON a.n = b.n WHERE a.odd = 0 AND b.odd = 1"
    text = f"WITH j AS ({joined}) SELECT a.n, a.t, b.t AS u FROM {both}"
    expected = rows_of(spark.sql(text).toArrow())
    stages = cut(spark, spark.sql(text))
    reading = [sum(getattr(source, "reads_all", False) for source in stage.plan.inputs) for stage in stages]
    assert sum(count >= TABLES for count in reading) == 2
    held, begun, size = used(runner)

    table = job.result(stages)

    assert rows_of(table) == expected
    built = used(runner)[1] - begun
    assert sum(reading) - built == TABLES - 1  # of the first table each side takes other rows
    assert used(runner)[0] - held == built
    runner.close_job(job.job_id)
    assert used(runner)[0] == held
    until(lambda: used(runner)[2] <= size + MIB)


def test_a_job_that_reads_outputs_of_another_has_broadcasts_of_its_own(spark, new_job):
    text = f"SELECT /*+ BROADCAST(d) */ f.id, d.w FROM ({FACTS}) AS f JOIN ({NAMES}) AS d ON f.n = d.w"
    expected = rows_of(spark.sql(text).toArrow())
    stages = cut(spark, spark.sql(text))
    first, second = new_job(), new_job()
    assert rows_of(first.result(stages)) == expected
    last = stages[-1]
    second.outputs = {stage: outputs for stage, outputs in first.outputs.items() if stage != last.stage_id}
    second.taken_from = first.job_id
    assert "BroadcastHashJoin" in plans_of(second, [last])

    first.runner.close_job(first.job_id)

    assert all(report.HasField("success") for report in second.run(last.stage_id, last.plan)), second.reports
    second.runner.close_job(second.job_id)


def spark_jobs(spark) -> int:
    """Return how many Spark jobs have run in this process."""
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


SHORT, EVEN = "sha2(CAST(id AS STRING), 256)", "repeat(char(97 + id % 3), 2000)"
"""The second one takes a hundredth of its memory in a file."""


@pytest.mark.parametrize(("rows", "value", "jobs"), [(7, SHORT, 0), (130_000, SHORT, 1), (20_000, EVEN, 1)])
def test_a_small_broadcast_needs_no_spark_job_and_no_slot(spark, job, rows, value, jobs):
    dim = f"(SELECT id, {value} AS v FROM RANGE(0, {rows}, 1, 1)) AS d"
    text = f"SELECT /*+ BROADCAST(d) */ f.id, d.v FROM ({FACTS}) AS f JOIN {dim} ON f.n = d.id"
    expected = rows_of(spark.sql(text).toArrow())
    stages = cut(spark, spark.sql(text))
    before = spark_jobs(spark)

    table = job.result(stages)

    assert rows_of(table) == expected
    assert "BroadcastHashJoin" in plans_of(job, stages[-1:])
    assert spark_jobs(spark) - before == len(stages) + jobs


def test_a_subquery_over_few_rows_needs_no_spark_job(spark, job):
    most = f"(SELECT max(w) FROM ({NAMES}))"
    text = f"SELECT id, {most} AS most FROM ({FACTS}) AS f WHERE id <= {most} OR n IN (SELECT m FROM ({NAMES}))"
    expected = rows_of(spark.sql(text).toArrow())
    stages = cut(spark, spark.sql(text))
    before = spark_jobs(spark)

    table = job.result(stages)

    assert rows_of(table) == expected
    assert spark_jobs(spark) - before == len(stages)


@pytest.mark.parametrize("damage", ["gone", "cut off", "changed"])
def test_an_input_of_a_broadcast_that_is_lost_is_named(spark, job, exchange_dir, damage):
    stage = with_a_broadcast(spark, job)
    (lost,) = [source.stage_id for source in stage.plan.inputs if getattr(source, "reads_all", False)]
    nonce = job.outputs[lost][0].nonce
    file = exchange_dir / job.job_id / str(lost) / f"0-{nonce}.rows"
    content = file.read_bytes()
    file.unlink()
    if damage != "gone":
        file.write_bytes(content[:-9] if damage == "cut off" else b"\0" * 24 + content[24:])

    reports = job.run(stage.stage_id, stage.plan)

    lost_to = {(r.failure.kind, r.failure.fetch.input_stage_id, r.failure.fetch.nonce) for r in reports}
    assert lost_to == {("fetch_failed", lost, nonce)}


JOINS = [
    "SELECT f.id, f.k, d.w FROM {f} JOIN {d} ON f.k = d.k",
    "SELECT f.id, f.k, d.w FROM {f} JOIN {d} ON f.k = d.k AND f.n > d.m",
    "SELECT f.id, f.k, d.w FROM {f} LEFT JOIN {d} ON f.k = d.k",
    "SELECT f.id, d.k, d.w FROM {d} RIGHT JOIN {f} ON f.k = d.k AND d.m = 1",
    "SELECT f.id FROM {f} LEFT SEMI JOIN {d} ON f.k = d.k AND f.n <> d.m",
    "SELECT f.id FROM {f} LEFT ANTI JOIN {d} ON f.k = d.k",
    "SELECT f.id FROM {f} WHERE f.k IN (SELECT k FROM {d}) OR f.n = 3",
    "SELECT f.n, count(*) AS c FROM {f} JOIN {d} ON f.k = d.k JOIN {e} ON d.m = e.m AND f.k = e.k GROUP BY f.n",
]


@pytest.mark.parametrize("shape", JOINS)
@pytest.mark.usefixtures("no_limit")
def test_what_does_not_fit_is_joined_by_sorting(spark, runner, job, shape):
    text = shape.format(f=f"({FACTS}) AS f", d=f"({NAMES}) AS d", e=f"({NAMES}) AS e")
    stages = cut(spark, spark.sql(ORDERLESS.format(text)))
    expected = rows_of(spark.sql(text).toArrow())
    runner.kernel.limit_broadcasts(0)

    table = job.result(stages)

    assert rows_of(table) == expected
    plans = plans_of(job, stages)
    assert "SortMergeJoin" in plans
    assert "BroadcastHashJoin" not in plans
    assert expected


@pytest.mark.usefixtures("no_limit")
def test_the_largest_are_left_out_first(spark, runner, job):
    large = "(SELECT concat('K', id) AS k, repeat('x', 1000) AS text FROM RANGE(0, 1000, 1, 1)) AS large"
    small = f"({NAMES}) AS small"
    joins = f"LEFT JOIN {large} ON f.k = large.k LEFT JOIN {small} ON f.k = small.k"
    text = f"SELECT f.id, small.w, text FROM ({FACTS}) AS f {joins}"
    stages = cut(spark, spark.sql(ORDERLESS.format(text)))
    runner.kernel.limit_broadcasts(MIB)

    table = job.result(stages)

    assert rows_of(table) == rows_of(spark.sql(text).toArrow())
    plans = plans_of(job, stages)
    assert plans.count("SortMergeJoin") == 1
    assert plans.count("BroadcastHashJoin") == 1


@pytest.mark.usefixtures("no_limit")
def test_an_order_that_a_join_keeps_is_kept_and_so_is_a_join_that_sorting_cannot_do(spark, runner, job):
    anti = f"SELECT f.id FROM ({FACTS}) AS f WHERE f.k NOT IN (SELECT k FROM ({NAMES}))"
    ordered = f"SELECT f.id, d.w FROM ({FACTS}) AS f JOIN ({NAMES}) AS d ON f.k = d.k"
    runner.kernel.limit_broadcasts(0)
    for text in (anti, ordered):
        stages = cut(spark, spark.sql(text if text is ordered else ORDERLESS.format(text)))
        assert rows_of(job.result(stages)) == rows_of(spark.sql(text).toArrow())
        assert "SortMergeJoin" not in plans_of(job, stages)
        runner.close_job(job.job_id)


def test_a_stage_that_ran_out_of_memory_runs_without_broadcasts_the_next_time(spark, job):
    far_too_long = "repeat(d.k, CAST(1073741823 + 0 * d.w + 0 * f.id AS INT))"
    text = f"SELECT f.id, length({far_too_long}) AS l FROM ({FACTS}) AS f JOIN ({NAMES}) AS d ON f.k = d.k"
    stages = cut(spark, spark.sql(ORDERLESS.format(text)))
    joined = stages[-2]
    for stage in stages[:-2]:
        job.run(stage.stage_id, stage.plan)
    assert "BroadcastHashJoin" in plans_of(job, [joined])

    reports = job.run(joined.stage_id, joined.plan)

    assert {report.failure.kind for report in reports} == {"io_error"}
    assert "SortMergeJoin" in plans_of(job, [joined])


def test_what_spark_cannot_broadcast_is_joined_by_sorting(spark, job):
    conf = {"spark.sql.maxBroadcastTableSize": "16"}
    text = JOINS[0].format(f=f"({FACTS}) AS f", d=f"({NAMES}) AS d")
    expected = rows_of(spark.sql(text).toArrow())
    stages = cut(spark, spark.sql(ORDERLESS.format(text)), conf)

    assert rows_of(job.result(stages)) == expected
    assert "SortMergeJoin" in plans_of(job, stages)


def test_a_users_error_while_a_broadcast_is_built_is_reported_the_first_time(spark, runner, job):
    key = "IF(d.w >= 0, CAST(raise_error('Cannot broadcast the table') AS STRING), d.k)"
    text = f"SELECT f.id, d.w FROM ({FACTS}) AS f JOIN ({NAMES}) AS d ON f.k = {key}"
    stages = cut(spark, spark.sql(ORDERLESS.format(text)))
    job.run_all(stages[:-2])
    (_, begun, _), jobs = used(runner), spark_jobs(spark)

    found = [report.failure for report in job.run(stages[-2].stage_id, stages[-2].plan)]

    assert {(failure.kind, failure.error_class) for failure in found} == {("user_error", "USER_RAISED_EXCEPTION")}
    assert (used(runner)[1] - begun, spark_jobs(spark) - jobs) == (1, 0), "it was joined by sorting the second time"


@pytest.mark.parametrize(
    ("condition", "is_memory"),
    [
        ("_LEGACY_ERROR_TEMP_2105", True),
        ("_LEGACY_ERROR_TEMP_2250", True),
        ("_LEGACY_ERROR_TEMP_2248", False),
        ("_LEGACY_ERROR_TEMP_2249", False),
    ],
)
def test_each_condition_of_what_is_too_large_is_known(spark, runner, condition, is_memory):
    jvm = Jvm.of(spark)
    names = ("maxBroadcastTableRows", "numRows", "maxBroadcastTableBytes", "dataSize")
    names += ("autoBroadcastJoinThreshold", "driverMemory", "analyzeTblMsg")
    parameters = dict.fromkeys(names, "1")
    to_map = jvm.java_class("org.apache.spark.api.python.PythonUtils").toScalaMap
    error = jvm.java_class("org.apache.spark.SparkException")(condition, to_map(parameters), None)
    wrapped = jvm.java_class("java.lang.RuntimeException")("task", error)
    assert jvm.java_class("onager.failure.Failures").isTooLargeToBroadcast(wrapped)
    assert runner.kernel.describe(wrapped)["out_of_memory"] == is_memory


def with_a_broadcast(spark, job):
    """Return a stage that broadcasts; those before it have run."""
    text = f"SELECT f.id, d.w FROM ({FACTS}) AS f JOIN ({NAMES}) AS d ON f.k = d.k"
    stages = cut(spark, spark.sql(ORDERLESS.format(text)))
    for stage in stages[:-2]:
        job.run(stage.stage_id, stage.plan)
    return stages[-2]


def test_a_task_that_runs_alone_since_memory_may_have_run_out_uses_no_broadcasts(spark, runner, job):
    stage = with_a_broadcast(spark, job)
    assert "BroadcastHashJoin" in plans_of(job, [stage])
    alone = job.task_set(stage.stage_id, stage.plan, [0])
    alone.tasks[0].alone = True
    assert "SortMergeJoin" in runner.binder.bound(alone, stage.plan).java.text()


class Paused(tuple):
    """A stage's inputs, which block the binding of the stage."""

    __slots__ = ()
    reached, go_on = threading.Event(), threading.Event()

    def __iter__(self):
        self.reached.set()
        assert self.go_on.wait(HANGS_S)
        return super().__iter__()


@pytest.mark.parametrize("why", ["cancelled", "closed", "the next attempt came, and closed"])
def test_a_stage_that_is_given_up_while_it_is_bound_leaves_no_broadcast(spark, runner, job, why):
    stage = with_a_broadcast(spark, job)
    task_set = job.task_set(stage.stage_id, stage.plan, [])
    Paused.reached.clear()
    Paused.go_on.clear()
    paused = replace(stage.plan, inputs=Paused(stage.plan.inputs))
    wanted = [True]
    held = used(runner)[0]
    with ThreadPoolExecutor(1) as pool:
        bound = pool.submit(runner.binder.bound, task_set, paused, lambda: wanted[0])
        assert Paused.reached.wait(HANGS_S)
        wanted[0] = False
        if why.startswith("the next"):
            runner.binder.bound(job.task_set(stage.stage_id, stage.plan, [], attempt=1), stage.plan)
        if why == "cancelled":
            runner.binder.cancel(stage_key(task_set))
        else:
            runner.binder.close_job(job.job_id)
        Paused.go_on.set()
        with pytest.raises(Py4JJavaError) as ended:
            bound.result(HANGS_S)

    assert failures.from_exception(runner.kernel, ended.value).kind == "task_killed"
    assert used(runner)[0] == held


def test_the_broadcasts_of_a_stage_that_ran_out_of_memory_are_given_back_with_its_job(spark, runner, job):
    stage = with_a_broadcast(spark, job)
    runner.close_job(job.job_id)  # of other stages nothing is kept now
    task_set = job.task_set(stage.stage_id, stage.plan, [])
    held = used(runner)[0]
    runner.binder.bound(task_set, stage.plan)
    assert used(runner)[0] == held + 1

    runner.binder.spare(stage_key(task_set))

    assert job.job_id in runner.kept_jobs()
    runner.close_job(job.job_id)
    assert job.job_id not in runner.kept_jobs()
    assert used(runner)[0] == held


def test_tasks_that_run_out_of_memory_one_after_another_have_a_stage_bound_anew_once(spark, runner, job):
    stage = with_a_broadcast(spark, job)
    task_set = job.task_set(stage.stage_id, stage.plan, [])
    runner.binder.bound(task_set, stage.plan)
    runner.binder.spare(stage_key(task_set))
    sparing = runner.binder.bound(task_set, stage.plan)

    runner.binder.spare(stage_key(task_set))

    assert runner.binder.bound(task_set, stage.plan) is sparing
    assert "SortMergeJoin" in sparing.java.text()
