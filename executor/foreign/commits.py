"""Commits to Iceberg tables: new files become part of a table, once for a job, whoever dies.

The snapshot of a commit has the job's id. Whoever comes to commit looks for it in the table as it is now, and commits
only on top of that very state: so of any number of executors that try, and of any commits whose outcome is not known,
one snapshot comes of it.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from onager.errors import CatalogUnavailableError, SinkError
from onager.executor.foreign.files import live_files
from onager.executor.foreign.iceberg import IcebergCatalogs, MissingError, error_text
from onager.executor.foreign.schemas import UnmappedError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

MARK: Final = "onager.job"
"""The property of a snapshot that says which job has made it."""
_TRIES: Final = 30
_LONGEST_PAUSE_S: Final = 2.0
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class Commit:
    """What is to be committed, as planning has decided it."""

    catalog: str
    identifier: tuple[str, ...]
    uuid: str
    spec_id: int
    snapshot_id: int | None
    """The table's when the job was planned: what is replaced must be as it was then."""
    replaces: str
    matching: Mapping[str, Any]
    path: str
    has_ids: bool

    @classmethod
    def parsed(cls, text: str) -> "Commit":
        """Return what `writes` has written; `SinkError` for anything else."""
        try:
            fields = json.loads(text)
            return cls(**{**fields, "identifier": tuple(fields["identifier"])})
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(f"the table of another catalog is not one that this Onager can write: {error}") from error

    @property
    def name(self) -> str:
        """Return the table's name."""
        return ".".join((self.catalog, *self.identifier))


def has_committed(catalogs: IcebergCatalogs, to: Commit, job_id: str) -> bool:
    """Return whether the job has committed; `SinkError` if it never can, because the table is not as it was."""
    table = _table(catalogs, to)
    if _is_marked(table, job_id):
        return True
    _check_same(table, to)
    _replaced(table, to, ())
    return False


def commit(
    catalogs: IcebergCatalogs,
    to: Commit,
    job_id: str,
    paths: Sequence[str],
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Commit the files *paths* for the job, unless that has been done.

    Raises `SinkError` if the table is not what the job was planned with, `CatalogUnavailableError` if it is not known
    whether the commit has been made.
    """
    added: list[DataFile] | None = None
    for tried in range(_TRIES):
        table = _table(catalogs, to)
        if _is_marked(table, job_id):
            return
        _check_same(table, to)
        if added is None:
            added = _data_files(table, to, paths)
        if _is_committed(table, to, job_id, added, _replaced(table, to, added)):
            return
        pause(min(_LONGEST_PAUSE_S, 0.05 * 2**tried))  # somebody else was first
    raise CatalogUnavailableError(
        to.catalog, f"others changed {to.name} each of the {_TRIES} times it was committed to"
    )


def _table(catalogs: IcebergCatalogs, to: Commit) -> "Table":
    try:
        return catalogs.table(to.catalog, to.identifier)
    except MissingError as error:
        raise SinkError(f"{to.name} has been dropped since the job was planned: nothing was written") from error


def _is_marked(table: "Table", job_id: str) -> bool:
    return any(each.summary is not None and each.summary.get(MARK) == job_id for each in table.snapshots())


def _check_same(table: "Table", to: Commit) -> None:
    if str(table.metadata.table_uuid) != to.uuid:
        raise SinkError(
            f"{to.name} is another table than when the job was planned: nothing was written; submit it again"
        )
    if table.spec().spec_id != to.spec_id:
        raise SinkError(f"the partitions of {to.name} have been changed since the job was planned: submit it again")


# ---------------------------------------------------------------- what is replaced


def _replaced(table: "Table", to: Commit, added: "Sequence[DataFile]") -> list["DataFile"]:
    """Return the files that the commit replaces; `SinkError` unless they are those of the job's planning."""
    if to.replaces == "nothing":
        return []
    before = None if to.snapshot_id is None else table.snapshot_by_id(to.snapshot_id)
    if to.snapshot_id is not None and before is None:
        raise SinkError(f"the snapshot of {to.name} that the job was planned with has expired: submit it again")
    now = table.current_snapshot()
    try:
        found = [file for file in live_files(table, now) if _goes(file, table, to, added)]
        if (None if now is None else now.snapshot_id) != to.snapshot_id:
            planned = {file.file_path for file in live_files(table, before) if _goes(file, table, to, added)}
            if planned != {file.file_path for file in found}:
                raise SinkError(
                    f"rows of {to.name} that the job was to replace were changed by somebody else since it was "
                    "planned: submit it again"
                )
    except UnmappedError as error:
        raise SinkError(f"rows of {to.name} cannot be replaced: {error}") from error
    return found


def _goes(file: "DataFile", table: "Table", to: Commit, added: "Sequence[DataFile]") -> bool:
    if to.replaces == "all":
        return True
    if to.replaces == "written":
        return any((file.spec_id, file.partition) == (to.spec_id, each.partition) for each in added)
    wanted = _wanted(table, to, file.spec_id)
    return wanted is not None and all(_same(file.partition[place], value) for place, value in wanted.items())


def _wanted(table: "Table", to: Commit, spec_id: int) -> dict[int, Any] | None:
    """Return the values that a partition has whose rows go, by place; None if files of the spec have none such."""
    from pyiceberg.transforms import IdentityTransform

    places = {}
    for name, value in to.matching.items():
        source = table.schema().find_field(name).field_id
        for place, each in enumerate(table.specs()[spec_id].fields):
            if each.source_id == source and isinstance(each.transform, IdentityTransform):
                places[place] = value
                break
        else:
            raise UnmappedError(f"some of its files are not partitioned by {name}: rewrite its data files")
    return places


def _same(held: Any, wanted: Any) -> bool:
    return held is None if wanted is None else held is not None and str(held) == str(wanted)


# ---------------------------------------------------------------- new files


def _data_files(table: "Table", to: Commit, paths: Sequence[str]) -> list["DataFile"]:
    """Return *paths* as data files, without those that have no rows; `SinkError` if they do not fit the table."""
    try:
        with ThreadPoolExecutor(_READERS, "footers") as readers:
            found = list(readers.map(lambda path: _data_file(table.io, table.metadata, path), paths))
    except ValueError as error:
        raise SinkError(
            f"the columns of {to.name} have been changed since the job was planned: {error_text(error)}"
        ) from error
    return [file for file in found if file is not None]


def _data_file(io: "FileIO", metadata: "TableMetadata", path: str) -> "DataFile | None":
    # As PyIceberg's `add_files`, but for the partition, which that takes from statistics: a column may have none.
    from pyarrow import parquet
    from pyiceberg.io import pyarrow as files
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    entry = io.new_input(path)
    with entry.open() as stream:
        opened = parquet.ParquetFile(stream)
        if opened.metadata.num_rows == 0:
            return None
        schema = metadata.schema()
        files._check_pyarrow_schema_compatible(  # noqa: SLF001 - nothing else compares a file's columns with a table's
            schema, opened.schema_arrow, format_version=metadata.format_version
        )
        statistics = files.data_file_statistics_from_parquet_metadata(
            parquet_metadata=opened.metadata,
            stats_columns=files.compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=files.parquet_path_to_id_mapping(schema),
        )
        partition = _partition(opened, metadata)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=len(entry),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _partition(opened: Any, metadata: "TableMetadata") -> Any:
    """Return the partition of a file's first row, which is that of all."""
    import pyarrow as pa
    from pyiceberg.transforms import VoidTransform
    from pyiceberg.typedef import Record

    schema, spec = metadata.schema(), metadata.spec()
    fields = {each.source_id: schema.find_field(each.source_id) for each in spec.fields}
    if not fields:
        return Record()
    names = [field.name for field in fields.values()]
    row = next(opened.iter_batches(batch_size=1, columns=names))
    whole = {pa.date32(): pa.int32(), **{pa.timestamp("us", zone): pa.int64() for zone in (None, "UTC")}}
    values = []
    for each in spec.fields:
        field = fields[each.source_id]
        column = row.column(row.schema.get_field_index(field.name))
        value = column.cast(whole.get(column.type, column.type))[0].as_py()
        is_void = isinstance(each.transform, VoidTransform)
        values.append(None if is_void else each.transform.transform(field.field_type)(value))
    return Record(*values)


def _is_committed(
    table: "Table", to: Commit, job_id: str, added: "Sequence[DataFile]", replaced: "Sequence[DataFile]"
) -> bool:
    """Commit on top of *table* as it was loaded; return whether it still was as it was."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException
    from pyiceberg.table import TableProperties

    # PyIceberg would try again on top of what is there by then, where another commit for this job may be.
    once = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": once})
    try:
        with table.transaction() as transaction:
            if not to.has_ids and table.name_mapping() is None:
                mapping = table.schema().name_mapping.model_dump_json()
                transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
            update = transaction.update_snapshot(snapshot_properties={MARK: job_id})
            with update.overwrite() if replaced else update.fast_append() as snapshot:
                for file in replaced:
                    snapshot.delete_data_file(file)
                for file in added:
                    snapshot.append_data_file(file)
    except (CommitFailedException, ValidationException):
        return False
    except Exception as error:
        raise CatalogUnavailableError(
            to.catalog,
            f"whether {to.name} has the rows of job {job_id} is not known ({error_text(error)}): it has if one of its "
            f"snapshots has {MARK}={job_id} in its summary",
        ) from error
    return True
