"""Every shape of plan that a query can have gives plain Spark's rows when it is cut."""

import pytest

from tests.integration.planner.shapes import ORDERED, SHAPES


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_shape(check, text):
    check(text)


@pytest.mark.parametrize("text", ORDERED.values(), ids=ORDERED.keys())
def test_ordered_shape(check, text):
    check(text, ordered=True)
