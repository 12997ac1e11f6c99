"""The check of the catalog: records, pages of partitions, and what they need of each other."""

from collections import defaultdict
from functools import partial
from typing import Any, Final

from onager.catalog_records import (
    DEFAULT_DATABASE,
    MARK_KEY,
    CatalogKey,
    page_key,
    parsed_page_key,
    read_page,
    read_record,
)
from onager.state_admin.contents import StoreContents
from onager.state_admin.findings import Findings
from onager.state_backend import Keyspace

_CATALOG: Final = Keyspace.Catalog


def check_catalog(store: StoreContents, found: Findings) -> None:
    """Add the errors of the catalog to *found*."""
    keys = store.records[_CATALOG]
    tables: dict[str, str] = {}
    """Keys by id."""
    pages: defaultdict[str, set[str]] = defaultdict(set)
    """Keys that tables name, by id."""
    for key, item in keys.items():
        if (parsed := CatalogKey.parsed(key)) is not None:
            record = found.read(_CATALOG, key, partial(read_record, parsed, item.value, f"Catalog/{key}"))
            database = str(CatalogKey("databases", parsed.database))
            if parsed.name and parsed.database != DEFAULT_DATABASE and database not in keys:
                found.error("missing", _CATALOG, database, f"{parsed.description()} is in it, and it has no record")
            if record is not None and parsed.root == "tables":
                _check_table(key, record, tables, pages, store, found)
        elif parsed_page_key(key) is None and key != MARK_KEY:
            message = "is no record of the catalog: neither database, table, function nor page of partitions"
            found.error("misplaced", _CATALOG, key, message)
    for key, item in keys.items():
        if (ids := parsed_page_key(key)) is None:
            continue
        found.read(_CATALOG, key, partial(read_page, ids[1], item.value, f"Catalog/{key}"))
        if key not in pages[ids[0]]:
            found.warn(
                "orphan", _CATALOG, key, "no table names these partitions; schedulers collect them after a while"
            )


def _check_table(
    key: str,
    record: dict[str, Any],
    tables: dict[str, str],
    pages: defaultdict[str, set[str]],
    store: StoreContents,
    found: Findings,
) -> None:
    table_id = record["id"]
    if (other := tables.setdefault(table_id, key)) != key:
        found.error("inconsistent", _CATALOG, key, f"has the id {table_id}, as {other} has")
    for page_id in record.get("pages", ()):
        named = page_key(table_id, page_id)
        pages[table_id].add(named)
        if named not in store.records[_CATALOG]:
            message = f"{key} names these partitions, and they are not there"
            found.error("missing", _CATALOG, named, message)
