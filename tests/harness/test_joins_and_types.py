"""Every type of join by every way of joining, and every type of column through every exchange, distributed."""

import dataclasses

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq
from tests.integration.planning.joins import WAYS, joined
from tests.integration.planning.types_of_columns import COLUMNS, carried
from tests.support.selection import some

TINY = HarnessConfig(tasks=2, exchange="streams", channel_frames=1, frame_bytes=256)


@pytest.mark.parametrize("way", some(WAYS), ids=lambda way: way[0])
def test_joins_of_every_type(spark, way):
    _, hint, types, on, operator = way
    run = assert_distributed_eq(spark.sql(f"select /*+ repartition(2) */ * from ({joined(hint, types, on)})"), TINY)
    assert any(operator in stage.plan for stage in run.graph.stages)


@pytest.mark.parametrize("exchange", ["files", "streams"])
@pytest.mark.parametrize("name", some(COLUMNS))
def test_columns_of_every_type(spark, name, exchange):
    assert_distributed_eq(spark.sql(carried(COLUMNS[name])), dataclasses.replace(TINY, exchange=exchange))
