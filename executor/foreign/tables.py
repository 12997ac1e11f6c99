"""What planning asks of other catalogs: tables as they are at one moment, their files, and what there is."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onager.errors import CatalogUnavailableError
from onager.executor.foreign import files
from onager.executor.foreign.commits import Commit, commit, has_committed
from onager.executor.foreign.iceberg import FILES_S, IcebergCatalogs, MissingError, asking, awaited, begun
from onager.executor.foreign.schemas import UnmappedError, names_have_changed, spark_schema
from onager.executor.foreign.writes import ForeignWrite, WriteLayout, layout_of

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class Pinned:
    """A table at one snapshot."""

    table: "Table"
    snapshot: "Snapshot | None"
    schema: "Schema"
    by_id: bool
    """Whether columns are found in files by their ids: names have changed."""


class ForeignTables(IcebergCatalogs):
    """The tables of all catalogs that this executor was given besides Onager's own."""

    def planning(self) -> "PlanningTables":
        """Return what one planning asks: each table is at one snapshot throughout."""
        return PlanningTables(self)

    def has_committed(self, text: str, job_id: str) -> bool:
        """Return whether the job has committed to the table that *text* names; `SinkError` if it never can."""
        to = Commit.parsed(text)
        return awaited(to.catalog, begun(lambda: has_committed(self, to, job_id)), FILES_S)

    def commit(self, text: str, job_id: str, names: Sequence[str]) -> None:
        """Make the files *names* part of the table that *text* names, once for the job, whoever dies.

        Raises `SinkError` if the table has changed in the meantime so that they cannot, `CatalogUnavailableError`.
        """
        to = Commit.parsed(text)
        paths = [f"{to.path}/{name}" for name in names]
        awaited(to.catalog, begun(lambda: commit(self, to, job_id, paths)), FILES_S)


class PlanningTables:
    """The tables of one planning; what it has seen of one stays as it was."""

    def __init__(self, catalogs: IcebergCatalogs) -> None:
        self._catalogs = catalogs
        self._tables: dict[tuple[str, ...], Table] = {}
        self._pinned: dict[tuple[Any, ...], Pinned] = {}

    def ask(self, request: Mapping[str, Any]) -> Future[dict[str, Any]]:
        """Begin to answer a request of the kernel, which a dictionary describes; see `answer`."""
        return begun(lambda: self.answer(request))

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is asked for: {missing: true} for what is not there, {refused: why} for what is not read.

        Raises `CatalogUnavailableError`.
        """
        name = str(request["catalog"])
        identifier = tuple(request.get("identifier", ()))
        try:
            with asking(name):
                if request["what"] in ("table", "files"):
                    pin = self._pin(name, identifier, request)
                    if request["what"] == "table":
                        return _described(pin)
                    return files.described(pin.table, pin.snapshot, pin.schema, by_id=pin.by_id)
                return self._listed(name, identifier, str(request["what"]))
        except MissingError:
            return {"missing": True}
        except UnmappedError as error:
            return {"refused": f"{'.'.join((name, *identifier))} cannot be read: {error}"}

    def layout(self, write: ForeignWrite) -> WriteLayout:
        """Return how rows are written into a table that this planning has seen; `PlanningError` if they cannot be."""
        return layout_of(write, self._tables[write.catalog, *write.identifier])

    def _pin(self, name: str, identifier: tuple[str, ...], request: Mapping[str, Any]) -> Pinned:
        version, at_us = str(request.get("version") or ""), int(request.get("timestamp_us") or 0)
        of = (name, *identifier)
        if of not in self._tables:
            self._tables[of] = self._catalogs.table(name, identifier)
        key = (of, version, at_us)
        if key not in self._pinned:
            self._pinned[key] = _pinned(self._tables[of], version, at_us)
        return self._pinned[key]

    def _listed(self, name: str, identifier: tuple[str, ...], what: str) -> dict[str, Any]:
        catalog = self._catalogs.catalog(name)
        match what:
            case "tables":
                return {"names": sorted(table[-1] for table in catalog.list_tables(identifier))}
            case "namespaces":
                return {"names": [list(found) for found in catalog.list_namespaces(identifier)]}
            case "namespace":
                return {"properties": _text(catalog.load_namespace_properties(identifier))}
        raise CatalogUnavailableError(name, f"nothing is known of {what}")


def _described(pin: Pinned) -> dict[str, Any]:
    snapshot = "" if pin.snapshot is None else str(pin.snapshot.snapshot_id)
    partitioning = [
        [str(field.transform), pin.schema.find_column_name(field.source_id) or field.name]
        for field in pin.table.spec().fields
    ]
    return {
        "schema": json.dumps(spark_schema(pin.schema)),
        "by_id": pin.by_id,
        "location": pin.table.location(),
        "snapshot": snapshot,
        "partitioning": partitioning,
        "properties": {
            **_text(pin.table.properties),
            "provider": "iceberg",
            "location": pin.table.location(),
            "format-version": str(pin.table.metadata.format_version),
            "current-snapshot-id": snapshot or "none",
        },
    }


def _pinned(table: "Table", version: str, at_us: int) -> Pinned:
    by_id = names_have_changed(table.schemas().values())
    if not version and not at_us:
        return Pinned(table, table.current_snapshot(), table.schema(), by_id)
    if at_us:
        snapshot = table.snapshot_as_of_timestamp(at_us // 1000)
    else:
        snapshot = table.snapshot_by_id(int(version)) if version.isdecimal() else table.snapshot_by_name(version)
    if snapshot is None:
        raise UnmappedError(f"it has no snapshot {version}" if version else "it has no snapshot as old as that")
    schema = table.schema() if snapshot.schema_id is None else table.schemas()[snapshot.schema_id]
    return Pinned(table, snapshot, schema, by_id)


def _text(properties: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in properties.items()}
