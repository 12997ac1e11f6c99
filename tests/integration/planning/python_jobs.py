"""Jobs that are Python functions, for tests: their source, and their results with plain Spark."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from onager.protocol import onager_pb2 as pb
from tests.support.spark.one_executor import CUT, OneExecutor, as_multiset, rows_of

IMPORTS = """
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udtf, arrow_udf, pandas_udf, udf, udtf

OFFSET = 1000

def add_offset(x):
    return x + OFFSET
"""


def source(body: str) -> str:
    """Return the source of a job whose function `query` does *body*, given `spark` and the `paths` of tables."""
    return f"{IMPORTS}\ndef query(spark, paths=None):\n    {body.strip()}\n"


def query_of(body: str) -> Callable[..., DataFrame]:
    """Return the job's function."""
    module: dict[str, Callable[..., DataFrame]] = {}
    exec(source(body), module)
    return module["query"]


def compare(executor: OneExecutor, tables: Sequence[pb.View], body: str, **conf: str) -> pb.PlanOutcome:
    """Run the job as it is planned, and as plain Spark runs it; fail unless the rows are the same."""
    paths = {view.name: view.path for view in tables}
    outcome = executor.plan_python(source(body), views=tables, arguments={"paths": paths}, conf=CUT | conf)
    got = executor.run(outcome)
    with as_before(executor.spark):
        plain = query_of(body)(executor.spark, paths)
        expected = rows_of(plain.toArrow()) if plain.columns else [()] * plain.count()
    assert as_multiset(got) == as_multiset(expected)
    return outcome


class as_before:  # noqa: N801  (a context manager reads as a word)
    """Undoes what the functions of jobs do to their session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __enter__(self) -> None:
        self._partitions = self._spark.conf.get("spark.sql.shuffle.partitions")

    def __exit__(self, *_: object) -> None:
        self._spark.conf.set("spark.sql.shuffle.partitions", self._partitions)
        self._spark.catalog.dropTempView("few")
        self._spark.catalog.clearCache()
