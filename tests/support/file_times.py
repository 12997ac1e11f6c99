"""Times of files, for tests that expect fingerprints."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_HOUR_NS: Final = 3_600 * 10**9


def make_older(path: Path) -> Path:
    """Set the time of the file at *path*, or of each file below it, back by an hour; return *path*.

    A file of the last minute whose time is a whole second has no fingerprint, and one file in a thousand is such a one.
    """
    for file in _files(path):
        changed_ns = file.stat().st_mtime_ns - _HOUR_NS
        os.utime(file, ns=(changed_ns, changed_ns))
    return path


def round_new(path: Path) -> None:
    """Make the times of new files at *path* whole seconds: who forgot `make_older` sees it each time."""
    for file in _files(path):
        changed_ns = file.stat().st_mtime_ns
        if changed_ns > time.time_ns() - _HOUR_NS // 2:
            os.utime(file, ns=(changed_ns, changed_ns // 10**9 * 10**9))


def _files(path: Path) -> Iterator[Path]:
    yield from (file for file in (path.rglob("*") if path.is_dir() else (path,)) if file.is_file())
