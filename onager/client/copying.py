"""Plain values made of messages."""

from dataclasses import fields
from typing import Any, TypeVar

from google.protobuf.message import Message

T = TypeVar("T")


def copied(kind: type[T], message: Message, **given: Any) -> T:
    """Return a dataclass of *kind* with the fields *given*, and all others as *message* has them under their names."""
    names = [field.name for field in fields(kind) if field.name not in given]  # type: ignore[arg-type]
    return kind(**{name: getattr(message, name) for name in names}, **given)
