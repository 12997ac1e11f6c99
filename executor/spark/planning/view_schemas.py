"""A cache of the schemas of views' files, so that the next job over the same files need not infer them.

Inferring a schema takes a Spark job (over Parquet footers, or a whole CSV file). The key is everything that the schema
depends on: the format, the options, the job's settings, and each file's path, length and modification time in
nanoseconds. Schemas of files behind a URI are not cached.
"""

import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from pyspark.sql.types import StructType

from onager.exchange_layout import has_scheme
from onager.place_files import FOLDER

MAX_FILES: Final = 10_000
"""Schemas of views over more files are not cached: listing the files costs as much as the cache saves."""
_MAX_SCHEMAS: Final = 512

Key = tuple[object, ...]


class ViewSchemas:
    """The most recently used schemas; thread-safe."""

    def __init__(self) -> None:
        self._schemas: OrderedDict[Key, StructType] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key | None) -> StructType | None:
        """Return the schema for *key*, or None if it is not cached."""
        with self._lock:
            found = self._schemas.get(key) if key is not None else None
            if found is not None and key is not None:
                self._schemas.move_to_end(key)
            return found

    def put(self, key: Key | None, schema: StructType) -> None:
        """Cache *schema*, and drop the least recently used one when there are too many."""
        if key is None:
            return
        with self._lock:
            self._schemas[key] = schema
            while len(self._schemas) > _MAX_SCHEMAS:
                self._schemas.popitem(last=False)


def schema_key(path: str, file_format: str, options: Mapping[str, str], conf: Mapping[str, str]) -> Key | None:
    """Return the key for the inferred schema of the files at *path*, or None if finding it is too expensive."""
    if has_scheme(path) and not path.startswith("file:"):
        return None
    root = Path(path.removeprefix("file://").removeprefix("file:"))
    files = _files(root)
    if files is None:
        return None
    settings = tuple(sorted((k, v) for k, v in conf.items() if k.startswith("spark.")))
    return str(root), file_format, tuple(sorted(options.items())), settings, files


def _files(root: Path) -> tuple[tuple[str, int, int], ...] | None:
    """Return path, length and modification time of every file below *root*; None when there are none or too many."""
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
                        directories += [Path(entry.path)] if entry.name != FOLDER else []
                        continue
                    status = entry.stat()
                    found.append((entry.path, status.st_size, status.st_mtime_ns))
            if len(found) > MAX_FILES:
                return None
    except OSError:
        return None  # it is missing, or a pattern: Spark reports the error
    return tuple(sorted(found)) or None
