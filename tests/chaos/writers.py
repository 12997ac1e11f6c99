"""``python -m tests.chaos.writers [--rounds 200] [--json FILE]``: many write tables at once, and others read them.

A real cluster of three schedulers over etcd. In each round, at once: one job overwrites a table as a whole; and of
another table, two jobs replace the same partition, two insert rows into further partitions, one of which is new, one
drops a partition of the round before, and one gives another its third name. Readers read both in a loop. What must
hold: each read of the first table, and of the partition, gives one version of it whole; no inserted row is lost or
doubled; of the two that replace a partition at once one wins, and the other one learns that the table was changed, as
are inserts, rarely, which are repeated then. Exit code 1 else.
"""

import argparse
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import onager
from tests.chaos.kills import cluster

ROWS: Final = 200
"""Of each version of a table: each row has its version's number."""
_PATIENCE_S: Final = 120.0
_REPORTED: Final = "was changed by another job while this one ran"


@dataclass(slots=True)
class Tally:
    """What was done, and what was wrong."""

    rounds: int = 0
    reads: int = 0
    versions_read: int = 0
    replaced: int = 0
    reported: int = 0
    inserted: int = 0
    repeated: int = 0
    trouble: list[str] = field(default_factory=list)


class Writers:
    """Rounds of writing on one cluster."""

    def __init__(self, client: onager.OnagerClient) -> None:
        self._client = client
        self.tally = Tally()
        self._is_over = threading.Event()
        self._seen: set[object] = set()
        self._inserted: Counter[int] = Counter([-2])
        for text in (
            f"CREATE TABLE whole AS SELECT 0 AS version FROM range({ROWS})",
            f"CREATE TABLE parts PARTITIONED BY (k) AS SELECT 0 AS version, 'x' AS k FROM range({ROWS})",
            "INSERT INTO parts VALUES (-1, 'drop 0'), (-2, 'name 0')",
        ):
            self._run(text)

    def _run(self, text: str) -> None:
        self._client.sql(text).wait(_PATIENCE_S)

    def _rows(self, text: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = self._client.sql(text).to_arrow().to_pylist()
        return rows

    def write(self, rounds: int) -> None:
        """Run *rounds* of writing, beside readers, and look at what is there then."""
        readers = [threading.Thread(target=self._read, args=(query,)) for query in ("whole", "parts WHERE k = 'x'")]
        for reader in readers:
            reader.start()
        try:
            while self.tally.rounds < rounds and not self.tally.trouble:
                self.tally.rounds += 1
                self._round(self.tally.rounds)
        finally:
            self._is_over.set()
            for reader in readers:
                reader.join()
        self._run(f"ALTER TABLE parts DROP PARTITION (k = 'drop {self.tally.rounds}')")
        found = Counter(int(str(row["version"])) for row in self._rows("SELECT version FROM parts WHERE k <> 'x'"))
        if found != self._inserted:
            self.tally.trouble.append(f"lost {self._inserted - found}, doubled {found - self._inserted}")

    def _round(self, number: int) -> None:
        overwrite = f"INSERT OVERWRITE whole SELECT {number} FROM range({ROWS})"
        replace = "INSERT OVERWRITE parts PARTITION (k = 'x') SELECT {} FROM range({})"
        insert = "INSERT INTO parts VALUES ({}, 'old {}'), ({}, 'new {}')"
        numbers = [10 * number + k for k in range(4)]
        self._inserted.update(numbers)
        # What is dropped here was inserted in the round before, and is no more than that.
        self._run(f"INSERT INTO parts VALUES ({number}, 'drop {number}')")
        failures: list[str] = []
        jobs = [
            threading.Thread(target=self._try, args=(text, done), kwargs={"again": again})
            for text, done, again in (
                (overwrite, self.tally.trouble.append, False),
                *((replace.format(10 * number + k, ROWS), failures.append, False) for k in (0, 1)),
                (insert.format(numbers[0], number % 7, numbers[1], number), self.tally.trouble.append, True),
                (insert.format(numbers[2], number % 7, numbers[3], number), self.tally.trouble.append, True),
                (f"ALTER TABLE parts DROP PARTITION (k = 'drop {number - 1}')", self.tally.trouble.append, False),
                (
                    f"ALTER TABLE parts PARTITION (k = 'name {number - 1}') RENAME TO PARTITION (k = 'name {number}')",
                    self.tally.trouble.append,
                    False,
                ),
            )
        ]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        self.tally.inserted += len(numbers)
        self.tally.replaced += 2 - len(failures)
        self.tally.reported += len(failures)
        if len(failures) > 1 or any(_REPORTED not in failure for failure in failures):
            self.tally.trouble.append(f"round {number}: {failures}")

    def _try(self, text: str, failed: Callable[[str], None], *, again: bool) -> None:
        while True:
            try:
                self._run(text)
            except onager.OnagerError as error:
                if again and _REPORTED in str(error):
                    self.tally.repeated += 1
                    continue
                failed(f"{text}: {error}")
            return

    def _read(self, source: str) -> None:
        while not self._is_over.is_set():
            try:
                rows = self._rows(f"SELECT version, count(*) AS n FROM {source} GROUP BY version")
            except onager.OnagerError as error:
                self.tally.trouble.append(f"a read of {source}: {error}")
                return
            if [row["n"] for row in rows] != [ROWS]:
                self.tally.trouble.append(f"a read of {source} gave {rows}")
            self.tally.reads += 1
            self._seen.update((source, row["version"]) for row in rows)
            self.tally.versions_read = len(self._seen)


def run(rounds: int, directory: Path) -> Tally:
    """Run *rounds* on a cluster of its own, in *directory*."""
    with cluster(directory) as started, onager.connect(started.addresses) as client:
        writers = Writers(client)
        writers.write(rounds)
    return writers.tally


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onager-writers-") as directory:
        tally = run(arguments.rounds, Path(directory))
    reported = {name: getattr(tally, name) for name in Tally.__slots__}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(reported, indent=2))
    print(json.dumps(reported))
    return 1 if tally.trouble else 0


if __name__ == "__main__":
    sys.exit(main())
