"""Schemas as Spark Connect tells them, made of Spark's JSON."""

import json
import re
from typing import Any, Final

from onager.protocol.spark_connect import DataType

_PLAIN: Final = {
    "void": "null",
    "binary": "binary",
    "boolean": "boolean",
    "byte": "byte",
    "short": "short",
    "integer": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "interval": "calendar_interval",
    "variant": "variant",
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
_SIZED: Final = re.compile(r"(char|varchar|time|geometry|geography)\((\d+)\)")
_INTERVAL: Final = re.compile(r"interval (\w+)(?: to (\w+))?")
_FIELDS: Final = {"day": 0, "hour": 1, "minute": 2, "second": 3}
_YEAR_FIELDS: Final = {"year": 0, "month": 1}
_SIZES: Final = {"char": ("char", "length"), "varchar": ("var_char", "length"), "time": ("time", "precision")}
_COLLATIONS: Final = "__COLLATIONS"


def schema_message(schema_json: str) -> Any | None:
    """Return the message of a schema; None where it has a type of which this version does not know the message."""
    try:
        return _type(json.loads(schema_json))
    except (KeyError, ValueError):
        return None


def _type(given: Any, collation: str = "UTF8_BINARY") -> Any:
    found = DataType()
    if isinstance(given, dict):
        _fill(found, given)
    elif given == "string":
        found.string.collation = collation
    elif given in _PLAIN:
        getattr(found, _PLAIN[given]).SetInParent()
    elif match := _DECIMAL.fullmatch(given):
        found.decimal.precision, found.decimal.scale = int(match[1]), int(match[2])
    elif (match := _SIZED.fullmatch(given)) and match[1] in _SIZES:
        kind, name = _SIZES[match[1]]
        setattr(getattr(found, kind), name, int(match[2]))
    elif match := _INTERVAL.fullmatch(given):
        is_years = match[1] in _YEAR_FIELDS
        fields = _YEAR_FIELDS if is_years else _FIELDS
        interval = found.year_month_interval if is_years else found.day_time_interval
        interval.start_field, interval.end_field = fields[match[1]], fields[match[2] or match[1]]
    else:
        raise ValueError(f"{given!r} is no type of which the message is known")
    return found


def _fill(found: Any, given: dict[str, Any]) -> None:
    match given["type"]:
        case "struct":
            found.struct.SetInParent()
            for field in given["fields"]:
                _add_field(found.struct, field)
        case "array":
            found.array.element_type.CopyFrom(_type(given["elementType"]))
            found.array.contains_null = given["containsNull"]
        case "map":
            found.map.key_type.CopyFrom(_type(given["keyType"]))
            found.map.value_type.CopyFrom(_type(given["valueType"]))
            found.map.value_contains_null = given["valueContainsNull"]
        case "udt":
            found.udt.type = "udt"
            if "class" in given:
                found.udt.jvm_class = given["class"]
            else:
                found.udt.serialized_python_class = given["serializedClass"]
            if given.get("pyClass"):
                found.udt.python_class = given["pyClass"]
            found.udt.sql_type.CopyFrom(_type(given["sqlType"]))
        case other:
            raise ValueError(f"{other!r} is no type of which the message is known")


def _add_field(struct: Any, field: dict[str, Any]) -> None:
    metadata = dict(field.get("metadata") or {})
    collations = metadata.pop(_COLLATIONS, {})
    if any(path != field["name"] for path in collations):
        raise ValueError("a collation within a field")
    collation = collations.get(field["name"], "spark.UTF8_BINARY").rpartition(".")[2]
    added = struct.fields.add(name=field["name"], nullable=field["nullable"])
    added.data_type.CopyFrom(_type(field["type"], collation))
    if metadata:
        added.metadata = json.dumps(metadata)
