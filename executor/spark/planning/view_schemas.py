"""The schemas of files that views were made over, so that the next job over the same files need not read them for it.

Inferring a schema is a Spark job of its own (Parquet's footers, a whole CSV file). It is kept by what it can depend on:
the format, the options, the job's settings, and every file's path, length and modification time in nanoseconds. Files
behind a scheme are not looked at, so their schemas are inferred every time.
"""

import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from pyspark.sql.types import StructType

from onager.exchange_layout import has_scheme

MOST_FILES: Final = 10_000
"""A view over more files is not looked through: listing them costs as much as what it saves."""
_MOST_SCHEMAS: Final = 512

Key = tuple[object, ...]


class ViewSchemas:
    """The schemas that were inferred last, by all that they depend on; safe for any number of threads."""

    def __init__(self) -> None:
        self._schemas: OrderedDict[Key, StructType] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key | None) -> StructType | None:
        """Return the schema that was inferred under *key*, None when it was not, or is forgotten."""
        with self._lock:
            found = self._schemas.get(key) if key is not None else None
            if found is not None and key is not None:
                self._schemas.move_to_end(key)
            return found

    def put(self, key: Key | None, schema: StructType) -> None:
        """Keep *schema*, and forget the one not used for the longest time when there are too many."""
        if key is None:
            return
        with self._lock:
            self._schemas[key] = schema
            while len(self._schemas) > _MOST_SCHEMAS:
                self._schemas.popitem(last=False)


def schema_key(path: str, file_format: str, options: Mapping[str, str], conf: Mapping[str, str]) -> Key | None:
    """Return what the inferred schema of the files at *path* depends on, None when that cannot be told cheaply."""
    if has_scheme(path) and not path.startswith("file:"):
        return None
    root = Path(path.removeprefix("file://").removeprefix("file:"))
    files = _files(root)
    if files is None:
        return None
    settings = tuple(sorted((k, v) for k, v in conf.items() if k.startswith("spark.")))
    return str(root), file_format, tuple(sorted(options.items())), settings, files


def _files(root: Path) -> tuple[tuple[str, int, int], ...] | None:
    """Return path, length and modification time of every file below *root*, None when there are too many or none."""
    found: list[tuple[str, int, int]] = []
    directories = [root]
    try:
        if root.is_file():
            status = root.stat()
            return ((str(root), status.st_size, status.st_mtime_ns),)
        while directories:
            with os.scandir(directories.pop()) as entries:
                for entry in entries:
                    if entry.is_dir():
                        directories.append(Path(entry.path))
                        continue
                    status = entry.stat()
                    found.append((entry.path, status.st_size, status.st_mtime_ns))
            if len(found) > MOST_FILES:
                return None
    except OSError:
        return None  # not there, or a pattern: Spark says what is wrong with it
    return tuple(sorted(found)) or None
