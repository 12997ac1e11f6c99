"""Drawn sequences of writes, reads, and caches: ``python drawn_caches.py SEED COUNT DIRECTORY [REMOTE]`` prints them.

It prints what each reads, as JSON. It knows nothing of Onager; without a remote it runs in plain Spark. DataFrames are
made anew wherever they are named, since those of plain Spark read the files that were there when they were made.
"""

import json
import random
import sys
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

STEPS = 8


def session(directory: str, remote: str) -> SparkSession:
    if remote:
        return SparkSession.builder.remote(remote).getOrCreate()
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
        .getOrCreate()
    )


class Sequence:
    """A table and a path that are written, and DataFrames of them that are cached and read."""

    def __init__(self, spark: SparkSession, directory: str, seed: str) -> None:
        self._spark = spark
        self._drawn = random.Random(seed)
        self._table = f"t_{seed.replace('-', '_')}"
        self._path = f"{directory}/{self._table}"
        self._left = f"{self._path}_left"
        self.found: list[object] = []
        self._frames: dict[str, Callable[[], DataFrame]] = {
            "table": lambda: spark.table(self._table),
            "path": lambda: spark.read.parquet(self._path),
            "part": lambda: spark.table(self._table).where("k < 2").select("id"),
            "sorted": lambda: spark.read.parquet(self._path).orderBy(F.desc("id"), "k"),
            "join": lambda: self._frames["table"]().join(self._frames["path"](), "k").groupBy("k").count(),
            "sql": lambda: spark.sql(f"SELECT k, sum(id) AS s FROM {self._table} GROUP BY k"),
            "both": lambda: self._frames["path"]().union(self._frames["table"]()),
            "of the sorted": lambda: self._frames["sorted"]().where("k = 1"),
        }

    def _rows(self) -> DataFrame:
        many, first = self._drawn.randrange(1, 30), self._drawn.randrange(1_000)
        return self._spark.range(first, first + many, 1, 2).withColumn("k", F.col("id") % 4)

    def run(self) -> list[object]:
        self._rows().write.saveAsTable(self._table, format="parquet")
        self._rows().write.parquet(self._path)
        acts = [self._write, self._cache, self._cache, self._read, self._read, self._uncache, self._names]
        for act in self._drawn.choices(acts, k=STEPS):
            act()
        for _ in range(2):
            self._read()
        self._spark.catalog.clearCache()
        self._spark.sql(f"DROP TABLE {self._table}")
        return self.found

    def _frame(self) -> str:
        return self._drawn.choice(list(self._frames))

    def _note(self, name: str) -> None:
        rows = [list(row) for row in self._frames[name]().collect()]
        self.found.append([name, rows if name.endswith("sorted") else sorted(rows)])

    def _read(self) -> None:
        self._note(self._frame())

    def _cache(self) -> None:
        name = self._frame()
        frame = self._frames[name]().cache()
        self.found.append([f"cache {name}", str(frame.storageLevel)])

    def _uncache(self) -> None:
        name = self._frame()
        self._frames[name]().unpersist()
        self.found.append([f"uncache {name}", str(self._frames[name]().storageLevel)])

    def _write(self) -> None:
        mode, rows = self._drawn.choice(["append", "overwrite"]), self._rows()
        match self._drawn.choice(["table", "path", "insert", "copy"]):
            case "table":
                rows.write.mode(mode).saveAsTable(self._table, format="parquet")
            case "path":
                rows.write.mode(mode).parquet(self._path)
            case "insert":
                word = "INTO" if mode == "append" else "OVERWRITE"
                self._spark.sql(f"INSERT {word} {self._table} VALUES (7, 1), (8, 2)")
            case _:
                self._frames["part"]().write.mode("overwrite").parquet(self._left)
                self._spark.read.parquet(self._left).withColumn("k", F.lit(3).cast("long")).write.mode(
                    "append"
                ).parquet(self._path)

    def _names(self) -> None:
        match self._drawn.choice(["cache", "uncache", "clear"]):
            case "cache":
                self._spark.catalog.cacheTable(self._table)
            case "uncache":
                self._spark.catalog.uncacheTable(self._table)
            case _:
                self._spark.sql("CLEAR CACHE")
        levels = [str(self._frames[name]().storageLevel) for name in ("table", "sql", "both")]
        self.found.append([self._spark.catalog.isCached(self._table), levels])


def main(seed: str, count: str, directory: str, remote: str = "") -> None:
    spark = session(directory, remote)
    print(json.dumps({f"{seed}-{n}": Sequence(spark, directory, f"{seed}-{n}").run() for n in range(int(count))}))
    spark.stop()


main(*sys.argv[1:])
