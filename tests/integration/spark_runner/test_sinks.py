"""Datasets are staged by tasks, each in a directory of its own, and published whole."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from onager.exchange_layout import staging_directory
from onager.executor.exchange import carry_out, plan_publish
from onager.ids import Nonce
from onager.protocol import onager_pb2 as pb
from tests.support.spark.runner import cut

READ_BACK = {
    "parquet": {},
    "orc": {},
    "csv": {"header": "true", "inferSchema": "true"},
    "json": {},
    "xml": {"rowTag": "ROW"},
}


def written(new_job, spark, frame, sink):
    job = new_job(sink=sink)
    stages = cut(spark, frame)
    reports = job.run_all(stages)
    assert all(r.HasField("success") for r in reports), reports
    return job, [job.outputs[stages[-1].stage_id][i] for i in range(stages[-1].plan.partitions)]


@pytest.mark.parametrize("form", sorted(READ_BACK))
def test_a_dataset_is_staged_published_and_read_back(spark, new_job, tmp_path, form):
    target = tmp_path / "out"
    options = {"csv": {"header": "true"}, "xml": {"rowTag": "ROW"}}.get(form, {})
    sink = pb.Sink(path=str(target), format=form, mode="error", options=options)
    frame = spark.sql("SELECT id, CAST(id AS STRING) name, id / 4 q FROM RANGE(0, 20, 1, 4) WHERE id < 5 OR id > 14")
    job, outputs = written(new_job, spark, frame, sink)
    assert not target.exists()
    assert [len(o.files) for o in outputs] == [1, 0, 0, 1]
    for output in outputs:
        assert output.bytes == sum(
            (Path(staging_directory(str(target), job.job_id)) / name).stat().st_size for name in output.files
        )
    manifest = plan_publish(job.job_id, sink, outputs, Nonce("n"))
    carry_out(manifest)
    names = sorted(p.name for p in target.iterdir())
    assert names[0] == "_SUCCESS"
    assert len(names) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["out"]  # no checksum files, no staging
    back = spark.read.options(**READ_BACK[form]).format(form).load(str(target))
    columns = ["id", "name", "q"]
    rows = sorted((int(r.id), str(r["name"]), float(r.q)) for r in back.select(columns).collect())
    assert rows == [(i, str(i), i / 4) for i in range(20) if i < 5 or i > 14]


def test_many_tasks_and_many_directories(spark, new_job, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="parquet", partition_by=["k"])
    job = new_job(sink=sink)
    frame = spark.range(0, 4_000, 1, 4).selectExpr("id", "id % 50 AS k").sortWithinPartitions("k")
    stages = cut(spark, frame)
    reports = job.run_all(stages)
    assert all(report.HasField("success") for report in reports), reports
    outputs = [job.outputs[stages[-1].stage_id][n] for n in range(4)]
    assert [list(output.files) for output in outputs] == [[output.nonce] for output in outputs], "too many to be named"
    manifest = plan_publish(job.job_id, sink, outputs, Nonce("n"))
    assert (len(manifest.moves), manifest.version) == (200, 2)
    carry_out(type(manifest).from_bytes(manifest.to_bytes()))
    assert not Path(staging_directory(sink.path, job.job_id)).exists()
    table = ds.dataset(sink.path, partitioning="hive").to_table()
    assert sorted(table.column("id").to_pylist()) == list(range(4_000))
    assert all(i % 50 == k for i, k in zip(table["id"].to_pylist(), table["k"].to_pylist(), strict=True))


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_an_empty_dataset_has_one_file_with_the_schema(spark, new_job, tmp_path, form):
    sink = pb.Sink(path=str(tmp_path / "out"), format=form, mode="error")
    job, outputs = written(new_job, spark, spark.range(0, 9, 1, 3).where("id > rand() + 20"), sink)
    carry_out(plan_publish(job.job_id, sink, outputs, Nonce("n")))
    back = spark.read.format(form).load(sink.path)
    assert (back.count(), back.columns) == (0, ["id"])
    assert len([p for p in (tmp_path / "out").iterdir() if p.name != "_SUCCESS"]) == 1


def test_options_of_the_format_are_heeded(spark, new_job, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="csv", mode="error", options={"sep": ";", "compression": "gzip"})
    job, outputs = written(new_job, spark, spark.range(0, 2, 1, 1).selectExpr("id", "'x' y"), sink)
    carry_out(plan_publish(job.job_id, sink, outputs, Nonce("n")))
    (part,) = (tmp_path / "out").glob("part-*")
    assert part.name.endswith(".csv.gz")
    assert spark.read.csv(sink.path, sep=";").collect()[1]["_c1"] == "x"


def test_text_is_one_column_of_strings(spark, new_job, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="text", mode="error")
    job, outputs = written(new_job, spark, spark.sql("SELECT 'a, b' AS line"), sink)
    carry_out(plan_publish(job.job_id, sink, outputs, Nonce("n")))
    (part,) = (tmp_path / "out").glob("part-*.txt")
    assert part.read_text() == "a, b\n"


def test_a_type_that_the_format_cannot_hold_is_the_users_error(spark, new_job, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="csv", mode="error")
    job = new_job(sink=sink)
    (report,) = job.run_all(cut(spark, spark.sql("SELECT array(id) a FROM RANGE(0, 1, 1, 1)")))
    assert report.failure.kind == "user_error"
    assert report.failure.error_class == "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE"


def test_a_failed_task_leaves_nothing_staged(spark, new_job, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="parquet", mode="error")
    job = new_job(sink=sink)
    frame = spark.range(0, 5000, 1, 1).selectExpr("id", "assert_true(id < 4999) ok").select("id", "ok")
    (report,) = job.run_all(cut(spark, frame.selectExpr("id", "CAST(ok AS INT) ok")))
    assert report.HasField("failure")
    assert not list(tmp_path.iterdir())


def test_a_second_execution_writes_beside_the_first(spark, new_job, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="parquet", mode="error")
    job = new_job(sink=sink)
    (stage,) = cut(spark, spark.range(0, 10, 1, 1))
    job.run(1, stage.plan)
    job.run(1, stage.plan)
    outputs = [job.outputs[1][0]]
    assert len({r.success.output.nonce for r in job.reports}) == 2
    carry_out(plan_publish(job.job_id, sink, outputs, Nonce("n")))
    assert spark.read.parquet(sink.path).count() == 10
