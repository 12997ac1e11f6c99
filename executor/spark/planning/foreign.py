"""Rows for a table of another catalog, as its files are to hold them."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (what PySpark's own documents call it)

from onager.executor.foreign import WriteLayout
from onager.executor.foreign.schemas import FIELD_ID
from onager.executor.spark.planning.names import quoted
from onager.protocol import onager_pb2 as pb

_WRITTEN: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
}
"""Settings under which Spark writes Parquet as Iceberg wants it."""


def foreign_rows(frame: DataFrame, layout: WriteLayout) -> tuple[DataFrame, pb.Sink]:
    """Return *frame* and the sink of its files, each with rows of one partition; set the session for them."""
    for key, value in _WRITTEN.items():
        frame.sparkSession.conf.set(key, value)
    sink = pb.Sink(
        path=layout.path,
        format="parquet",
        mode="error",
        options={"compression": layout.compression},
        foreign=layout.commit,
    )
    if layout.field_ids:
        with_ids = zip(frame.columns, layout.field_ids, strict=True)
        frame = frame.select(
            *(F.col(quoted(name)).alias(name, metadata={FIELD_ID: field_id}) for name, field_id in with_ids)
        )
    if layout.partition_keys:
        # Values may be too long for the name of a directory, or differ only in what a name cannot show.
        keys = F.struct(*(F.expr(key).alias(f"k{place}") for place, key in enumerate(layout.partition_keys)))
        taken = {name.lower() for name in frame.columns}
        name = "partition"
        while name in taken:
            name = f"{name}_"
        frame = frame.withColumn(name, F.md5(F.to_json(keys)))
        sink.partition_by.append(name)
    return frame, sink
