"""What lies below a directory that processes change while it is read; `Path.rglob` fails on what goes meanwhile."""

import fnmatch
import os
from pathlib import Path


def below(directory: Path, pattern: str = "*") -> list[Path]:
    """Return the files and directories below *directory* whose name matches."""
    names = ((at, name) for at, directories, files in os.walk(directory) for name in directories + files)
    return sorted(Path(at, name) for at, name in names if fnmatch.fnmatchcase(name, pattern))


def size_of(path: Path) -> int:
    """Return its bytes: 0 once it is gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
