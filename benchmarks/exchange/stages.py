"""The two stages whose exchange is measured, and the same query for plain Spark."""

import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from onager.executor.spark import plan_codec
from onager.executor.spark.planning.cut_stages import CutTerms
from onager.executor.spark.planning.cutter import Cutter

CONF = {"spark.sql.adaptive.enabled": "false", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}
ROW_BYTES = 40
"""Of Spark's own form of such a row: four columns of 8 bytes, and one word for which of them are null."""
_BUCKETS = 4
_NONE = "rand() < 1e-15"
"""True of no row, but nobody knows that before: what is drawn is not pushed below an exchange, nor worked out early."""
_COLUMNS = ("l_orderkey", "l_partkey", "l_quantity", "l_extendedprice")


def frame_of(spark: SparkSession, source: str, *, has_exchange: bool = True) -> DataFrame:
    """Return a frame that hands the rows of *source*, a file or empty for ten rows, over and gives none of them."""
    rows = (
        spark.read.parquet(source).select(*_COLUMNS)
        if source
        else spark.range(0, 10, 1, 2).selectExpr("id l_orderkey", "id l_partkey", "id l_quantity", "id l_extendedprice")
    )
    given = rows.repartition(_BUCKETS, "l_orderkey") if has_exchange else rows
    return given.where(_NONE)


def encoded_stages(spark: SparkSession, source: str, *, has_exchange: bool) -> list[bytes]:
    """Return the frame's stages, encoded, producers first; they are numbered from 1."""
    frame: Any = frame_of(spark, source, has_exchange=has_exchange)
    with tempfile.TemporaryDirectory() as scratch:
        plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - PySpark offers no public way to it
        cutter = Cutter(spark, plan, CutTerms(tuple(frame.columns), 0), CONF, Path(scratch))
        return [plan_codec.encode(stage.plan) for stage in cutter.cut().stages]
