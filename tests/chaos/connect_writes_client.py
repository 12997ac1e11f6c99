"""``python -m tests.chaos.connect_writes_client REMOTE DIRECTORY``: writes by an unmodified client of Spark Connect.

For each line of its input, which names a way to write, it writes, looks at all that is there, and answers with a line
of JSON: what was ``raised``, and what is ``wrong`` with the rows, which must be those of before or those of after.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

_ROWS: Final = 3_000
_KEYS: Final = 3


class Program:
    """What was written, and how."""

    def __init__(self, remote: str, directory: Path) -> None:
        self._spark = SparkSession.builder.remote(remote).getOrCreate()
        self._spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        self._spark.conf.set("onager.fusion.maxBytes", "0")
        self._spark.conf.set("spark.sql.shuffle.partitions", "2")
        self._spark.udf.register("same", lambda n: n, "bigint")
        self._path = str(directory / "dataset")
        self._round = 0
        self._kept: dict[str, list[int]] = {}
        """Of each place, the rounds whose rows are there."""

    def ways(self) -> dict[str, Callable[[DataFrame], Any]]:
        """Return the ways to write rows."""
        sql = self._spark.sql
        return {
            "append to a path": lambda rows: rows.write.mode("append").parquet(self._path),
            "overwrite a path": lambda rows: rows.write.mode("overwrite").parquet(self._path),
            "append to a table": lambda rows: rows.write.mode("append").saveAsTable("saved"),
            "overwrite a table": lambda rows: rows.write.mode("overwrite").saveAsTable("saved"),
            "insert into": lambda rows: self._viewed(rows) and sql("INSERT INTO parted SELECT id, round, k FROM new"),
            "insert overwrite": lambda rows: (
                self._viewed(rows) and sql("INSERT OVERWRITE parted SELECT id, round, k FROM new")
            ),
            "create or replace": lambda rows: rows.writeTo("replaced").using("parquet").createOrReplace(),
            "create as select": lambda rows: (
                self._viewed(rows) and sql(f"CREATE TABLE made_{self._round} USING parquet AS SELECT * FROM new")
            ),
        }

    def prepare(self) -> None:
        """Make the table with partitions."""
        made = "CREATE TABLE parted (id BIGINT, round BIGINT, k BIGINT) USING parquet PARTITIONED BY (k)"
        self._spark.sql(made)

    def write(self, way: str) -> dict[str, str]:
        """Write the rows of a new round, and tell what came of it."""
        self._round += 1
        place = self._place(way)
        before = self._kept.get(place, [])
        is_added = way in ("append to a path", "append to a table", "insert into")
        after = [*before, self._round] if is_added else [self._round]
        raised = ""
        try:
            self.ways()[way](self._rows(self._round))
        except Exception as error:  # noqa: BLE001 - whatever a program of Spark meets is a finding
            raised = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        found = self._found(place)
        self._kept[place] = after if found == self._sums(after) else before
        is_wrong = found != self._sums(after) and not (raised and found == self._sums(before))
        wrong = f"{place} has {found}, and had {self._sums(before)}, and shall have {self._sums(after)}"
        return {"raised": raised, "wrong": wrong if is_wrong else ""}

    def _rows(self, number: int) -> DataFrame:
        rows = self._spark.range(0, _ROWS, 1, 3).selectExpr(
            "same(id) AS id", f"{number}L AS round", f"id % {_KEYS} AS k"
        )
        return rows.repartition(2, "k")

    def _viewed(self, rows: DataFrame) -> bool:
        rows.createOrReplaceTempView("new")
        return True

    def _place(self, way: str) -> str:
        if "path" in way:
            return self._path
        table = way.startswith(("append", "overwrite"))
        names = {"insert into": "parted", "insert overwrite": "parted", "create or replace": "replaced"}
        return "saved" if table else names.get(way, f"made_{self._round}")

    def _found(self, place: str) -> list[tuple[int, int, int]]:
        spark = self._spark
        try:
            rows = spark.read.parquet(place) if place.startswith("/") else spark.table(place)
            sums = rows.groupBy("round").agg(sf.count("id"), sf.sum("id")).orderBy("round").collect()
        except Exception as error:
            if "PATH_NOT_FOUND" in str(error) or "TABLE_OR_VIEW_NOT_FOUND" in str(error):
                return []
            raise
        return [tuple(row) for row in sums]

    @staticmethod
    def _sums(rounds: list[int]) -> list[tuple[int, int, int]]:
        return [(number, _ROWS, _ROWS * (_ROWS - 1) // 2) for number in rounds]


def main(remote: str, directory: Path) -> None:
    """Do what is asked until the input ends."""
    program = Program(remote, directory)
    program.prepare()
    print(json.dumps({"ways": [*program.ways()]}), flush=True)
    for line in iter(sys.stdin.readline, ""):
        print(json.dumps(program.write(line.strip())), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
