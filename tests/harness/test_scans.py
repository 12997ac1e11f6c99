"""The isolated-scan guard: each task reads its own share, and only that."""

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq, run_distributed
from tests.harness.faults import reading_everything

TOTALS = {
    "lines_csv": "select count(*), sum(id) from lines_csv",
    "lines_json": "select count(*), sum(id) from lines_json",
    "lines_orc": "select count(*), sum(id) from lines_orc",
    "words_txt": "select count(*), sum(cast(value as bigint)) from words_txt",
    "parts": "select count(*), sum(id) from parts",
    "parts by partition": "select count(*), sum(id) from (select id from parts where part >= 0)",
    "lines_parquet": "select count(*), sum(id) from lines_parquet",
}
ONE_FILE_A_TASK = {"spark.sql.files.openCostInBytes": "1000000"}
TOTAL = (100, sum(range(100)))


@pytest.fixture(scope="module", autouse=True)
def lines_parquet(spark, tables):
    """Four files of 25 rows in Parquet, too, as `sales` has others."""
    target = str(tables / "lines_parquet")
    spark.table("lines_csv").repartitionByRange(4, "id").write.parquet(target)
    spark.read.parquet(target).createOrReplaceTempView("lines_parquet")


@pytest.mark.parametrize("text", TOTALS.values(), ids=TOTALS.keys())
def test_four_files_of_25_rows_are_100_rows(spark, text):
    run = assert_distributed_eq(spark.sql(text), HarnessConfig(tasks=4, conf=ONE_FILE_A_TASK))
    assert run.rows == [TOTAL]
    assert run.graph.stages[0].tasks == 4


@pytest.mark.parametrize("table", ["lines_csv", "lines_json", "lines_orc", "lines_parquet", "words_txt", "parts"])
def test_each_task_reads_its_own_share(spark, table):
    run = assert_distributed_eq(spark.table(table), HarnessConfig(tasks=4, single_stage=True, conf=ONE_FILE_A_TASK))
    assert [task.rows for task in run.tasks] == [25, 25, 25, 25]
    assert [task.rows_read for task in run.tasks] == [25, 25, 25, 25]
    shares = [set(map(tuple, part.to_pandas().values.tolist())) for part in run.partitions]
    assert len(set().union(*shares)) == 100


@pytest.mark.parametrize("text", TOTALS.values(), ids=TOTALS.keys())
def test_a_scan_that_reads_everything_in_each_task_is_caught(spark, text):
    """The negative control of the test above: what it is there for makes it fail, in every format."""
    config = HarnessConfig(tasks=4, conf=ONE_FILE_A_TASK)
    with pytest.raises(AssertionError, match="another result") as caught:
        assert_distributed_eq(spark.sql(text), config, plant=reading_everything(1))
    assert f"too many: 1, among them\n  (400, {4 * TOTAL[1]})" in str(caught.value)


def test_tasks_that_read_everything_say_so(spark):
    config = HarnessConfig(tasks=4, single_stage=True, conf=ONE_FILE_A_TASK)
    run = run_distributed(spark.table("lines_csv"), config, plant=reading_everything(1))
    assert [task.rows_read for task in run.tasks] == [100, 100, 100, 100]


JOINED = """
select p.id, g.label from parts p join (select /*+ repartition(2) */ * from groups) g on p.part = g.k
where g.label = 'group 2'"""


def test_files_that_no_row_joins_with_are_not_read(spark):
    run = assert_distributed_eq(spark.sql(JOINED), HarnessConfig(tasks=4, conf=ONE_FILE_A_TASK))
    scan = next(stage for stage in run.graph.stages if "Pruned" in stage.plan)
    assert scan.tasks == 4
    assert sum(task.rows_read for task in run.tasks_of(scan.stage_id)) == 25
    whole = {**ONE_FILE_A_TASK, "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"}
    run = assert_distributed_eq(spark.sql(JOINED), HarnessConfig(tasks=4, conf=whole))
    assert max(sum(task.rows_read for task in run.tasks_of(stage.stage_id)) for stage in run.graph.stages) == 100


def test_files_that_a_subquery_leaves_out_are_not_read(spark):
    text = "select id from parts where part = (select max(part) from parts)"
    run = assert_distributed_eq(spark.sql(text), HarnessConfig(tasks=4, conf=ONE_FILE_A_TASK))
    assert sum(task.rows_read for task in run.tasks_of(run.graph.stages[-1].stage_id)) == 25
