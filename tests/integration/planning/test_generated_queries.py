"""Queries that nobody wrote: drawn, distributed, and compared with plain Spark.

The gate runs the same few each time; to look for more, for as long as you like:

    python -m tests.integration.planning.test_generated_queries --queries 500 --seed 1
    python -m tests.integration.planning.test_generated_queries --queries 500 --seed 1 --replans

With re-plans, the rest of each query is planned again whenever a stage is done, by sizes that are 1,000 times too large
or too small (`onager.adaptive=force`).
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onager.protocol import onager_pb2 as pb
from tests.integration.planning.drawn_queries import DrawnQuery, queries
from tests.integration.planning.small_tables import make_views
from tests.support.spark.adaptive_run import replans_of, run_adaptively
from tests.support.spark.one_executor import CUT, OneExecutor, as_multiset, rows_of
from tests.support.spark.one_spark import SPARKS_SUMS, stop_with_its_jvm
from tests.support.spark.one_spark import settings as spark_settings

IN_THE_GATE = 5
IN_THE_GATE_WITH_REPLANS = 3
RELAXED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
FIXED = settings(deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=RELAXED)
"""Draws the same each time."""


def holds(executor: OneExecutor, views: list[pb.View], query: DrawnQuery) -> None:
    """Fail unless *query* gives plain Spark's rows when it is distributed."""
    expected = plain_rows(executor.spark, query)
    outcome = executor.plan_sql(query.text, views=views, conf=CUT | query.conf)
    assert not outcome.HasField("fused_output")
    assert as_multiset(executor.run(outcome)) == as_multiset(expected)


def holds_with_replans(executor: OneExecutor, views: list[pb.View], query: DrawnQuery) -> int:
    """Fail unless *query* gives plain Spark's rows whenever it is planned again; return how many plans were taken."""
    expected = plain_rows(executor.spark, query)
    conf = CUT | query.conf | {"onager.adaptive": "force"}
    outcome = executor.plan_sql(query.text, views=views, conf=conf)
    assert not outcome.HasField("fused_output")
    rows, job = run_adaptively(executor, outcome, mode="force", slots=2, falsify="drawn")
    assert as_multiset(rows) == as_multiset(expected), replans_of(job)
    return sum(replan.is_taken for replan in job.graph.replans)


def plain_rows(spark: SparkSession, query: DrawnQuery) -> list[tuple[object, ...]]:
    """Return plain Spark's rows; of a query that it cannot run (there are such), nothing holds or does not."""
    try:
        with spark_settings(spark, SPARKS_SUMS):
            return rows_of(spark.sql(query.text).toArrow())
    except (PySparkException, Py4JJavaError):
        reject()


@settings(FIXED, max_examples=IN_THE_GATE)
@given(query=queries())
def test_a_drawn_query_gives_plain_sparks_rows(executor, tables, query):
    holds(executor, tables, query)


@settings(FIXED, max_examples=IN_THE_GATE_WITH_REPLANS)
@given(query=queries())
def test_a_drawn_query_that_is_planned_again_gives_plain_sparks_rows(executor, tables, query):
    holds_with_replans(executor, tables, query)


def hunt(examples: int, start: int, tell: Callable[[str], object], *, has_replans: bool = False) -> None:
    """Draw *examples* queries from the seed *start*, and raise for the smallest that does not hold."""
    with tempfile.TemporaryDirectory() as directory:
        exchange = Path(directory) / "exchange"
        exchange.mkdir()
        executor = OneExecutor(exchange)
        views = make_views(executor.spark, Path(directory) / "tables")
        count = taken = 0

        @seed(start)
        @settings(max_examples=examples, deadline=None, database=None, print_blob=False, suppress_health_check=RELAXED)
        @given(query=queries())
        def look(query: DrawnQuery) -> None:
            nonlocal count, taken
            count += 1
            if count % 25 == 0:
                tell(f"{count} queries" + (f", {taken} new plans" if has_replans else ""))
            if has_replans:
                taken += holds_with_replans(executor, views, query)
            else:
                holds(executor, views, query)

        try:
            look()
        finally:
            executor.close()
            stop_with_its_jvm(executor.spark)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.planning.test_generated_queries")
    parser.add_argument("--queries", type=int, default=500, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the draws")
    parser.add_argument("--replans", action="store_true", help="plan the rest again whenever a stage is done")
    options = parser.parse_args()
    hunt(options.queries, options.seed, partial(print, flush=True), has_replans=options.replans)


if __name__ == "__main__":
    main()
