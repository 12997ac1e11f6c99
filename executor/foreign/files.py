"""The data files of one snapshot of an Iceberg table, as a scan of Spark's reads them."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from onager.executor.foreign.schemas import UnmappedError, read_schema

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

MAX_FILES: Final = 500_000
"""Data files that one table may have: planning lists them all."""


@dataclass(frozen=True, slots=True)
class Directory:
    """Files whose partition columns have the same values."""

    values: tuple[Any, ...]
    files: Sequence[tuple[str, int]]
    """Paths and sizes."""


def live_files(table: "Table", snapshot: "Snapshot | None") -> list["DataFile"]:
    """Return the data files of *snapshot*; `UnmappedError` if some of their rows have been deleted."""
    from pyiceberg.manifest import ManifestContent

    if snapshot is None:
        return []
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DELETES and (
            manifest.has_added_files() or manifest.has_existing_files()
        ):
            raise UnmappedError(
                "it has delete files, which name rows that are not there any more: rewrite its data files"
            )
    files = [task.file for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()]
    if len(files) > MAX_FILES:
        raise UnmappedError(f"it has {len(files):,} data files, more than {MAX_FILES:,}: rewrite them into larger ones")
    return files


def directories(table: "Table", snapshot: "Snapshot | None", schema: "Schema") -> tuple[list[str], list[Directory]]:
    """Return the partition columns of *snapshot*, and its files by their values.

    Partition columns are those by whose very values all files are partitioned: a file need not hold them. Any other
    column is in the files.
    """
    from pyiceberg.types import BinaryType, DoubleType, FloatType

    files = live_files(table, snapshot)
    for form in {file.file_format for file in files}:
        if form.name != "PARQUET":
            raise UnmappedError(f"it has data files in the format {form.name}, and only Parquet is read")
    specs = table.specs()
    by_spec = {spec_id: _identities(specs[spec_id], schema) for spec_id in {file.spec_id for file in files}}
    columns = _common(table, by_spec.values())
    for field in schema.fields:
        if field.name in columns and isinstance(field.field_type, BinaryType | DoubleType | FloatType):
            raise UnmappedError(f"it is partitioned by {field.name}, whose type is {field.field_type}")
    kept = [field.name for field in schema.fields if field.name in columns]
    grouped: dict[tuple[Any, ...], list[tuple[str, int]]] = defaultdict(list)
    for file in files:
        places = by_spec[file.spec_id]
        values = tuple(_plain(file.partition[places[name]]) for name in kept)
        grouped[values].append((file.file_path, file.file_size_in_bytes))
    return kept, [Directory(values, sorted(listed)) for values, listed in grouped.items()]


def _identities(spec: "PartitionSpec", schema: "Schema") -> dict[str, int]:
    """Return the columns by whose very values *spec* partitions, and where these are in a file's partition."""
    from pyiceberg.transforms import IdentityTransform

    names = {field.field_id: field.name for field in schema.fields}
    return {
        names[field.source_id]: place
        for place, field in enumerate(spec.fields)
        if isinstance(field.transform, IdentityTransform) and field.source_id in names
    }


def _common(table: "Table", by_spec: Iterable[dict[str, int]]) -> frozenset[str]:
    """Return the partition columns of all files; `UnmappedError` if it is not known what is in those of only some."""
    sets = {frozenset(columns) for columns in by_spec}
    if len(sets) < 2:  # noqa: PLR2004
        return next(iter(sets), frozenset())
    if table.name_mapping() is not None:
        # Files that were added from elsewhere, and named by the mapping, may lack the columns of their partitions.
        raise UnmappedError(
            "only some of its files are partitioned by the same columns as others: rewrite its data files"
        )
    return frozenset[str].intersection(*sets)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def described(table: "Table", snapshot: "Snapshot | None", schema: "Schema", *, by_id: bool) -> dict[str, Any]:
    """Return the columns, the partition columns and the files of *snapshot* as the kernel takes them."""
    partitioned_by, listed = directories(table, snapshot, schema)
    columns = read_schema(schema, by_id=by_id)
    names = [field.name for field in schema.fields]
    partitions = [columns["fields"][names.index(name)] for name in partitioned_by]
    return {
        "schema": json.dumps(columns),
        "partition_schema": json.dumps({"type": "struct", "fields": partitions}),
        "directories": [
            {
                "values": list(directory.values),
                "paths": [path for path, _ in directory.files],
                "sizes": [size for _, size in directory.files],
            }
            for directory in listed
        ],
    }
