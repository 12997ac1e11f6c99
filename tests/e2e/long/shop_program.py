"""The nightly run of a shop, as a user would write it for ``spark-submit``: nothing in it knows Onager.

It makes a week of orders, cleans them, keeps them in tables by day, values customers, finds what sells together,
follows links between products in rounds until the ranks settle, corrects a day that came late, and prints a report.
"""

import argparse
import csv
import datetime as dt
import json
import logging
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import DecimalType, IntegerType, LongType, StringType, StructField, StructType

log = logging.getLogger("shop")
FIRST = dt.date(2026, 3, 2)
DAYS = 7
CITIES = ["Aarhus", "Bergen", "Cork", "Delft", "Espoo"]
KINDS = {"tea": 3.25, "mug": 9.5, "pot": 24.0, "tin": 4.75, "spoon": 2.1}
ORDERS = StructType(
    [
        StructField("order_id", LongType(), False),
        StructField("customer", IntegerType(), False),
        StructField("product", StringType(), True),
        StructField("pieces", StringType(), True),
        StructField("price", StringType(), True),
        StructField("note", StringType(), True),
        StructField("day", StringType(), False),
    ]
)


@dataclass
class Rule:
    """What makes an order bad."""

    name: str
    condition: str


RULES = [
    Rule("no product", "product IS NULL OR product = ''"),
    Rule("pieces", "try_cast(pieces AS INT) IS NULL OR try_cast(pieces AS INT) < 1"),
    Rule("price", "try_cast(price AS DECIMAL(10,2)) IS NULL"),
]


class Numbers:
    """Numbers that follow from a seed: the same in each run."""

    def __init__(self, seed: int) -> None:
        self._at = seed

    def below(self, limit: int) -> int:
        self._at = (self._at * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._at >> 33) % limit


class Bag:
    """A class of the program, for a function that runs in Spark's workers."""

    def __init__(self, words: str) -> None:
        self.words = Counter(words.lower().split())

    def score(self) -> int:
        return sum(2 if word in ("good", "great") else -1 if word == "late" else 0 for word in self.words.elements())


def orders_of(day: int, numbers: Numbers, count: int) -> list[Row]:
    """Return the raw orders of a day; one in twenty has something wrong."""
    found = []
    for n in range(count):
        kind = sorted(KINDS)[numbers.below(len(KINDS))]
        pieces, price = str(1 + numbers.below(5)), f"{KINDS[kind] * (1 + numbers.below(3) / 10):.2f}"
        wrong = numbers.below(60)
        note = " ".join(["good", "late", "great", "box", "gift"][numbers.below(5)] for _ in range(numbers.below(4)))
        found.append(
            Row(
                order_id=day * 1_000_000 + n,
                customer=numbers.below(40),
                product=None if wrong == 0 else kind,
                pieces="many" if wrong == 1 else pieces,
                price="?" if wrong == 2 else price,
                note=note or None,
                day=str(FIRST + dt.timedelta(days=day)),
            )
        )
    return found


def section(title: str) -> None:
    print(f"\n== {title}", flush=True)


def rows(frame: DataFrame, *order: str) -> None:
    """Print the rows of a small frame, in order."""
    for row in frame.orderBy(*order).collect():
        print("  ", *(f"{key}={value}" for key, value in row.asDict().items()))


class Nightly:
    """The run."""

    def __init__(self, spark: SparkSession, database: str, folder: str, count: int) -> None:
        self.spark = spark
        self.database = database
        self.folder = folder
        self.count = count
        self.numbers = Numbers(20260302)
        self.lock = threading.Lock()
        self.loaded: dict[str, int] = {}

    # ------------------------------------------------------------ steps

    def prepare(self) -> None:
        section("prepare")
        self.spark.sql(f"CREATE DATABASE IF NOT EXISTS {self.database}")
        self.spark.catalog.setCurrentDatabase(self.database)
        self.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        for table in ("orders", "rejected", "customers", "ranks"):
            self.spark.sql(f"DROP TABLE IF EXISTS {table}")
        customers = [(n, f"customer {n}", CITIES[n % len(CITIES)], n % 7 == 0) for n in range(40)]
        schema = "customer INT, name STRING, city STRING, is_regular BOOLEAN"
        self.spark.createDataFrame(customers, schema).write.saveAsTable("customers")
        print("tables", sorted(t.name for t in self.spark.catalog.listTables()))

    def load(self) -> None:
        section("load")
        raw = [row for day in range(DAYS) for row in orders_of(day, self.numbers, self.count)]
        frame = self.spark.createDataFrame(raw, ORDERS)
        checked = frame.withColumn(
            "why", f.concat_ws(", ", *(f.when(f.expr(rule.condition), f.lit(rule.name)) for rule in RULES))
        ).localCheckpoint()
        rejected = checked.where("why <> ''")
        rejected.select("order_id", "why", "day").write.mode("overwrite").saveAsTable("rejected")
        rows(self.spark.table("rejected").groupBy("why").count(), "why")
        clean = checked.where("why = ''").select(
            "order_id",
            "customer",
            "product",
            f.col("pieces").cast("int").alias("pieces"),
            f.col("price").cast(DecimalType(10, 2)).alias("price"),
            "note",
            f.to_date("day").alias("day"),
        )
        empty = clean.limit(0)
        empty.write.partitionBy("day").saveAsTable("orders")
        days = [FIRST + dt.timedelta(days=n) for n in range(DAYS)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda day: self.load_day(clean, day), days))
        print("loaded", json.dumps(self.loaded, sort_keys=True))

    def load_day(self, clean: DataFrame, day: dt.date) -> None:
        """Write one day, in a thread of its own."""
        part = clean.where(f.col("day") == f.lit(day))
        part.write.insertInto("orders", overwrite=True)
        loaded = self.spark.table("orders").where(f.col("day") == f.lit(day)).count()
        with self.lock:
            self.loaded[str(day)] = loaded

    def value_customers(self) -> list[int]:
        section("customers")
        moods = f.udf(lambda note: Bag(note or "").score(), "int")

        @f.pandas_udf("double")
        def smooth(values: pd.Series) -> pd.Series:
            return values.astype(float).round(1)

        orders = self.spark.table("orders").withColumn("amount", f.col("pieces") * f.col("price"))
        by_customer = orders.groupBy("customer").agg(
            f.sum("amount").alias("spent"),
            f.countDistinct("day").alias("days"),
            f.sum(moods("note")).alias("mood"),
            f.max_by("product", "amount").alias("_"),
        )
        ranked = (
            by_customer.drop("_")
            .join(f.broadcast(self.spark.table("customers")), "customer")
            .withColumn("place", f.row_number().over(Window.partitionBy("city").orderBy(f.desc("spent"), "customer")))
            .withColumn("share", smooth(100 * f.col("spent") / f.sum("spent").over(Window.partitionBy("city"))))
        )
        best = ranked.where("place <= 2")
        rows(best.select("city", "place", "name", "spent", "days", "mood", "share"), "city", "place")
        # The program decides in Python what comes next.
        frame = by_customer.select("customer", f.col("spent").cast("double")).toPandas()
        limit = frame["spent"].quantile(0.9)
        chosen = sorted(int(n) for n in frame.loc[frame["spent"] > limit, "customer"])
        print("limit", round(limit, 2), "chosen", chosen)
        return chosen

    def trends(self) -> None:
        section("trends")
        orders = self.spark.table("orders").withColumn("amount", f.col("pieces") * f.col("price"))
        daily = orders.groupBy("product", "day").agg(f.sum("amount").alias("amount"))
        week = Window.partitionBy("product").orderBy("day")
        moving = daily.withColumn("average", f.round(f.avg("amount").over(week.rowsBetween(-2, 0)), 2)).withColumn(
            "change", f.col("amount") - f.lag("amount").over(week)
        )
        rows(moving.where(f.col("day") == f.lit(FIRST + dt.timedelta(days=4))), "product")
        counts = orders.groupBy("product").pivot("pieces", [1, 2, 3])  # noqa: PD010 - of Spark
        rows(counts.agg(f.count("order_id")), "product")
        moving.createOrReplaceTempView("moving")
        top = self.spark.sql(
            "SELECT product, max(average) AS best FROM moving GROUP BY product HAVING best > :least ORDER BY best DESC",
            args={"least": 100},
        )
        top.show(truncate=False)

        def spread(key: tuple[str], group: pd.DataFrame) -> pd.DataFrame:
            amounts = group["amount"].astype(float)
            return pd.DataFrame([[key[0], round(amounts.max() - amounts.min(), 2)]], columns=["product", "spread"])

        rows(daily.groupBy("product").applyInPandas(spread, "product STRING, spread DOUBLE"), "product")

    def together(self) -> DataFrame:
        section("together")
        orders = self.spark.table("orders").select("customer", "product", "day").distinct()
        other = orders.select("customer", "day", f.col("product").alias("other"))
        pairs = orders.join(other, ["customer", "day"]).where("product < other")
        counted = pairs.groupBy("product", "other").count().cache()
        rows(counted.where("count > 3"), "product", "other")
        print("pairs", counted.count())
        return counted

    def rank(self, links: DataFrame) -> None:
        """Follow links from product to product until ranks settle."""
        section("ranks")
        both = links.union(links.select("other", "product", "count")).toDF("source", "target", "weight")
        weights = both.withColumn("part", f.col("weight") / f.sum("weight").over(Window.partitionBy("source"))).cache()
        ranks = self.spark.createDataFrame([(name, 1.0) for name in sorted(KINDS)], "product STRING, rank DOUBLE")
        before: dict[str, float] = {}
        turns = 0
        while turns < 20:
            turns += 1
            moved = weights.join(ranks, weights.source == ranks.product).groupBy("target")
            ranks = moved.agg((0.15 + 0.85 * f.sum(f.col("rank") * f.col("part"))).alias("rank")).select(
                f.col("target").alias("product"), f.round("rank", 6).alias("rank")
            )
            ranks = ranks.localCheckpoint()
            now = {row.product: row.rank for row in ranks.collect()}
            moved_by = max(abs(now[name] - before.get(name, 0.0)) for name in now)
            before = now
            if moved_by < 1e-3:
                break
        print("turns", turns)
        ranks.write.mode("overwrite").saveAsTable("ranks")
        rows(self.spark.table("ranks").select("product", f.round("rank", 3).alias("rank")), "product")
        weights.unpersist()
        links.unpersist()

    def correct(self) -> None:
        """A day came late: it is loaded again, and what does not fit is refused."""
        section("correct")
        day = FIRST + dt.timedelta(days=2)
        before = self.spark.table("orders").where(f.col("day") == f.lit(day)).count()
        try:
            self.spark.sql("INSERT INTO orders SELECT * FROM orders_of_another_shop")
        except AnalysisException as error:
            print("refused", error.getCondition())
        try:
            self.spark.sql("SELECT raise_error('as wanted')").collect()
        except PySparkException as error:
            print("raised", "as wanted" in str(error))
        again = self.spark.sql(f"SELECT * FROM orders WHERE day = DATE '{day}' AND pieces > 1")
        again.localCheckpoint().write.insertInto("orders", overwrite=True)
        after = self.spark.table("orders").where(f.col("day") == f.lit(day)).count()
        print("before", before, "after", after, "all", self.spark.table("orders").count())

    def publish(self, chosen: list[int]) -> None:
        """Write files, and look at them with programs that are no Python."""
        section("publish")
        target = Path(self.folder) / "chosen"
        frame = self.spark.table("orders").where(f.col("customer").isin(chosen))
        totals = frame.groupBy("customer").agg(f.sum("pieces").alias("pieces"), f.min("day").alias("first"))
        totals.coalesce(1).orderBy("customer").write.mode("overwrite").csv(str(target), header=True)
        (part,) = target.glob("*.csv")
        for command in (["wc", "-l"], ["sha256sum"]):
            with part.open() as lines:
                done = subprocess.run(command, stdin=lines, capture_output=True, text=True, check=True)
            print(command[0], done.stdout.split()[0])
        with part.open(newline="") as lines:
            print("first", next(csv.DictReader(lines)))
        back = self.spark.read.option("header", True).schema("customer INT, pieces LONG, first DATE").csv(str(target))
        print("read back", back.subtract(totals).count(), totals.subtract(back).count())
        self.spark.sql("DECLARE OR REPLACE VARIABLE best INT DEFAULT 0")
        self.spark.sql("SET VAR best = (SELECT max(pieces) FROM (SELECT sum(pieces) pieces FROM orders GROUP BY day))")
        print("best day", self.spark.sql("SELECT best").first()[0])
        sample = self.spark.table("orders").sample(0.2, seed=7)
        print("sample", sample.count() == sample.count())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="where files go")
    parser.add_argument("--database", default="shop")
    parser.add_argument("--orders", type=int, default=200, help="a day")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")
    log.setLevel(logging.INFO)
    spark = SparkSession.builder.appName("nightly").getOrCreate()
    run = Nightly(spark, options.database, options.folder, options.orders)
    run.prepare()
    run.load()
    chosen = run.value_customers()
    run.trends()
    links = run.together()
    run.rank(links)
    run.correct()
    run.publish(chosen)
    log.info("done")
    section("end")
    print("tables", sorted(t.name for t in spark.catalog.listTables() if not t.isTemporary))
    spark.stop()
    return 3 if not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
