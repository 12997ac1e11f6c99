"""The 22 queries of TPC-H give plain Spark's rows in pieces, with channels of one frame and of many."""

import pytest

from onager.testing import HarnessConfig
from onager.testing.check import Comparison
from tests.harness.conftest import QUERIES


@pytest.fixture(scope="module", params=range(1, 23))
def query(request, spark, tpch) -> Comparison:
    """Return a query whose rows by plain Spark are the same for every capacity."""
    return Comparison(spark.sql((QUERIES / f"q{request.param}.sql").read_text()))


@pytest.mark.parametrize("capacity", [1, 16])
def test_query(query, capacity):
    run = query.check(HarnessConfig(channel_frames=capacity))
    assert run.table.num_rows > 0
    exchanged = sum(task.rows for task in run.tasks if task.stage_id < len(run.graph.stages))
    assert exchanged > 0
