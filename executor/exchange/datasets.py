"""What is a dataset: files of Spark's or Onager's writers and nothing else, so that another may take its place."""

import os
import re
from collections.abc import Container
from pathlib import Path
from typing import Final

from onager.errors import SinkError
from onager.exchange_layout import SUCCESS
from onager.executor.exchange import description
from onager.executor.exchange.table_folders import REPLACED
from onager.job_settings import OVERWRITE_ANYTHING
from onager.place_files import FOLDER

_MARKS: Final = frozenset(
    {SUCCESS, f".{SUCCESS}.crc", description.NAME, REPLACED, "_metadata", "_common_metadata"},
)
_PART: Final = re.compile(r"\.?part-(?:[mr]-)?\d{5,}[\w.+=-]*")
"""A file of rows, its checksum, or one that is about to get its name. Source: the committers of Hadoop and Spark."""
_PARTITION: Final = re.compile(r"[^./][^/]*=[^/]*")
"""The directory of a partition, as Hive names it."""
_SCRATCH: Final = re.compile(r"_temporary|\.spark-staging-.+")
"""What jobs of Spark leave when they are killed."""
_FOLDER: Final = re.compile(r"v-[0-9a-f]{16}")
"""The folder into which rows go that replace those of a table's partitions."""


def check_replaced(directory: Path, *, is_root: bool = False) -> None:
    """Raise `SinkError` unless *directory* is empty or a dataset: to overwrite it would remove what is no rows.

    One that *is_root* may have an id: executors make it again.
    """
    if (stray := _stray(directory, {FOLDER} if is_root else set())) is not None:
        raise SinkError(
            f"{directory} is no dataset, since it holds {stray.relative_to(directory)}: overwriting would remove that; "
            f"give another directory, or force it with --conf {OVERWRITE_ANYTHING}=true"
        )


def _stray(directory: Path, left_out: Container[str]) -> Path | None:
    """Return something in *directory* that no writer of datasets has made; None: there is nothing."""

    def fail(error: OSError) -> None:
        raise SinkError(f"{directory} cannot be looked through before it is overwritten: {error}") from error

    for parent, directories, files in os.walk(directory, onerror=fail):
        within = Path(parent)
        for name in files:
            if (name not in _MARKS and not _PART.fullmatch(name)) or (within / name).is_symlink():
                return within / name
        directories[:] = [name for name in directories if not (_SCRATCH.fullmatch(name) or name in left_out)]
        for name in directories:
            is_of_dataset = _PARTITION.fullmatch(name) or name in _MARKS or _FOLDER.fullmatch(name)
            if not is_of_dataset or (within / name).is_symlink():
                return within / name
    return None
