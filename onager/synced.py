"""Directories on their disks: what they name survives a loss of power."""

import errno
import os
from pathlib import Path
from typing import Final

_CANNOT: Final = {errno.EINVAL, errno.ENOTSUP}
"""What file systems answer that sync no directories: some on networks, and some in user space."""


def sync_directory(directory: Path) -> None:
    """Flush what *directory* names to its disk, where its file system can; `OSError` if it is missing or that fails."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    finally:
        os.close(opened)
