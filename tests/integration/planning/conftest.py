"""Plans of real queries, cut, encoded, decoded and run stage by stage by the executor's own runner."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tpch.data import generate, views
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.catalogs import commit, planned_with
from tests.integration.planning.connect_client import ConnectClient
from tests.integration.planning.small_tables import make_views
from tests.support.catalog import MemoryCatalog
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


@pytest.fixture
def catalog(executor: OneExecutor) -> Iterator[MemoryCatalog]:
    with planned_with(executor) as made:
        yield made


@pytest.fixture
def people(tmp_path: Path) -> str:
    directory = tmp_path / "people"
    directory.mkdir()
    (directory / "people.csv").write_text("name,age\nAnn,30\nBob,40\nAnn,50\n")
    return str(directory)


@pytest.fixture
def sales(executor: OneExecutor, catalog: MemoryCatalog, tmp_path: Path) -> str:
    """A partitioned table of 40 partitions in the catalog, and its directory."""
    directory = f"{tmp_path}/sales"
    frame = executor.spark.range(400).selectExpr("id", "id % 4 AS region", "id % 10 AS day")
    frame.coalesce(1).write.partitionBy("region", "day").parquet(directory)
    columns = "id BIGINT, region INT, day INT"
    made = f"CREATE TABLE sales ({columns}) USING parquet PARTITIONED BY (region, day) LOCATION '{directory}'"
    commit(executor, catalog, f"{made}; MSCK REPAIR TABLE sales")
    catalog.requests.clear()
    return directory


@pytest.fixture
def client(executor: OneExecutor, catalog: MemoryCatalog) -> Iterator[ConnectClient]:
    made = ConnectClient(executor, catalog)
    yield made
    made.close()
