"""Runtime filters of joins: bloom filters and dynamic partition pruning."""
# ruff: noqa: E501  (a query reads best on one line)

import pytest

BLOOM = {
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
FILTERED = """
    select s.id, o.id from sales s join (select id, k from lines_orc where k = 1 and id % 5 = 0) o on s.id = o.id"""


def test_a_bloom_filter_thins_out_the_larger_side(check):
    outcome = check(FILTERED, conf=BLOOM)
    assert "might_contain" in outcome.plan
    scans = [stage for stage in outcome.stages if stage.name.startswith("scan sales")]
    assert any(read.read == "all" for stage in scans for read in stage.inputs), "the scan waits for the filter"


def test_a_bloom_filter_of_no_rows(check):
    outcome = check(FILTERED.replace("k = 1", "k = 17"), conf=BLOOM)
    assert "might_contain" in outcome.plan


JOINS = {
    "one partition is left": "select p.id, g.label from parts p join groups g on p.part = g.k where g.label = 'group 2'",
    "none is left": "select p.id, g.label from parts p join groups g on p.part = g.k where g.label = 'group 17'",
    "some are left": "select p.part, count(*) from parts p join groups g on p.part = g.k where g.label > 'group 1' and g.k < 3 group by 1",
    "by an expression": "select p.id from parts p join groups g on p.part + 1 = g.k where g.label = 'group 2'",
    "a semi join": "select id from parts where part in (select k from groups where label like '%3')",
    "two joins": """
        select p.id from parts p join groups g on p.part = g.k join lines_orc o on p.part = o.k
        where g.label <> 'group 0' and o.id = 7""",
    "under an aggregate of an exchange": """
        select /*+ broadcast(g) */ p.part, sum(p.id) from parts p
        join (select k, count(*) n from sales where id < 2 group by k) g on p.part = g.k group by p.part""",
    "a union of two joins": """
        select p.id from parts p join groups g on p.part = g.k where g.label = 'group 1' union all
        select p.id + 1000 from parts p join groups g on p.part = g.k where g.label = 'group 3'""",
}


@pytest.mark.parametrize("text", JOINS.values(), ids=JOINS.keys())
def test_partitions_that_no_row_joins_with(check, text):
    outcome = check(text)
    assert "dynamicpruning" in outcome.plan
    assert any("Pruned" in stage.plan for stage in outcome.stages)


def test_pruning_without_a_broadcast_to_reuse(check):
    conf = {
        "spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.optimizer.dynamicPartitionPruning.fallbackFilterRatio": "100",
    }
    outcome = check(JOINS["one partition is left"], conf=conf)
    assert any("Pruned" in stage.plan for stage in outcome.stages)


def test_more_splits_of_what_is_left_than_tasks_were_planned(check):
    """What is left is split by what it is, not by what was planned: as many tasks as planned share it."""
    conf = {
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.files.openCostInBytes": "1",
        "spark.sql.files.maxPartitionBytes": "400",
    }
    check(JOINS["some are left"], conf=conf)
