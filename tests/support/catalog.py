"""A catalog in memory: the reader's second adapter, which also takes what jobs change, one job after the other."""

import hashlib
import json
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from onager.protocol import onager_pb2 as pb

PAGE = 1_000


class MemoryCatalog:
    """Records by key, each with the revision of its last change."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[bytes, int]] = {}
        self.revision = 1
        self.requests: list[pb.ReadCatalogRequest] = []
        self.before_read: Callable[[pb.ReadCatalogRequest], None] | None = None
        """Called before each read, which it may fail or precede with changes of somebody else."""

    def read(self, request: pb.ReadCatalogRequest) -> Future[pb.ReadCatalogResponse]:
        """Read; see `onager.executor.work.CatalogReader`."""
        found: Future[pb.ReadCatalogResponse] = Future()
        self.requests.append(request)
        try:
            if self.before_read is not None:
                self.before_read(request)
            found.set_result(self._answer(request))
        except Exception as e:  # noqa: BLE001 - the reader has it
            found.set_exception(e)
        return found

    def _answer(self, request: pb.ReadCatalogRequest) -> pb.ReadCatalogResponse:
        answer = pb.ReadCatalogResponse(revision=self.revision)
        keys = list(request.keys)
        for prefix in request.prefixes:
            below = sorted(key for key in self.records if key.startswith(prefix) and key > request.start_after)
            answer.truncated = answer.truncated or len(below) > PAGE
            keys += below[:PAGE]
        for key in keys:
            value, revision = self.records.get(key, (b"", 0))
            answer.records.add(key=key, value=b"" if request.keys_only else value, revision=revision)
        return answer

    def put(self, key: str, value: bytes) -> None:
        """Put a record as somebody else would; empty: remove it."""
        self.revision += 1
        if value:
            self.records[key] = (value, self.revision)
        else:
            self.records.pop(key, None)

    def record(self, key: str) -> dict[str, Any]:
        """Return a record; `KeyError` if there is none."""
        found: dict[str, Any] = json.loads(self.records[key][0])
        return found

    def table(self, name: str, database: str = "default") -> dict[str, Any]:
        """Return Spark's description of a table or view."""
        return dict(self.record(f"tables/{database}/{name}")["spark"])

    def partitions(self, name: str, database: str = "default") -> dict[str, Any]:
        """Return the partitions of a table by path."""
        record = self.record(f"tables/{database}/{name}")
        found: dict[str, Any] = {}
        for page in record.get("pages", ()):
            found |= json.loads(zlib.decompress(self.records[f"pages/{record['id']}/{page}"][0]))
        return {path: each for path, each in found.items() if each is not None}

    def commit(self, outcome: pb.PlanOutcome) -> None:
        """Make the changes of a job; AssertionError when somebody else was first."""
        changes = outcome.catalog
        expected = {put.key: put.expected_revision for put in changes.puts}
        for key, revision in (expected | {read.key: read.revision for read in changes.reads}).items():
            assert self.records.get(key, (b"", 0))[1] == revision, key
        for put in changes.puts:
            self.put(put.key, put.value)
            for table_id in put.removed_pages_of:
                for key in [key for key in self.records if key.startswith(f"pages/{table_id}/")]:
                    self.put(key, b"")
        for change in changes.partitions:
            self._change(change)

    def _change(self, change: pb.PartitionChange) -> None:
        record = self.record(change.key)
        _, database, name = change.key.split("/")
        assert (record["id"], record["spark"]["storage"]["location"]) == (change.table_id, change.location)
        now = self.partitions(name, database)
        for path, before in change.expected.items():
            assert now.get(path) == (json.loads(before) if before else None), path
        page = json.dumps({path: json.loads(text) if text else None for path, text in change.set.items()}).encode()
        page_id = hashlib.sha256(page).hexdigest()[:32]
        record["pages"] = [*(each for each in record.get("pages", ()) if each != page_id), page_id]
        self.put(f"pages/{change.table_id}/{page_id}", zlib.compress(page))
        self.put(change.key, json.dumps(record).encode())
