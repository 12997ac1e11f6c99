"""Plans of real queries, cut, encoded, decoded and run stage by stage by the executor's own runner."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from benchmarks.tpch.data import generate, views
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.small_tables import make_views
from tests.support.spark.one_executor import CUT, OneExecutor, as_multiset, rows_of
from tests.support.spark.one_spark import stop_with_its_jvm


@pytest.fixture(scope="package")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneExecutor]:
    made = OneExecutor(tmp_path_factory.mktemp("exchange"))
    yield made
    made.close()
    stop_with_its_jvm(made.spark)


@pytest.fixture(scope="package")
def tables(executor: OneExecutor, tmp_path_factory: pytest.TempPathFactory) -> list[pb.View]:
    """Small tables in every format, most in several files, one partitioned, one empty; views of them, too."""
    return make_views(executor.spark, tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="package")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> list[pb.View]:
    """The tables of TPC-H at scale factor 0.01."""
    data = generate(0.01, tmp_path_factory.mktemp("tpch"))
    return [pb.View(name=name, path=path) for name, path in sorted(views(data).items())]


@pytest.fixture
def check(executor: OneExecutor, tables: list[pb.View]) -> Any:
    """Compare a query's rows, cut, with plain Spark's: as a multiset, and in order when asked."""

    def compare(text: str, *, ordered: bool = False, conf: Mapping[str, str] | None = None) -> pb.PlanOutcome:
        outcome = executor.plan_sql(text, views=tables, conf=CUT | dict(conf or {}))
        got = executor.run(outcome)
        expected = rows_of(executor.spark.sql(text).toArrow())
        assert as_multiset(got) == as_multiset(expected)
        if ordered:
            assert list(as_multiset(got)) == list(as_multiset(expected))
        return outcome

    return compare
