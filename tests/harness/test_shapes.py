"""Every shape of plan that a query can have, run in pieces with channels of one small frame."""

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq
from tests.integration.planner.shapes import ORDERED, SHAPES

TINY = {"tasks": 2, "channel_frames": 1, "frame_bytes": 256}
SCANS = {
    "projection",
    "filter",
    "one row",
    "values",
    "cartesian",
    "union",
    "union of itself",
    "explode",
    "posexplode outer",
    "inline",
    "stack",
    "range",
    "complex types",
    "decimals",
    "timestamps",
    "binary",
    "day intervals",
    "nulls",
    "duplicate columns",
    "text",
    "partition pruning",
    "higher-order functions",
    "variant",
    "sequence",
}
"""What is one stage as it is written: its rows go through an exchange, so that what it gives is seen to travel."""
WHOLE = {"coalesce", "coalesce to two", "top of one partition"}
"""What is one stage, and would be another query with an exchange above it."""


@pytest.mark.parametrize("name", SHAPES)
def test_shape(spark, tables, name):
    text = f"select /*+ repartition(2) */ * from ({SHAPES[name]})" if name in SCANS else SHAPES[name]
    assert_distributed_eq(spark.sql(text), HarnessConfig(single_stage=name in WHOLE, **TINY))


@pytest.mark.parametrize("name", ORDERED)
def test_ordered_shape(spark, tables, name):
    assert_distributed_eq(spark.sql(ORDERED[name]), HarnessConfig(single_stage=name in WHOLE, **TINY))
