"""Planted faults: what the harness is for has to be caught."""

import pytest

from onager.testing import DistributedRunError, HarnessConfig, assert_distributed_eq
from tests.harness.faults import fault

SUMS = "select k, count(*) n, sum(id) s from sales group by k"
SORTED = "select id, k from sales order by id"


@pytest.mark.parametrize("stage", [1, 2], ids=["before the exchange", "in the result"])
@pytest.mark.parametrize("kind", ["duplicate", "lose"])
def test_a_row_too_many_or_too_few_is_caught(spark, tables, kind, stage):
    assert_distributed_eq(spark.sql(SUMS))
    with pytest.raises(AssertionError, match="another result") as caught:
        assert_distributed_eq(spark.sql(SUMS), plant=fault(kind, stage))
    text = str(caught.value)
    if stage == 2:
        assert ("7 rows, where plain Spark gives 7" in text) is False
        assert ("too many: 1" in text) == (kind == "duplicate")
        assert ("missing: 1" in text) == (kind == "lose")
    assert "stage 1: scan sales" in text


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


def test_a_channel_that_ends_early_fails_the_run(spark, tables):
    config = HarnessConfig(frame_bytes=64)
    with pytest.raises(DistributedRunError, match=r"gave \d+ rows for bucket \d, but \d+ of them came"):
        assert_distributed_eq(spark.sql("select distinct id, k from sales"), config, plant=fault("end early", 1))


def test_a_writer_that_falls_silent_fails_the_run(spark, tables):
    with pytest.raises(DistributedRunError, match="ended without saying that its output was complete") as caught:
        assert_distributed_eq(spark.sql(SUMS), plant=fault("fall silent", 1))
    assert caught.value.stage_id == 1
