"""``python -m benchmarks.connect_kill.client REMOTE ROWS``: a program of Spark Connect, which is asked by lines.

It knows nothing of Onager. For each line of its input it does what that says, and answers with lines of JSON:

| asked | does |
|---|---|
| ``read`` | reads a result row by row; says ``{"at": ROW}`` when a quarter is there and waits for a line |
| ``run`` | says ``{"at": 0}``, runs a query that takes a while, and tells its end |
| ``check`` | tells what of the session is not there |
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

_FACTOR: Final = 12
_SETTING: Final = ("spark.sql.session.timeZone", "Pacific/Auckland")
_DATABASE: Final = "kept"


class Program:
    """One session, and what is asked of it."""

    def __init__(self, remote: str, rows: int) -> None:
        self._rows = rows
        self._spark = SparkSession.builder.remote(remote).getOrCreate()
        self._spark.conf.set(*_SETTING)
        self._spark.sql(f"CREATE DATABASE IF NOT EXISTS {_DATABASE}")
        self._spark.catalog.setCurrentDatabase(_DATABASE)
        self._spark.udf.register("plus_three", lambda k: k + 3, "bigint")
        numbers = self._spark.range(0, rows, 1, 4)
        numbers.selectExpr("id", "id % 97 AS k", f"repeat(cast(id AS string), {_FACTOR}) AS text") \
            .createOrReplaceTempView("numbers")  # fmt: skip

    def read(self) -> dict[str, Any]:
        """Read a result that is far larger than what lies between here and the server, and compare each row."""
        result = self._spark.sql("SELECT id, plus_three(k) AS k, text FROM numbers ORDER BY id")
        wrong, seen, longest_s, last_s = "", 0, 0.0, 0.0
        for row in result.toLocalIterator():
            now_s = time.monotonic()
            longest_s = max(longest_s, now_s - last_s) if last_s else 0.0
            if not wrong and tuple(row) != (seen, seen % 97 + 3, str(seen) * _FACTOR):
                wrong = f"row {seen} is {row}"
            seen += 1
            last_s = time.monotonic() if last_s else 0.0
            if seen == self._rows // 4:
                _say({"at": seen})
                sys.stdin.readline()
                last_s = time.monotonic()
        if not wrong and seen != self._rows:
            wrong = f"{seen} rows of {self._rows}"
        return {"wrong": wrong, "pause_s": longest_s}

    def run(self) -> dict[str, Any]:
        """Run a query with an exchange and a Python function in it."""
        sums = (expr("sum(plus_three(id)) AS s"), expr("count(DISTINCT sha2(text, 512)) AS n"))
        query = self._spark.table("numbers").groupBy("k").agg(*sums).orderBy("k")
        _say({"at": 0})
        began_s = time.monotonic()
        found = [tuple(row) for row in query.collect()]
        seconds = time.monotonic() - began_s
        groups = [range(k, self._rows, 97) for k in range(97)]
        expected = [(k, sum(ids) + 3 * len(ids), len(ids)) for k, ids in enumerate(groups)]
        wrong = "" if found == expected else f"{len(found)} groups, the first of them {found[:2]}"
        return {"wrong": wrong, "seconds": seconds}

    def check(self) -> dict[str, Any]:
        """Tell what of the session is lost."""
        spark = self._spark
        held: dict[str, Callable[[], bool]] = {
            "setting": lambda: spark.conf.get(_SETTING[0]) == _SETTING[1],
            "view": lambda: spark.table("numbers").count() == self._rows,
            "function": lambda: spark.sql("SELECT plus_three(39L) AS n").collect()[0].n == 42,  # noqa: PLR2004
            "current database": lambda: spark.catalog.currentDatabase() == _DATABASE,
            "listed view": lambda: "numbers" in {table.name for table in spark.catalog.listTables()},
        }
        lost = []
        for what, holds in held.items():
            try:
                lost += [] if holds() else [what]
            except Exception as error:  # noqa: BLE001 - that is what is asked
                lost.append(f"{what}: {_error_text(error)}")
        return {"lost": lost}


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def main() -> None:
    """Do what is asked until the input ends."""
    program = Program(sys.argv[1], int(sys.argv[2]))
    asked = {"read": program.read, "run": program.run, "check": program.check}
    _say({"ready": True})
    for line in iter(sys.stdin.readline, ""):
        try:
            _say({"end": line.strip(), **asked[line.strip()]()})
        except Exception as error:  # noqa: BLE001 - whatever a program of Spark meets is a finding
            _say({"end": line.strip(), "wrong": _error_text(error), "pause_s": 0.0, "seconds": 0.0, "lost": []})


if __name__ == "__main__":
    main()
