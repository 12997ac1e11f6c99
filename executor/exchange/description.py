"""Dataset descriptions: a small file beside the files of a dataset, for readers that use it as a view.

Text in CSV and JSON has no types, and can be written in more than one way. The description names the format, the
schema, and the options under which Spark reads the same rows again. A checkpoint has one, too: in
its files, columns have other names. Readers of datasets skip names that begin with ``_``.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from onager.errors import PlanningError
from onager.exchange_layout import has_scheme, is_checkpoint, local_path
from onager.protocol import onager_pb2 as pb

NAME: Final = "_onager.json"
VERSION: Final = 1
CORRUPT: Final = "_onager_corrupt"
"""The column of unreadable lines; there are none, and a column of the user's may have the usual name."""
_BOTH: Final = frozenset(
    {
        "charset", "dateformat", "encoding", "linesep", "locale", "timeformat", "timestampformat", "timestampntzformat",
        "timezone",
    }
)  # fmt: skip
_CSV: Final = frozenset(
    {"chartoescapequoteescaping", "comment", "delimiter", "escape", "header", "nullvalue", "quote", "sep"}
)
_ONE_LINE: Final = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"}
)
"""Types whose values hold no line break."""


@dataclass(frozen=True, slots=True)
class Description:
    """The description of the files of one dataset."""

    format: str
    schema: str
    """The schema as Spark's JSON."""
    options: Mapping[str, str]
    """The options to read it with."""

    def to_bytes(self) -> bytes:
        """Return it as JSON."""
        fields = {"version": VERSION, "format": self.format, "options": dict(sorted(self.options.items()))}
        return json.dumps({**fields, "schema": json.loads(self.schema)}, indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return what `to_bytes` wrote; `ValueError` for anything else."""
        fields: Any = json.loads(data)
        if fields["version"] != VERSION:
            raise ValueError(f"it has version {fields['version']}, this Onager reads {VERSION}")
        return cls(
            format=str(fields["format"]),
            schema=json.dumps(fields["schema"]),
            options={str(key): str(value) for key, value in fields["options"].items()},
        )

    def difference(self, other: "Description") -> str:
        """Return why such files cannot be in one dataset with *other*'s, of this format; "" when they can."""
        if _columns(self.schema) != _columns(other.schema):
            return "columns"
        keys = {key for key in {*self.options, *other.options} if self.options.get(key) != other.options.get(key)}
        return f"options ({', '.join(sorted(keys))})" if keys else ""


def describe(sink: pb.Sink) -> Description | None:
    """Return the description of the files of *sink*; None where they need none, or no schema is known."""
    if not sink.schema_json:
        return None
    if is_checkpoint(sink.path):
        return Description(sink.format, sink.schema_json, {})
    if sink.format not in {"csv", "json"}:
        return None
    fields = json.loads(sink.schema_json)["fields"]
    if sink.format == "json" and any(has_odd_keys(field["type"]) for field in fields):
        return None
    kept = _BOTH | (_CSV if sink.format == "csv" else frozenset())
    options = {key: value for key, value in sink.options.items() if key.lower() in kept}
    options |= {"mode": "FAILFAST", "columnNameOfCorruptRecord": CORRUPT}
    if sink.format == "csv":
        if not any(key.lower() == "header" for key in options):
            options["header"] = "false"
        if not all(_is_one_line(field["type"]) for field in fields):
            options["multiLine"] = "true"
    return Description(sink.format, sink.schema_json, options)


def _is_one_line(data_type: Any) -> bool:
    return isinstance(data_type, str) and (data_type in _ONE_LINE or data_type.startswith("decimal"))


def has_odd_keys(data_type: Any) -> bool:
    """Return whether a type, as Spark's JSON, holds a map whose keys are not strings, which JSON cannot have."""
    match data_type:
        case {"type": "map", "keyType": key, "valueType": value}:
            return not str(key).startswith("string") or has_odd_keys(value)
        case {"type": "array", "elementType": element}:
            return has_odd_keys(element)
        case {"type": "struct", "fields": fields}:
            return any(has_odd_keys(field["type"]) for field in fields)
    return False


def read_description(path: str) -> Description | None:
    """Return the description of the dataset at *path*, None when there is none; `PlanningError` if it is damaged."""
    if has_scheme(path):
        return None
    file = Path(local_path(path)) / NAME
    try:
        return Description.from_bytes(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise PlanningError(
            f"{file} says how {path} was written, and cannot be read ({e}): write the dataset again, or remove it "
            "and give the view's options yourself"
        ) from e


def null_text(path: str) -> str:
    """Return a text for nulls that occurs in no file.

    Spark writes null as nothing and an empty string as two quotes, and tells them apart only if the text for null is
    not empty.
    """
    return f"null-{hashlib.sha256(path.encode()).hexdigest()[:32]}"


def _columns(schema: str) -> list[tuple[str, Any]]:
    return [(field["name"], _plain(field["type"])) for field in json.loads(schema)["fields"]]


def _plain(data_type: Any) -> Any:
    """Return a type without details that do not affect how its values are written."""
    match data_type:
        case dict():
            left_out = {"nullable", "containsNull", "valueContainsNull", "metadata"}
            return {key: _plain(value) for key, value in data_type.items() if key not in left_out}
        case list():
            return [_plain(item) for item in data_type]
    return data_type
