"""Plans of real queries, cut, encoded, decoded and run stage by stage by the executor's own runner."""
# ruff: noqa: E501  (a query reads best on one line)

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from onager.protocol import onager_pb2 as pb
from tests.integration.planner.one_executor import CUT, OneExecutor, as_multiset, rows_of


@pytest.fixture(scope="session")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneExecutor]:
    made = OneExecutor(tmp_path_factory.mktemp("exchange"))
    yield made
    made.runner.close()


@pytest.fixture(scope="session")
def tables(executor: OneExecutor, tmp_path_factory: pytest.TempPathFactory) -> list[pb.View]:
    """Small tables in every format, some in several files, one partitioned, one empty."""
    root = tmp_path_factory.mktemp("tables")
    spark = executor.spark
    sales = spark.range(0, 300, 1, 3).selectExpr(
        "id",
        "id % 7 as k",
        "cast(id * 1.5 as double) as amount",
        "cast(id % 13 as decimal(12,2)) as price",
        "concat('name ', id % 11) as name",
        "date_add(date'2024-01-01', cast(id % 40 as int)) as day",
        "case when id % 10 = 0 then null else id % 5 end as maybe",
        "array(id, id + 1) as pair",
        "named_struct('a', id, 'b', string(id)) as s",
        "map('x', id) as m",
    )
    sales.write.parquet(f"{root}/sales.parquet")
    spark.range(0, 20, 1, 2).selectExpr("id as k", "concat('group ', id) as label").write.parquet(
        f"{root}/groups.parquet"
    )
    spark.range(100).selectExpr("id", "id % 4 as part").repartition(2).write.partitionBy("part").parquet(
        f"{root}/parts"
    )
    spark.range(0, 100, 1, 4).selectExpr("id", "id % 3 as k").write.csv(f"{root}/lines.csv", header=True)
    spark.range(0, 100, 1, 4).selectExpr("id", "id % 3 as k").write.json(f"{root}/lines.json")
    spark.range(0, 100, 1, 4).selectExpr("id", "id % 3 as k").write.orc(f"{root}/lines.orc")
    spark.range(0, 100, 1, 4).selectExpr("string(id) as value").write.text(f"{root}/words.txt")
    spark.range(0).selectExpr("id", "id as k").write.parquet(f"{root}/nothing.parquet")
    names = ("sales.parquet", "groups.parquet", "parts", "lines.csv", "lines.json", "lines.orc", "words.txt")
    views = [pb.View(name=name.replace(".", "_").removesuffix("_parquet"), path=f"{root}/{name}") for name in names]
    views.append(pb.View(name="nothing", path=f"{root}/nothing.parquet"))
    readers = {"csv": {"header": True, "inferSchema": True}}
    for view in views:
        file_format = {"txt": "text"}.get(view.path.rpartition(".")[2], view.path.rpartition(".")[2])
        file_format = file_format if file_format in {"csv", "json", "orc", "text"} else "parquet"
        frame = spark.read.format(file_format).options(**readers.get(file_format, {})).load(view.path)
        frame.createOrReplaceTempView(view.name)
    return views


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
