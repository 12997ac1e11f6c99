"""Every shape of plan that a query can have, distributed, with channels of one small frame."""

import dataclasses

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq, create_stages
from tests.harness.more_shapes import MORE_ORDERED, MORE_SHAPES
from tests.harness.shapes import ORDERED, SHAPES

TINY = HarnessConfig(tasks=2, channel_frames=1, frame_bytes=256)
WHOLE = {"coalesce", "coalesce to two", "top of one partition", "limit zero"}
"""What is one stage, and would be another query with an exchange above it."""


def test_no_two_shapes_have_one_name():
    assert not set(SHAPES) & set(MORE_SHAPES)
    assert not set(ORDERED) & set(MORE_ORDERED)


@pytest.mark.parametrize(("name", "text"), (SHAPES | MORE_SHAPES).items(), ids=(SHAPES | MORE_SHAPES).keys())
def test_shape(spark, tables, name, text):
    frame = spark.sql(text)
    is_cut = create_stages(frame, TINY).is_cut
    assert not (is_cut and name in WHOLE)
    if not is_cut and name not in WHOLE:  # its rows go through an exchange, so that what it gives is seen to travel
        frame = spark.sql(f"select /*+ repartition(2) */ * from ({text})")
    assert_distributed_eq(frame, dataclasses.replace(TINY, single_stage=name in WHOLE))


@pytest.mark.parametrize(("name", "text"), (ORDERED | MORE_ORDERED).items(), ids=(ORDERED | MORE_ORDERED).keys())
def test_ordered_shape(spark, tables, name, text):
    assert_distributed_eq(spark.sql(text), dataclasses.replace(TINY, single_stage=name in WHOLE))
