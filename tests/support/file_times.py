"""Times of files, for tests that expect fingerprints."""

import os
from pathlib import Path
from typing import Final

_HOUR_NS: Final = 3_600 * 10**9


def make_older(path: Path) -> Path:
    """Set the time of the file at *path*, or of each file below it, back by an hour; return *path*.

    A file of the last minute whose time is a whole second has no fingerprint, and one file in a thousand is such a one.
    """
    for file in path.rglob("*") if path.is_dir() else (path,):
        if file.is_file():
            changed_ns = file.stat().st_mtime_ns - _HOUR_NS
            os.utime(file, ns=(changed_ns, changed_ns))
    return path
