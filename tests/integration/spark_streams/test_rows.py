"""Streams between two executors give the same rows as files."""

from collections import Counter

from pyspark.sql import functions as fn
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from tests.integration.spark_runner.test_operators import plans, rows
from tests.integration.spark_runner.test_rows import EVERY_TYPE, sorted_rows
from tests.integration.spark_streams.streaming_job import stream_use
from tests.support.spark.runner import cut


def test_every_type_comes_as_it_was(spark, job):
    frame = spark.sql(EVERY_TYPE)
    table = job.result(cut(spark, frame.repartition(3, "id")))
    assert sorted_rows(table) == sorted_rows(frame.toArrow().cast(table.schema))


def test_a_join_and_an_aggregate_over_several_stages(spark, job):
    orders = spark.range(0, 20_000, 1, 3).selectExpr("id o", "id % 977 c", "id * 0.25D price")
    customers = spark.range(0, 977, 1, 2).selectExpr("id c", "id % 7 nation")
    frame = orders.join(customers.hint("merge"), "c").groupBy("nation").agg(fn.sum("price"), fn.count("o"))
    stages = cut(spark, frame)
    assert len(stages) == 4
    assert sorted_rows(job.result(stages), "nation") == sorted_rows(frame.toArrow(), "nation")
    job.wait()
    streamed = [r.success for (stage, _), r in job.reports.items() if stage != stages[-1].stage_id]
    assert {s.output.shared for s in streamed} == {False}
    assert {s.output.shared for (stage, _), s in _successes(job) if stage == stages[-1].stage_id} == {True}
    assert sum(s.metrics.bytes_out for s in streamed) > 100_000
    read = sum(s.metrics.bytes_in for _, s in _successes(job))
    assert read == sum(s.metrics.bytes_out for s in streamed)  # each bucket was read by one task,
    assert [stream_use(executor)[0] for executor in job.executors] == [0, 0]  # and went as it was


def test_executors_that_stream_report_what_operators_measured_of_one_bound_plan(spark, job):
    orders = spark.range(0, 20_000, 1, 3).selectExpr("id o", "id % 977 c", "id * 0.25D price").where("o % 2 = 0")
    customers = spark.range(0, 977, 1, 2).selectExpr("id c", "id % 7 nation")
    stages = cut(spark, orders.join(customers.hint("merge"), "c").groupBy("nation").agg(fn.sum("price")).repartition(2))
    job.result(stages)
    reports = job.wait()
    counted = Counter()
    for stage in stages:
        (operators,), (totals,) = plans([r for r in reports if r.task.stage_id == stage.stage_id])
        assert totals.tasks == stage.plan.partitions
        counted += rows(operators)
    assert {("Range", 20_000), ("Filter", 10_000), ("Range", 977), ("SortMergeJoin", 10_000)} <= set(counted)
    assert sum(len(r.success.blobs) for r in reports) <= 2 * len(stages)


def _successes(job):
    return [(key, report.success) for key, report in job.reports.items()]


def test_broadcasts_and_subqueries_are_read_by_every_executor(spark, job):
    many = spark.range(0, 300, 1, 4).selectExpr("id k", "id % 7 v")
    few = spark.range(0, 50, 1, 3).selectExpr("id % 7 v", "id * 10 w").groupBy("v").agg(fn.max("w").alias("w"))
    many.createOrReplaceTempView("many")
    frame = many.join(fn.broadcast(few), "v").where("k > (SELECT avg(k) FROM many)")
    stages = cut(spark, frame)
    assert any(source.reads_all for source in stages[-1].plan.inputs if hasattr(source, "reads_all"))
    assert sorted_rows(job.result(stages), "k") == sorted_rows(frame.toArrow(), "k")


def test_a_stage_that_is_read_twice_is_kept_for_both(spark, job):
    base = spark.range(0, 30_000, 1, 2).selectExpr("id % 5000 k", "id v", "sha2(CAST(id AS STRING), 256) h")
    once = base.repartition(3, "k").groupBy("k").agg(fn.max("h").alias("h"), fn.sum("v").alias("v"))
    other = once.selectExpr("k + 0 AS k", "h AS h2")
    frame = once.join(other.hint("merge"), "k").selectExpr("k", "v", "h = h2 AS same")
    stages = cut(spark, frame)
    table = job.result(stages)
    assert sorted_rows(table, "k") == sorted_rows(frame.toArrow(), "k")


def test_a_product_reads_each_bucket_in_several_tasks(spark, job):
    left = spark.range(0, 40, 1, 2).repartition(3, "id").selectExpr("id a")
    right = spark.range(0, 30, 1, 2).repartition(2, "id").selectExpr("id b")
    stages = cut(spark, left.hint("shuffle_replicate_nl").crossJoin(right))
    table = job.result(stages)
    assert sorted((row["a"], row["b"]) for row in table.to_pylist()) == [(a, b) for a in range(40) for b in range(30)]


def test_far_more_than_memory_holds_goes_from_stage_to_stage(spark, job):
    frame = spark.range(0, 200_000, 1, 3).selectExpr("id", "sha2(CAST(id AS STRING), 512) h").repartition(5, "id")
    stages = cut(spark, frame.selectExpr("id", "length(h) n").groupBy().agg(fn.sum("id"), fn.sum("n")))
    assert job.result(stages).to_pylist() == [{"sum(id)": 200_000 * 199_999 // 2, "sum(n)": 128 * 200_000}]
    job.wait()
    assert sum(s.metrics.bytes_out for (stage, _), s in _successes(job) if stage == 1) > 20 << 20


def test_rows_pass_through_python_on_the_way(spark, job):
    @udf(LongType())
    def plus_one(x):
        return x + 1

    frame = spark.range(0, 5000, 1, 2).repartition(3, "id").select(plus_one("id").alias("n")).repartition(2, "n")
    table = job.result(cut(spark, frame.selectExpr("n")))
    assert sorted(table.column("n").to_pylist()) == list(range(1, 5001))


def test_a_gathered_stage_is_in_the_order_of_its_producers(spark, job):
    frame = spark.range(0, 5000, 1, 4).repartition(1).selectExpr("id")
    assert job.result(cut(spark, frame)).column("id").to_pylist() == frame.toArrow().column("id").to_pylist()


def test_a_sort_in_parallel_reads_little_more_than_each_tasks_range(spark, job):
    text = "SELECT id * 7919 % 60007 AS n, sha2(string(id), 256) AS filler FROM RANGE(0, 60000, 1, 4) ORDER BY n DESC"
    stages = cut(spark, spark.sql(text), parallel_sort_bytes=0)
    assert [stage.plan.partitions for stage in stages] == [4, 3]
    table = job.result(stages)
    assert table.column("n").to_pylist() == sorted((i * 7919 % 60007 for i in range(60_000)), reverse=True)
    job.wait()
    written = sum(success.metrics.bytes_out for (stage, _), success in _successes(job) if stage == 1)
    assert written < sum(success.metrics.bytes_in for _, success in _successes(job)) < 1.5 * written


def test_stages_without_rows_end(spark, job):
    frame = spark.range(0, 5, 1, 2).where("id > rand() + 10").repartition(3, "id")
    assert job.result(cut(spark, frame)).num_rows == 0


def test_nothing_is_left_when_a_job_is_closed(spark, job, exchange_dir):
    stages = cut(spark, spark.range(0, 50_000, 1, 4).selectExpr("id", "uuid() u").repartition(3, "id"))
    assert job.result(stages).num_rows == 50_000
    job.wait()
    job.close()
    for executor in job.executors:
        held, _, tasks, waiting = stream_use(executor)
        assert (held, tasks, waiting) == (0, 0, 0)
    assert [path for path in (exchange_dir / job.job_id).rglob("*") if path.is_file() and path.suffix != ".arrow"] == []
