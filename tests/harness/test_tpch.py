"""The 22 queries of TPC-H give plain Spark's rows over row files, and over streams of one frame and of many.

Every fourth one over one of the three, in turns; with ``ONAGER_TESTS=all`` (`make test-all`) each over all of them.
"""

import pytest

from onager.testing import HarnessConfig
from onager.testing.check import Comparison
from tests.harness.conftest import QUERIES
from tests.support.selection import IS_ALL, some

WAYS = (
    HarnessConfig(exchange="streams", channel_frames=1),
    HarnessConfig(exchange="streams", channel_frames=16),
    HarnessConfig(exchange="files"),
)


@pytest.mark.parametrize("number", some(range(1, 23), one_in=4))
def test_query(spark, tpch, number):
    query = Comparison(spark.sql((QUERIES / f"q{number}.sql").read_text()))
    for config in WAYS if IS_ALL else (WAYS[number % 3],):
        run = query.check(config)
        assert run.table.num_rows > 0
        exchanged = sum(task.rows for task in run.tasks if task.stage_id < len(run.graph.stages))
        assert exchanged > 0
