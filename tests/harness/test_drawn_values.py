"""What tasks draw or count by themselves, and what is left out at run time."""

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq, run_distributed

DRAWN = "id, uuid(), rand(), randn(), monotonically_increasing_id(), randstr(20), spark_partition_id()"
SOURCES = {
    "files": "sales",
    "an exchange by hash": "(select /*+ repartition(3, id) */ id from sales)",
    "a range": "range(0, 300, 1, 5)",
}
SEEDED = """
    select id, rand(3), randn(4), uniform(0, 100, 5), spark_partition_id(), monotonically_increasing_id()
    from range(0, 60, 1, 4)"""
BLOOM = {
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
FILTERED = "select s.id from sales s join (select id, k from lines_orc where k = 1 and id % 5 = 0) o on s.id = o.id"


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_no_task_draws_what_another_drew(spark, tables, source):
    run = run_distributed(spark.sql(f"select {DRAWN} from {source}"))
    *drawn, partitions = zip(*run.rows, strict=True)
    assert [len(set(values)) for values in drawn] == [300] * len(drawn)
    assert 1 < len(set(partitions)) <= run.graph.stages[-1].tasks
    assert all(number >> 33 == partition for number, partition in zip(drawn[4], partitions, strict=True))


def test_a_seed_draws_what_it_draws_in_plain_spark(spark):
    assert_distributed_eq(spark.sql(SEEDED), HarnessConfig(single_stage=True))


def test_a_bloom_filter_thins_out_the_larger_side(spark, tables):
    run = assert_distributed_eq(spark.sql(FILTERED), HarnessConfig(conf=BLOOM))
    scan = next(stage for stage in run.graph.stages if "might_contain" in stage.plan)
    assert any(read.reads_all for read in scan.inputs), "the scan waits for the filter"
    assert sum(task.rows for task in run.tasks_of(scan.stage_id)) < 50
