"""Encode values made of dataclasses as JSON text, by functions that are compiled from the types of their fields.

The result equals pydantic's byte for byte, and pydantic reads it (`onager.execution_graph.codec`). But most records are
an output and an event for each task, small objects whose empty fields are left out. For each such field, pydantic calls
back into Python, which takes several times as long.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from json.encoder import encode_basestring
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from immutables import Map

from onager.execution_graph.maps import SPARSE
from onager.execution_graph.stored import StoredAs

Encoder = Callable[[Any], str]


@cache
def encoder(kind: Any) -> Encoder:  # noqa: PLR0911 - one for each kind of type
    """Return the function that writes values of the type *kind*; `TypeError` for a type that no record has."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return encoder(arguments[0])
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is Literal:
        return encode_basestring
    if origin is Map:
        return _map(encoder(arguments[1]))
    if origin in (tuple, frozenset):
        return _sequence(arguments)
    if isinstance(kind, type) and issubclass(kind, StoredAs):
        write = encoder(kind.record_type)
        return lambda value: write(value.to_record())
    return _dataclass(kind) if is_dataclass(kind) else _simple(kind)


def _simple(kind: Any) -> Encoder:
    if kind is bool:
        return {True: "true", False: "false"}.__getitem__
    if kind in (int, float):
        return repr
    if kind is str:
        return encode_basestring
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {value: encode_basestring(value.value) for value in kind}.__getitem__
    if hasattr(kind, "_fields"):  # a NamedTuple
        return _sequence(tuple(get_type_hints(kind).values()))
    raise TypeError(f"no record has values of {kind}")


def _union(kinds: tuple[Any, ...]) -> Encoder:
    """Return the function that writes a value of any of *kinds*, told apart by class."""
    by_class: dict[type, Encoder] = {get_origin(kind) or kind: encoder(kind) for kind in kinds if kind is not NoneType}
    by_class[NoneType] = lambda _: "null"
    return lambda value: by_class[type(value)](value)


def _sequence(kinds: tuple[Any, ...]) -> Encoder:
    """Return the function that writes a tuple or a set: of items of one kind, or with a kind for each place."""
    if len(kinds) == 1 or kinds[-1] is Ellipsis:
        write_item = encoder(kinds[0])
        return lambda value: f"[{','.join(map(write_item, value))}]"
    each = tuple(map(encoder, kinds))
    return lambda value: f"[{','.join([write(item) for write, item in zip(each, value, strict=True)])}]"


def _map(write_item: Encoder) -> Encoder:
    def write(value: "Map[int, Any]") -> str:
        return "{" + ",".join([f'"{key}":{write_item(value[key])}' for key in sorted(value)]) + "}"

    return write


def _dataclass(kind: Any) -> Encoder:
    """Return the function that writes a dataclass: one expression over all of its fields, twice as fast as a loop.

    A field that is `SPARSE` is left out while it is empty.
    """
    hints = get_type_hints(kind, include_extras=True)
    names: dict[str, Any] = {}
    pieces = []
    for field in fields(kind):
        write, value = f"write_{field.name}", f"value.{field.name}"
        names[write] = encoder(hints[field.name])
        name, text = repr(f',"{field.name}":'), f"{write}({value})"
        if get_origin(hints[field.name]) is Annotated and SPARSE in hints[field.name].__metadata__:
            pieces.append(f"{name} + {text} if {value} else ''")
        else:
            pieces += [name, text]
    # Every field brings the comma before it, including the first one.
    source = f"lambda value: '{{' + ''.join(({', '.join(pieces)},))[1:] + '}}'"
    compiled: Encoder = eval(source, names)  # noqa: S307 made of the names of fields
    return compiled
