"""Manifests: everything that publishing a dataset will do, as the executor that planned it wrote it down.

Executors carry them out. What they say of a table's partitions is read by schedulers, too: with the end of the job it
becomes part of the catalog.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from onager.errors import SinkError, VersionMismatchError
from onager.exchange_layout import is_staged_name, location_path, staging_directory
from onager.ids import is_life

VERSION: Final = 4
"""2: names in directories of the dataset. 3: partitions of a table. 4: a table of another catalog. A manifest has the
lowest that will do."""


@dataclass(frozen=True, slots=True)
class Move:
    """The move of one staged file into the dataset."""

    source: str
    """Its path below the staging directory."""
    name: str
    """Its name in the dataset."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition of a table lies."""

    location: str
    """Where its rows go: a URI."""
    before: str = ""
    """Where it was when the publishing was planned; empty: it was not there."""


@dataclass(frozen=True, slots=True)
class TablePlaces:
    """The partitions of a table into which rows go."""

    key: str
    """The table's, in the catalog."""
    replaces: Literal["nothing", "written", "matching"]
    """What goes: nothing, the rows of partitions that are written to, or all partitions below `within` besides."""
    within: str
    """The path of the partition that was named; empty: the table."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """By the partitions' paths, as Hive names their directories: ``k=1/d=2026-01-31``."""

    def replaces_at(self, path: str) -> bool:
        """Return whether the rows that the partition *path* has go."""
        match self.replaces:
            case "nothing":
                return False
            case "written":
                return path in self.places
        return path in self.places or not self.within or f"{path}/".startswith(f"{self.within}/")


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that publishing one dataset will do."""

    job_id: str
    nonce: str
    """The execution that planned the publishing; marks what it published."""
    target: str
    mode: str
    """``error``, ``overwrite`` or ``append``."""
    staging: str
    moves: tuple[Move, ...]
    table: TablePlaces | None = None
    """Given if the rows go into partitions of a table."""
    foreign: str = ""
    """The table of another catalog that the files become part of, as JSON; empty: none."""

    @property
    def version(self) -> int:
        """Return the version that whoever carries it out must know."""
        if self.foreign:
            return VERSION
        return 3 if self.table is not None else 2 if any("/" in move.name for move in self.moves) else 1

    def place_of(self, move: Move) -> Path:
        """Return where a file goes in the end: into the dataset, or to where its partition lies."""
        partition, _, name = move.name.rpartition("/")
        place = None if self.table is None else self.table.places.get(partition)
        return Path(self.target, move.name) if place is None else Path(location_path(place.location), name)

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON."""
        fields = asdict(self)
        if not self.foreign:
            del fields["foreign"]  # versions before do not know it
        return json.dumps({**fields, "version": self.version}, indent=0).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Return the manifest that `to_bytes` wrote; a newer one raises `VersionMismatchError`, another `SinkError`."""
        fields = json.loads(data)
        if (version := fields.pop("version")) > VERSION:
            raise VersionMismatchError(f"the manifest has version {version}, this Onager carries out {VERSION}")
        fields["moves"] = tuple(Move(**move) for move in fields["moves"])
        fields["table"] = _table(fields.get("table"))
        found = cls(**fields)
        if not is_life(found.nonce) or found.staging != staging_directory(found.target, found.job_id):
            raise SinkError(f"the manifest of job {found.job_id} is not one that this Onager made")
        for move in found.moves:
            check_name(move.source)
            check_name(move.name)
        return found


def _table(fields: dict[str, Any] | None) -> TablePlaces | None:
    if fields is None:
        return None
    places = {path: Place(**place) for path, place in fields["places"].items()}
    return TablePlaces(fields["key"], fields["replaces"], fields["within"], places)


def check_name(name: str) -> None:
    """Raise `SinkError` unless *name* stays below the directory that it is in."""
    if not is_staged_name(name):
        raise SinkError(f"{name!r} cannot be the name of a staged file: nothing is published under it")
