"""A program for Spark as its users write them: ``python connect_program.py DIRECTORY``.

It runs on plain Spark, and, with ``SPARK_REMOTE``, through Spark Connect, and is the same for both. It cleans orders,
joins and sums them up, writes and reads datasets and tables, and leaves in ``results.json`` all that it has seen.
"""

import datetime as dt
import decimal
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, LongType, StringType, StructField, StructType

DAY = dt.date(2026, 3, 1)
COUNTRIES = ["de", "fr", "nz", "pe", None]
ORDER = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("customer", IntegerType()),
        StructField("country", StringType()),
        StructField("day", StringType()),
        StructField(
            "items", ArrayType(StructType([StructField("sku", StringType()), StructField("n", IntegerType())]))
        ),
        StructField("price", DecimalType(10, 2)),
    ]
)


def plain(value: Any) -> Any:
    """Return a value of a row as JSON has it; sums of doubles are the same to nine digits in whatever order."""
    if isinstance(value, Row | tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in sorted(value.items(), key=str)}
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, decimal.Decimal | dt.date):
        return str(value)
    return value.hex() if isinstance(value, bytes | bytearray) else value


def rows(frame: DataFrame) -> list[Any]:
    """Return the rows of a frame, in order."""
    return [plain(row) for row in frame.collect()]


def sorted_rows(frame: DataFrame) -> list[Any]:
    """Return the rows of a frame that nothing orders."""
    return sorted(rows(frame), key=repr)


class Sales:
    """The steps of the program, in order; each returns what it has seen."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory

    # -- data

    def settings(self) -> Any:
        self.spark.conf.set("spark.sql.session.timeZone", "UTC")
        self.spark.conf.set("spark.sql.shuffle.partitions", 4)
        values = [self.spark.conf.get("spark.sql.shuffle.partitions"), self.spark.conf.get("no.such.key", "none")]
        return [
            *values,
            rows(self.spark.sql("SET spark.sql.session.timeZone")),
            self.spark.conf.isModifiable("spark.jars"),
        ]

    def raw_orders(self) -> Any:
        made = [
            Row(
                id=i,
                customer=i * 7 % 50 if i % 11 else None,
                country=COUNTRIES[i % 5],
                day=str(DAY + dt.timedelta(days=i % 9)) if i % 13 else "not a day",
                items=[Row(sku=f"s{(i + j) % 17}", n=j + 1) for j in range(i % 4)],
                price=decimal.Decimal(i * 37 % 1000) / 100,
            )
            for i in range(600)
        ]
        orders = self.spark.createDataFrame(made, ORDER)
        orders.write.mode("overwrite").json(f"{self.directory}/raw")
        self.spark.read.schema(ORDER).json(f"{self.directory}/raw").createOrReplaceTempView("raw_orders")
        return [orders.schema.simpleString(), self.spark.table("raw_orders").count(), orders.isEmpty()]

    def customers(self) -> Any:
        frame = pd.DataFrame({"customer": range(50), "name": [f"customer {i}" for i in range(50)]})
        frame["since"] = pd.to_datetime("2020-01-01") + pd.to_timedelta(frame["customer"], unit="D")
        customers = self.spark.createDataFrame(frame)
        customers.write.mode("overwrite").option("header", True).csv(f"{self.directory}/customers")
        read = self.spark.read.option("header", True).option("inferSchema", True).csv(f"{self.directory}/customers")
        read.createOrReplaceTempView("customers")
        return [read.dtypes, rows(read.orderBy("customer").limit(3))]

    # -- cleaning

    def functions(self) -> Any:
        @F.udf("string")
        def flag(country: str | None) -> str:
            return "??" if country is None else country.upper()

        self.flag = flag
        self.spark.udf.register("basket", lambda items: sum(item.n for item in items or []), "int")
        self.spark.udf.register("flag", flag)
        return rows(self.spark.sql("SELECT flag('nz'), flag(NULL), basket(array(named_struct('sku', 'a', 'n', 3)))"))

    def clean(self) -> Any:
        clean = (
            self.spark.table("raw_orders")
            .withColumn("day", F.expr("try_cast(day AS date)"))
            .withColumn("flag", self.flag("country"))
            .withColumn("units", F.expr("basket(items)"))
            .dropna(subset=["day"])
            .fillna({"customer": -1})
            .dropDuplicates(["id"])
        )
        clean.createOrReplaceTempView("orders")
        return [
            clean.columns,
            rows(clean.orderBy("id").limit(5)),
            clean.count(),
            sorted_rows(clean.groupBy("flag").count()),
        ]

    def observed(self) -> Any:
        seen = Observation("seen")
        frame = self.spark.table("orders").observe(seen, F.count(F.lit(1)).alias("n"), F.max("units").alias("most"))
        frame.write.mode("overwrite").parquet(f"{self.directory}/observed")
        read = Observation()
        self.spark.table("orders").observe(read, F.min("day").alias("first")).groupBy("country").count().collect()
        return [seen.get, read.get]

    # -- queries

    def windows(self) -> Any:
        by_day = Window.partitionBy("country").orderBy("day", "id")
        ranked = (
            self.spark.table("orders")
            .where("country IS NOT NULL")
            .withColumn("rank", F.row_number().over(by_day))
            .withColumn("running", F.sum("price").over(by_day.rowsBetween(Window.unboundedPreceding, 0)))
            .withColumn("before", F.lag("price").over(by_day))
        )
        return rows(
            ranked.where("rank <= 4").select("country", "rank", "id", "running", "before").orderBy("country", "rank")
        )

    def joined(self) -> Any:
        orders, customers = self.spark.table("orders").alias("o"), self.spark.table("customers").alias("c")
        inner = orders.join(customers, F.col("o.customer") == F.col("c.customer"))
        best = inner.groupBy("name").agg(F.sum("price").alias("total"), F.countDistinct("country").alias("countries"))
        nobody = orders.join(customers, "customer", "left_anti").select("id")
        crossed = customers.limit(3).crossJoin(self.spark.range(2)).count()
        return [rows(best.orderBy(F.desc("total"), "name").limit(7)), sorted_rows(nobody), crossed]

    def summed(self) -> Any:
        orders = self.spark.table("orders")
        pivot = orders.groupBy("day").pivot("country", ["de", "fr"]).agg(F.sum("units")).orderBy("day")  # noqa: PD010 - Spark's
        cube = self.spark.sql("SELECT country, day, sum(units) AS n FROM orders GROUP BY CUBE (country, day)")
        exploded = (
            orders.select("id", F.explode("items").alias("item")).groupBy("item.sku").agg(F.sum("item.n").alias("n"))
        )
        return [
            rows(pivot),
            sorted_rows(cube),
            rows(exploded.orderBy("sku")),
            orders.stat.crosstab("flag", "units").count(),
        ]

    def sets(self) -> Any:
        left, right = self.spark.range(0, 20), self.spark.range(10, 30)
        both = left.union(right).groupBy("id").count().where("count = 2").orderBy("id")
        by_name = left.withColumn("a", F.lit(1)).unionByName(right, allowMissingColumns=True)
        return [
            rows(both),
            sorted_rows(left.exceptAll(right)),
            sorted_rows(left.intersect(right)),
            by_name.where("a IS NULL").count(),
        ]

    def pandas_functions(self) -> Any:
        @F.pandas_udf("double")
        def half(values: pd.Series) -> pd.Series:
            return values / 2

        def top(frame: pd.DataFrame) -> pd.DataFrame:
            return frame.nlargest(1, ["units", "id"])[["country", "id", "units"]]

        def tag(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield frame.assign(id=frame["id"] * 10)

        orders = self.spark.table("orders")
        halves = orders.select(half(F.col("units").cast("double")).alias("h")).agg(F.sum("h"))
        tops = (
            orders.where("country IS NOT NULL")
            .groupBy("country")
            .applyInPandas(top, "country string, id long, units int")
        )
        return [
            rows(halves),
            rows(tops.orderBy("country")),
            sorted_rows(self.spark.range(5).mapInPandas(tag, "id long")),
        ]

    def table_functions(self) -> Any:
        @F.udtf(returnType="word string, at int")
        class Words:
            def eval(self, text: str) -> Iterator[tuple[str, int]]:
                for at, word in enumerate(text.split()):
                    yield word, at

        self.spark.udtf.register("words", Words)
        lateral = self.spark.sql("SELECT name, word FROM customers, LATERAL words(name) WHERE customer < 3 AND at = 1")
        return [sorted_rows(Words(F.lit("a b c"))), sorted_rows(lateral)]

    def parameters(self) -> Any:
        text = "SELECT id, price FROM {orders} WHERE country = :country AND price > :least ORDER BY id LIMIT 5"
        named = self.spark.sql(text, {"country": "nz", "least": 3}, orders=self.spark.table("orders"))
        placed = self.spark.sql("SELECT ? + ? AS s", [1, 2])
        return [rows(named), rows(placed)]

    def results(self) -> Any:
        wide = self.spark.range(0, 3_000, 1, 3).withColumn("text", F.repeat(F.col("id").cast("string"), 30))
        arrow = wide.orderBy("id").toArrow()
        local = sum(len(row.text) for row in wide.toLocalIterator())
        shown = self.spark.table("orders").orderBy("id").select("id", "flag", "items")._show_string(3, 20, False)
        return [
            arrow.num_rows,
            arrow.column("id")[-1].as_py(),
            local,
            shown,
            plain(wide.orderBy("id").tail(2)),
            wide.first().id,
        ]

    def cached(self) -> Any:
        frame = self.spark.range(0, 100, 1, 2).selectExpr("id", "id % 3 AS k").cache()
        rows = [frame.count(), sorted_rows(frame.groupBy("k").count())]
        frame.unpersist()
        return rows

    # -- datasets and tables

    def written(self) -> Any:
        target = f"{self.directory}/by-country"
        orders = self.spark.table("orders").drop("items")
        orders.where("country IS NOT NULL").write.partitionBy("country").mode("overwrite").parquet(target)
        orders.where("country = 'nz'").limit(10).write.partitionBy("country").mode("append").parquet(target)
        self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW by_country USING parquet OPTIONS (path '{target}')")
        kept = self.spark.read.parquet(target)
        try:
            orders.write.parquet(target)
            exists = "written over"
        except PySparkException as error:
            exists = error.getCondition()
        partitions = sorted(path.name for path in Path(target).iterdir() if path.is_dir())
        text = self.spark.sql("SELECT count(*), count(DISTINCT country) FROM by_country")
        return [partitions, sorted_rows(kept.groupBy("country").agg(F.count("id"), F.sum("price"))), exists, rows(text)]

    def tables(self) -> Any:
        self.spark.sql("CREATE DATABASE IF NOT EXISTS sales_etl")
        self.spark.catalog.setCurrentDatabase("sales_etl")
        self.spark.table("orders").drop("items").write.mode("overwrite").saveAsTable("facts")
        self.spark.sql(
            "CREATE TABLE totals (day DATE, total DECIMAL(20, 2)) USING parquet PARTITIONED BY (country STRING)"
        )
        self.spark.sql("INSERT INTO totals SELECT day, sum(price), country FROM facts GROUP BY day, country")
        self.spark.table("facts").where("country = 'de'").selectExpr("day", "price", "country").write.insertInto(
            "totals"
        )
        self.spark.sql("CREATE VIEW large AS SELECT * FROM totals WHERE total > 10")
        counted = self.spark.sql("SELECT country, count(*), sum(total) FROM totals GROUP BY country")
        return [
            sorted_rows(counted),
            self.spark.table("large").count(),
            sorted_rows(self.spark.sql("SHOW PARTITIONS totals")),
        ]

    def catalog(self) -> Any:
        catalog = self.spark.catalog
        listed = sorted((table.name, table.tableType, table.isTemporary) for table in catalog.listTables())
        columns = [(column.name, column.dataType, column.isPartition) for column in catalog.listColumns("totals")]
        exists = [catalog.tableExists("totals"), catalog.tableExists("nothing"), catalog.functionExists("flag")]
        catalog.dropTempView("by_country")
        return [catalog.currentDatabase(), listed, columns, exists, catalog.tableExists("by_country")]

    def dropped(self) -> Any:
        self.spark.sql("DROP VIEW large")
        self.spark.sql("DROP TABLE totals")
        self.spark.sql("DROP TABLE facts")
        self.spark.catalog.setCurrentDatabase("default")
        self.spark.sql("DROP DATABASE sales_etl")
        return self.spark.catalog.databaseExists("sales_etl")

    # -- errors

    def errors(self) -> Any:
        def bad(value: int) -> int:
            raise ValueError(f"no {value}")

        failing: dict[str, Callable[[], Any]] = {
            "column": lambda: self.spark.sql("SELECT nope FROM orders").collect(),
            "table": lambda: self.spark.table("no_such_table").collect(),
            "syntax": lambda: self.spark.sql("SELEC 1"),
            "division": lambda: self.spark.sql("SELECT 1 / (id - id) FROM orders").collect(),
            "function": lambda: self.spark.range(1).select(F.udf(bad, "int")("id")).collect(),
        }
        reported = {}
        for name, run in failing.items():
            try:
                reported[name] = plain(run())
            except PySparkException as error:
                says = "no 0" in str(error) if name == "function" else error.getSqlState()
                reported[name] = [type(error).__name__, error.getCondition() if name != "function" else None, says]
        return reported


def main(directory: Path) -> None:
    """Run all steps, and write what they saw."""
    directory.mkdir(parents=True, exist_ok=True)
    spark = SparkSession.builder.appName("sales").getOrCreate()
    sales = Sales(spark, directory)
    seen = {}
    for name, step in vars(Sales).items():
        if not name.startswith("_"):
            seen[name] = plain(step(sales))
    (directory / "results.json").write_text(json.dumps(seen, indent=1))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
