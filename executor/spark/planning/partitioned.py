"""The columns of outputs: their names, and the order of rows for partitions and buckets.

In every task, rows of one directory come together, and rows of one file.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (what PySpark's own documents call it)
from pyspark.sql.types import StringType

from onager.executor.spark.jvm import Jvm, jvm_session
from onager.executor.spark.planning.names import quoted
from onager.protocol import onager_pb2 as pb


def check_names(frame: DataFrame) -> None:
    """Raise Spark's error if two columns of *frame* have one name: no reader could tell them apart."""
    session = frame.sparkSession
    jvm = Jvm.of(session)
    is_exact = bool(jvm_session(session).sessionState().conf().caseSensitiveAnalysis())
    jvm.java_class("org.apache.spark.sql.util.SchemaUtils").checkColumnNameDuplication(jvm.seq(frame.columns), is_exact)


def partitioned(frame: DataFrame, sink: pb.Sink) -> DataFrame:
    """Return *frame* as it is to be written to *sink*; Spark's error for columns that cannot be directories.

    Spark's writers need the rows sorted so. And the empty string has the same directory as null.
    """
    if sink.partition_by:
        frame = _without_empty_strings(frame, sink)
    keys = [F.col(quoted(name)) for name in sink.partition_by]
    if sink.HasField("buckets"):
        # As in `HashPartitioning`, which Spark's writers number buckets by.
        keys.append(F.pmod(F.hash(*(F.col(quoted(name)) for name in sink.buckets.by)), F.lit(sink.buckets.count)))
        keys += [F.col(quoted(name)) for name in sink.buckets.sort_by]
    return frame.sortWithinPartitions(*keys) if keys else frame


def _without_empty_strings(frame: DataFrame, sink: pb.Sink) -> DataFrame:
    session = frame.sparkSession
    jvm = Jvm.of(session)
    names = list(sink.partition_by)
    is_exact = bool(jvm_session(session).sessionState().conf().caseSensitiveAnalysis())
    checks = jvm.java_class("org.apache.spark.sql.execution.datasources.PartitioningUtils")
    checks.validatePartitionColumn(frame._jdf.schema(), jvm.seq(names), is_exact)  # noqa: SLF001  (PySpark has text only)
    wanted = {name if is_exact else name.lower() for name in names}
    for field in frame.schema.fields:
        if isinstance(field.dataType, StringType) and (field.name if is_exact else field.name.lower()) in wanted:
            column = F.col(quoted(field.name))
            frame = frame.withColumn(field.name, F.when(column != F.lit(""), column))
    return frame
