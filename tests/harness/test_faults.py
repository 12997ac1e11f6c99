"""Planted faults: what the harness is for is caught, as another result or as an error that says what is wrong."""

import re

import pytest

from onager.testing import DistributedRunError, HarnessConfig, assert_distributed_eq
from tests.harness.faults import before, fault, in_files, proxied, with_wrong_numbers

SUMS = "select k, count(*) n, sum(id) s from sales group by k"
SORTED = "select id, k from sales order by id"
ALL = "select /*+ repartition(3, id) */ id, k from sales"
JOINED = "select /*+ merge(g) */ g.label, count(*) n from sales s join groups g on s.k = g.k group by g.label"
EXCHANGES = ["files", "streams"]


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("stage", [1, 2], ids=["before the exchange", "in the result"])
@pytest.mark.parametrize("kind", ["duplicate", "lose"])
def test_a_row_too_many_or_too_few_is_caught(spark, tables, kind, stage, exchange):
    config = HarnessConfig(exchange=exchange)
    assert_distributed_eq(spark.sql(SUMS), config)
    with pytest.raises(AssertionError, match="another result") as caught:
        assert_distributed_eq(spark.sql(SUMS), config, plant=fault(kind, stage))
    text = str(caught.value)
    if stage == 2:
        assert ("7 rows, where plain Spark gives 7" in text) is False
        assert ("too many: 1" in text) == (kind == "duplicate")
        assert ("missing: 1" in text) == (kind == "lose")
    assert "stage 1: scan sales" in text


def test_a_row_that_a_hash_join_loses_is_caught(spark, tables):
    joins = []

    def noted(executor):
        bind = executor.kernel.bind
        executor.kernel.bind = lambda *arguments: [made := bind(*arguments), joins.append(made.text())][0]

    config = HarnessConfig(conf={"spark.sql.autoBroadcastJoinThreshold": "-1"})
    run = assert_distributed_eq(spark.sql(JOINED), config, plant=noted)
    join = next(stage for stage in run.graph.stages if "SortMergeJoin" in stage.plan)
    assert any("ShuffledHashJoin" in text for text in joins)  # files show how small a side is
    with pytest.raises(AssertionError, match="another result"):
        assert_distributed_eq(spark.sql(JOINED), config, plant=fault("lose", join.stage_id))


def test_a_swap_of_order_is_caught(spark, tables):
    assert_distributed_eq(spark.sql(SORTED))
    with pytest.raises(AssertionError, match="not their order: row 0 of 300"):
        assert_distributed_eq(spark.sql(SORTED), plant=fault("swap", 2))


def test_a_swap_of_order_is_caught_by_keys_that_the_result_lacks(spark, tables):
    hidden = "select k from (select * from sales) s order by -id, k"
    assert_distributed_eq(spark.sql(hidden))
    with pytest.raises(AssertionError, match="not their order"):
        assert_distributed_eq(spark.sql(hidden), plant=fault("swap", 2))


def test_rows_that_tie_may_swap(spark, tables):
    ties = "select id, k from sales where id % 7 = 1 order by k"
    assert_distributed_eq(spark.sql(ties), plant=fault("swap", 2))
    with pytest.raises(AssertionError, match="not their order"):
        assert_distributed_eq(spark.sql(ties), HarnessConfig(ordered=True), plant=fault("swap", 2))


# ---------------------------------------------------------------- files


def cut_short(paths):
    paths[0].write_bytes(paths[0].read_bytes()[:-7])


def without_a_frame(paths):
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[len(content) // 2 :])


def changed(paths):
    content = bytearray(paths[0].read_bytes())
    content[len(content) // 3] ^= 0x40
    paths[0].write_bytes(content)


def missing(paths):
    paths[0].unlink()


def emptied(paths):
    paths[0].write_bytes(b"")


def anothers(paths):
    paths[0].write_bytes(paths[-1].read_bytes())


@pytest.mark.parametrize("damage", [cut_short, without_a_frame, changed, missing, emptied])
def test_a_row_file_that_is_not_as_it_was_written_fails_the_run(spark, tables, damage):
    with pytest.raises(DistributedRunError, match=r"task \d of stage 2 failed: ") as caught:
        assert_distributed_eq(spark.sql(ALL), plant=in_files(1, damage))
    assert "FetchFailure" in caught.value.details


def test_a_row_file_in_the_place_of_another_is_caught(spark, tables):
    with pytest.raises((DistributedRunError, AssertionError)):
        assert_distributed_eq(spark.sql(ALL), plant=in_files(1, anothers))


def test_rows_that_are_reported_and_do_not_come_fail_the_run(spark, tables):
    more = before(2, lambda *given: with_wrong_numbers(*given, rows=lambda n: n + 1))
    with pytest.raises(DistributedRunError, match=r"task \d of stage 2 failed"):
        assert_distributed_eq(spark.sql(ALL), plant=more)


@pytest.mark.parametrize("size", [0, 1 << 40], ids=["nothing", "very much"])
def test_a_wrong_size_of_what_is_broadcast_changes_no_row(spark, tables, size):
    text = f"select /*+ broadcast(g) */ s.id, g.label from ({ALL}) s join (select * from groups) g on s.k = g.k"
    run = assert_distributed_eq(spark.sql(text))
    reading = next(stage.stage_id for stage in run.graph.stages if any(read.reads_all for read in stage.inputs))
    wrong = before(reading, lambda *given: with_wrong_numbers(*given, bytes=lambda _: size))
    assert_distributed_eq(spark.sql(text), plant=wrong)


# ---------------------------------------------------------------- streams


def stopped(executor, task_set):
    del task_set
    executor.kernel.stop_streams()


def test_an_executor_whose_streams_are_gone_fails_the_run(spark, tables):
    gone = "does not use streams|cannot be reached|executor stops|are closed"
    with pytest.raises(DistributedRunError, match=gone):
        assert_distributed_eq(spark.sql(ALL), HarnessConfig(exchange="streams"), plant=before(2, stopped))


def test_connections_that_are_refused_fail_the_run(spark, tables):
    config = HarnessConfig(exchange="streams")
    with (
        proxied(lambda proxy: proxy.refuse()) as plant,
        pytest.raises(DistributedRunError, match=r"task \d of stage 2 failed: the streams of .* cannot be reached"),
    ):
        assert_distributed_eq(spark.sql(ALL), config, plant=plant)


def test_an_executor_that_falls_silent_fails_the_run(spark, tables):
    for timeout_s in (8, 64, 512):
        config, says = HarnessConfig(exchange="streams", timeout_s=timeout_s), f"not done after {timeout_s} s"
        with (
            proxied(lambda proxy: proxy.down.hold()) as plant,
            pytest.raises(DistributedRunError, match=says) as caught,
        ):
            assert_distributed_eq(spark.sql(ALL), config, plant=plant)
        if "of stage 1" not in str(caught.value):
            break  # else the machine is so busy that stage 1 had not ended
    assert re.search(r": task \d of stage 2 .* had not ended", str(caught.value))
