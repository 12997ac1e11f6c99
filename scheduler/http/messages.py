"""The protocol's messages as pydantic models, for the OpenAPI document, with the comments of the protocol's file.

Answers are not made by these models: `onager.protocol.plain` makes the JSON, and a test compares the two.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Annotated, Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from pydantic import BaseModel, ConfigDict, Field, create_model

_NATURAL: Final = Annotated[int, Field(ge=0)]
_BASE64: Final = Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]
_KINDS: Final[dict[int, Any]] = {
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_BYTES: _BASE64,
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_UINT32: _NATURAL,
    FieldDescriptor.TYPE_UINT64: _NATURAL,
    FieldDescriptor.TYPE_INT32: int,
    FieldDescriptor.TYPE_INT64: int,
    FieldDescriptor.TYPE_DOUBLE: float,
    FieldDescriptor.TYPE_FLOAT: float,
}
_BEGINS: Final = re.compile(r"message (\w+) \{")
_FIELD: Final = re.compile(r"\s+(?:repeated )?[\w.]+(?:<.*>)? (\w+) = \d+;(?:\s*// (.*))?")
_COMMENT: Final = re.compile(r"\s*// (?!-)(.*)")


def answer_of(message: type[Message]) -> type[BaseModel]:
    """Return the model of the JSON that `plain` makes of a message: every field is there, but for unset messages."""
    return _model(message.DESCRIPTOR, is_request=False)


def request_of(message: type[Message]) -> type[BaseModel]:
    """Return the model of a message in a request: every field may be left out."""
    return _model(message.DESCRIPTOR, is_request=True)


def fields_of(message: type[Message], *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of an answer's model, for `create_model`."""
    return _fields([f for f in message.DESCRIPTOR.fields if f.name not in without], is_request=False)


@cache
def _model(descriptor: Descriptor, *, is_request: bool) -> type[BaseModel]:
    return create_model(
        descriptor.name + ("Request" if is_request else ""),
        __config__=ConfigDict(extra="forbid" if is_request else "ignore", protected_namespaces=()),
        __doc__=_comments().messages.get(descriptor.name),
        **_fields(descriptor.fields, is_request=is_request),
    )


def _fields(fields: Iterable[Any], *, is_request: bool) -> dict[str, Any]:
    # A name that pydantic's classes have, too, stands under another one, with its own as the alias.
    return {
        f"{field.name}_" if hasattr(BaseModel, field.name) else field.name: _field(field, is_request=is_request)
        for field in fields
    }


def _field(field: FieldDescriptor, *, is_request: bool) -> tuple[Any, Any]:
    about = _comments().fields.get((getattr(field.containing_type, "name", ""), field.name))
    may_lack = is_request or (field.message_type is not None and not field.is_repeated)
    kind = _kind(field, is_request=is_request)
    if may_lack:
        return (kind | None, Field(None, alias=field.name, description=about))
    return (kind, Field(alias=field.name, description=about))


def _kind(field: FieldDescriptor, *, is_request: bool) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return dict[str, _single(entry.fields_by_name["value"], is_request=is_request)]  # type: ignore[misc]
    single = _single(field, is_request=is_request)
    return list[single] if field.is_repeated else single  # type: ignore[valid-type]


def _single(field: FieldDescriptor, *, is_request: bool) -> Any:
    if field.message_type is not None:
        return _model(field.message_type, is_request=is_request)
    if field.enum_type is not None:
        return Annotated[str, Field(json_schema_extra={"enum": [v.name.lower() for v in field.enum_type.values]})]
    return _KINDS[field.type]


class _Comments(NamedTuple):
    messages: dict[str, str]
    fields: dict[tuple[str, str], str]


@cache
def _comments() -> _Comments:
    """Return what the protocol's file says of messages and of their fields, behind them or above them."""
    found = _Comments({}, {})
    message, above = "", list[str]()
    for line in resources.files("onager.protocol").joinpath("onager.proto").read_text(encoding="utf-8").splitlines():
        if comment := _COMMENT.fullmatch(line):
            above.append(comment[1])
            continue
        if begins := _BEGINS.match(line):
            message = begins[1]
            if above:
                found.messages[message] = " ".join(above)
        elif (field := _FIELD.fullmatch(line)) and (above or field[2]):
            found.fields[message, field[1]] = " ".join([*above, *([field[2]] if field[2] else [])])
        above.clear()
    return found
