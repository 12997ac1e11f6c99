"""A small shop in Parquet: sales and returns by day, what was sold, to whom, where; written without Spark."""

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet

FIRST_DAY = date(2023, 1, 1)
DAYS = 120
CATEGORIES = ("books", "music", "garden", "sports")
TOWNS = ("Aachen", "Bonn", "Celle", None)
NAMES = ("days", "items", "customers", "shops", "sold", "returned", "web_sold")

Rows = list[dict[str, Any]]


def write_shop(root: Path) -> None:
    """Write every table of `NAMES` into a directory of its name below *root*; `sold` is partitioned by month."""
    days = [FIRST_DAY + timedelta(days=n) for n in range(DAYS)]
    _write(root / "days", [_day(n, day) for n, day in enumerate(days)])
    _write(root / "items", [_item(n) for n in range(60)])
    _write(root / "customers", [_customer(n) for n in range(90)])
    _write(root / "shops", [{"shop_id": n, "shop": f"shop {n}", "town": TOWNS[n % 4]} for n in range(6)])
    sold = [_sale("shop", n) for n in range(2400)]
    for month in range(1, 5):
        rows = [row for row in sold if days[row["day_id"]].month == month]
        _write(root / "sold" / f"month={month}", rows, files=2)
    returned = [row for n, row in enumerate(sold) if _drawn(f"returned {n}", 100) < 15]
    _write(root / "returned", [_return(n, row) for n, row in enumerate(returned)], files=2)
    web = [{**_sale("web", n), "page": n % 9} for n in range(700)]
    _write(root / "web_sold", [{k: v for k, v in row.items() if k != "shop_id"} for row in web], files=3)


def _write(directory: Path, rows: Rows, files: int = 1) -> None:
    directory.mkdir(parents=True)
    for part in range(files):
        pa.parquet.write_table(pa.Table.from_pylist(rows[part::files]), directory / f"{part}.parquet")


def _day(n: int, day: date) -> dict[str, Any]:
    return {
        "day_id": n,
        "day": day,
        "month_of_year": day.month,
        "week": int(day.strftime("%W")),
        "weekday": day.weekday(),
    }


def _item(n: int) -> dict[str, Any]:
    return {
        "item_id": n,
        "item": f"item {n:02}",
        "category": CATEGORIES[n % 4],
        "brand": f"brand {n % 7}",
        "list_price": Decimal(n * 37 % 100) + Decimal("0.95"),
    }


def _customer(n: int) -> dict[str, Any]:
    return {
        "customer_id": n,
        "name": f"customer {n}",
        "town": TOWNS[n % 4],
        "born": None if n % 11 == 0 else 1950 + _drawn(f"born {n}", 50),
    }


def _sale(where: str, n: int) -> dict[str, Any]:
    price = Decimal(100 + _drawn(f"{where} price {n}", 9900)) / 100
    return {
        "ticket": n // 3,
        "item_id": _drawn(f"{where} item {n}", 60),
        "customer_id": None if n % 19 == 0 else _drawn(f"{where} customer {n // 3}", 90),
        "shop_id": _drawn(f"shop {n // 3}", 6),
        "day_id": _drawn(f"{where} day {n // 3}", DAYS),
        "quantity": 1 + _drawn(f"{where} quantity {n}", 19),
        "price": price,
        "cost": (price * Decimal("0.7")).quantize(Decimal("0.01")),
    }


def _return(n: int, sale: dict[str, Any]) -> dict[str, Any]:
    return {
        "ticket": sale["ticket"],
        "item_id": sale["item_id"],
        "customer_id": sale["customer_id"],
        "day_id": min(DAYS - 1, sale["day_id"] + _drawn(f"days {n}", 20)),
        "quantity": 1 + _drawn(f"back {n}", sale["quantity"]),
        "refund": sale["price"],
    }


def _drawn(what: str, below: int) -> int:
    """Return a number as good as drawn, the same each time."""
    return crc32(what.encode()) % below
