"""The isolated-scan guard for data sources in Python: each task reads its own partition, and only that."""

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from onager.testing import HarnessConfig, assert_distributed_eq, run_distributed
from tests.harness.faults import reading_everything

TOTAL = (100, sum(range(100)))
QUERY = "select count(*), sum(n) from own_share"


@pytest.fixture(scope="module", autouse=True)
def own_share(spark, tables):
    # Local classes go to Spark's workers by value.
    class Reader(DataSourceReader):
        def partitions(self):
            return [InputPartition(i) for i in range(4)]

        def read(self, partition):
            for i in range(25):
                yield (25 * partition.value + i,)

    class Careless(Reader):
        def read(self, partition):
            del partition
            for i in range(100):
                yield (i,)

    class OwnShare(DataSource):
        @classmethod
        def name(cls):
            return "own_share"

        def schema(self):
            return "n long"

        def reader(self, schema):
            del schema
            return Careless() if self.options.get("careless") else Reader()

    spark.dataSource.register(OwnShare)
    spark.read.format("own_share").load().createOrReplaceTempView("own_share")


def test_four_partitions_of_25_rows_are_100_rows(spark):
    run = assert_distributed_eq(spark.sql(QUERY))
    assert run.rows == [TOTAL]
    assert run.graph.stages[0].tasks == 4


def test_each_task_reads_its_own_partition(spark):
    run = assert_distributed_eq(spark.table("own_share"), HarnessConfig(single_stage=True))
    shares = [sorted(n for (n,) in part.to_pandas().values.tolist()) for part in run.partitions]
    assert shares == [list(range(25 * i, 25 * i + 25)) for i in range(4)]


def test_a_task_that_reads_everything_is_caught(spark):
    with pytest.raises(AssertionError, match="another result") as caught:
        assert_distributed_eq(spark.sql(QUERY), plant=reading_everything(1))
    assert f"too many: 1, among them\n  (400, {4 * TOTAL[1]})" in str(caught.value)


def test_a_source_that_gives_everything_in_each_task_shows_in_what_tasks_gave(spark):
    """Plain Spark asks it in the same way, so nothing but the rows themselves tells."""
    run = run_distributed(spark.read.format("own_share").option("careless", "1").load())
    assert [task.rows for task in run.tasks] == [100, 100, 100, 100]
