"""How rows are written so that their files can become part of an Iceberg table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from onager.errors import PlanningError
from onager.executor.foreign.schemas import is_flat
from onager.ids import new_nonce

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_DATA_PATH: Final = "write.data.path"
_FORMAT: Final = "write.format.default"
_CODEC: Final = "write.parquet.compression-codec"


@dataclass(frozen=True, slots=True)
class ForeignWrite:
    """What a statement writes into a table of another catalog."""

    catalog: str
    identifier: tuple[str, ...]
    replaces: str
    """What goes: nothing, the partitions that get rows (written), all rows, or those of partitions (matching)."""
    matching: Mapping[str, Any] = field(default_factory=dict)
    """The values of partition columns whose rows go."""


@dataclass(frozen=True, slots=True)
class WriteLayout:
    """How the files of a table are written."""

    path: str
    """The folder of the new files."""
    field_ids: Sequence[int]
    """Of the columns, in order; none: files have no ids, and readers take names."""
    partition_keys: Sequence[str]
    """Expressions in Spark's SQL: rows of one partition have the same values. None: there are no partitions."""
    compression: str
    commit: str
    """What is committed once the files are there: see `commits`."""


def layout_of(write: ForeignWrite, table: "Table") -> WriteLayout:
    """Return how rows are written into *table*; `PlanningError` for what is not written."""
    name = ".".join((write.catalog, *write.identifier))
    schema, spec, properties = table.schema(), table.spec(), table.properties
    if table.metadata.format_version > 2:  # noqa: PLR2004
        raise PlanningError(f"{name} has format version {table.metadata.format_version}, and 1 and 2 are written")
    if (form := properties.get(_FORMAT, "parquet").lower()) != "parquet":
        raise PlanningError(f"{name} has its files in the format {form}, and only Parquet is written")
    if odd := next((each for each in write.matching if each not in _identity_columns(table)), None):
        raise PlanningError(f"{name} is not partitioned by the values of {odd}, so no partition can be replaced by it")
    keys = [key for each in spec.fields if (key := _partition_key(name, each, schema))]
    current = table.current_snapshot()
    has_ids = is_flat(schema)
    folder = f"{properties.get(_DATA_PATH, f'{table.location()}/data').rstrip('/')}/onager-{new_nonce()}"
    commit = {
        "catalog": write.catalog,
        "identifier": list(write.identifier),
        "uuid": str(table.metadata.table_uuid),
        "spec_id": spec.spec_id,
        "snapshot_id": None if current is None else current.snapshot_id,
        "replaces": write.replaces,
        "matching": dict(write.matching),
        "path": folder,
        "has_ids": has_ids,
    }
    return WriteLayout(
        path=folder,
        field_ids=[each.field_id for each in schema.fields] if has_ids else [],
        partition_keys=keys,
        compression=properties.get(_CODEC, "zstd"),
        commit=json.dumps(commit, ensure_ascii=False),
    )


def _identity_columns(table: "Table") -> frozenset[str]:
    from pyiceberg.transforms import IdentityTransform

    names = {each.field_id: each.name for each in table.schema().fields}
    return frozenset(
        names[each.source_id]
        for each in table.spec().fields
        if isinstance(each.transform, IdentityTransform) and each.source_id in names
    )


def _partition_key(table: str, each: "PartitionField", schema: "Schema") -> str:
    """Return an expression that is the same for rows of one partition, and for no others; "" for a void field."""
    from pyiceberg import transforms, types

    if isinstance(each.transform, transforms.VoidTransform):
        return ""
    source = next((column for column in schema.fields if column.field_id == each.source_id), None)
    if source is None:
        raise PlanningError(f"{table} is partitioned by a part of a column ({each.name}), which is not written")
    column = f"`{source.name.replace('`', '``')}`"
    if isinstance(source.field_type, types.FloatType | types.DoubleType | types.BinaryType):
        raise PlanningError(
            f"{table} is partitioned by {source.name} of type {source.field_type}, which is not written"
        )
    is_utc = isinstance(source.field_type, types.TimestamptzType)
    # Iceberg counts days and hours in UTC; so does Spark for a timestamp without time zone.
    day = (
        f"date_from_unix_date(CAST(floor(unix_seconds({column}) / 86400) AS INT))"
        if is_utc
        else f"CAST({column} AS DATE)"
    )
    match each.transform:
        case transforms.IdentityTransform():
            is_ntz = isinstance(source.field_type, types.TimestampType)
            return f"unix_micros({column})" if is_utc else f"CAST({column} AS STRING)" if is_ntz else column
        case transforms.YearTransform():
            return f"trunc({day}, 'YEAR')"
        case transforms.MonthTransform():
            return f"trunc({day}, 'MONTH')"
        case transforms.DayTransform():
            return day
        case transforms.HourTransform():
            return f"floor(unix_seconds({column}) / 3600)" if is_utc else f"struct({day}, hour({column}))"
    raise PlanningError(
        f"{table} is partitioned by {each.transform}({source.name}), and rows are written into partitions by values, "
        "years, months, days and hours"
    )
