"""Persistent maps by partition: O(log n) to change, shared between successive graphs, stored as plain JSON objects."""

from typing import Annotated, Any, TypeVar, get_args

from immutables import Map
from pydantic import GetCoreSchemaHandler
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


PartitionMap = Annotated[Map[int, _Value], _MapSchema()]
"""An immutable map from partition to something."""
