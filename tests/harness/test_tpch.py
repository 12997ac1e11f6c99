"""The 22 queries of TPC-H give plain Spark's rows when distributed, with channels of one frame and of many.

Each with one of the two, in turns; with ``ONAGER_TESTS=all`` (`make test-all`) each with both.
"""

import os

import pytest

from onager.testing import HarnessConfig
from onager.testing.check import Comparison
from tests.harness.conftest import QUERIES

CAPACITIES = (1, 16)
IS_ALL = os.environ.get("ONAGER_TESTS") == "all"


@pytest.mark.parametrize(
    ("number", "capacities"),
    [(number, CAPACITIES if IS_ALL else CAPACITIES[number % 2 :][:1]) for number in range(1, 23)],
)
def test_query(spark, tpch, number, capacities):
    query = Comparison(spark.sql((QUERIES / f"q{number}.sql").read_text()))
    for capacity in capacities:
        check(query, capacity)


def check(query, capacity):
    run = query.check(HarnessConfig(channel_frames=capacity))
    assert run.table.num_rows > 0
    exchanged = sum(task.rows for task in run.tasks if task.stage_id < len(run.graph.stages))
    assert exchanged > 0
