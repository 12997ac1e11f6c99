"""A catalog in memory: the reader's second adapter, which also takes what jobs change, one job after the other."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from onager.catalog_records import folded, page_key, read_page
from onager.manifests import TablePlaces
from onager.protocol import onager_pb2 as pb
from onager.scheduler.catalog.changes import changes_from, with_written
from onager.scheduler.catalog.merging import Found, merge, pages_needed

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
        return folded(
            read_page(page, self.records[page_key(record["id"], page)][0], page) for page in record.get("pages", ())
        )

    def commit(self, outcome: pb.PlanOutcome, written: TablePlaces | None = None) -> None:
        """Make the changes of a job as schedulers do, rows being where *written* says; errors as in `merge`."""
        changes = changes_from(outcome.catalog)
        if changes.awaits_rows:
            changes = with_written(changes, written)
        found = {key: self._found(key) for key in changes.keys}
        pages = {
            key: read_page(key.rpartition("/")[2], self.records[key][0], key) for key in pages_needed(changes, found)
        }
        merged = merge(changes, found, pages)
        for key, value in (merged.pages | merged.values).items():
            self.put(key, value or b"")
        for table_id in merged.dropped:
            for key in [key for key in self.records if key.startswith(f"pages/{table_id}/")]:
                self.put(key, b"")

    def _found(self, key: str) -> Found | None:
        return None if key not in self.records else Found(self.record(key), self.records[key][1])
