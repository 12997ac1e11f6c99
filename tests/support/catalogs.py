"""Catalog changes, and what they make of a catalog, for tests."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from onager.catalog_records import CatalogKey, folded, parsed_page_key, read_page, read_record, unnumbered
from onager.execution_graph import JobPlanned
from onager.protocol import onager_pb2 as pb
from onager.scheduler.catalog.changes import CatalogChanges, changes_from
from onager.scheduler.catalog.committing import CatalogCommits
from onager.state_backend import Committed, Keyspace, StateBackendClient

T_ID = "00000000000000aa"
WHERE = "file:/warehouse/t"


def table(table_id: str = T_ID, location: str = WHERE, pages: tuple[str, ...] = (), **spark: Any) -> dict[str, Any]:
    described = {"tableType": "MANAGED", "provider": "parquet", "storage": {"location": location}, **spark}
    return {"kind": "table", "version": 1, "id": table_id, "spark": described, "pages": list(pages)}


def database(**spark: Any) -> dict[str, Any]:
    return {"kind": "database", "version": 1, "spark": spark}


def view(table_id: str = T_ID) -> dict[str, Any]:
    return {"kind": "view", "version": 1, "id": table_id, "spark": {"viewText": "SELECT 1"}}


def put(key: str, record: dict[str, Any] | None, expected: int = 0, removes: tuple[str, ...] = ()) -> pb.CatalogPut:
    value = b"" if record is None else json.dumps(record).encode()
    return pb.CatalogPut(key=key, value=value, expected_revision=expected, removed_pages_of=removes)


def partitions(
    changed: dict[str, dict[str, Any] | None],
    expected: dict[str, dict[str, Any] | None] | None = None,
    *,
    key: str = "tables/default/t",
    table_id: str = T_ID,
    location: str = WHERE,
) -> pb.PartitionChange:
    return pb.PartitionChange(
        key=key,
        table_id=table_id,
        location=location,
        set={path: "" if each is None else json.dumps(each) for path, each in changed.items()},
        expected={path: "" if each is None else json.dumps(each) for path, each in (expected or {}).items()},
    )


def message(*parts: pb.CatalogPut | pb.PartitionChange, reads: dict[str, int] | None = None) -> pb.CatalogChanges:
    return pb.CatalogChanges(
        puts=[part for part in parts if isinstance(part, pb.CatalogPut)],
        partitions=[part for part in parts if isinstance(part, pb.PartitionChange)],
        reads=[pb.CatalogRecord(key=key, revision=revision) for key, revision in (reads or {}).items()],
    )


def changes(*parts: pb.CatalogPut | pb.PartitionChange, reads: dict[str, int] | None = None) -> CatalogChanges:
    return changes_from(message(*parts, reads=reads))


async def make(backend: StateBackendClient, *parts: pb.CatalogPut | pb.PartitionChange) -> int:
    """Commit changes by themselves; return the revision."""
    writes = await CatalogCommits(backend).prepare(changes(*parts))
    result = await backend.put_txn(writes.ops, expect=writes.expect)
    assert isinstance(result, Committed)
    return result.revision


async def record_of(backend: StateBackendClient, key: str) -> dict[str, Any] | None:
    item, parsed = await backend.get(Keyspace.Catalog, key), CatalogKey.parsed(key)
    assert parsed is not None
    return None if item is None else read_record(parsed, item.value, key)


async def partitions_of(backend: StateBackendClient, key: str = "tables/default/t") -> dict[str, dict[str, Any]]:
    """Return the partitions of a table, as a planner reads them."""
    record = await record_of(backend, key)
    assert record is not None
    pages = []
    for page_id in record.get("pages", ()):
        item = await backend.get(Keyspace.Catalog, f"pages/{record['id']}/{page_id}")
        assert item is not None, "a table names a page that is not there"
        pages.append(read_page(page_id, item.value, page_id))
    return plain(folded(pages))


def plain(partitions: Mapping[str, dict[str, Any] | None]) -> dict[str, Any]:
    """Return partitions without the numbers of their last changes."""
    return {path: unnumbered(each) for path, each in partitions.items()}


async def page_keys(backend: StateBackendClient) -> set[str]:
    keys = await backend.scan_keys(Keyspace.Catalog, "pages/", limit=10_000)
    assert all(parsed_page_key(key) for key in keys)
    return set(keys)


def with_catalog(event: JobPlanned, digest: str) -> JobPlanned:
    return replace(event, summary=replace(event.summary, catalog_digest=digest))
