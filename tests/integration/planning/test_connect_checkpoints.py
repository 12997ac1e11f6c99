"""Checkpoints: rows that were written once, read by whatever is made of them, until nobody wants them."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.connect import functions as F  # noqa: N812
from pyspark.sql.connect import plan as plans
from pyspark.sql.connect.dataframe import DataFrame

from onager.exchange_layout import CHECKPOINTS, checkpoint
from tests.integration.planning.catalogs import planned_with
from tests.integration.planning.connect_client import ConnectClient, ConnectError
from tests.integration.planning.connect_frames import lazy
from tests.support.spark.one_executor import OneExecutor, as_multiset

WHOLE = {"onager.fusion.maxBytes": "1g"}
TEXTS = {
    "names that repeat": "SELECT a.id, b.id, a.id AS ID, 1 AS `x.y` FROM range(5) a JOIN range(3, 9) b ON a.id = b.id",
    "nested": "SELECT id, struct(id AS a, array(id) AS b) AS s, map('k', DATE'0001-01-01') AS m FROM range(4)",
    "moments": "SELECT TIMESTAMP'1500-01-01 00:00:00.12345' t, TIMESTAMP_NTZ'2020-01-01' n, INTERVAL '1' DAY i",
    "nulls": "SELECT CAST(NULL AS INT) AS a, nullif(id, 1) AS b, 1.50BD AS c, CAST('x' AS BINARY) AS d FROM range(3)",
    "no rows": "SELECT id, 'x' AS s FROM range(3) WHERE id > 5",
    "groups": "SELECT id % 7 AS k, count(*) AS n FROM range(100) GROUP BY 1",
}


@pytest.fixture
def client(executor: OneExecutor) -> Iterator[ConnectClient]:
    with planned_with(executor) as catalog:
        made = ConnectClient(executor, catalog)
        yield made
        made.close()


def kept(client: ConnectClient) -> list[str]:
    return [f"{entry.kind} {entry.name}" for entry in client.stored.entries]


@pytest.mark.parametrize("conf", [{}, WHOLE], ids=["cut", "whole"])
def test_a_checkpoint_has_the_rows_and_the_schema_of_what_it_was_made_of(client: ConnectClient, conf: Any) -> None:
    for name, text in TEXTS.items():
        frame = lazy(client, text)
        made = client.checkpoint(frame, **conf)
        schemas = client.schema(made), client.schema(frame)
        rows = as_multiset(client.rows(made)), as_multiset(client.rows(frame))
        assert (schemas[0], rows[0]) == (schemas[1], rows[1]), name


def test_a_checkpoint_is_not_computed_again_and_serves_wherever_it_is_read(client: ConnectClient) -> None:
    made = client.checkpoint(lazy(client, "SELECT id, rand() AS r FROM range(100)"))
    rows = as_multiset(client.rows(made))
    joined = client.rows(made.alias("a").join(made.alias("b"), "id").where("a.r = b.r"))
    of_it = client.rows(client.checkpoint(made.where("id >= 0")))
    views = [plans.SubqueryAlias(made._plan, "m")]
    of_sql = client.rows(DataFrame(plans.SQL("SELECT * FROM m", views=views), client.spark))
    plan = client.command(plans.SQL("EXPLAIN SELECT * FROM m", views=views).command(client.spark.client))
    assert (len(joined), as_multiset(of_it), as_multiset(of_sql)) == (100, rows, rows)
    assert "FileScan parquet" in str(plan)


def test_a_view_of_a_checkpoint_outlives_it_and_takes_it_along(client: ConnectClient) -> None:
    made, other = (client.checkpoint(client.spark.range(n)) for n in (3, 4))
    client.view("v", made.select((F.col("id") + 1).alias("k")))
    for each in (made, made, other):
        client.release(each)
    rows = client.rows(lazy(client, "SELECT * FROM v"))
    assert sorted(rows) == [(1,), (2,), (3,)]
    with pytest.raises(ConnectError, match="No DataFrame with id"):
        client.schema(other)
    client.view("v", client.spark.range(1))
    assert kept(client) == ["view v"]


def test_a_checkpoint_stays_whatever_else_the_session_does(client: ConnectClient) -> None:
    made = client.checkpoint(client.spark.range(2))
    for _ in range(2):
        client.view("v", client.spark.range(1))
        client.sql("CREATE OR REPLACE TEMPORARY VIEW w AS SELECT * FROM v")
    rows = client.rows(made)
    assert sorted(rows) == [(0,), (1,)]


def test_what_parquet_cannot_hold_is_an_error_by_name(client: ConnectClient) -> None:
    with pytest.raises(Exception, match=r"UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE.*`age`.*INTERVAL"):
        client.checkpoint(lazy(client, "SELECT make_interval(1) AS age"))
    with pytest.raises(Exception, match="a checkpoint without columns"):
        client.checkpoint(client.spark.range(3).select())
    assert kept(client) == []


def test_other_users_of_the_machine_cannot_read_it(executor: OneExecutor, client: ConnectClient) -> None:
    client.checkpoint(client.spark.range(2))
    assert (executor.directory / CHECKPOINTS).stat().st_mode & 0o777 == 0o700


def test_one_whose_files_are_gone_is_an_error_only_for_who_reads_it(
    executor: OneExecutor, client: ConnectClient
) -> None:
    made = client.checkpoint(client.spark.range(2))
    shutil.rmtree(executor.directory / checkpoint(made._plan._relation_id))
    with pytest.raises(ConnectError, match=r"the checkpoint job-\d+ is not there"):
        client.schema(made)
    client.sql("CREATE TEMPORARY VIEW v AS SELECT 1 AS one")
    rows = client.rows(lazy(client, "SELECT * FROM v"))
    assert rows == [(1,)]
