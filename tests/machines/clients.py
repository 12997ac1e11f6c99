"""Clients outside of the machines whose answers are known; each request is written down with how long it took."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.machines.cluster import connect
from tests.support.waiting import HANGS_S

_PATIENCE_S: Final = HANGS_S
"""Longer than any fault: a request that fails before is an error of the cluster."""
_MANY: Final = 6_000
_MAX_INSERTS: Final = 30
"""Into one table: each makes a file, and a table of many files takes longer to read, whatever happens meanwhile."""
_LONG: Final = "concat(uuid(), uuid(), uuid())"
"""As many rows of this are too large to come with a report."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was answered, or that failed."""

    client: str
    began_s: float
    took_s: float
    wrong: str = ""


@dataclass(slots=True)
class Client:
    """Makes one kind of request again and again, in a thread of its own, and looks at each answer."""

    name: str
    ask: Callable[[], str]
    """Makes one request; returns what is wrong with its answer, which is nothing as a rule."""
    pause_s: float
    """Between an answer and the next request."""
    requests: list[Request] = field(default_factory=list)
    waiting_since_s: float | None = None
    _is_over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        assert self._thread is not None
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.name} is still waiting for an answer"

    def answered_since(self, moment_s: float) -> int:
        """Return how many requests began after *moment_s*, and were answered."""
        return sum(request.began_s >= moment_s for request in self.requests)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self.waiting_since_s = began_s = time.monotonic()
            try:
                wrong = self.ask()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
                wrong = f"{type(error).__name__}: {error}"[:500]
            self.requests.append(Request(self.name, began_s, time.monotonic() - began_s, wrong))
            self.waiting_since_s = None
            self._is_over.wait(self.pause_s)


class Asking:
    """Makes requests with a client of Onager."""

    def __init__(self, addresses: str) -> None:
        self._addresses = self._asked = addresses
        self._client = connect(addresses, retry_timeout_s=_PATIENCE_S)

    def turn_to(self, addresses: str) -> None:
        """Ask the first of *addresses* from the next request on, others only when it does not answer."""
        self._addresses = addresses

    def turn(self) -> None:
        """Do what `turn_to` wants."""
        if self._asked != self._addresses:
            self._client.close()
            self._client = connect(self._addresses, retry_timeout_s=_PATIENCE_S)
            self._asked = self._addresses


class Jobs(Asking):
    """Queries with known sums, over an exchange that is cut, and rows that come by files of the exchange."""

    _number = 0

    def __call__(self) -> str:
        self.turn()
        self._number += 1
        rows = 1_000 + self._number
        text = f"SELECT sum(n) AS n FROM (SELECT id % 7 AS k, count(*) AS n FROM range({rows}) GROUP BY id % 7)"
        job = self._client.sql(text, conf={"onager.fusion.maxBytes": "0", "onager.deadline": "15m"})
        wrong = _differs(job.to_arrow().to_pydict(), {"n": [rows]})
        found = self._client.sql(f"SELECT id, {_LONG} AS x FROM range({_MANY})").to_arrow()
        return wrong or _differs(sorted(found.column("id").to_pylist()), [*range(_MANY)])


class Table(Asking):
    """Inserts of unique numbers, each of which every later read must find, once."""

    _number = 0

    def __init__(self, addresses: str) -> None:
        super().__init__(addresses)
        self._begin_table()

    def __call__(self) -> str:
        self.turn()
        self._number += 1
        if self._number % 3 == 0:
            found = self._client.sql(f"SELECT n FROM {self._table} ORDER BY n").to_arrow().to_pydict()
            return _differs(found, {"n": self._given})
        if len(self._given) == _MAX_INSERTS:
            self._begin_table()
        else:
            self._given.append(self._number)
            self._client.sql(f"INSERT INTO {self._table} VALUES ({self._number})").wait()
        return ""

    def _begin_table(self) -> None:
        self._table = f"numbers_{self._number}"
        self._client.sql(f"CREATE TABLE {self._table} (n BIGINT) USING parquet").wait()
        self._given: list[int] = []


class Datasets(Asking):
    """Datasets at new paths, each read again."""

    def __init__(self, addresses: str, folder: str) -> None:
        super().__init__(addresses)
        self._folder = folder
        self._number = 0

    def __call__(self) -> str:
        self.turn()
        self._number += 1
        path = f"{self._folder}/dataset-{self._number}"
        self._client.sql(f"SELECT id FROM range({self._number}, {self._number + 50})", output=path).wait()
        found = self._client.sql("SELECT count(*) AS n, min(id) AS low FROM d", views={"d": path}).to_arrow()
        return _differs(found.to_pydict(), {"n": [50], "low": [self._number]})


class Connect:
    """An unmodified PySpark, through the proxy beside it: rows of a table, rows by files, and files that it adds."""

    _number = 0

    def __init__(self, address: str, directory: Path) -> None:
        from pyspark.sql import SparkSession

        self._directory = directory
        self._spark: Any = SparkSession.builder.remote(f"sc://{address}").create()
        self._begin_table()

    def __call__(self) -> str:
        self._number += 1
        if len(self._given) == _MAX_INSERTS:
            self._begin_table()
            return ""
        self._given.append(self._number)
        self._spark.sql(f"INSERT INTO {self._table} VALUES ({self._number})")
        found = [row.n for row in self._spark.table(self._table).orderBy("n").collect()]
        wrong = _differs(found, self._given)
        file = self._directory / f"added-{self._number}.txt"
        file.write_text("content")
        self._spark.addArtifacts(str(file), file=True)
        rows = self._spark.range(_MANY).selectExpr("id", f"{_LONG} AS x").collect()
        return wrong or _differs(sorted(row.id for row in rows), [*range(_MANY)])

    def _begin_table(self) -> None:
        self._table = f"reported_{self._number}"
        self._spark.sql(f"CREATE TABLE {self._table} (n BIGINT) USING parquet")
        self._given: list[int] = []


def _differs(found: object, expected: object) -> str:
    return "" if found == expected else f"{found} instead of {expected}"
