"""A program of PySpark that caches: ``python cached_program.py DIRECTORY [REMOTE]`` prints what it finds, as JSON.

It knows nothing of Onager; without a remote it runs in plain Spark. Only what does not depend on chance is printed.
"""

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

DIRECTORY = sys.argv[1]
TYPES = """
    SELECT id, INTERVAL '1-2' YEAR TO MONTH * id AS ym, INTERVAL '1 02:03:04.5' DAY TO SECOND * id AS dt,
        CAST(make_interval(1, 2, 0, id, 4, 5, 6.7) AS STRING) AS shown, make_interval(1, 2, 0, id) AS calendar,
        map('k', id, 'l', NULL) AS m, array(id, NULL, 3) AS a, named_struct('x', id, 'y', array('a')) AS s,
        CAST(id AS DECIMAL(38, 10)) AS d, X'007F' AS b, parse_json('{"a": [1, null]}') AS v,
        TIMESTAMP_NTZ'2026-03-29 02:30:00.123456' AS t, CAST(NULL AS VOID) AS nothing, 'x' COLLATE UNICODE_CI AS c
    FROM range(0, 20, 1, 3)
"""


def session() -> SparkSession:
    if len(sys.argv) > 2:
        return SparkSession.builder.remote(sys.argv[2]).getOrCreate()
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", f"{DIRECTORY}/warehouse")
        .getOrCreate()
    )


def rows(frame: DataFrame) -> list:
    return [list(map(str, row)) for row in frame.collect()]


def level(frame: DataFrame) -> str:
    return str(frame.storageLevel)


def plan(frame: DataFrame) -> list[str]:
    """Return the operators of the plan, without what counts through a process."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        frame.explain()
    lines = re.sub(r"#\d+L?|\[plan_id=\d+\]|\*\(\d+\) ", "", text.getvalue()).splitlines()
    return [line.rstrip() for line in lines if "Exchange" not in line and "Range (" not in line]


def of_order(spark: SparkSession) -> Iterator[tuple[str, object]]:
    down = spark.range(0, 1_000, 1, 7).withColumn("k", F.col("id") % 10).orderBy(F.desc("id")).cache()
    yield "take", [row.id for row in down.take(5)]
    yield "all in order", [row.id for row in down.collect()] == list(range(999, -1, -1))
    yield "first of some", rows(down.where("k = 3").limit(4))
    yield "kept through a projection", [row.n for row in down.select((F.col("id") * 2).alias("n")).take(3)]
    yield "tail", [row.id for row in down.tail(3)]
    yield "in a view", (down.createOrReplaceTempView("down"), rows(spark.sql("SELECT id FROM down LIMIT 2")))[1]
    yield "in its partitions", rows(down.groupBy("k").agg(F.count("*"), F.max("id")).orderBy("k"))
    again = spark.range(0, 1_000, 1, 7).withColumn("k", F.col("id") % 10).orderBy(F.desc("id"))
    yield "another DataFrame of the same plan", [level(again), level(again.unpersist()), level(down)]


def of_chance(spark: SparkSession) -> Iterator[tuple[str, object]]:
    """Look at rows that would be others if they were made again."""
    drawn = spark.range(0, 200, 1, 4).withColumn("r", F.rand()).withColumn("u", F.uuid()).cache()
    first = rows(drawn)
    yield "rand", rows(drawn) == first
    yield "rand in halves", drawn.where("r < 0.5").count() + drawn.where("r >= 0.5").count()
    yield "rand joined with itself", drawn.join(drawn.select("r"), "r").count()
    text = spark.sql("SELECT id, rand() AS r, uuid() AS u FROM range(100)").cache()
    yield "rand of SQL", rows(text) == rows(text)
    numbered = spark.range(0, 100, 1, 3).repartition(4).withColumn("n", F.monotonically_increasing_id()).cache()
    yield "numbers", rows(numbered.orderBy("n")) == rows(numbered.orderBy("n"))
    yield "partitions", numbered.select(F.spark_partition_id().alias("p")).distinct().count()
    sampled = spark.range(1_000).sample(0.3).cache()
    yield "sample", sampled.count() == len(sampled.collect()) == sampled.where("id >= 0").count()
    late = spark.sql("SELECT current_timestamp() AS t FROM range(2)").cache()
    yield "time", rows(late) == rows(late)
    shown = []
    for _ in range(2):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            drawn.show(3, truncate=False)
        shown.append(out.getvalue())
    yield "show", shown[0] == shown[1]


def of_types(spark: SparkSession) -> Iterator[tuple[str, object]]:
    many = spark.sql(TYPES).cache()
    text = [
        "id",
        "CAST(ym AS STRING)",
        "dt",
        "shown",
        "CAST(calendar AS STRING) AS calendar",
        "map_entries(m)",
        "a",
        "s",
        "d",
        "hex(b)",
    ]
    text += ["to_json(v) AS v", "t", "nothing", "c", "c = 'X'"]
    yield "types", [rows(many.selectExpr(*text)) for _ in range(2)]
    none = spark.range(0, 50, 1, 5).select().cache()
    yield "no column", [none.count(), none.count(), len(none.columns)]
    empty = spark.range(10).where("id > 10").orderBy("id").cache()
    yield "empty", [rows(empty), empty.count(), rows(empty.groupBy().count())]
    alike = spark.range(3).select(F.col("id").alias("a"), (F.col("id") + 1).alias("a")).cache()
    yield "columns of one name", [rows(alike), rows(alike)]


def of_queries(spark: SparkSession) -> Iterator[tuple[str, object]]:
    left = spark.range(0, 500, 1, 4).withColumn("k", F.col("id") % 20).repartition(5, "k").cache()
    right = spark.range(0, 40, 1, 2).select((F.col("id") % 20).alias("k"), F.col("id").alias("b")).cache()
    joined = left.join(right, "k").groupBy("k").agg(F.sum("b").alias("s"), F.count("*").alias("n")).cache()
    for number in range(2):
        yield f"join {number}", rows(joined.orderBy("k"))
    yield "merge join", rows(left.hint("merge").join(right, "k").groupBy().agg(F.sum("b"), F.count("*")))
    yield "union", rows(left.union(right).union(left).groupBy().agg(F.count("*"), F.sum("id")))
    ranked = left.withColumn("r", F.row_number().over(Window.partitionBy("k").orderBy(F.desc("id"))))
    yield "window", rows(ranked.where("r = 1").orderBy("k"))
    yield "subquery", rows(left.where(F.col("id") > right.agg(F.max("b")).scalar()).groupBy().count())
    yield "python", rows(left.select(F.udf(lambda x: f"n{x}", "string")("id").alias("n")).orderBy("n").limit(3))
    yield "coalesced", rows(left.coalesce(2).groupBy().agg(F.sum("id")))
    yield "nowhere read", rows(left.where("false").union(right).groupBy().count())
    left.write.mode("overwrite").parquet(f"{DIRECTORY}/left")
    yield "written", rows(spark.read.parquet(f"{DIRECTORY}/left").groupBy().agg(F.count("*"), F.sum("id")))
    yield "after the first was given back", (left.unpersist(), rows(joined.orderBy("k")))[1]
    yield "limited", rows(spark.range(100).limit(7).cache().groupBy().agg(F.count("*")))


def of_names(spark: SparkSession) -> Iterator[tuple[str, object]]:
    spark.sql("CREATE TABLE sold (id BIGINT, k INT) USING parquet")
    spark.sql("INSERT INTO sold VALUES (1, 1), (2, 1), (3, 2)")
    sold, kept = spark.table("sold"), spark.table("sold").where("k = 1")
    spark.sql("CACHE TABLE sold")
    kept.cache()
    yield "table", [spark.catalog.isCached("sold"), level(sold), level(kept)]
    yield "plan", plan(spark.sql("SELECT id FROM sold WHERE k = 1"))[1:3]
    yield "rows", [rows(spark.table("sold").orderBy("id")), kept.count()]
    spark.sql("INSERT INTO sold VALUES (4, 1)")
    yield "written", [rows(spark.table("sold").orderBy("id")), kept.count(), spark.catalog.isCached("sold")]
    spark.catalog.uncacheTable("sold")
    yield "given back", [spark.catalog.isCached("sold"), level(kept)]
    spark.catalog.cacheTable("sold", StorageLevel.DISK_ONLY)
    yield "level", level(spark.table("sold"))
    spark.sql("CACHE LAZY TABLE sold OPTIONS ('storageLevel' 'MEMORY_ONLY')")
    spark.sql("UNCACHE TABLE IF EXISTS nothing_called_so")
    yield "the first level counts", level(spark.table("sold"))
    spark.sql("CLEAR CACHE")
    yield "cleared", [spark.catalog.isCached("sold"), level(kept)]
    spark.range(4).createOrReplaceTempView("few")
    few = spark.table("few")
    spark.catalog.cacheTable("few")
    yield "view", [spark.catalog.isCached("few"), few.count()]
    for name in ("nothing_called_so", "default.neither"):
        try:
            spark.catalog.cacheTable(name)
        except PySparkException as error:
            yield f"cache of {name}", error.getCondition()
    ranged = spark.range(10).where("id > 3").cache()
    yield "explain", plan(ranged.where("id < 8"))
    yield "levels", [level(ranged), ranged.is_cached, level(ranged.unpersist())]
    yield "no level", level(ranged.persist(StorageLevel.NONE))


def main() -> None:
    spark = session()
    found: dict[str, object] = {}
    for part in (of_order, of_chance, of_types, of_queries, of_names):
        found |= {f"{part.__name__}: {name}": value for name, value in part(spark)}
        spark.catalog.clearCache()
    print(json.dumps(found))
    spark.stop()


main()
