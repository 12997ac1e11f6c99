"""Tasks run a stage as it was laid out: with others in its plan, or over other ranges of buckets; and report sizes."""

import math

import pytest

from onager.executor.spark.planning.sizing import HASHED_BYTES
from onager.protocol import onager_pb2 as pb
from tests.support.spark.runner import cut, settings

SORTED_SIDES = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
JOIN = """
    SELECT l.k % 3 AS m, count(*) AS c FROM (SELECT id % 50 AS k, id AS v FROM RANGE(0, 4000, 1, 3)) AS l
    JOIN (SELECT id AS k, concat('r', id) AS w FROM RANGE(20, 70, 1, 2)) AS r ON l.k = r.k GROUP BY l.k % 3"""


@pytest.fixture
def stages(spark):
    """Two leaves, their join, an aggregate, and the result, which is dealt out once more."""
    with settings(spark, SORTED_SIDES):
        made = cut(spark, spark.sql(JOIN).repartition(2), SORTED_SIDES | {HASHED_BYTES: "1m"})
    assert len(made) == 5
    return made


# ---------------------------------------------------------------- sizes of buckets


def test_a_task_reports_the_size_of_each_bucket(spark, job):
    wide = spark.sql("SELECT id, sha2(CAST(id AS STRING), 512) AS h FROM RANGE(0, 3000, 1, 1) WHERE id <> 5")
    stage, _ = cut(spark, wide.where("id % 7 <> 0 OR id > 2000").repartition(3, "id"))
    (report,) = job.run(1, stage.plan)
    output, sizes = report.success.output, report.success.bucket_sizes
    assert len(sizes) == 3
    sum_of_sizes = sum(1.1**size for size in sizes)
    assert output.bytes * 0.95 < sum_of_sizes < output.bytes * 1.1


def test_the_size_of_a_bucket_without_rows_is_zero(spark, job):
    stage, _ = cut(spark, spark.sql("SELECT 7 AS k, id FROM RANGE(0, 90, 1, 2)").repartition(5, "k"))
    for report in job.run(1, stage.plan):
        assert sorted(size > 0 for size in report.success.bucket_sizes) == [False] * 4 + [True]
        (size,) = (size for size in report.success.bucket_sizes if size)
        assert size <= math.ceil(math.log(report.success.output.bytes) / math.log(1.1))


def test_a_task_without_rows_reports_zeros(spark, job):
    stage, _ = cut(spark, spark.sql("SELECT id FROM RANGE(0, 9, 1, 1) WHERE id > rand() + 20").repartition(3, "id"))
    (report,) = job.run(1, stage.plan)
    assert report.success.bucket_sizes == bytes(3)


@pytest.mark.parametrize(
    "text",
    ["SELECT sum(id) FROM RANGE(0, 90, 1, 2)", "SELECT id FROM RANGE(0, 90, 1, 2) ORDER BY id"],
    ids=["one bucket", "sorted runs"],
)
def test_there_are_no_sizes_of_what_is_not_divided_into_buckets(spark, job, text):
    stage, *_ = cut(spark, spark.sql(text), parallel_sort_bytes=0)
    assert [report.success.bucket_sizes for report in job.run(1, stage.plan)] == [b"", b""]


# ---------------------------------------------------------------- ranges of buckets


def test_tasks_read_the_buckets_that_they_are_given(spark, job, stages):
    left, right, join, *_ = stages
    for stage in (left, right):
        job.run(stage.stage_id, stage.plan)
    bytes_in = [report.success.metrics.bytes_in for report in job.run(join.stage_id, join.plan)]

    reads = [pb.TaskRead(first_bucket=0, end_bucket=2), pb.TaskRead(first_bucket=2, end_bucket=3)]
    reports = job.run(join.stage_id, join.plan, attempt=1, reads=reads)

    assert [report.success.metrics.bytes_in for report in reports] == [sum(bytes_in[:2]), bytes_in[2]]


def test_tasks_that_split_a_bucket_read_some_producers_part_of_one_input_and_all_of_the_other(spark, job, stages):
    left, right, join, *_ = stages
    for stage in (left, right):
        job.run(stage.stage_id, stage.plan)
    part = {"first_bucket": 0, "end_bucket": 3, "split_stage_id": left.stage_id}
    whole = pb.TaskRead(first_bucket=0, end_bucket=3)
    first, second = (pb.TaskRead(**part, first_producer=a, end_producer=b) for a, b in ((0, 1), (1, 3)))

    (all_at_once,) = job.run(join.stage_id, join.plan, reads=[whole])
    reports = job.run(join.stage_id, join.plan, attempt=1, reads=[first, second])

    of_right = sum(job.outputs[right.stage_id][p].bytes for p in job.outputs[right.stage_id])
    read = [report.success.metrics.bytes_in for report in reports]
    beyond = sum(read) - all_at_once.success.metrics.bytes_in
    assert 0 < beyond < of_right, "the right side's frames once more"
    assert read[0] < read[1]


def test_a_side_is_hashed_by_the_size_of_what_a_task_reads(spark, job):
    with settings(spark, SORTED_SIDES):
        left, right, join, *_ = stages = cut(spark, spark.sql(JOIN), SORTED_SIDES | {HASHED_BYTES: "400"})
    for stage in (left, right):
        job.run(stage.stage_id, stage.plan)

    def text(reads):
        return job.runner.binder.bound(job.task_set(3, join.plan, [], reads=reads), join.plan).java.text()

    assert len(stages) == 4
    assert "ShuffledHashJoin" in text([])
    assert "SortMergeJoin" in text([pb.TaskRead(first_bucket=0, end_bucket=3)])


# ---------------------------------------------------------------- fused stages


def test_a_fused_plan_is_one_tree_over_what_is_read_from_outside(spark, job, stages):
    left, right, join, total, last = stages
    for stage in (left, right):
        job.run(stage.stage_id, stage.plan)
    fused = {join.stage_id: join.plan, total.stage_id: total.plan}
    task_set = job.task_set(last.stage_id, last.plan, [0], fused=fused)
    assert [location.stage_id for location in task_set.inputs] == [left.stage_id, right.stage_id]

    bound = job.runner.binder.bound(task_set, last.plan, fused=fused)

    text = bound.java.text()
    assert text.count("Scan stage") == 2
    assert text.count("HashAggregate") == 2
    assert "ShuffledHashJoin" in text
    assert "Coalesce" not in text
    assert text.count("*(") == text.count("*(1)") == 4, (
        "one piece of generated code: the join, a projection, both aggregates"
    )
    assert bound.java.partitions() == 1


def test_one_task_computes_fused_stages(spark, job, stages):
    left, right, join, total, last = stages
    job.run(left.stage_id, left.plan)
    fused = {right.stage_id: right.plan, join.stage_id: join.plan, total.stage_id: total.plan}

    (report,) = job.run(last.stage_id, last.plan, fused=fused)

    assert report.success.output.rows == 3
    (blob,) = report.success.blobs
    assert b"Coalesce" in blob.content, "the leaf has two partitions"


def test_what_is_fused_and_what_is_not_are_bound_apart(spark, job, stages):
    left, right, join, total, _ = stages
    for stage in (left, right, join):
        job.run(stage.stage_id, stage.plan)
    alone = job.runner.binder.bound(job.task_set(total.stage_id, total.plan, [0]), total.plan)
    fused = {join.stage_id: join.plan}
    together = job.runner.binder.bound(
        job.task_set(total.stage_id, total.plan, [0], fused=fused), total.plan, fused=fused
    )
    assert (alone.java.partitions(), together.java.partitions()) == (3, 1)
