"""Outputs that are partitioned by columns, as plain Spark writes them and reads them."""

import os
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.errors import AnalysisException

from onager.errors import PlanningError, SinkError
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.test_datasets_read_again import publish
from tests.support.spark.one_executor import as_multiset

VALUES = """VALUES
    (1, 'a', date'2026-01-31'), (2, '', date'2026-01-31'), (3, null, null), (4, 'a/b=c d%', date'2026-02-01'),
    (5, 'ä', null), (6, 'A', date'0001-01-01'), (7, 'a', date'2026-01-31') AS t(id, k, d)"""


def files(target: Path) -> list[str]:
    found = [Path(directory, name).relative_to(target) for directory, _, names in os.walk(target) for name in names]
    return sorted(str(each.parent) for each in found if each.name.startswith("part-"))


@pytest.mark.parametrize("form", ["parquet", "orc", "csv", "json"])
@pytest.mark.parametrize("by", [["k"], ["d", "k"]], ids="-".join)
def test_directories_and_rows_are_those_of_plain_spark(executor, tmp_path, form, by):
    publish(executor, f"SELECT * FROM {VALUES}", pb.Sink(path=str(tmp_path / "out"), format=form, partition_by=by))
    options = {"header": "true"} if form == "csv" else {}
    spark = executor.spark
    frame = spark.sql(f"SELECT * FROM {VALUES}").coalesce(1)
    frame.write.partitionBy(*by).format(form).options(**options).save(str(tmp_path / "plain"))
    assert set(files(tmp_path / "out")) == set(files(tmp_path / "plain"))
    rows = [
        as_multiset(
            [tuple(row) for row in spark.read.options(**options).format(form).load(str(tmp_path / name)).collect()]
        )
        for name in ("out", "plain")
    ]
    assert rows[0] == rows[1]


def test_what_is_appended_goes_beside_what_is_there(executor, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="parquet", mode="append", partition_by=["k"])
    publish(executor, "SELECT 1 AS id, 'a' AS k", sink)
    publish(executor, "SELECT id, if(id = 2, 'a', 'b') AS k FROM range(2, 4)", sink)
    table = ds.dataset(sink.path, partitioning="hive").to_table().to_pylist()
    assert sorted((row["id"], row["k"]) for row in table) == [(1, "a"), (2, "a"), (3, "b")]
    assert not [name for _, _, names in os.walk(sink.path) for name in names if name.startswith(".")]
    for by, words in (([], "by no column"), (["id"], "by id")):
        other = pb.Sink(path=sink.path, format="parquet", mode="append", partition_by=by)
        with pytest.raises(SinkError, match=f"is partitioned by k, and the rows to be appended {words}"):
            publish(executor, "SELECT 4 AS id, 'a' AS k", other)


def test_an_overwrite_replaces_all_directories(executor, tmp_path):
    for k in "ab":
        sink = pb.Sink(path=str(tmp_path / "out"), format="parquet", mode="overwrite", partition_by=["k"])
        publish(executor, f"SELECT 1 AS id, '{k}' AS k", sink)
    assert files(tmp_path / "out") == ["k=b"]


def test_records_per_file_have_a_limit(executor, tmp_path):
    options = {"maxRecordsPerFile": "3"}
    publish(
        executor,
        "SELECT id, id % 2 AS k FROM range(0, 10, 1, 1)",
        pb.Sink(path=str(tmp_path / "out"), format="parquet", options=options, partition_by=["k"]),
    )
    assert files(tmp_path / "out") == ["k=0"] * 2 + ["k=1"] * 2
    publish(
        executor,
        "SELECT id FROM range(0, 10, 1, 1)",
        pb.Sink(path=str(tmp_path / "flat"), format="csv", options=options),
    )
    assert files(tmp_path / "flat") == ["."] * 4


@pytest.mark.parametrize(
    ("query", "by", "error"),
    [
        ("SELECT 1 AS id, 2 AS k", ["x"], AnalysisException),
        ("SELECT 1 AS k", ["k"], AnalysisException),
        ("SELECT 1 AS id, array(2) AS k", ["k"], AnalysisException),
        ("SELECT 1 AS id, 2 AS k", ["k", "K"], AnalysisException),
    ],
    ids=["no such column", "no other column", "no directory", "twice"],
)
def test_columns_that_cannot_be_directories_are_reported(executor, tmp_path, query, by, error):
    with pytest.raises(error):
        publish(executor, query, pb.Sink(path=str(tmp_path / "out"), format="parquet", partition_by=by))
    assert not any(tmp_path.iterdir())


def test_the_option_of_that_name_says_what_to_do(executor, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="parquet", options={"partitionBy": "k"})
    with pytest.raises(PlanningError, match="--partition-by"):
        publish(executor, "SELECT 1 AS id, 2 AS k", sink)


def test_no_rows_are_no_directories(executor, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="parquet", partition_by=["k"])
    publish(executor, "SELECT 1 AS id, 2 AS k WHERE rand() > 2", sink)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_SUCCESS"]
