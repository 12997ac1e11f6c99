"""The 22 queries of TPC-H give plain Spark's rows in pieces, with channels of one frame and of many."""

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq
from tests.harness.conftest import QUERIES


@pytest.mark.parametrize("capacity", [1, 16])
@pytest.mark.parametrize("number", range(1, 23))
def test_query(spark, tpch, number, capacity):
    text = (QUERIES / f"q{number}.sql").read_text()
    run = assert_distributed_eq(spark.sql(text), HarnessConfig(channel_frames=capacity))
    assert run.table.num_rows > 0
    exchanged = sum(task.rows for task in run.tasks if task.stage_id < len(run.graph.stages))
    assert exchanged > 0
