"""The catalog, as plain values."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from onager.client.connection import Connection
from onager.errors import InvalidRequestError
from onager.protocol import onager_pb2 as pb

_PART: Final = r"(`(?:[^`]|``)+`|[^.`]+)"
_NAME: Final = re.compile(rf"{_PART}(?:\.{_PART})?")


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A database, table, view or function."""

    kind: str
    """``database``, ``table``, ``view`` or ``function``; ``damaged`` for a record that cannot be read."""
    database: str
    name: str
    """Empty for a database."""
    record: dict[str, Any] | None = None
    """What the store has of it, secrets redacted; None where entries are listed."""


def parsed_name(text: str) -> tuple[str, str]:
    """Return database and name of ``DB`` or ``DB.NAME``, each perhaps in backquotes; the name is empty for a database.

    `InvalidRequestError` for anything else.
    """
    found = _NAME.fullmatch(text)
    if found is None:
        raise InvalidRequestError(
            f"{text!r} is no name in the catalog: give DB or DB.NAME, names with dots in `backquotes`"
        )
    database, name = (
        part[1:-1].replace("``", "`") if part and part.startswith("`") else part or "" for part in found.groups()
    )
    return database, name


def list_catalog(connection: Connection, database: str) -> Iterator[CatalogEntry]:
    """Yield the databases, or what is in one, page by page."""
    for answer in connection.pages("GetCatalog", pb.GetCatalogRequest(database=database)):
        for entry in answer.entries:
            yield CatalogEntry(entry.kind, entry.database, entry.name)


def get_entry(connection: Connection, database: str, name: str) -> CatalogEntry:
    """Return a table, view or function with its record."""
    request = pb.GetCatalogRequest(database=database, name=name)
    answer: pb.GetCatalogResponse = connection.call("GetCatalog", request)
    entry = answer.entries[0]
    return CatalogEntry(entry.kind, entry.database, entry.name, json.loads(entry.json))


def list_partitions(connection: Connection, database: str, table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the partitions of a table, page by page."""
    request = pb.GetCatalogRequest(database=database, name=table, partitions=True)
    for answer in connection.pages("GetCatalog", request):
        for partition in answer.partitions:
            yield partition.path, json.loads(partition.json)
