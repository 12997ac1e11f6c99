"""How a job's changes and the catalog as it is become the catalog as it will be: pure.

Records that a job puts as a whole must be as they were when it was planned. Partitions are merged into whatever the
table has become meanwhile, unless it is another table, lies elsewhere, or a partition that the job depends on is not as
it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from onager.catalog_records import (
    MAX_PAGES,
    MAX_PARTITIONS,
    MAX_RECORD_BYTES,
    CatalogKey,
    Entries,
    folded,
    location_of,
    new_partitions_at,
    page_count,
    page_key,
    pages_of,
    plain_json,
    unnumbered,
)
from onager.errors import CatalogConflictError, PlanningError
from onager.exchange_layout import is_below, join, location_path, uri_quoted
from onager.manifests import Place, TablePlaces
from onager.scheduler.catalog.changes import SMALLER_RECORD, CatalogChanges, PartitionsSet, over_limit


@dataclass(frozen=True, slots=True)
class Found:
    """A record as it is in the store."""

    record: dict[str, Any]
    revision: int


@dataclass(frozen=True, slots=True)
class Merged:
    """What is to be written, if the records that it was made from are still at their revisions."""

    values: Mapping[str, bytes | None]
    """Records by key; None: removed."""
    pages: Mapping[str, bytes]
    """New pages by key."""
    dropped: Sequence[str]
    """Ids of tables whose pages are not needed any more."""


def merge(changes: CatalogChanges, found: Mapping[str, Found | None], pages: Mapping[str, Entries]) -> Merged:
    """Return what *changes* make of *found*, which has all of their keys; *pages* are those of `pages_needed`.

    `CatalogConflictError` when another job was first; `UnsupportedPlanError` when a limit would be passed;
    `PlanningError` for changes that contradict themselves.
    """
    for key, revision in (*((put.key, put.expected_revision) for put in changes.puts), *changes.reads.items()):
        _check_unchanged(key, revision, found[key])
    records = {put.key: put.record for put in changes.puts}
    _check_pages(changes, records, found)
    new_pages: dict[str, bytes] = {}
    for change in changes.partitions:
        record = _table_of(change, records, found)
        _check_expected(change, record, pages)
        if change.stale_stats and "stats" in record["spark"]:
            records[change.key] = record = {**record, "spark": _without_stats(record["spark"])}
        if entries := _entries(change, record, pages):
            records[change.key] = _with_partitions(change, record, entries, pages, new_pages)
    values = {key: None if record is None else _value(key, record) for key, record in records.items()}
    dropped = sorted({table_id for put in changes.puts for table_id in put.removed_pages_of})
    return Merged(values, new_pages, dropped)


def pages_needed(changes: CatalogChanges, found: Mapping[str, Found | None]) -> list[str]:
    """Return the keys of the pages that `merge` looks into."""
    records = _after_puts(changes, found)
    needed: dict[str, None] = {}
    for change in changes.partitions:
        record = records.get(change.key)
        if record is not None and (change.expected or change.written or _is_merge_due(record, change.entries)):
            needed |= dict.fromkeys(_keys_of_pages(record))
    return list(needed)


def _after_puts(changes: CatalogChanges, found: Mapping[str, Found | None]) -> dict[str, dict[str, Any] | None]:
    records = {key: None if each is None else each.record for key, each in found.items()}
    return records | {put.key: put.record for put in changes.puts}


def _keys_of_pages(record: Mapping[str, Any]) -> Iterator[str]:
    for page_id in record.get("pages", ()):
        yield page_key(record["id"], page_id)


def _check_unchanged(key: str, revision: int, found: Found | None) -> None:
    if revision == (0 if found is None else found.revision):
        return
    why = "it was removed" if found is None else "it was made" if revision == 0 else "it was altered"
    raise _conflict(key, found, why)


def _conflict(key: str, found: Found | None, why: str) -> CatalogConflictError:
    return CatalogConflictError(_description(key, None if found is None else found.record), why)


def _description(key: str, record: Mapping[str, Any] | None = None) -> str:
    parsed = CatalogKey.parsed(key)
    assert parsed is not None
    return parsed.description(record)


def _check_pages(
    changes: CatalogChanges, records: Mapping[str, dict[str, Any] | None], found: Mapping[str, Found | None]
) -> None:
    """Check that puts name only pages which the very records that they replace have named, and remove only theirs."""
    before = [each.record for put in changes.puts if (each := found[put.key]) is not None and "id" in each.record]
    known = {key for record in before for key in _keys_of_pages(record)}
    kept = {record["id"] for record in records.values() if record is not None and "id" in record}
    kept |= {change.table_id for change in changes.partitions}
    for put in changes.puts:
        if put.record is not None and not {*_keys_of_pages(put.record)} <= known:
            raise PlanningError(f"the planner returned {put.key} with partitions that it does not have")
        if not {*put.removed_pages_of} <= {record["id"] for record in before} - kept:
            raise PlanningError(f"the planner removes the partitions of {put.key} and keeps the table")


def _table_of(
    change: PartitionsSet, records: Mapping[str, dict[str, Any] | None], found: Mapping[str, Found | None]
) -> dict[str, Any]:
    stored = found[change.key]
    record = records.get(change.key, None if stored is None else stored.record)
    if record is None:
        raise _conflict(change.key, stored, "it was removed")
    if record["kind"] != "table" or record["id"] != change.table_id:
        raise _conflict(change.key, stored, "it was removed, and made anew")
    if location_of(record) != change.location:
        raise _conflict(change.key, stored, f"it lies at {location_of(record)} now")
    return record


def _check_expected(change: PartitionsSet, record: Mapping[str, Any], pages: Mapping[str, Entries]) -> None:
    if not change.expected:
        return
    partitions = folded(pages[key] for key in _keys_of_pages(record))
    for path, expected in change.expected.items():
        now = partitions.get(path)
        if unnumbered(now) != unnumbered(expected):
            why = "removed" if now is None else "added" if expected is None else "altered"
            raise CatalogConflictError(_description(change.key), f"its partition {path} was {why}")


def _entries(change: PartitionsSet, record: Mapping[str, Any], pages: Mapping[str, Entries]) -> Entries:
    """Return what partitions become, those with it into which rows were written."""
    if change.written is None:
        return change.entries
    entries = dict(change.entries)
    now = folded([*(pages[key] for key in _keys_of_pages(record)), entries])
    _check_replaced(change, change.written, record, now)
    for path, place in change.written.places.items():
        is_new = path not in now and not place.before
        if change.written.replaces == "nothing" and location_path(place.location) != location_path(
            join(new_partitions_at(record), uri_quoted(path)) if is_new else _location(now.get(path))
        ):
            why = "moved" if path in now else "removed"
            raise CatalogConflictError(_description(change.key), f"its partition {path} was {why}")
        if change.written.replaces != "nothing" or is_new:
            entries[path] = _partition(change, path, place)
    for path in now.keys() - change.written.places.keys():
        if change.written.replaces_at(path):
            entries[path] = None
    return entries


def _check_replaced(change: PartitionsSet, written: TablePlaces, record: Mapping[str, Any], now: Entries) -> None:
    """Check that what rows replace is what was there when it was planned: its files go."""
    for path, partition in now.items():
        if written.replaces_at(path) and partition is not None and partition.get("changed", 0) > change.seen:
            raise CatalogConflictError(_description(change.key), f"its partition {path} was altered")
    if written.replaces == "matching" and written.within not in written.places:
        # Nothing says which partitions there were: any that has gone may have been one, and have another name now.
        if record.get("removed", 0) > change.seen:
            raise CatalogConflictError(_description(change.key), "partitions of it were removed")
        return
    for path, place in written.places.items():
        if written.replaces_at(path) and place.before and path not in now:
            raise CatalogConflictError(_description(change.key), f"its partition {path} was removed")


def _location(partition: Mapping[str, Any] | None) -> str:
    return str((partition or {}).get("storage", {}).get("location", ""))


def _partition(change: PartitionsSet, path: str, place: Place) -> dict[str, Any]:
    """Return the partition at *path*, into which rows were written."""
    if not is_below(place.location, change.location):
        raise PlanningError(
            f"rows of {_description(change.key)} were written to {place.location}, which is not in its folder"
        )
    template = change.template or {}
    spec = {unquote(name): unquote(value) for name, _, value in (part.partition("=") for part in path.split("/"))}
    return {**template, "spec": spec, "storage": {**template.get("storage", {}), "location": place.location}}


def _is_merge_due(record: Mapping[str, Any], entries: Entries) -> bool:
    merged: int = record.get("merged", 0)
    return len(record.get("pages", ())) - merged + page_count(entries) > MAX_PAGES


def _without_stats(spark: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spark.items() if name != "stats"}


def _with_partitions(
    change: PartitionsSet,
    record: dict[str, Any],
    entries: Entries,
    pages: Mapping[str, Entries],
    new_pages: dict[str, bytes],
) -> dict[str, Any]:
    """Return *record* with pages of *entries*, which are added to *new_pages*."""
    count = record.get("changes", 0) + 1
    record = {**record, "changes": count} | ({"removed": count} if None in entries.values() else {})
    stamped = {path: each if each is None else {**each, "changed": count} for path, each in entries.items()}
    if not _is_merge_due(record, stamped):
        added = _added(record, stamped, new_pages)
        # A page that comes again overrides what came between, as if it had come only now.
        kept = [page_id for page_id in record.get("pages", ()) if page_id not in added]
        return {**record, "pages": [*kept, *added]}
    partitions = folded([*(pages[key] for key in _keys_of_pages(record)), stamped])
    if len(partitions) > MAX_PARTITIONS:
        what = f"{_description(change.key)} with {len(partitions):,} partitions, more than {MAX_PARTITIONS:,},"
        raise over_limit(what, "partition it by fewer columns, or more coarsely")
    added = _added(record, partitions, new_pages)
    return {**record, "pages": added, "merged": len(added)}


def _added(record: Mapping[str, Any], entries: Entries, new_pages: dict[str, bytes]) -> list[str]:
    made = dict(pages_of(entries))
    new_pages |= {page_key(record["id"], page_id): content for page_id, content in made.items()}
    return list(made)


def _value(key: str, record: dict[str, Any]) -> bytes:
    value = plain_json(record)
    if len(value) > MAX_RECORD_BYTES:
        what = f"{_description(key)}, whose record has {len(value):,} bytes, more than {MAX_RECORD_BYTES:,},"
        raise over_limit(what, SMALLER_RECORD)
    return value
