"""A program that is killed at any moment and goes on: what it prints and writes must be as if nothing had happened."""

import datetime as dt
import gc
import random
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

DATABASE = sys.argv[1]


class Shift:
    """Goes into a function by value, since it is of ``__main__``."""

    def __init__(self, by):
        self.by = by

    def __call__(self, number):
        return number + self.by


def step(*what):
    print(*what, flush=True)


spark = SparkSession.builder.master("local[4]").appName("recorded").getOrCreate()
spark.sql(f"CREATE DATABASE {DATABASE}")
spark.sql(f"USE {DATABASE}")
try:
    spark.sql("INSERT INTO notes VALUES (0, 'first')")
except AnalysisException as error:
    step("caught", error.getCondition())
    spark.sql("CREATE TABLE notes (id INT, what STRING) USING parquet")
    spark.sql("INSERT INTO notes VALUES (0, 'second')")

spark.sql("CREATE TABLE gone (a INT, b INT) USING parquet")
step("columns", spark.table("gone").columns)
spark.sql("DROP TABLE gone")

spark.sql("CREATE TABLE days (n INT, day INT) USING parquet PARTITIONED BY (day)")
spark.sql("INSERT INTO days VALUES (1, 1), (2, 2)")
MODE = "spark.sql.sources.partitionOverwriteMode"
spark.conf.set(MODE, "static")
spark.sql(f"SET {MODE}=dynamic")
spark.sql("INSERT OVERWRITE days PARTITION (day) VALUES (3, 2)")
step("days", sorted(map(tuple, spark.table("days").collect())))

sampled = spark.range(1000).sample(0.5)
count = sampled.count()
sampled.write.saveAsTable("sampled")
step("sampled", count == spark.table("sampled").count(), count, random.randint(0, 10**9), uuid.uuid4())

shift = F.udf(Shift(7), "long")
step("shifted", [row[0] for row in spark.range(3).select(shift("id")).collect()])

other = spark.newSession()
other.sql("CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
step("other", other.table("mine").first()[0], spark.catalog.tableExists("mine"))


def insert(number):
    for n in range(2):
        text = f"{number}.{n} of {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S.%f}"
        spark.sql(f"INSERT INTO notes VALUES ({10 + number}, '{text}')")
    return number


with ThreadPoolExecutor(4) as pool:
    step("inserted", list(pool.map(insert, range(4))))
step("notes", spark.table("notes").count())

cycle = [spark.range(10).withColumn("r", F.rand()).checkpoint()]
cycle.append(cycle)
step("kept", cycle[0].count())
del cycle
gc.collect()

many = spark.range(40_000).withColumn("r", F.rand()).collect()
step("many", len(many), sum(row.r for row in many))

spark.stop()
spark = SparkSession.builder.getOrCreate()
spark.sql(f"INSERT INTO {DATABASE}.notes VALUES (99, 'last')")
step("ids", sorted(row[0] for row in spark.table(f"{DATABASE}.notes").select("id").collect()))
spark.stop()
