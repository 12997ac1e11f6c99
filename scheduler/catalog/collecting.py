"""Removes pages of partitions that no table names any more: after a while, because pages may be stored before it."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

from onager.catalog_records import MARK_KEY, CatalogKey, parsed_page_key, read_record
from onager.errors import SchemaVersionError, StateCorruptError
from onager.scheduler.catalog.stored import stored
from onager.state_backend import ABSENT, Committed, Delete, KeyRange, Keyspace, StateBackendClient, each_page

_AT_ONCE: Final = 100
"""Pages removed by one transaction."""
_CATALOG: Final = Keyspace.Catalog


class _Table(NamedTuple):
    key: str
    revision: int
    pages: frozenset[str]


class OrphanedPages:
    """Pages that no table named when this scheduler looked last."""

    def __init__(self, backend: StateBackendClient) -> None:
        self._backend = backend
        self._seen: frozenset[str] = frozenset()

    async def collect(self) -> int:
        """Remove pages that no table names now and none named at the last call; return how many.

        The transaction expects the table's record as it was read. If there is none, it expects that the pages were not
        written again, and that no commit has pages that it stored before: either would be a table that begins to be.
        """
        keys = await self._keys()
        candidates = self._seen & keys
        found_now = await stored(self._backend, [*sorted(candidates), MARK_KEY])
        revisions = {key: item.mod_revision for key, item in found_now.items()}
        tables = await self._tables() if keys else {}
        if tables is None:
            return 0
        orphans = defaultdict[str, set[str]](set)
        for key in keys:
            ids = parsed_page_key(key)
            if ids is not None and (ids[0] not in tables or ids[1] not in tables[ids[0]].pages):
                orphans[ids[0]].add(key)
        self._seen = frozenset[str]().union(*orphans.values())
        removed = 0
        for table_id, found in orphans.items():
            table = tables.get(table_id)
            guard = (MARK_KEY, revisions.get(MARK_KEY, ABSENT)) if table is None else (table.key, table.revision)
            gone = sorted(found & candidates & revisions.keys())
            for start in range(0, len(gone), _AT_ONCE):
                removed += await self._remove(gone[start : start + _AT_ONCE], guard, revisions)
        return removed

    async def _remove(self, keys: list[str], guard: tuple[str, int], revisions: Mapping[str, int]) -> int:
        expect = {(_CATALOG, key): revisions[key] for key in keys} | {(_CATALOG, guard[0]): guard[1]}
        result = await self._backend.put_txn([Delete(_CATALOG, key) for key in keys], expect=expect)
        return len(keys) if isinstance(result, Committed) else 0

    async def _keys(self) -> frozenset[str]:
        pages = each_page(self._backend.scan_keys, _CATALOG, "pages/")
        return frozenset([key async for page in pages for key in page])

    async def _tables(self) -> dict[str, _Table] | None:
        """Return all tables by id, at one revision; None if one cannot be read: its pages are not known."""
        found: dict[str, _Table] = {}
        seen = await self._backend.read_txn(ranges=[KeyRange(_CATALOG, "tables/")])
        for item in seen.ranges[0]:
            key = CatalogKey.parsed(item.key)
            if key is None:
                continue
            try:
                record = read_record(key, item.value, f"Catalog/{item.key}")
            except (StateCorruptError, SchemaVersionError):
                return None
            found[record["id"]] = _Table(item.key, item.mod_revision, frozenset(record.get("pages", ())))
        return found
