"""Persistent maps by partition: O(log n) to change, shared between successive graphs, stored as plain JSON objects."""

from collections.abc import Iterable
from operator import not_
from typing import Annotated, Any, TypeVar, get_args

from immutables import Map
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import core_schema

_Value = TypeVar("_Value")


class _MapSchema:
    """Tells pydantic how an `immutables.Map` is written (a JSON object in key order) and read."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        key, value = get_args(source)
        items = handler.generate_schema(dict[key, value])  # type: ignore[valid-type]
        return core_schema.no_info_after_validator_function(
            Map,
            items,
            serialization=core_schema.wrap_serializer_function_ser_schema(
                lambda found, write: write(dict(sorted(found.items()))), schema=items
            ),
        )


SPARSE = Field(exclude_if=not_)
"""Marks a field that is left out of the record while it is empty, 0, false or None; that is also its default."""

PartitionMap = Annotated[Map[int, _Value], _MapSchema()]
"""An immutable map from partition to a value."""


def without(found: Map[int, _Value], partitions: Iterable[int]) -> Map[int, _Value]:
    """Return *found* without those of *partitions* that are in it."""
    if not found:
        return found
    changed = found.mutate()
    for partition in partitions:
        changed.pop(partition, None)
    return changed.finish()
