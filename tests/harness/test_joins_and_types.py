"""Every type of join by every way of joining, and every type of column through every exchange, distributed."""

import dataclasses

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq
from tests.integration.planning.joins import WAYS, joined
from tests.integration.planning.types_of_columns import COLUMNS, carried

TINY = HarnessConfig(tasks=2, exchange="streams", channel_frames=1, frame_bytes=256)


@pytest.mark.parametrize(("hint", "types", "on", "operator"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_joins_of_every_type(spark, hint, types, on, operator):
    run = assert_distributed_eq(spark.sql(f"select /*+ repartition(2) */ * from ({joined(hint, types, on)})"), TINY)
    assert any(operator in stage.plan for stage in run.graph.stages)


@pytest.mark.parametrize("exchange", ["files", "streams"])
@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS.keys())
def test_columns_of_every_type(spark, columns, exchange):
    assert_distributed_eq(spark.sql(carried(columns)), dataclasses.replace(TINY, exchange=exchange))
