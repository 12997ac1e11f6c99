"""Iceberg's columns as Spark's, and what readers need to know to find them in files."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType, NestedField

FIELD_ID: Final = "parquet.field.id"
"""The metadata of a column by which Spark finds it in a Parquet file, or writes it there."""


class UnmappedError(Exception):
    """A table has something that is not read; the text says what."""


def spark_schema(schema: "Schema") -> dict[str, Any]:
    """Return *schema* as Spark's JSON; `UnmappedError`."""
    return {"type": "struct", "fields": [_field(each, each.name, by_id=False) for each in schema.fields]}


def read_schema(schema: "Schema", *, by_id: bool) -> dict[str, Any]:
    """Return *schema* as columns are looked for in files: *by_id*, or else by name.

    Those with ids have names that no file has: Spark takes the type of a column from the name, even then.
    """
    if not by_id:
        return spark_schema(schema)
    fields = [_field(each, each.name, by_id=True) | {"name": f"__onager_{each.field_id}"} for each in schema.fields]
    return {"type": "struct", "fields": fields}


def _field(field: "NestedField", path: str, *, by_id: bool) -> dict[str, Any]:
    if field.initial_default is not None:
        raise UnmappedError(f"the column {path} has a default for rows that were written before it was added")
    metadata: dict[str, Any] = {FIELD_ID: field.field_id} if by_id else {}
    if field.doc:
        metadata["comment"] = field.doc
    spark_type = _type(field.field_type, path, by_id=by_id)
    return {"name": field.name, "type": spark_type, "nullable": not field.required, "metadata": metadata}


def _type(of: "IcebergType", path: str, *, by_id: bool) -> Any:
    from pyiceberg import types

    plain: dict[type, str] = {
        types.BooleanType: "boolean",
        types.IntegerType: "integer",
        types.LongType: "long",
        types.FloatType: "float",
        types.DoubleType: "double",
        types.StringType: "string",
        types.BinaryType: "binary",
        types.DateType: "date",
        types.TimestampType: "timestamp_ntz",
        types.TimestamptzType: "timestamp",
    }
    match of:
        case types.DecimalType():
            return f"decimal({of.precision},{of.scale})"
        case types.StructType():
            fields = [_field(each, f"{path}.{each.name}", by_id=by_id) for each in of.fields]
            return {"type": "struct", "fields": fields}
        case types.ListType():
            element = _type(of.element_type, f"{path}.element", by_id=by_id)
            return {"type": "array", "elementType": element, "containsNull": not of.element_required}
        case types.MapType():
            key = _type(of.key_type, f"{path}.key", by_id=by_id)
            value = _type(of.value_type, f"{path}.value", by_id=by_id)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": not of.value_required}
    if type(of) not in plain:
        raise UnmappedError(f"the column {path} has the type {of}, which Spark does not have, or not in such files")
    return plain[type(of)]


def names_have_changed(schemas: Iterable["Schema"]) -> bool:
    """Return whether a name stands, or has stood, for another field than at other times: columns need their ids.

    `UnmappedError` if that is so within a column, where ids are not enough for Spark.
    """
    names: dict[int, set[str]] = defaultdict(set)
    ids: dict[str, set[int]] = defaultdict(set)
    for schema in schemas:
        for field_id in schema.field_ids:
            name = schema.find_column_name(field_id)
            if name is not None:
                names[field_id].add(name)
                ids[name].add(field_id)
    if reused := next((name for name, found in ids.items() if "." in name and len(found) > 1), None):
        raise UnmappedError(f"{reused} is called as another part of the column was, which has been removed")
    return any(len(found) > 1 for found in names.values()) or any(len(found) > 1 for found in ids.values())


def is_flat(schema: "Schema") -> bool:
    """Return whether no column has other columns in it: Spark writes ids of columns, and not of elements."""
    return all(field.field_type.is_primitive for field in schema.fields)
