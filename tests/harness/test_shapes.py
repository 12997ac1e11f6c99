"""Every shape of plan that a query can have, distributed: over files and over streams of one small frame, in turns.

One shape of six; all of them with ``ONAGER_TESTS=all`` (`make test-all`).
"""

import dataclasses

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq, create_stages
from tests.harness.more_shapes import MORE_ORDERED, MORE_SHAPES
from tests.harness.shapes import ORDERED, SHAPES
from tests.support.selection import some

WAYS = (
    HarnessConfig(tasks=2),
    HarnessConfig(tasks=2, exchange="streams", channel_frames=1, frame_bytes=256),
)
EACH = 6
"""In the gate, each so many-th shape is run."""
WHOLE = {"coalesce", "coalesce to two", "top of one partition", "limit zero"}
"""What is one stage, and would be another query with an exchange above it."""


def test_no_two_shapes_have_one_name():
    assert not set(SHAPES) & set(MORE_SHAPES)
    assert not set(ORDERED) & set(MORE_ORDERED)


def in_turn(shapes):
    """Return the arguments of a test for each of *shapes*: name, text, configuration."""
    cases = (pytest.param(name, text, WAYS[i // EACH % 2], id=name) for i, (name, text) in enumerate(shapes.items()))
    return some(cases, one_in=EACH)


@pytest.mark.parametrize(("name", "text", "config"), in_turn(SHAPES | MORE_SHAPES))
def test_shape(spark, tables, name, text, config):
    frame = spark.sql(text)
    is_cut = create_stages(frame, config).is_cut
    assert not (is_cut and name in WHOLE)
    if not is_cut and name not in WHOLE:  # its rows go through an exchange, so that what it gives is seen to travel
        frame = spark.sql(f"select /*+ repartition(2) */ * from ({text})")
    assert_distributed_eq(frame, dataclasses.replace(config, single_stage=name in WHOLE))


@pytest.mark.parametrize(("name", "text", "config"), in_turn(ORDERED | MORE_ORDERED))
def test_ordered_shape(spark, tables, name, text, config):
    assert_distributed_eq(spark.sql(text), dataclasses.replace(config, single_stage=name in WHOLE))
