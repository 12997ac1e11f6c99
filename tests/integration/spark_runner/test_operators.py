"""Tasks report what the operators of their plan measured: the same as plain Spark counts for the same operators."""

import base64
import hashlib
from collections import Counter
from dataclasses import replace

import pytest

from onager.execution_graph import OperatorTotals, metrics_text
from onager.execution_graph.operators import OperatorReport, with_reports
from onager.executor.spark.planning.sizing import HASHED_BYTES
from onager.executor.spark.stage_plan import SortedOutput
from onager.protocol import onager_pb2 as pb
from onager.scheduler.api.operators import operators_of
from tests.support.operators import metric
from tests.support.spark.runner import cut, settings

SORTED_SIDES = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
QUERY = """
    SELECT r.m, count(*) AS c FROM
        (SELECT id % 50 AS k, id AS v FROM {table} WHERE id % 3 = 0) AS l
        JOIN (SELECT id AS k, id % 5 AS m FROM RANGE(20, 70, 1, 2)) AS r ON l.k = r.k
    WHERE l.v % 4 >= r.m GROUP BY r.m"""


@pytest.fixture
def table(spark, tmp_path):
    spark.range(0, 4000, 1, 3).write.parquet(str(tmp_path / "t"))
    return f"parquet.`{tmp_path / 't'}`"


def plans(reports) -> tuple[list[list[pb.FinalOperator]], tuple[OperatorTotals, ...]]:
    """Return the operators of one stage, by bound plan."""
    blobs = {blob.digest: blob.content for report in reports for blob in report.success.blobs}
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in blobs.items())
    found = [OperatorReport(r.success.bound_plan, metrics_text(r.success.op_metrics)) for r in reports]
    totals = with_reports((), found)
    assert sum(each.tasks for each in totals) == len(reports)
    return [operators_of(blobs[each.bound_plan], each) for each in totals], totals


def rows(operators) -> Counter:
    """Return the rows of each operator that plain Spark has, too."""
    return Counter(
        (each.name, metric(each, "numOutputRows"))
        for each in operators
        if metric(each, "numOutputRows") is not None and not each.name.startswith("Scan stage")
    )


def rows_in_spark(plan) -> Counter:
    """Return the rows of each operator of a plan that has run, by its name."""
    found = Counter()
    metric = plan.metrics().get("numOutputRows")
    if metric.isDefined():
        found[plan.nodeName().strip(), metric.get().value()] += 1
    for i in range(plan.children().size()):
        found += rows_in_spark(plan.children().apply(i))
    return found


def test_operators_have_the_rows_that_plain_spark_counts(spark, job, table):
    text = QUERY.format(table=table)
    with settings(spark, SORTED_SIDES):
        frame = spark.sql(text)
        stages = cut(spark, frame, SORTED_SIDES | {HASHED_BYTES: "0"})
        execution = frame._jdf.queryExecution()
        execution.toRdd().count()
        wanted = rows_in_spark(execution.executedPlan())

    ran = [job.run(stage.stage_id, stage.plan) for stage in stages]

    found = Counter()
    for reports in ran:
        (operators,), _ = plans(reports)
        found += rows(operators)
        assert max(len(r.success.op_metrics) for r in reports) <= 100
        assert sum(len(r.success.blobs) for r in reports) == 1  # only the first one
    assert found == wanted
    assert any(name.startswith("SortMergeJoin") and count > 0 for name, count in found)
    scans = [each for reports in ran for each in plans(reports)[0][0] if metric(each, "numFiles") is not None]
    assert [metric(scan, "numFiles") for scan in scans] == [3]
    assert metric(scans[0], "filesSize") > 0


def test_a_join_that_becomes_a_hash_join_when_it_is_bound_is_shown_as_one(spark, job, table):
    with settings(spark, SORTED_SIDES):
        stages = cut(spark, spark.sql(QUERY.format(table=table)), SORTED_SIDES | {HASHED_BYTES: "1m"})

    names = {each.name for stage in stages for each in plans(job.run(stage.stage_id, stage.plan))[0][0]}

    assert "ShuffledHashJoin" in names
    assert "SortMergeJoin" not in names


def test_a_plan_that_is_bound_again_has_the_same_digest(spark, job, table):
    stages = cut(spark, spark.sql(QUERY.format(table=table)))
    job.run_all(stages)
    for stage in stages:
        again = job.run(stage.stage_id, stage.plan, attempt=1)
        first = next(r for r in job.reports if r.task.stage_id == stage.stage_id)
        assert {r.success.bound_plan for r in again} == {first.success.bound_plan}
        assert sum(len(r.success.blobs) for r in again) == 1


def test_off_reports_nothing(spark, job, table):
    stages = cut(spark, spark.sql(QUERY.format(table=table)))
    for stage in stages:
        for report in job.run(stage.stage_id, replace(stage.plan, metrics="off")):
            success = report.success
            assert (success.op_metrics, success.bound_plan, len(success.blobs)) == (b"", "", 0)


def test_full_reports_all_metrics(spark, job, table):
    stages = cut(spark, spark.sql(QUERY.format(table=table)))
    found = {
        metric.name
        for stage in stages
        for each in plans(job.run(stage.stage_id, replace(stage.plan, metrics="full")))[0][0]
        for metric in each.metrics
        if metric.value > 0
    }
    assert {"numOutputRows", "peakMemory", "pipelineTime", "aggTime"} <= found


def test_rows_that_go_into_a_dataset(spark, new_job, tmp_path, table):
    sink = pb.Sink(path=str(tmp_path / "out"), format="parquet", mode="error")
    job = new_job(sink=sink)
    (stage,) = cut(spark, spark.sql(f"SELECT id + 1 AS n FROM {table} WHERE id % 4 = 1"))
    (operators,), totals = plans(job.run(stage.stage_id, stage.plan))
    counted = dict(rows(operators).keys())
    assert counted["Filter"] == 1000
    assert counted["ColumnarToRow"] == 4000
    assert totals[0].tasks == stage.plan.partitions


def test_secrets_in_the_text_of_operators_are_redacted(spark, job):
    (stage,) = cut(spark, spark.sql("SELECT id FROM RANGE(9) WHERE concat('password=', id) <> 'password=hunter2'"))
    reports = job.run(stage.stage_id, stage.plan)
    (content,) = (blob.content for report in reports for blob in report.success.blobs)
    assert b"hunter2" not in content
    assert b"password=" in content


def test_what_a_task_reports_is_no_more_than_pairs(spark, job):
    (stage,) = cut(spark, spark.range(0, 10, 1, 1).where("id > 3"))
    (report,) = job.run(stage.stage_id, stage.plan)
    assert report.success.op_metrics[0] == 1
    assert metrics_text(report.success.op_metrics) == base64.b64encode(report.success.op_metrics).decode()
    assert len(report.success.op_metrics) == 5  # the format, the rows of a range and those of a filter


def test_rows_that_are_sorted_in_several_tasks(spark, job, table):
    stages = cut(spark, spark.sql(f"SELECT id FROM {table} WHERE id % 2 = 0 ORDER BY id DESC"), parallel_sort_bytes=0)
    counted, read = Counter(), []
    for stage in stages:
        for operators in plans(job.run(stage.stage_id, stage.plan))[0]:
            counted += rows(operators)
            read += [metric(each, "numOutputRows") for each in operators if each.name.startswith("Scan stage")]
    assert isinstance(stages[0].plan.output, SortedOutput)
    assert counted == Counter([("Scan parquet", 4000), ("ColumnarToRow", 4000), ("Filter", 2000)])
    assert read == [2000]
