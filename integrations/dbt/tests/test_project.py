"""A project of dbt is built, goes on where it was, finds bad rows, and does not notice what is killed."""

import time
from decimal import Decimal

import pytest
from cluster import Cluster

from .conftest import Shop

PRICED = [order for order in range(200) if order % 10 != 9]


def of_countries(shop: Shop) -> dict[str, tuple[int, Decimal]]:
    rows = shop.rows("SELECT country, orders, revenue FROM {shop}.revenue_by_country")
    return {country: (orders, revenue) for country, orders, revenue in rows}


def expected(orders: list[int]) -> dict[str, tuple[int, Decimal]]:
    names = ["Germany", "France", "New Zealand", "Peru"]
    found = {name: [order for order in orders if order % 20 % 4 == place] for place, name in enumerate(names)}
    return {name: (len(mine), Decimal(sum(mine))) for name, mine in found.items() if mine}


def test_a_project_is_built_and_tested(shop: Shop) -> None:
    results = shop.dbt("build")
    assert set(results.values()) == {"success", "pass"}
    assert len(results) == 17
    assert of_countries(shop) == expected(PRICED)
    days = shop.rows("SELECT cast(day AS string), orders FROM {shop}.revenue_by_day ORDER BY day")
    assert days == [(f"2026-03-0{n}", 36) for n in range(1, 6)]
    kinds = dict(shop.rows("SELECT name, region FROM {shop}.countries"))
    assert kinds["Peru"] == "America"
    tables = {name: is_view for _, name, is_view in shop.rows("SHOW TABLES IN {shop}")}
    assert "stg_orders" in tables


def test_incremental_models_take_what_is_new(shop: Shop) -> None:
    shop.dbt("build")
    shop.order(200, 260)  # the sixth day, and half of the seventh
    results = shop.dbt("build")
    assert set(results.values()) == {"success", "pass"}
    days = shop.rows("SELECT cast(day AS string), orders FROM {shop}.revenue_by_day ORDER BY day")
    assert days == [*((f"2026-03-0{n}", 36) for n in range(1, 7)), ("2026-03-07", 18)]
    assert shop.rows("SELECT count(*), count(DISTINCT id) FROM {shop}.order_log") == [(234, 234)]
    shop.order(260, 280)
    shop.dbt("run")
    shop.dbt("run", "--full-refresh")
    days = shop.rows("SELECT cast(day AS string), orders FROM {shop}.revenue_by_day ORDER BY day")
    assert days == [(f"2026-03-0{n}", 36) for n in range(1, 8)]


def test_a_test_that_fails_is_reported(shop: Shop) -> None:
    shop.dbt("build")
    shop.order(0, 1)
    results = shop.dbt("test")
    assert {name for name, status in results.items() if status == "fail"} == {
        "source_unique_raw_orders_id",
        "unique_stg_orders_id",
    }


def test_a_build_goes_on_while_scheduler_and_executor_are_killed(cluster: Cluster | None, shop: Shop) -> None:
    if cluster is None:
        pytest.skip("a server of Spark's does not live on")
    process = shop.start("build")
    for name in ("scheduler", "executor", "scheduler"):
        time.sleep(3.0)
        if process.poll() is None:
            cluster.child(name).kill()
    results = shop.results(process)
    assert set(results.values()) == {"success", "pass"}
    assert of_countries(shop) == expected(PRICED)
