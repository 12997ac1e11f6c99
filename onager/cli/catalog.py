"""The commands that look at the catalog."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import onager
from onager.cli.exits import ExitCode, fail
from onager.cli.output import print_json, print_table
from onager.client.catalog import parsed_name


def ls(scheduler: str, name: str, output: str) -> None:
    """Print databases, what is in one, or a table's partitions."""
    database, table = parsed_name(name) if name else ("", "")
    with onager.connect(scheduler) as client:
        if table:
            partitions = list(client.partitions(database, table))
            if output == "json":
                print_json([{"path": path, "partition": partition} for path, partition in partitions])
            else:
                _print_partitions(partitions)
            return
        entries = list(client.catalog(database))
    if output == "json":
        print_json([{"kind": each.kind, "database": each.database, "name": each.name} for each in entries])
    elif database:
        print_table(("KIND", "NAME"), [(each.kind, each.name) for each in entries])
    else:
        print_table(("DATABASE",), [(each.database,) for each in entries])


def show(scheduler: str, name: str, *, has_partitions: bool, is_json: bool) -> None:
    """Print a table, view or function."""
    database, of_it = parsed_name(name)
    if not of_it:
        fail(f"{name!r} is the name of a database: give DB.NAME, or use onager catalog ls", ExitCode.USAGE)
    with onager.connect(scheduler) as client:
        entry = client.catalog_entry(database, of_it)
        partitions = list(client.partitions(database, of_it)) if has_partitions and entry.kind == "table" else []
    record = entry.record or {}
    if is_json:
        print_json({**record, "partitions": dict(partitions)} if has_partitions else record)
        return
    print(f"{entry.kind} {entry.database}.{entry.name}")
    for what, value in _described(record.get("spark", {})):
        print(f"{what}: {value}")
    if partitions:
        print()
        _print_partitions(partitions)


def _print_partitions(partitions: Iterable[tuple[str, dict[str, Any]]]) -> None:
    print_table(("PARTITION", "LOCATION"), [(path, _location(each)) for path, each in partitions], cell_width=None)


def _described(spark: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for what, value in spark.items():
        if value not in (None, "", [], {}):
            yield what, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _location(partition: dict[str, Any]) -> str:
    storage = partition.get("storage")
    return str(storage.get("location", "")) if isinstance(storage, dict) else ""
