"""A commit to an Iceberg table names only files that are on their disks."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.catalog import load_catalog
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from onager.executor.foreign import ForeignTables, parse_catalog
from onager.executor.foreign.synced_files import SyncedFileIO

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


def committing(directory: Path, warehouse: str) -> tuple[ForeignTables, str, str]:
    """Return the tables of a new catalog, and a commit to one of them of one file, with its name."""
    where = {"uri": f"sqlite:///{directory}/ice.db", "warehouse": f"{warehouse}/ice"}
    catalog = load_catalog("ice", **where)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.sales", ROWS.schema)
    table.append(ROWS)
    path = Path(table.location().removeprefix("file://")) / "data"
    parquet.write_table(ROWS, path / "new.parquet")
    to = {
        "catalog": "ice",
        "identifier": ["shop", "sales"],
        "uuid": str(table.metadata.table_uuid),
        "spec_id": 0,
        "snapshot_id": table.current_snapshot().snapshot_id,
        "replaces": "nothing",
        "matching": {},
        "path": str(path),
        "has_ids": False,
    }
    catalog.close()
    tables = ForeignTables([parse_catalog(f"ice=iceberg:{where['uri']}?warehouse={where['warehouse']}")])
    return tables, json.dumps(to), "new.parquet"


def current(directory: Path) -> str:
    """Return where the catalog says that the table's metadata are."""
    connection = sqlite3.connect(f"file:{directory}/ice.db?mode=ro", uri=True)
    try:
        (found,) = connection.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    finally:
        connection.close()
    return str(found)


@pytest.mark.parametrize("scheme", ["file://", ""])
def test_what_a_commit_names_is_synced_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    tables, to, name = committing(tmp_path, f"{scheme}{tmp_path}")
    metadata, before = tmp_path / "ice" / "shop" / "sales" / "metadata", current(tmp_path)
    old = set(metadata.iterdir())
    synced: list[tuple[Path, bool]] = []
    fsync = os.fsync

    def noting(number: int) -> None:
        path = Path(f"/proc/self/fd/{number}").readlink()
        fsync(number)
        synced.append((path, current(tmp_path) == before))

    monkeypatch.setattr(os, "fsync", noting)
    tables.commit(to, "job-1", [name])
    tables.close()
    assert current(tmp_path) != before
    made = set(metadata.iterdir()) - old
    assert sorted(path.suffix for path in made) == [".avro", ".avro", ".json"]
    assert all(was_before for _, was_before in synced)
    places = [path for path, _ in synced]
    assert made <= {*places}
    assert all(metadata in places[places.index(path) :] for path in made), "what names them is synced after them"


def test_new_directories_of_a_commit_are_synced_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def noting(number: int) -> None:
        synced.append(Path(f"/proc/self/fd/{number}").readlink())
        fsync(number)

    monkeypatch.setattr(os, "fsync", noting)
    with SyncedFileIO().new_output(f"file://{tmp_path}/a/b/c.avro").create() as stream:
        stream.write(b"manifest")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b" / "c.avro", tmp_path / "a" / "b"]


def test_a_disk_that_fails_a_sync_fails_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, to, name = committing(tmp_path, str(tmp_path))
    before = current(tmp_path)

    def fsync(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(Exception, match="Input/output error"):
            tables.commit(to, "job-1", [name])
    assert current(tmp_path) == before
    tables.commit(to, "job-1", [name])
    tables.close()
    assert current(tmp_path) != before


def test_files_are_read_written_and_deleted_as_pyiceberg_does(tmp_path: Path) -> None:
    files = load_file_io({"py-io-impl": f"{SyncedFileIO.__module__}.SyncedFileIO"})
    output = files.new_output(str(tmp_path / "x"))
    with output.create() as stream:
        stream.write(b"first")
        assert stream.tell() == 5
    with pytest.raises(FileExistsError):
        output.create()
    with output.create(overwrite=True) as stream:
        stream.write(b"next")
    assert (len(output), output.exists(), output.to_input_file().open().read()) == (4, True, b"next")
    with files.new_input(f"file:{tmp_path}/x").open() as given:
        assert given.read() == b"next"
    files.delete(output)
    assert not output.exists()
    with pytest.raises(FileNotFoundError):
        files.new_input(str(tmp_path / "x")).open()


def test_what_is_not_mounted_is_left_to_pyiceberg() -> None:
    files: Any = SyncedFileIO(
        {"py-io-impl": "itself", "s3.region": "eu-central-1", "s3.endpoint": "http://localhost:1"}
    )
    output = files.new_output("s3://bucket/x")
    assert type(files._by_scheme("s3://bucket/x")) is PyArrowFileIO
    assert type(output) is type(PyArrowFileIO(files.properties).new_output("s3://bucket/x"))
