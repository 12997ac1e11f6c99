"""Queries that nobody wrote: drawn, distributed, and compared with plain Spark.

The gate runs the same few each time; to look for more, for as long as you like:

    python -m tests.integration.planning.test_generated_queries 500 [seed]
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from pyspark.sql import SparkSession

from onager.protocol import onager_pb2 as pb
from tests.integration.planning.drawn_queries import DrawnQuery, queries
from tests.integration.planning.small_tables import make_views
from tests.support.spark.one_executor import CUT, OneExecutor, as_multiset, rows_of
from tests.support.spark.one_spark import stop_with_its_jvm

IN_THE_GATE = 5
RELAXED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]


def holds(executor: OneExecutor, views: list[pb.View], query: DrawnQuery) -> None:
    """Fail unless *query* gives plain Spark's rows when it is distributed."""
    expected = plain_rows(executor.spark, query)
    outcome = executor.plan_sql(query.text, views=views, conf=CUT | query.conf)
    assert not outcome.HasField("fused_output")
    assert as_multiset(executor.run(outcome)) == as_multiset(expected)


def plain_rows(spark: SparkSession, query: DrawnQuery) -> list[tuple[object, ...]]:
    return rows_of(spark.sql(query.text).toArrow())


@settings(
    max_examples=IN_THE_GATE,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=RELAXED,
)
@given(query=queries())
def test_a_drawn_query_gives_plain_sparks_rows(executor, tables, query):
    holds(executor, tables, query)


def hunt(examples: int, start: int, tell: Callable[[str], object]) -> None:
    """Draw *examples* queries from the seed *start*, and raise for the smallest that does not hold."""
    with tempfile.TemporaryDirectory() as directory:
        executor = OneExecutor(Path(directory) / "exchange")
        views = make_views(executor.spark, Path(directory) / "tables")
        count = 0

        @seed(start)
        @settings(max_examples=examples, deadline=None, database=None, print_blob=False, suppress_health_check=RELAXED)
        @given(query=queries())
        def look(query: DrawnQuery) -> None:
            nonlocal count
            count += 1
            if count % 25 == 0:
                tell(f"{count} queries")
            holds(executor, views, query)

        try:
            look()
        finally:
            executor.close()
            stop_with_its_jvm(executor.spark)


if __name__ == "__main__":
    hunt(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1, print)
