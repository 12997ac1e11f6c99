"""A program of PySpark: ``python connect_program.py DIRECTORY [REMOTE]`` prints what it finds, as JSON.

It knows nothing of Onager; without a remote it runs in plain Spark, which has made ``connect_program.json``.
"""

import json
import sys

import pandas as pd
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

DIRECTORY = sys.argv[1]


def session() -> SparkSession:
    if len(sys.argv) > 2:
        return SparkSession.builder.remote(sys.argv[2]).getOrCreate()
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", f"{DIRECTORY}/warehouse")
        .getOrCreate()
    )


def rows(frame) -> list:
    return sorted([list(row) for row in frame.collect()], key=str)


def condition(action) -> str:
    try:
        action()
    except PySparkException as error:
        return f"{type(error).__name__} {error.getCondition()} {error.getSqlState()}"
    return "nothing was wrong"


def of_views(spark: SparkSession, numbers: DataFrame) -> dict:
    """Look at views, two of which were made of what is gone."""
    found = {}
    numbers.createOrReplaceTempView("v")
    spark.sql("CREATE OR REPLACE TEMP VIEW w AS SELECT k, sum(id) AS s FROM v GROUP BY k")
    spark.table("v").where("id > 50").createOrReplaceTempView("v")  # it is made of what it replaces
    found["view of itself"] = spark.table("v").count()
    spark.range(3).createOrReplaceTempView("x")
    spark.sql("SELECT id + 1 AS id FROM x").createOrReplaceTempView("y")
    spark.catalog.dropTempView("x")
    found["view of what is gone"] = rows(spark.table("y"))
    found["views"] = sorted(table.name for table in spark.catalog.listTables())
    return found


def of_functions(spark: SparkSession, numbers: DataFrame) -> dict:
    """Look at what functions and expressions give."""
    found = {}
    spark.udf.register("plus", lambda x: x + 10, LongType())
    found["udf in sql"] = rows(spark.sql("SELECT plus(id) AS p, k FROM v WHERE k = 3"))
    found["udf"] = rows(numbers.limit(5).select(F.udf(lambda x: f"n{x}", StringType())("id").alias("n")))
    found["bound"] = rows(spark.sql("SELECT :a + id AS a FROM range(2)", args={"a": 5}))
    grouped = numbers.groupBy("k").applyInPandas(
        lambda p: pd.DataFrame({"k": p.k[:1], "n": [len(p)]}), "k long, n long"
    )
    found["pandas"] = rows(grouped)
    ranked = numbers.withColumn("r", F.row_number().over(Window.partitionBy("k").orderBy(F.desc("id"))))
    found["window"] = rows(ranked.where("r = 1"))
    return found


def of_local_rows(spark: SparkSession, numbers: DataFrame) -> dict:
    """Look at rows that the program brings, and at what is kept in memory."""
    found = {}
    schema = StructType([StructField("n", LongType()), StructField("s", StringType())])
    people = spark.createDataFrame([(n, f"person {n}" * 20) for n in range(40_000)], schema)
    found["local rows"] = [people.count(), people.where("n = 77").collect()[0].s]
    found["joined"] = rows(people.join(numbers, people.n == numbers.id).groupBy("k").agg(F.count("*"), F.max("s")))

    found["checkpoint"] = rows(numbers.where("k < 3").localCheckpoint().groupBy("k").count())
    levels = [numbers.is_cached, str(numbers.cache().storageLevel), numbers.unpersist().is_cached]
    found["levels"] = [*levels, str(people.persist(StorageLevel.DISK_ONLY).storageLevel)]
    spark.catalog.clearCache()
    found["cleared"] = str(people.storageLevel)
    return found


def of_tables(spark: SparkSession, numbers: DataFrame) -> dict:
    """Write tables of a new database, and look at them."""
    found = {}
    spark.sql("CREATE DATABASE shop")
    spark.sql("USE shop")
    found["database"] = spark.catalog.currentDatabase()
    spark.sql("CREATE TABLE sales USING parquet PARTITIONED BY (k) AS SELECT id, k FROM w JOIN range(4) WHERE k < 3")
    spark.sql("INSERT INTO sales VALUES (100, 1)")
    found["table"] = rows(spark.table("sales"))
    numbers.where("k = 2").select("id", "k").write.mode("append").saveAsTable(
        "sales", format="parquet", partitionBy="k"
    )
    found["appended"] = rows(spark.sql("SELECT k, count(*), sum(id) FROM sales GROUP BY k"))
    numbers.write.saveAsTable("copy")
    spark.range(3).write.mode("overwrite").saveAsTable("copy")
    spark.range(2).write.insertInto("copy")
    found["overwritten"] = rows(spark.table("copy"))
    found["tables"] = rows(spark.sql("SHOW TABLES").where("NOT isTemporary").select("tableName"))
    found["described"] = rows(spark.sql("DESCRIBE sales").select("col_name", "data_type"))
    return found


def of_datasets(spark: SparkSession, numbers: DataFrame) -> dict:
    """Write datasets, and look at them."""
    found = {}
    numbers.write.partitionBy("k").mode("overwrite").parquet(f"{DIRECTORY}/numbers")
    found["dataset"] = rows(spark.read.parquet(f"{DIRECTORY}/numbers").groupBy("k").count())
    numbers.write.option("header", True).csv(f"{DIRECTORY}/csv")
    found["csv"] = spark.read.option("header", True).csv(f"{DIRECTORY}/csv").count()
    return found


def errors(spark: SparkSession, numbers: DataFrame) -> list:
    """Return what is said of mistakes."""
    return [
        condition(lambda: numbers.select("nope").collect()),
        condition(lambda: numbers.select("nope").schema),
        condition(lambda: spark.sql("SELEC 1")),
        condition(lambda: spark.table("nowhere").collect()),
        condition(lambda: spark.sql("SELECT 1 / (id - 1) FROM range(3)").collect()),
        condition(lambda: spark.conf.set("spark.sql.warehouse.dir", "/tmp")),
        condition(lambda: numbers.write.parquet(f"{DIRECTORY}/numbers")),
        condition(lambda: spark.sql("CREATE TABLE sales (id INT)")),
    ]


def main() -> dict:
    spark = session()
    found = {}
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    found["setting"] = [spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.sql.ansi.enabled")]
    numbers = spark.range(100).withColumn("k", F.col("id") % 7)
    found["schema"] = numbers.schema.json()
    found["empty"] = [numbers.where("id < 0").collect(), numbers.where("id < 0").isEmpty()]
    for part in (of_views, of_functions, of_local_rows, of_tables, of_datasets):
        found |= part(spark, numbers)
    found["errors"] = errors(spark, numbers)
    spark.sql("DROP DATABASE shop CASCADE")
    found["databases"] = rows(spark.sql("SHOW DATABASES"))
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(), default=str))
