"""A join that was planned to sort both sides builds a hash table where one side turns out to be small."""

import pytest

from onager.executor.spark.planning.sizing import HASHED_BYTES
from tests.support.spark.runner import cut, settings

SORTED_SIDES = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
AMPLE = SORTED_SIDES | {HASHED_BYTES: "1m"}
LEFT = "(SELECT id % 50 AS k, id AS v, IF(id % 7 = 0, NULL, id % 11) AS n FROM RANGE(0, 400, 1, 2)) AS l"
RIGHT = "(SELECT id AS k, concat('r', id) AS w, id % 5 AS m FROM RANGE(20, 70, 1, 2)) AS r"
A, B = LEFT.replace(" AS l", " AS a"), LEFT.replace(" AS l", " AS b")
JOINS = [
    f"SELECT l.k, l.v, r.w FROM {LEFT} JOIN {RIGHT} ON l.k = r.k",
    f"SELECT l.k, l.v, r.w FROM {LEFT} JOIN {RIGHT} ON l.k = r.k AND l.v % 4 > r.m",
    f"SELECT l.k, l.v, r.w FROM {LEFT} LEFT JOIN {RIGHT} ON l.k = r.k AND r.m > 1",
    f"SELECT r.k, l.v, r.w FROM {LEFT} RIGHT JOIN {RIGHT} ON l.k = r.k",
    f"SELECT l.k, l.v FROM {LEFT} LEFT SEMI JOIN {RIGHT} ON l.k = r.k AND l.v % 4 <> r.m",
    f"SELECT l.k, l.v FROM {LEFT} LEFT ANTI JOIN {RIGHT} ON l.k = r.k",
    f"SELECT l.k, l.v FROM {LEFT} WHERE l.k IN (SELECT k FROM {RIGHT}) OR l.v = 3",
    f"SELECT a.k, a.v, b.v, r.w FROM {A} JOIN {B} ON a.k = b.k AND a.v = b.v JOIN {RIGHT} ON a.k = r.k",
    f"SELECT l.k, l.v FROM {LEFT} WHERE l.k IN (SELECT m FROM {RIGHT} GROUP BY m HAVING count(*) > 2)",
    f"SELECT r.m, count(*) FROM {LEFT} JOIN {RIGHT} ON l.n = r.k % 11 GROUP BY r.m",
]


def plans_of(job, stages) -> str:
    return "".join(
        job.runner.binder.bound(job.task_set(stage.stage_id, stage.plan, []), stage.plan).java.text()
        for stage in stages
    )


def rows_of(table) -> list:
    return sorted(map(str, table.to_pylist()))


def as_stages(spark, text, conf):
    """Cut *text*, its result dealt out once more: what gives the result keeps its order."""
    with settings(spark, SORTED_SIDES):
        return cut(spark, spark.sql(text).repartition(3), conf)


@pytest.mark.parametrize("text", JOINS)
def test_every_type_of_join_gives_the_same_rows(spark, job, text):
    stages = as_stages(spark, text, AMPLE)

    table = job.result(stages)

    assert rows_of(table) == rows_of(spark.sql(text).toArrow())
    assert table.num_rows > 0
    plans = plans_of(job, stages)
    assert "ShuffledHashJoin" in plans
    assert "SortMergeJoin" not in plans


@pytest.mark.parametrize(
    ("text", "conf"),
    [
        pytest.param(JOINS[0], SORTED_SIDES | {HASHED_BYTES: "0"}, id="not wanted"),
        pytest.param(JOINS[0], SORTED_SIDES | {HASHED_BYTES: "300"}, id="too large"),
        pytest.param(JOINS[0].replace("JOIN", "FULL JOIN"), AMPLE, id="both sides kept"),
    ],
)
def test_otherwise_sides_are_sorted(spark, job, text, conf):
    stages = as_stages(spark, text, conf)

    assert rows_of(job.result(stages)) == rows_of(spark.sql(text).toArrow())
    assert "ShuffledHashJoin" not in plans_of(job, stages)


def test_an_order_that_the_join_gives_is_kept(spark, job):
    with settings(spark, SORTED_SIDES | {"spark.sql.shuffle.partitions": "1"}):
        ordered = spark.sql(JOINS[0]).sortWithinPartitions("k")
        stages = cut(spark, ordered, AMPLE | {"spark.sql.shuffle.partitions": "1"})
        assert ordered._jdf.queryExecution().executedPlan().toString().count("Sort [") == 2

    keys = job.result(stages).column("k").to_pylist()

    assert keys == sorted(keys)
    assert "ShuffledHashJoin" not in plans_of(job, stages)


def test_tables_of_one_task_share_what_there_is(spark, job):
    sides = [f"(SELECT id AS k, id AS v{i} FROM RANGE(0, 300, 1, 2)) AS t{i}" for i in range(3)]
    left, *others = sides
    joins = " ".join(f"LEFT JOIN {side} ON t0.k = t{i}.k" for i, side in enumerate(others, 1))
    text = f"SELECT t0.k, v0, v1, v2 FROM {left} {joins}"
    stages = as_stages(spark, text, SORTED_SIDES | {HASHED_BYTES: "4000"})

    assert job.result(stages).num_rows == 300
    plans = plans_of(job, stages)
    assert plans.count("ShuffledHashJoin") == 1  # a side of a bucket takes some 2,400 bytes
    assert plans.count("SortMergeJoin") == 1


def test_a_side_that_is_gone_when_its_size_is_looked_up_is_a_fetch_failure(spark, job, exchange_dir):
    stages = as_stages(spark, JOINS[0], AMPLE)
    producer, joined = stages[0], stages[-2]
    for stage in stages[:-2]:
        job.run(stage.stage_id, stage.plan)
    nonce = job.outputs[producer.stage_id][0].nonce
    (exchange_dir / job.job_id / str(producer.stage_id) / f"0-{nonce}.rows").unlink()

    reports = job.run(joined.stage_id, joined.plan)

    assert {report.failure.kind for report in reports} == {"fetch_failed"}
    assert {report.failure.fetch.nonce for report in reports} == {nonce}


@pytest.mark.parametrize(
    ("side", "is_hashed"),
    [
        ("SELECT k, repeat(w, 1000) AS w FROM r", False),
        ("SELECT k, w, w AS again FROM r", False),
        ("SELECT k, repeat('x', CAST(1000 + count(*) AS INT)) AS w FROM r GROUP BY k", False),
        ("SELECT k, k + 1 AS w, substring(w, 1, 3) AS v FROM r", True),
        ("SELECT k, count(*) AS n FROM r GROUP BY k", True),
    ],
)
def test_a_side_is_small_only_if_its_rows_cannot_grow(spark, job, side, is_hashed):
    dealt_out = "SELECT /*+ REPARTITION(3, k) */ id AS k, concat('r', id) AS w FROM RANGE(20, 70, 1, 2)"
    spark.sql(dealt_out).createOrReplaceTempView("r")
    with settings(spark, SORTED_SIDES):
        text = f"SELECT l.v, r.* FROM {LEFT} LEFT JOIN ({side}) AS r ON l.k = r.k"
        stages = cut(spark, spark.sql(text).repartition(3), AMPLE)

    assert rows_of(job.result(stages)) == rows_of(spark.sql(text).toArrow())
    assert ("ShuffledHashJoin" in plans_of(job, stages)) == is_hashed


def joined_stage(spark, job, text):
    """Return the stage that joins; those before it have run."""
    stages = as_stages(spark, text, AMPLE)
    for stage in stages[:-2]:
        job.run(stage.stage_id, stage.plan)
    assert "ShuffledHashJoin" in plans_of(job, stages[-2:-1])
    return stages[-2]


def test_a_stage_that_ran_out_of_memory_sorts_the_next_time(spark, job):
    far_too_long = "repeat(r.w, CAST(715827882 + 0 * l.v + 0 * r.k AS INT))"
    joined = joined_stage(spark, job, JOINS[0].replace("r.w", f"length({far_too_long}) AS w"))

    reports = job.run(joined.stage_id, joined.plan)

    assert {report.failure.kind for report in reports} == {"io_error"}
    plans = plans_of(job, [joined])
    assert "SortMergeJoin" in plans
    assert "ShuffledHashJoin" not in plans


def test_a_task_that_has_failed_twice_anywhere_sorts(spark, job):
    joined = joined_stage(spark, job, JOINS[0])
    task_set = job.task_set(joined.stage_id, joined.plan, [0])
    for attempt, is_hashed in ((1, True), (2, False)):
        task_set.tasks[0].task_attempt = attempt
        plan = job.runner.binder.bound(task_set, joined.plan).java.text()
        assert ("ShuffledHashJoin" in plan) == is_hashed
    assert all(report.HasField("success") for report in job.run(joined.stage_id, joined.plan))
