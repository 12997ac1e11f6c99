"""What a job changes in the catalog: from its planner's report, checked, and as the blob that its graph names."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from onager.catalog_records import (
    MAX_PARTITION_BYTES,
    MAX_PATH_BYTES,
    MAX_RECORD_BYTES,
    CatalogKey,
    Entries,
    checked,
    is_table_id,
    parsed_json,
    plain_json,
)
from onager.errors import OnagerError, PlanningError, StateCorruptError, UnsupportedPlanError
from onager.exchange_layout import is_below
from onager.manifests import TablePlaces
from onager.protocol import onager_pb2 as pb

MAX_CHANGED: Final = 54
"""Records that one job changes: they share the transaction that ends it."""
MAX_KEYS: Final = 64
"""Records that it changes, and those that must be unchanged."""
MAX_CHANGED_PARTITIONS: Final = 50_000
MAX_PLACES: Final = 1_000
"""Locations of partitions outside of their table's, and of tables and databases."""
SMALLER_RECORD: Final = "give it fewer columns, or shorter comments and properties"
_FEWER: Final = "make fewer changes in one job, and the others in jobs of their own"


@dataclass(frozen=True, slots=True)
class RecordPut:
    """A record that is put as a whole, or removed."""

    key: str
    record: dict[str, Any] | None
    """None: removed."""
    expected_revision: int
    """0: absent."""
    removed_pages_of: tuple[str, ...] = ()
    """Ids of tables whose partitions go with it."""


@dataclass(frozen=True, slots=True)
class PartitionsSet:
    """Partitions of a table that are set or removed, whatever else has happened to the table."""

    key: str
    table_id: str
    location: str
    """The table's, as planned."""
    entries: Entries
    expected: Entries
    """Partitions that must be as planned; None: absent."""
    stale_stats: bool = False
    """Whether the table's statistics hold no longer, since rows were written into its folder."""
    template: dict[str, Any] | None = None
    """Of partitions that rows are written into, whichever those are; None: the job writes none."""
    seen: int = 0
    """With a template: the table's count of changes at planning."""
    written: TablePlaces | None = None
    """With a template, once the rows are there: where."""


@dataclass(frozen=True, slots=True)
class CatalogChanges:
    """All of a job's changes: none is made without the others."""

    puts: tuple[RecordPut, ...]
    partitions: tuple[PartitionsSet, ...]
    reads: Mapping[str, int]
    """The revisions of further records that must be unchanged."""
    version: Literal[1] = 1
    """Of the form in which it is stored."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is changed."""
        return not (self.puts or self.partitions)

    @property
    def awaits_rows(self) -> bool:
        """Return whether partitions are set that are known once their rows are there."""
        return any(change.template is not None for change in self.partitions)

    @property
    def keys(self) -> list[str]:
        """Return the keys of all records that matter, each once."""
        found = [*(each.key for each in self.puts), *(each.key for each in self.partitions), *self.reads]
        return list(dict.fromkeys(found))

    def locations(self) -> Iterator[str]:
        """Yield every place that the changes name, except those below a table's own."""
        for put in self.puts:
            if put.record is not None:
                yield from _locations(put.record["spark"])
        for change in self.partitions:
            for partition in change.entries.values():
                for place in _locations(partition or {}):
                    if not is_below(place, change.location):
                        yield place


_BLOB: Final = TypeAdapter(CatalogChanges)


def _locations(spark: dict[str, Any]) -> Iterator[str]:
    for holder in (spark, spark.get("storage")):
        for name in ("location", "locationUri"):
            if isinstance(holder, dict) and isinstance(place := holder.get(name), str) and place:
                yield place


def with_written(changes: CatalogChanges, table: TablePlaces | None) -> CatalogChanges:
    """Return *changes* with the partitions into which the job has written rows."""
    awaiting = [change for change in changes.partitions if change.template is not None]
    if table is None or [change.key for change in awaiting] != [table.key]:
        raise StateCorruptError("what the job has published is not what it was to write into a table")
    return replace(
        changes,
        partitions=tuple(
            replace(change, written=table) if change.key == table.key else change for change in changes.partitions
        ),
    )


# ---------------------------------------------------------------- from a report


def changes_from(message: pb.CatalogChanges) -> CatalogChanges:
    """Return the changes that a planner reported.

    `UnsupportedPlanError` for more than one job may change, `PlanningError` for what no planner would send.
    """
    count = len(message.puts) + len(message.partitions)
    if count > MAX_CHANGED:
        raise over_limit(f"a change of {count:,} records of the catalog, more than {MAX_CHANGED} in one job,")
    if (count := sum(len(change.set) for change in message.partitions)) > MAX_CHANGED_PARTITIONS:
        raise over_limit(f"a change of {count:,} partitions, more than {MAX_CHANGED_PARTITIONS:,} in one job,")
    changes = CatalogChanges(
        tuple(_put_from(put) for put in message.puts),
        tuple(_partitions_from(change) for change in message.partitions),
        {read.key: read.revision for read in message.reads},
    )
    _check_together(message, changes)
    return changes


def over_limit(what: str, advice: str = _FEWER) -> UnsupportedPlanError:
    """Return the error for *what* is over a limit of the catalog: the query does not run in another way, either."""
    return UnsupportedPlanError(what, advice, runs_whole=False)


def _check_together(message: pb.CatalogChanges, changes: CatalogChanges) -> None:
    if len(changes.keys) > MAX_KEYS:
        raise over_limit(
            f"a change that depends on {len(changes.keys):,} records of the catalog, more than {MAX_KEYS},"
        )
    if (count := len(set(changes.locations()))) > MAX_PLACES:
        raise over_limit(f"a change of {count:,} places outside of the folders of tables, more than {MAX_PLACES:,},")
    for key in changes.reads:
        _key_of(key)
    for name, keys in (("puts", [p.key for p in message.puts]), ("partitions", [c.key for c in message.partitions])):
        if len(set(keys)) < len(keys):
            raise PlanningError(f"the planner returned two changes of one record of the catalog, among its {name}")
    for put in changes.puts:
        if changes.reads.get(put.key, put.expected_revision) != put.expected_revision:
            raise PlanningError(f"the planner returned two revisions of {put.key}")


def _key_of(text: str, root: str = "") -> CatalogKey:
    key = CatalogKey.parsed(text)
    if key is None or root not in ("", key.root):
        raise PlanningError(
            f"the planner returned a change of {text[:200]!r}, which is no record of {root or 'the catalog'}"
        )
    return key


def _put_from(put: pb.CatalogPut) -> RecordPut:
    key = _key_of(put.key)
    if not all(map(is_table_id, put.removed_pages_of)) or (put.removed_pages_of and key.root != "tables"):
        raise PlanningError(f"the planner returned {put.key} with the pages of what is no table")
    record = None
    if put.value:
        if len(put.value) > MAX_RECORD_BYTES:
            what = (
                f"{key.description()}, whose description has {len(put.value):,} bytes, more than {MAX_RECORD_BYTES:,},"
            )
            raise over_limit(what, SMALLER_RECORD)
        record = _object(put.key, put.value)
        try:
            record = checked(key, record, put.key)
        except OnagerError as error:
            raise PlanningError(f"the planner returned a record that cannot be kept: {error}") from error
    return RecordPut(put.key, record, put.expected_revision, tuple(put.removed_pages_of))


def _partitions_from(change: pb.PartitionChange) -> PartitionsSet:
    _key_of(change.key, "tables")
    if not is_table_id(change.table_id):
        raise PlanningError(f"the planner returned partitions of {change.key} without the table's id")
    return PartitionsSet(
        change.key,
        change.table_id,
        change.location,
        _entries(change.key, change.set),
        _entries(change.key, change.expected),
        change.stale_stats,
        _object(f"partitions of {change.key}", change.template) if change.template else None,
        change.seen,
    )


def _entries(key: str, found: Mapping[str, str]) -> Entries:
    entries: dict[str, dict[str, Any] | None] = {}
    for path, text in found.items():
        if not path or len(path.encode()) > MAX_PATH_BYTES or not all("=" in part for part in path.split("/")):
            raise PlanningError(f"the planner returned {path[:200]!r} as a partition of {key}")
        if len(text) > MAX_PARTITION_BYTES:
            raise PlanningError(f"the planner returned {len(text):,} characters about a partition of {key}")
        entries[path] = _object(f"{key}, {path}", text) if text else None
    return entries


def _object(what: str, text: bytes | str) -> dict[str, Any]:
    try:
        found = parsed_json(text)
        plain_json(found)
    except ValueError as error:
        raise PlanningError(f"the planner returned {what[:200]} in a form that cannot be kept: {error}") from error
    return found


# ---------------------------------------------------------------- as a blob


def encoded(changes: CatalogChanges) -> bytes:
    """Return *changes* as JSON that an admin can read."""
    # Columns may be nested more deeply than pydantic writes.
    return json.dumps(changes, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_object).encode()


def decoded(content: bytes) -> CatalogChanges:
    """Return what `encoded` was given; `StateCorruptError` for anything else."""
    try:
        return _BLOB.validate_python(parsed_json(content))
    except ValidationError as error:
        why = error.errors(include_url=False, include_input=False)[:3]
        raise StateCorruptError(f"changes of the catalog cannot be read: {why}") from error
    except ValueError as error:
        raise StateCorruptError(f"changes of the catalog cannot be read: {error}") from error


def _as_object(part: Any) -> dict[str, Any]:
    return {field.name: getattr(part, field.name) for field in fields(part)}
