"""Rows that go into partitions of a table: where they go, and what they replace.

Rows that are added go to where their partition lies. Those that replace others go to a folder of their own within the
table's, in which a list names the files that nobody needs any more once the job has succeeded.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from onager.catalog_records import CatalogKey, folded, new_partitions_at, page_key, read_page, read_record
from onager.errors import SinkError, StateCorruptError
from onager.exchange_layout import has_scheme, is_below, join, local_path, location_path, path_location, uri_quoted
from onager.executor.exchange.datasets import check_replaced
from onager.manifests import Move, Place, TablePlaces
from onager.private_paths import PrivatePaths, steps_back
from onager.protocol import onager_pb2 as pb

MAX_WRITTEN: Final = 20_000
"""Partitions into which one job writes rows: they are in one manifest, and in one change of the catalog."""
_MAX_KEYS: Final = 100
_TRIES: Final = 5

Read = Callable[[pb.ReadCatalogRequest], Future[pb.ReadCatalogResponse]]


@dataclass(frozen=True, slots=True)
class HeldPartitions:
    """The partitions of a table as they are."""

    locations: Mapping[str, str] = field(default_factory=dict)
    """URIs by path, as Hive names the directories of partitions: ``k=1/d=2026-01-31``."""
    new_at: str = ""
    """The URI below which new ones lie; empty: the table's own."""


def held_partitions(read: Read, table: pb.SinkTable) -> HeldPartitions:
    """Return the partitions of *table*: none if it is another table by now, or gone.

    Whether that matters is found out at the end of the job.
    """
    key = CatalogKey.parsed(table.key)
    for _ in range(_TRIES):
        (found,) = read(pb.ReadCatalogRequest(keys=[table.key])).result().records
        if not found.value or key is None:
            return HeldPartitions()
        record = read_record(key, found.value, f"Catalog/{key}")
        if record["id"] != table.table_id:
            return HeldPartitions()
        keys = [page_key(table.table_id, page_id) for page_id in record.get("pages", ())]
        pages = [page for start in range(0, len(keys), _MAX_KEYS) for page in _pages(read, keys[start:][:_MAX_KEYS])]
        if all(page.value for page in pages):
            partitions = folded(read_page(p.key.rpartition("/")[2], p.value, f"Catalog/{p.key}") for p in pages)
            locations = {path: str(each["storage"]["location"]) for path, each in partitions.items()}
            return HeldPartitions(locations, new_partitions_at(record))
    raise StateCorruptError(f"pages of partitions of {key} are missing")


def _pages(read: Read, keys: Sequence[str]) -> Iterable[pb.CatalogRecord]:
    return read(pb.ReadCatalogRequest(keys=keys)).result().records


def written_places(sink: pb.Sink, moves: Sequence[Move], held: HeldPartitions, private: PrivatePaths) -> TablePlaces:
    """Return the places of the partitions into which *moves* go."""
    is_added = sink.table.replaces == "nothing"
    within = sink.table.within
    paths = {move.name.rpartition("/")[0] for move in moves} - {""}
    if not paths and within and within.count("/") == len(sink.partition_by) - 1:
        paths = {within}  # one that is named is there, as in Spark, even if it gets no rows
    if len(paths) > MAX_WRITTEN:
        raise SinkError(
            f"rows of {len(paths):,} partitions, more than {MAX_WRITTEN:,} in one job: write some after "
            "others, or partition the table by fewer columns, or more coarsely"
        )
    places = {}
    for path in sorted(paths):
        before = held.locations.get(path, "")
        base = (is_added and held.new_at) or path_location(sink.path)
        places[path] = Place(before if is_added and before else join(base, uri_quoted(path)), before)
        _check_place(path, places[path].location, sink, private)
    replaces: Any = sink.table.replaces  # as schedulers have checked
    return TablePlaces(sink.table.key, replaces, sink.table.within, places)


def _check_place(path: str, location: str, sink: pb.Sink, private: PrivatePaths) -> None:
    """Raise `SinkError` if no file can be moved from beside the table to where its partition *path* lies."""
    place = location_path(location)
    if has_scheme(location) or steps_back(place):
        raise SinkError(
            f"the partition {path} lies at {location}, to which no file can be moved: give it a place on the file "
            "system of its table (ALTER TABLE … PARTITION … SET LOCATION)"
        )
    if (why := private.refusal(place)) is not None:
        raise SinkError(f"{location} cannot be written: {why}")
    if not is_below(location, path_location(sink.path)) and _device(Path(place)) != _device(
        Path(local_path(sink.path))
    ):
        raise SinkError(
            f"the partition {path} lies at {location}, on another file system than its table, so that no file can be "
            "moved there: give it a place on the same one"
        )


def _device(path: Path) -> int:
    """Return the file system of *path*, or of where it would be made."""
    return next(each for each in (path, *path.parents) if each.exists()).stat().st_dev


def replaced_files(sink: pb.Sink, places: TablePlaces, held: HeldPartitions) -> bytes:
    """Return the list of the files that rows replace, as JSON, named from the table's folder; empty: there are none.

    Partitions that lie elsewhere are left out: their files are somebody else's. `SinkError` if a partition's folder
    holds more than files of rows, unless *sink* may replace anything.
    """
    home = Path(location_path(sink.table.location))
    files = []
    for path, location in held.locations.items():
        folder = Path(location_path(location))
        if places.replaces_at(path) and folder.is_relative_to(home) and folder != home:
            if folder.is_dir() and not sink.replaces_anything:
                check_replaced(folder)
            files += [str(file.relative_to(home)) for file in folder.rglob("*") if file.is_file()]
    return json.dumps(sorted(files), ensure_ascii=False, indent=0).encode() if files else b""
