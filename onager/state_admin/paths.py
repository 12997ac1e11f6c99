"""How people name records: ``Keyspace/key``, ``Keyspace/prefix/`` and beginnings of these."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, TypeVar

from onager.errors import InvalidRequestError
from onager.state_backend import Keyspace, KeyValue, Page

Item = TypeVar("Item")


async def pages(
    scan: Callable[..., Awaitable[Page[Item]]], keyspace: Keyspace, prefix: str, limit: int
) -> AsyncIterator[Page[Item]]:
    """Yield all keys or records below *prefix*, as *scan* returns them: at most *limit* at a time."""
    start_after: str | None = None
    while True:
        page = await scan(keyspace, prefix, limit=limit, start_after=start_after)
        yield page
        if not page.has_more:
            return
        last = page.items[-1]
        start_after = last.key if isinstance(last, KeyValue) else str(last)


class Selection(NamedTuple):
    """The keys of *keyspaces* that begin with *below* and then *rest*."""

    keyspaces: tuple[Keyspace, ...]
    below: str
    """A prefix as the store takes it: empty, or ending with ``/``."""
    rest: str

    def matches(self, key: str) -> bool:
        """Return whether *key*, which lies below `below`, is selected."""
        return key.startswith(self.rest, len(self.below))


def selection(text: str) -> Selection:
    """Return what *text* selects: everything when empty, else a ``Keyspace``, or ``Keyspace/beginning-of-keys``."""
    name, _, start = text.partition("/")
    directory, slash, rest = start.rpartition("/")
    return Selection(tuple(Keyspace) if not name else (keyspace_of(name),), f"{directory}{slash}", rest)


def record_path(text: str) -> tuple[Keyspace, str]:
    """Return the keyspace and key in ``Keyspace/key``."""
    name, _, key = text.partition("/")
    if not key:
        raise InvalidRequestError(f"{text!r} does not name a record: give Keyspace/key")
    return keyspace_of(name), key


def keyspace_of(name: str) -> Keyspace:
    """Return the keyspace called *name*; the `InvalidRequestError` for an unknown one lists all."""
    try:
        return Keyspace(name)
    except ValueError as error:
        raise InvalidRequestError(f"{name!r} is not a keyspace; use one of {', '.join(Keyspace)}") from error
