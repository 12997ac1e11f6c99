"""The side of `plyvel`, as its users would write it: each caller a thread that calls the database.

`plyvel` lets go of the interpreter while it writes, and LevelDB writes what several threads ask for at once with one
`fsync`; one thread for all callers would forbid it that. It has neither transactions nor watches: a transaction is
read, compared and written under one mutex, and an event is handed on through a queue once the put is durable.
"""

import itertools
import threading
from contextlib import AbstractAsyncContextManager
from queue import SimpleQueue
from typing import Any

from benchmarks.state import BATCH, OWN_KEYS, PAGE, SCANNED, VALUE
from benchmarks.state.side import Call, ThreadSide, plain, scanned_keys


class PlyvelSide(ThreadSide):
    """Callers of one `plyvel.DB`."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self._scanned = [f"scan/{key}".encode() for key in scanned_keys()]
        self._mutex = threading.Lock()

    async def fill(self) -> None:
        """Write what is scanned."""
        with self._db.write_batch(transaction=True, sync=True) as batch:
            for key in self._scanned:
                batch.put(key, VALUE)

    def ready(self, operation: str, caller: int) -> AbstractAsyncContextManager[Call]:
        """Make *caller* ready for *operation*."""
        make = {
            "put": self._put,
            "fenced_txn": self._fenced_txn,
            "batch_100": self._batch,
            "scan_1000": self._scan,
            "watch": self._watch,
        }
        return plain(make[operation](caller))

    def _put(self, caller: int) -> Call:
        keys = [f"put-{caller}/{number}".encode() for number in range(OWN_KEYS)]
        return lambda number: self._db.put(keys[number % OWN_KEYS], VALUE, sync=True)

    def _fenced_txn(self, caller: int) -> Call:
        keys = [f"txn-{caller}/{number}".encode() for number in range(OWN_KEYS)]
        header, lock = f"headers/{caller}".encode(), f"locks/{caller}".encode()
        self._db.put(header, b"7" + VALUE, sync=True)
        self._db.put(lock, b"8", sync=True)

        def call(number: int) -> None:
            with self._mutex:
                held, found = self._db.get(lock), self._db.get(header)
                if held != b"8" or found is None or found[:1] != b"7":
                    raise AssertionError("refused")
                self._db.put(keys[number % OWN_KEYS], VALUE, sync=True)

        return call

    def _batch(self, caller: int) -> Call:
        keys = [f"batch-{caller}/{number}".encode() for number in range(BATCH)]

        def call(_: int) -> None:
            with self._db.write_batch(transaction=True, sync=True) as batch:
                for key in keys:
                    batch.put(key, VALUE)

        return call

    def _scan(self, caller: int) -> Call:
        pages = SCANNED // PAGE
        starts = [self._scanned[page * PAGE] for page in range(pages)]

        def call(number: int) -> None:
            start = starts[(caller + number) % pages]
            with self._db.iterator(start=start, stop=b"scan/job0", verify_checksums=True) as rows:
                page = list(itertools.islice(rows, PAGE))
            if len(page) != PAGE or any(value != VALUE for _, value in page):
                raise AssertionError("a page is not as it was written")

        return call

    def _watch(self, caller: int) -> Call:
        key = f"watch-{caller}/one".encode()
        events: SimpleQueue[tuple[bytes, bytes]] = SimpleQueue()

        def call(_: int) -> None:
            self._db.put(key, VALUE, sync=True)
            events.put((key, VALUE))
            events.get()

        return call
