"""Values that a task draws or counts are unique among tasks, as Spark guarantees."""

import pytest

DRAWN = {
    "uuid": "uuid()",
    "rand": "rand()",
    "randn": "randn()",
    "rand of a seed": "rand(7)",
    "monotonically_increasing_id": "monotonically_increasing_id()",
    "random strings": "randstr(20)",
}
SOURCES = {
    "files": "sales",
    "an exchange by hash": "(select /*+ repartition(3, id) */ id from sales)",
    "rows dealt in turn": "(select /*+ repartition(3) */ id from sales)",
    "a union": "(select id from sales where id < 150 union all select id from sales where id >= 150)",
    "a range": "range(0, 300, 1, 5)",
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_no_value_comes_twice(executor, tables, source):
    columns = ", ".join(DRAWN.values())
    outcome = executor.plan_sql(f"select id, {columns} from {source}", views=tables)
    assert outcome.stages[-1].partitions > 1
    assert not outcome.stages[-1].deterministic
    rows = executor.run(outcome)
    assert len(rows) == 300
    for name, values in zip(["id", *DRAWN], zip(*rows, strict=True), strict=True):
        assert len(set(values)) == 300, name


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_partitions_are_numbered_through(executor, tables, source):
    outcome = executor.plan_sql(
        f"select spark_partition_id(), monotonically_increasing_id() from {source}", views=tables
    )
    rows = executor.run(outcome)
    assert {partition for partition, _ in rows} <= set(range(outcome.stages[-1].partitions))
    assert len({partition for partition, _ in rows}) > 1
    assert all(number >> 33 == partition for partition, number in rows), "as Spark puts the partition into the number"


def test_numbers_after_a_sort_are_those_of_plain_spark(check):
    check(
        "select id, monotonically_increasing_id(), spark_partition_id() from sales order by id limit 20", ordered=True
    )


def test_a_seed_gives_what_plain_spark_draws_from_the_same_partitions(check):
    check("select id, rand(3), randn(4), uniform(0, 100, 5), randstr(5, 6) from range(0, 60, 1, 4)")
    check("select id, shuffle(array(1, 2, 3, id), 3) from range(0, 60, 1, 4)")


def test_what_was_drawn_is_drawn_once_for_all_who_read_it(executor, tables):
    text = """
        with drawn as (select /*+ repartition(3, id) */ id, uuid() u from (select /*+ repartition(2) */ id from sales))
        select count(*) from drawn a join drawn b on a.id = b.id and a.u = b.u"""
    assert executor.run(executor.plan_sql(text, views=tables)) == [(300,)]


def test_moments_are_the_same_in_all_stages(executor, tables):
    text = """
        select count(distinct t), count(distinct d) from (
        select /*+ repartition(3, id) */ id, current_timestamp() t, current_date() d from sales
        union all select k, now(), curdate() from groups)"""
    assert executor.run(executor.plan_sql(text, views=tables)) == [(1, 1)]
