"""The writes that make a job's changes of the catalog, for the transaction that ends the job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from onager.catalog_records import (
    MARK_KEY,
    CatalogKey,
    Entries,
    parsed_page_key,
    read_page,
    read_record,
)
from onager.errors import StateCorruptError
from onager.protocol.apart import apart
from onager.scheduler.catalog.changes import CatalogChanges, over_limit
from onager.scheduler.catalog.merging import Found, Merged, merge, pages_needed
from onager.scheduler.catalog.stored import stored
from onager.state_backend import (
    Delete,
    DeleteRange,
    Keyspace,
    KeyValue,
    Op,
    Put,
    StateBackendClient,
    op_bytes,
    request_bytes,
)

MAX_OPS: Final = 56
MAX_BYTES: Final = 448 * 1024
"""What of a transaction the catalog may take: the rest is for the end of the job."""
_MAX_BEFORE: Final = 56
"""Pages stored before a transaction: each takes a condition of it."""
_PARTITION_BYTES: Final = 300
"""What a partition takes, about."""
_TRIES: Final = 20
_CATALOG: Final = Keyspace.Catalog


@dataclass(frozen=True, slots=True)
class CatalogWrites:
    """Writes that share a transaction with others."""

    ops: tuple[Op, ...] = ()
    expect: Mapping[tuple[Keyspace, str], int] = field(default_factory=dict)


class CatalogCommits:
    """Makes writes of changes, against the catalog as it is at that moment."""

    def __init__(self, backend: StateBackendClient) -> None:
        self._backend = backend

    async def prepare(self, changes: CatalogChanges) -> CatalogWrites:
        """Return the writes of *changes*; pages that do not fit beside the end of a job are stored when this returns.

        If the transaction fails because of what it expects of the catalog, call it again. Errors as in `merge`.
        """
        found, pages = await self._read(changes)
        partitions = sum(map(len, (*pages.values(), *(change.entries for change in changes.partitions))))
        merged = await apart(partitions * _PARTITION_BYTES, merge, changes, found, pages)
        expect = {(_CATALOG, key): 0 if each is None else each.revision for key, each in found.items()}
        ops: list[Op] = [
            Delete(_CATALOG, key) if value is None else Put(_CATALOG, key, value)
            for key, value in merged.values.items()
        ]
        return await self._with_pages(merged, ops, expect)

    async def _with_pages(
        self, merged: Merged, ops: list[Op], expect: dict[tuple[Keyspace, str], int]
    ) -> CatalogWrites:
        left = MAX_BYTES - request_bytes(ops, expect) - op_bytes(Put(_CATALOG, MARK_KEY, b"{}"))
        if left < 0:
            raise over_limit(
                f"a change of the catalog of {MAX_BYTES - left:,} bytes, more than {MAX_BYTES:,} in one job,"
            )
        before: list[Op] = []
        for key, content in merged.pages.items():
            page = Put(_CATALOG, key, content)
            if len(ops) + 1 < MAX_OPS and op_bytes(page) <= left:
                ops.append(page)
                left -= op_bytes(page)
            else:
                before.append(page)
        if before:
            expect |= await self._stored(before)
            ops.append(Put(_CATALOG, MARK_KEY, b"{}"))
        # Pages of dropped tables for which there is no room here are collected later.
        ops += [DeleteRange(_CATALOG, f"pages/{table_id}/") for table_id in merged.dropped[: MAX_OPS - len(ops)]]
        return CatalogWrites(tuple(ops), expect)

    async def _stored(self, pages: list[Op]) -> dict[tuple[Keyspace, str], int]:
        """Store *pages*, and return their revisions: while they are at these, none has been collected."""
        if len(pages) > _MAX_BEFORE:
            what = f"a change of the catalog that takes {len(pages)} pages of partitions, more than {_MAX_BEFORE},"
            raise over_limit(what, "add or remove fewer partitions in one job")
        return await self._backend.put_all(pages)

    async def _read(self, changes: CatalogChanges) -> tuple[dict[str, Found | None], dict[str, Entries]]:
        """Return the records of *changes*, and the pages that are needed of them."""
        why = ""
        for _ in range(_TRIES):
            records = (await self._backend.read_txn([(_CATALOG, key) for key in changes.keys])).values
            found = {key: _found(key, records[_CATALOG, key]) for key in changes.keys}
            needed = pages_needed(changes, found)
            pages = {
                key: await apart(len(item.value), _page, key, item.value)
                for key, item in (await stored(self._backend, needed)).items()
            }
            missing = [key for key in needed if key not in pages]
            if not missing:
                return found, pages
            why = missing[0]  # the record is another one by now, which does not name it
        raise StateCorruptError(f"Catalog/{why} is missing, and the record of its table names it")


def _found(key: str, item: KeyValue | None) -> Found | None:
    parsed = CatalogKey.parsed(key)
    if item is None or parsed is None:
        return None
    return Found(read_record(parsed, item.value, f"Catalog/{key}"), item.mod_revision)


def _page(key: str, stored: bytes) -> Entries:
    ids = parsed_page_key(key)
    assert ids is not None
    return read_page(ids[1], stored, f"Catalog/{key}")
