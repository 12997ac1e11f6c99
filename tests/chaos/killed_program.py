"""The program that `tests.chaos.programs` kills: 200 calls, whose lines say the same in each run.

    killed_program.py DATABASE

What a program draws differs from run to run, and is not printed, but compared.
"""

import datetime as dt
import gc
import sys
from concurrent.futures import ThreadPoolExecutor

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

DATABASE = sys.argv[1]
MODE = "spark.sql.sources.partitionOverwriteMode"
INSERTS = 8


class Shift:
    """Goes into a function by value, since it is of ``__main__``."""

    def __init__(self, by):
        self.by = by

    def __call__(self, number):
        return number + self.by


spark = SparkSession.builder.master("local[4]").appName("killed").getOrCreate()
spark.sql(f"CREATE DATABASE {DATABASE}")
spark.sql(f"USE {DATABASE}")
try:
    spark.sql("INSERT INTO notes VALUES (0, 'first')")
except AnalysisException as error:
    print("caught", error.getCondition())
    spark.sql("CREATE TABLE notes (id INT, what STRING) USING parquet")
    spark.sql("INSERT INTO notes VALUES (0, 'second')")

spark.sql("CREATE TABLE gone (a INT, b INT) USING parquet")
print("columns", spark.table("gone").columns)
spark.sql("DROP TABLE gone")

spark.sql("CREATE TABLE days (n INT, day INT) USING parquet PARTITIONED BY (day)")
spark.sql("INSERT INTO days VALUES (1, 1), (2, 2)")
for turn in range(4):
    spark.conf.set(MODE, "static")
    spark.sql(f"SET {MODE}=dynamic")
    spark.sql(f"INSERT OVERWRITE days PARTITION (day) VALUES ({3 + turn}, 2)")
    print("turn", turn, spark.conf.get(MODE), sorted(map(tuple, spark.table("days").collect())))

sampled = spark.range(1000).sample(0.5)
count = sampled.count()
sampled.write.saveAsTable("sampled")
print("sampled as counted:", count == spark.table("sampled").count())

shift = F.udf(Shift(7), "long")
print("shifted", [row[0] for row in spark.range(3).select(shift("id")).collect()])

other = spark.newSession()
other.sql("CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
for turn in range(20):
    other.conf.set("spark.sql.shuffle.partitions", str(turn + 1))
    spark.conf.set("spark.sql.shuffle.partitions", str(turn + 2))
    print("settings", turn, other.conf.get("spark.sql.shuffle.partitions"))
print("other", other.table("mine").first()[0], spark.catalog.tableExists("mine"))


def insert(number):
    """Insert rows; each names its time, so each attempt would make another statement."""
    for n in range(INSERTS):
        text = f"{number}.{n} of {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S.%f}"
        spark.sql(f"INSERT INTO notes VALUES ({100 * number + n}, '{text}')")
    return number


with ThreadPoolExecutor(4) as pool:
    print("inserted", list(pool.map(insert, range(1, 5))))
print("notes", spark.table("notes").count())

cycle = [spark.range(10).withColumn("r", F.rand()).checkpoint()]
cycle.append(cycle)
print("kept", cycle[0].count())
del cycle
gc.collect()

many = spark.range(40_000).withColumn("r", F.rand(1)).collect()
print("many", len(many))

spark.stop()
print("stopped")
spark = SparkSession.builder.getOrCreate()
for turn in range(10):
    spark.conf.set("spark.sql.shuffle.partitions", str(turn + 1))
    print("after", turn, spark.conf.get("spark.sql.shuffle.partitions"), spark.range(turn).columns)
    if turn % 4 == 0:
        spark.sql(f"INSERT INTO {DATABASE}.notes VALUES ({900 + turn}, 'after')")
print("ids", sorted(row[0] for row in spark.table(f"{DATABASE}.notes").select("id").collect()))
spark.stop()
