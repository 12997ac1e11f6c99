"""``python -m tests.chaos.connect_client REMOTE SEED SESSIONS SECONDS DIRECTORY``: one client of a run of chaos.

An unmodified PySpark with several sessions at a time, which knows nothing of what is killed. What it does, and in which
session, is drawn from the seed; what must come of it, it knows. It prints a line of JSON for each request.
"""

import json
import random  # noqa: TID251 seeded
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

_OPEN: Final = 3
"""Sessions of a client at a time."""
_PAUSE_S: Final = (0.5, 4.0)
_ZONES: Final = ("UTC", "Pacific/Auckland", "America/Lima", "Europe/Paris")
_LOOKED_FOR: Final = 5
"""Of these many requests at least one looks whether the session is whole."""


class Session:
    """One session, and what must be in it."""

    def __init__(self, remote: str, name: str, rng: random.Random, directory: Path) -> None:
        self.name = name
        self._rng = rng
        self._path = str(directory / name)
        self._spark = SparkSession.builder.remote(remote).create()
        self._zone = ""
        self._views: dict[str, int] = {}
        self._functions: dict[str, int] = {}
        self._written = 0

    def requests(self) -> dict[str, Callable[[], str]]:
        """Return what can be asked; each returns what is wrong, which is nothing as a rule."""
        return {
            "set": self.set,
            "view": self.view,
            "function": self.function,
            "append": self.append,
            "sum": self.sum,
            "read": self.read,
            "local": self.local,
            "whole": self.whole,
        }

    def set(self) -> str:
        self._zone = self._rng.choice(_ZONES)
        self._spark.conf.set("spark.sql.session.timeZone", self._zone)
        return ""

    def view(self) -> str:
        name, rows = self._rng.choice("ab"), self._rng.randrange(1, 5_000)
        self._spark.range(rows).withColumn("k", sf.col("id") % 7).createOrReplaceTempView(name)
        self._views[name] = rows
        return ""

    def function(self) -> str:
        name, by = self._rng.choice(("f", "g")), self._rng.randrange(1_000)
        # PySpark makes functions in the active session only, and there is none once any session has been stopped.
        type(self._spark)._set_default_and_active_session(self._spark)
        self._spark.udf.register(name, lambda value: value + by, "bigint")
        self._functions[name] = by
        return ""

    def append(self) -> str:
        """Add a thousand rows to a dataset of the session's own."""
        first = self._written
        # What is thought of as written before it is known: a failure is a finding of its own.
        self._written += 1_000
        self._spark.range(first, first + 1_000, 1, 2).write.mode("append").parquet(self._path)
        return ""

    def sum(self) -> str:
        """Run a query with an exchange."""
        rows = self._rng.randrange(1_000, 50_000)
        frame = self._spark.range(0, rows, 1, 3).groupBy((sf.col("id") % 5).alias("k")).agg(sf.sum("id").alias("s"))
        found = [tuple(row) for row in frame.orderBy("k").collect()]
        return _differs(found, [(k, sum(range(k, rows, 5))) for k in range(5)])

    def read(self) -> str:
        """Read a result row by row, in order."""
        rows = self._rng.randrange(1_000, 30_000)
        frame = self._spark.range(0, rows, 1, 3).withColumn("text", sf.repeat(sf.col("id").cast("string"), 20))
        wanted = 0
        for row in frame.orderBy("id").toLocalIterator():
            if tuple(row) != (wanted, str(wanted) * 20):
                return f"row {wanted} is {row}"
            wanted += 1
        return _differs(wanted, rows)

    def local(self) -> str:
        rows = [(n, f"row {n}") for n in range(self._rng.randrange(1, 500))]
        found = self._spark.createDataFrame(rows, "n long, text string").orderBy("n").collect()
        return _differs([tuple(row) for row in found], rows)

    def whole(self) -> str:
        """Look for all that was made in the session."""
        spark, found = self._spark, []
        if self._zone:
            found.append(_differs(spark.conf.get("spark.sql.session.timeZone"), self._zone))
        for name, rows in self._views.items():
            sums = spark.sql(f"SELECT count(*), sum(k) FROM {name}").first()
            found.append(_differs(tuple(sums), (rows, sum(n % 7 for n in range(rows)))))
        for name, by in self._functions.items():
            found.append(_differs(spark.sql(f"SELECT {name}(1L)").first()[0], 1 + by))
        if self._written:
            written = spark.read.parquet(self._path)
            counts = written.agg(sf.count("id"), sf.countDistinct("id"), sf.sum("id")).first()
            found.append(_differs(tuple(counts), (self._written, self._written, sum(range(self._written)))))
        return "; ".join(filter(None, found))

    def end(self) -> str:
        self._spark.stop()
        return ""


def _differs(found: Any, expected: Any) -> str:
    return "" if found == expected else f"{str(found)[:300]} is not {str(expected)[:300]}"


def ask(session: Session, what: str, request: Callable[[], str]) -> None:
    """Do it, and print how it went."""
    began_s = time.monotonic()
    print(json.dumps({"session": session.name, "begins": what}), flush=True)
    try:
        trouble = request()
    except Exception as error:  # noqa: BLE001 - whatever a program of Spark meets is a finding
        trouble = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    answer = {"session": session.name, "request": what, "seconds": round(time.monotonic() - began_s, 2)}
    print(json.dumps(answer | {"trouble": trouble}), flush=True)


def main(remote: str, seed: str, sessions: int, seconds: float, directory: Path) -> None:
    """Begin so many sessions, evenly over the time, and end them all."""
    rng = random.Random(seed)
    began_s = time.monotonic()
    opened: list[Session] = []
    begun = 0
    while True:
        passed_s = time.monotonic() - began_s
        if begun < sessions and passed_s >= begun * seconds / sessions:
            opened.append(Session(remote, f"{seed}-{begun}", rng, directory))
            begun += 1
        if len(opened) > _OPEN or (opened and begun == sessions and passed_s >= seconds):
            oldest = opened.pop(0)
            ask(oldest, "whole", oldest.whole)
            ask(oldest, "end", oldest.end)
            continue
        if not opened and passed_s >= seconds:
            return
        session = rng.choice(opened)
        what = "whole" if rng.randrange(_LOOKED_FOR) == 0 else rng.choice([*session.requests()])
        ask(session, what, session.requests()[what])
        time.sleep(rng.uniform(*_PAUSE_S))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]))
