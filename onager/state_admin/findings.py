"""The findings of a check."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from onager.errors import SchemaVersionError, StateCorruptError
from onager.protocol import onager_pb2 as pb
from onager.state_admin.contents import StoreContents
from onager.state_backend import Keyspace

T = TypeVar("T")

Kind = Literal[
    "undecodable", "newer", "missing", "misplaced", "inconsistent", "invariant", "gap", "orphan", "unfinished", "marked"
]
"""``undecodable``: the value cannot be read; ``newer``: written by a newer major version; ``missing``: named, but not
there; ``misplaced``: under a key that is not its own; ``inconsistent``: contradicts another record; ``invariant``: an
impossible graph; ``gap``: a log without one of its positions; ``orphan``: nothing names it; ``unfinished``: a restore
broke off; ``marked``: a scheduler found the job damaged before."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One error; or, as a warning, an oddity that the schedulers handle themselves."""

    kind: Kind
    keyspace: Keyspace
    key: str
    message: str
    is_warning: bool = False

    def to_message(self) -> pb.StateFinding:
        """Return the finding as a message."""
        return pb.StateFinding(
            severity="warning" if self.is_warning else "error",
            key=f"{self.keyspace}/{self.key}",
            kind=self.kind,
            message=self.message,
        )


class Findings(list[Finding]):
    """A collection of findings."""

    def error(self, kind: Kind, keyspace: Keyspace, key: str, message: str) -> None:
        """Add an error."""
        self.append(Finding(kind, keyspace, key, message))

    def warn(self, kind: Kind, keyspace: Keyspace, key: str, message: str) -> None:
        """Add a warning."""
        self.append(Finding(kind, keyspace, key, message, is_warning=True))

    def decoded(self, store: StoreContents, keyspace: Keyspace, decode: Callable[[bytes, str], T]) -> dict[str, T]:
        """Return the records of *keyspace* by key, without those that cannot be read: for these errors are added."""
        found: dict[str, T] = {}
        for key, item in store.records[keyspace].items():
            record = self.read(keyspace, key, partial(decode, item.value, f"{keyspace}/{key}"))
            if record is not None:
                found[key] = record
        return found

    def read(self, keyspace: Keyspace, key: str, decode: Callable[[], T]) -> T | None:
        """Return the result of *decode* on a record; None, and an error for its key, when it cannot be read."""
        try:
            return decode()
        except SchemaVersionError as error:
            self.error("newer", keyspace, key, str(error))
        except StateCorruptError as error:
            self.error("undecodable", keyspace, key, str(error))
        return None
