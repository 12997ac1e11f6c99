"""Small tables in every file format, written without Spark."""

import json
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
from pyspark.sql import SparkSession

from onager.protocol import onager_pb2 as pb

SALES = pa.schema(
    {
        "id": pa.int64(),
        "k": pa.int64(),
        "amount": pa.float64(),
        "price": pa.decimal128(12, 2),
        "name": pa.string(),
        "day": pa.date32(),
        "maybe": pa.int64(),
        "pair": pa.list_(pa.int64()),
        "s": pa.struct({"a": pa.int64(), "b": pa.string()}),
        "m": pa.map_(pa.string(), pa.int64()),
    }
)

FORMATS = {
    "sales": "parquet",
    "groups": "parquet",
    "nothing": "parquet",
    "parts": "parquet",
    "lines_csv": "csv",
    "lines_json": "json",
    "lines_orc": "orc",
    "words_txt": "text",
}
"""Of each table, the format of its files."""


def make_views(spark: SparkSession, root: Path) -> list[pb.View]:
    """Write every table below *root*, make a view of each in *spark*, and return them as those of a job."""
    write_tables(root)
    for name, file_format in FORMATS.items():
        reader = spark.read.format(file_format)
        if file_format == "csv":
            reader = reader.options(header=True, inferSchema=True)
        reader.load(str(root / name)).createOrReplaceTempView(name)
    return [pb.View(name=name, path=str(root / name), format=FORMATS[name]) for name in FORMATS]


def write_tables(root: Path) -> None:
    """Write every table into a directory of its name below *root*."""
    for part in range(3):
        rows = [_sale(id_) for id_ in range(100 * part, 100 * part + 100)]
        _write_parquet(root / "sales", part, pa.Table.from_pylist(rows, SALES))
    for part in range(2):
        rows = [{"k": k, "label": f"group {k}"} for k in range(10 * part, 10 * part + 10)]
        _write_parquet(root / "groups", part, pa.Table.from_pylist(rows))
    _write_parquet(root / "nothing", 0, pa.table({"id": pa.array([], pa.int64()), "k": pa.array([], pa.int64())}))
    for part in range(4):
        ids = [n for n in range(100) if n % 4 == part]
        _write_parquet(root / "parts" / f"part={part}", 0, pa.table({"id": pa.array(ids, pa.int64())}))
    for name in ("lines_csv", "lines_json", "lines_orc", "words_txt"):
        (root / name).mkdir()
    for part in range(4):
        rows = [{"id": n, "k": n % 3} for n in range(25 * part, 25 * part + 25)]
        lines = [f"{row['id']},{row['k']}" for row in rows]
        (root / "lines_csv" / f"{part}.csv").write_text("\n".join(["id,k", *lines, ""]))
        (root / "lines_json" / f"{part}.json").write_text("\n".join([json.dumps(row) for row in rows] + [""]))
        (root / "words_txt" / f"{part}.txt").write_text("".join(f"{row['id']}\n" for row in rows))
        pa.orc.write_table(pa.Table.from_pylist(rows), root / "lines_orc" / f"{part}.orc")


def _sale(id_: int) -> dict[str, object]:
    return {
        "id": id_,
        "k": id_ % 7,
        "amount": id_ * 1.5,
        "price": Decimal(id_ % 13),
        "name": f"name {id_ % 11}",
        "day": date(2024, 1, 1) + timedelta(days=id_ % 40),
        "maybe": None if id_ % 10 == 0 else id_ % 5,
        "pair": [id_, id_ + 1],
        "s": {"a": id_, "b": str(id_)},
        "m": [("x", id_)],
    }


def _write_parquet(directory: Path, part: int, table: pa.Table) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(table, directory / f"{part}.parquet")
