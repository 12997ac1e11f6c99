"""Rows pass through exchanges and results unchanged: every type, every shape, any number."""

import pyarrow as pa
import pytest
from pyspark.sql import functions as fn

from onager.result_files import split_messages
from tests.support.spark.runner import cut, settings

EVERY_TYPE = """
SELECT id, CAST(id AS BYTE) b, CAST(id AS SHORT) s, CAST(id AS INT) i, id * 0.5f f, IF(id % 5 = 0, NULL, id / 3.0d) d,
  CAST(id AS DECIMAL(10, 2)) small, CAST(id AS DECIMAL(38, 18)) * 12345678901234567890BD big,
  repeat('ä', CAST(id AS INT)) text, CAST(CAST(id AS STRING) AS BINARY) bin, id % 2 = 0 flag, NULL nothing,
  DATE '2020-02-29' + CAST(id AS INT) day,
  TIMESTAMP '2021-03-28 01:30:00' + MAKE_INTERVAL(0, 0, 0, 0, CAST(id AS INT)) ts,
  TIMESTAMP_NTZ '1890-01-01 00:00:00.123456' ntz, MAKE_DT_INTERVAL(0, CAST(id AS INT)) dt,
  array(id, NULL, id + 1) a, map(concat('k', id), array(id)) m, named_struct('x', id, 'y', named_struct('z', 'q')) st
FROM RANGE(0, 40, 1, 2)
"""


def sorted_rows(table: pa.Table, by: str = "id") -> list:
    return sorted(table.to_pylist(), key=lambda row: row[by])


def test_every_type_goes_through_an_exchange(spark, job):
    frame = spark.sql(EVERY_TYPE)
    stages = cut(spark, frame.repartition(3, "id"))
    assert len(stages) == 2
    table = job.result(stages)
    expected = frame.toArrow()
    expected = expected.cast(table.schema)  # plain Spark calls the zone UTC whatever it is called
    assert [f.type for f in table.schema] == [f.type for f in expected.schema]
    assert sorted_rows(table) == sorted_rows(expected)


def test_time_zone_of_the_job_is_that_of_its_timestamps(spark, job):
    text = "SELECT id, CAST(TIMESTAMP_SECONDS(id * 100000) AS STRING) t, TIMESTAMP_SECONDS(id) u FROM RANGE(0, 4, 1, 2)"
    zone = {"spark.sql.session.timeZone": "Asia/Kathmandu"}
    with settings(spark, zone):
        stages = cut(spark, spark.sql(text).repartition(2, "id"), zone)
    table = job.result(stages)
    assert table.schema.field("u").type == pa.timestamp("us", "Asia/Kathmandu")
    assert sorted_rows(table)[0]["t"] == "1970-01-01 05:30:00"


def test_year_month_intervals_come_as_text_and_calendar_intervals_as_such(spark, job):
    frame = spark.sql("SELECT MAKE_YM_INTERVAL(1, 2) ym, MAKE_INTERVAL(1, 2, 0, 3) cal FROM RANGE(0, 1, 1, 1)")
    table = job.result(cut(spark, frame))
    assert table.column("ym").to_pylist() == ["INTERVAL '1-2' YEAR TO MONTH"]
    assert table.column("cal")[0].as_py() == pa.MonthDayNano([14, 3, 0])


def test_a_year_month_interval_inside_another_type_is_refused_by_name(spark, job):
    frame = spark.sql("SELECT array(MAKE_YM_INTERVAL(1, 2)) deep FROM RANGE(0, 1, 1, 1)")
    (report,) = job.run_all(cut(spark, frame))
    assert report.failure.kind == "user_error"
    assert "column deep has a year-month interval inside array<" in report.failure.message


def test_variants_go_through_an_exchange(spark, job):
    frame = spark.sql(
        "SELECT id, to_json(v) j FROM (SELECT /*+ REPARTITION(3) */ id, parse_json(concat('[', id, ']')) v"
        " FROM RANGE(0, 6, 1, 2))"
    )
    assert [row["j"] for row in sorted_rows(job.result(cut(spark, frame)))] == [f"[{i}]" for i in range(6)]


def test_column_names_may_repeat(spark, job):
    table = job.result(cut(spark, spark.sql("SELECT id AS x, id + 1 AS x, 'a' AS `` FROM RANGE(0, 2, 1, 2)")))
    assert table.column_names == ["x", "x", ""]
    assert table.column(1).to_pylist() == [1, 2]


def test_rows_without_columns_are_counted(spark, job):
    stages = cut(spark, spark.range(0, 3_000_000, 1, 2).repartition(3).select())
    reports = job.run_all(stages)
    assert [sum(o.rows for o in outputs.values()) for outputs in job.outputs.values()] == [3_000_000, 3_000_000]
    assert len(reports) == 3


def test_a_result_without_columns_has_its_rows(spark, job):
    assert job.result(cut(spark, spark.range(0, 5, 1, 2).select())).num_rows == 5


def test_no_rows_write_no_file_and_read_as_none(spark, job, exchange_dir):
    stages = cut(spark, spark.range(0, 5, 1, 2).where("id > rand() + 10").repartition(3, "id"))
    table = job.result(stages)
    assert table.num_rows == 0
    assert table.column_names == ["id"]
    assert list((exchange_dir / job.job_id / "1").iterdir()) == []


def test_rows_of_many_sizes_and_more_of_them_than_memory_holds(spark, job):
    text = "SELECT id, repeat(chr(65 + CAST(id % 26 AS INT)), CAST(pow(id % 40, 3) AS INT)) t FROM RANGE(0, 6000, 1, 2)"
    stages = cut(spark, spark.sql(text).repartition(300, "id").selectExpr("id", "length(t) n", "md5(t) h"))
    table = job.result(stages)
    expected = spark.sql(f"SELECT id, length(t) n, md5(t) h FROM ({text})").toArrow()
    assert sorted_rows(table) == sorted_rows(expected)


def test_buckets_are_those_of_spark_and_order_is_that_of_the_producers(spark, job):
    frame = spark.range(0, 1000, 1, 4).repartition(5, "id").selectExpr("id", "spark_partition_id() p")
    table = job.result(cut(spark, frame))
    assert table.to_pylist() == frame.toArrow().to_pylist()


def test_round_robin_deals_rows_out_evenly(spark, job):
    frame = spark.range(0, 1000, 1, 2).repartition(4).selectExpr("spark_partition_id() p")
    counts = job.result(cut(spark, frame)).group_by("p").aggregate([("p", "count")])
    assert sorted(counts.column("p_count").to_pylist()) == [250, 250, 250, 250]


def test_partitions_of_separate_task_sets_keep_their_numbers(spark, job):
    frame = spark.range(0, 40, 1, 4).selectExpr("monotonically_increasing_id() m", "spark_partition_id() p", "uuid() u")
    (stage,) = cut(spark, frame)
    rows = []
    for partition in (2, 0, 3, 1):
        (report,) = job.run(1, stage.plan, [partition])
        rows += pa.ipc.open_stream(report.success.inline_result).read_all().to_pylist()
    assert {row["p"] for row in rows} == {0, 1, 2, 3}
    assert len({row["m"] for row in rows}) == len({row["u"] for row in rows}) == 40


def test_a_large_result_is_a_file_of_bounded_batches(spark, job, exchange_dir):
    frame = spark.range(0, 200_000, 1, 1).selectExpr("id", "sha2(CAST(id AS STRING), 256) h")
    table = job.result(cut(spark, frame))
    assert table.num_rows == 200_000
    assert table.column("id").to_pylist() == list(range(200_000))
    (report,) = job.reports
    assert not report.success.output.inline
    assert not report.success.inline_result
    (path,) = (exchange_dir / job.job_id / "1").iterdir()
    assert path.stat().st_size == report.success.output.bytes
    sizes = [len(m) for m in split_messages(path.read_bytes())]
    assert len(sizes) > 5
    assert max(sizes) < 2_000_000


def test_a_batch_of_large_rows_is_a_batch_of_few(spark, job, exchange_dir):
    text = "SELECT id, repeat('x', IF(id % 8 = 7, 2000000, 400000)) t FROM RANGE(0, 40, 1, 1)"
    (stage,) = cut(spark, spark.sql(text))
    (report,) = job.run(1, stage.plan)
    (path,) = (exchange_dir / job.job_id / "1").iterdir()
    messages = list(split_messages(path.read_bytes()))
    assert max(map(len, messages)) < 2**20 + 2_000_000 + 4096
    assert len(messages) < 1 + 40
    with pa.OSFile(str(path)) as file:
        lengths = [len(t) for t in pa.ipc.open_stream(file).read_all().column("t").to_pylist()]
    assert lengths == [2_000_000 if i % 8 == 7 else 400_000 for i in range(40)]
    assert report.success.output.rows == 40


def test_broadcasts_and_subqueries_read_whole_producers(spark, job):
    many = spark.range(0, 300, 1, 3).selectExpr("id k", "id % 7 v")
    few = spark.range(0, 50, 1, 3).selectExpr("id % 7 v", "id * 10 w").groupBy("v").agg(fn.max("w").alias("w"))
    many.createOrReplaceTempView("many")
    frame = many.join(fn.broadcast(few), "v").where("k > (SELECT avg(k) FROM many)")
    stages = cut(spark, frame)
    assert any(source.reads_all for source in stages[-1].plan.inputs if hasattr(source, "reads_all"))
    assert sorted_rows(job.result(stages), "k") == sorted_rows(frame.toArrow(), "k")


def test_metrics_are_reported(spark, job):
    stages = cut(spark, spark.range(0, 10_000, 1, 2).repartition(2, "id").sortWithinPartitions("id"))
    last = job.run_all(stages)
    first = [r.success for r in job.reports if r.task.stage_id == 1]
    assert sum(s.metrics.rows_out for s in first) == 10_000
    assert sum(s.metrics.bytes_out for s in first) == sum(s.output.bytes for s in first) > 0
    assert 0 < sum(r.success.metrics.bytes_in for r in last) < sum(s.output.bytes for s in first)
    assert all(r.success.metrics.peak_memory_bytes > 0 for r in last)
    assert all(r.started_ms and r.ended_ms - r.started_ms == r.success.metrics.run_ms for r in last)
    for metrics in (r.success.metrics for r in job.reports):
        assert metrics.fetch_ms + metrics.commit_ms <= metrics.run_ms + 1


def test_the_time_to_write_the_end_of_an_output_is_reported(spark, job):
    rows = spark.range(0, 200_000, 1, 1).selectExpr("id", "sha2(CAST(id AS STRING), 512) h").repartition(150, "id")
    stage = cut(spark, rows)[0]
    (report,) = job.run(stage.stage_id, stage.plan)  # all buckets are in memory until the last row
    assert 0 < report.success.metrics.commit_ms <= report.success.metrics.run_ms


def test_a_failure_says_what_the_attempt_cost(spark, job):
    rows = spark.range(0, 300_000, 1, 1).selectExpr("assert_true(id < 299999, 'too many') ok")
    (report,) = job.run_all(cut(spark, rows))
    assert report.failure.message
    assert report.failed_metrics.run_ms == report.ended_ms - report.started_ms > 0


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_settings_of_the_job_hold_inside_tasks(spark, job, ansi):
    conf = {"spark.sql.ansi.enabled": ansi}
    with settings(spark, conf):
        stages = cut(spark, spark.sql("SELECT CAST(if(id = 1, 'x', '7') AS INT) n FROM RANGE(0, 2, 1, 1)"), conf)
    (report,) = job.run_all(stages)
    if ansi == "true":
        assert report.failure.error_class == "CAST_INVALID_INPUT"
    else:
        assert pa.ipc.open_stream(report.success.inline_result).read_all().column("n").to_pylist() == [7, None]


@pytest.mark.parametrize(
    ("heap_mib", "fraction", "tasks", "mib"),
    [(16_384, 0.6, 8, 48), (1_324, 0.6, 16, 12.8), (1_324, 0.9, 1, 48), (400, 0.6, 64, 2)],
)
def test_write_buffers_of_all_tasks_fit_what_spark_leaves(spark, heap_mib, fraction, tasks, mib):
    left = spark._jvm.onager.run.WriteMemory.bytes(heap_mib << 20, fraction, tasks)
    assert left == pytest.approx(mib * (1 << 20))


def test_a_task_writes_smaller_frames_where_spark_leaves_it_less_memory(spark, new_job):
    rows = spark.range(0, 60_000, 1, 1).selectExpr("id", "sha2(CAST(id AS STRING), 512) h").repartition(150, "id")
    stage = cut(spark, rows)[0]
    conf = spark.sparkContext._conf  # the very one that Spark and the kernel read
    fraction = conf.get("spark.memory.fraction", "0.6")
    sizes = []
    for leaves in (fraction, fraction, "1.0"):
        conf.set("spark.memory.fraction", leaves)
        try:
            (report,) = new_job().run(stage.stage_id, stage.plan)
        finally:
            conf.set("spark.memory.fraction", fraction)
        sizes.append(report.success.output.bytes)
    much, again, little = sizes
    assert much == again < little
