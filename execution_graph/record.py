"""The base of the values that a job's record consists of: its graph and the events of its log."""

from collections.abc import Iterable
from typing import TypeVar

from immutables import Map
from msgspec import Struct

_Value = TypeVar("_Value")


class Record(Struct, frozen=True, omit_defaults=True):
    """An immutable value that is stored as a JSON object.

    A field that has its default is left out of the object, so a default never changes from one release to the next.
    Where it may change, the class says ``omit_defaults=False``.
    """

    @property
    def type(self) -> str:
        """Return the name by which the record tells this class from the others of a union."""
        return str(self.__struct_config__.tag)


def without(found: Map[int, _Value], partitions: Iterable[int]) -> Map[int, _Value]:
    """Return *found* without those of *partitions* that are in it."""
    if not found:
        return found
    changed = found.mutate()
    for partition in partitions:
        changed.pop(partition, None)
    return changed.finish()
