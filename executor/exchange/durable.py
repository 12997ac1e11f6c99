"""Makes published files survive a loss of power: their content, and the directories that name them."""

import contextlib
import itertools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from onager.synced import sync_directory

_AT_ONCE: Final = 16
"""Disks and network file systems carry out several requests at a time as fast as one."""


def write_durably(path: Path, content: bytes) -> None:
    """Write a small file, and flush its content to the disk; its directory may still have to be synced."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_directories(directories: Iterable[Path]) -> None:
    """Flush what *directories* name to the disk, outer ones first; `OSError` if one is missing or the disk fails.

    So nothing survives in a directory that does not.
    """
    wanted = sorted(set(directories), key=_depth)
    with ThreadPoolExecutor(_AT_ONCE, "sync") as pool:
        for _, level in itertools.groupby(wanted, key=_depth):
            for _ in pool.map(sync_directory, level):
                pass


def _depth(path: Path) -> int:
    return len(path.parts)


def with_parents(directories: Iterable[Path]) -> set[Path]:
    """Return *directories* and all above them on their file systems: any may have been made for what is in them."""
    found: set[Path] = set()
    for directory in directories:
        device = directory.stat().st_dev
        for each in (directory, *directory.parents):
            if each in found or each.stat().st_dev != device or not os.access(each, os.R_OK):
                break  # what this process may not read it has not made
            found.add(each)
    return found


def sync_existing(directories: Iterable[Path]) -> None:
    """Flush what *directories* name to the disk; missing ones are skipped."""
    for each in sorted(set(directories)):
        with contextlib.suppress(FileNotFoundError):
            sync_directory(each)
