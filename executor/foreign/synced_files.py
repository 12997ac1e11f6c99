"""PyIceberg's own files survive a loss of power on local and network disks, as a commit's data files do.

PyIceberg makes a `SyncedFileIO` by its name; nothing else imports this module, as PyIceberg is optional.
"""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyarrow.fs import LocalFileSystem
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT

from onager.synced import sync_directory

if TYPE_CHECKING:
    from pyiceberg.io import OutputStream
    from pyiceberg.typedef import Properties


class SyncedFileIO(FileIO):
    """Reads and writes as PyIceberg would without it, and syncs what it writes on file systems that are mounted."""

    def __init__(self, properties: "Properties" = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._made: dict[str, FileIO] = {}

    def new_input(self, location: str) -> InputFile:
        """Return the file at *location*, to be read."""
        return self._by_scheme(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return the file at *location*, to be written."""
        scheme, _, path = PyArrowFileIO.parse_location(location, self.properties)
        if scheme == "file":
            return _SyncedFile(location, path, LocalFileSystem())
        return self._by_scheme(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the file at *location*."""
        self._by_scheme(location if isinstance(location, str) else location.location).delete(location)

    def _by_scheme(self, location: str) -> FileIO:
        scheme, _, _ = PyArrowFileIO.parse_location(location, self.properties)
        if scheme not in self._made:
            given = {key: value for key, value in self.properties.items() if key != PY_IO_IMPL}
            self._made[scheme] = load_file_io(given, location)
        return self._made[scheme]


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> "OutputStream":  # noqa: FBT001, FBT002 - PyIceberg's signature
        path = Path(self._path)
        _make(path.parent)
        return cast("OutputStream", _SyncedStream(io.FileIO(path, "w" if overwrite else "x")))


class _SyncedStream(io.BufferedWriter):
    """A file that is on its disk, with its name, once it is closed."""

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        sync_directory(Path(self.name).parent)


def _make(directory: Path) -> None:
    """Make *directory*, and those above it, so that they survive."""
    if not directory.is_dir():
        _make(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)
