"""Directories and files that are nobody else's: how they are made, and whether those that are there are."""

import os
import stat
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

OWNER_ONLY = 0o077
"""The umask of processes that write nothing for others."""


def make_private_directory(path: Path, access: str = "owner") -> None:
    """Make the directory *path* for this user alone, or for its group, too, and those above it as ever.

    One that is there is left as it is: who made it may have meant it. That others can look into it is told in the log.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
        warn_of_others(path, access)
    else:
        if access == "group":
            path.chmod(0o2770)


def warn_of_others(path: Path, access: str = "owner") -> None:
    """Tell in the log when others than the owner of *path*, or than its group, can read or write it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (0o007 if access == "group" else OWNER_ONLY):
        log.warning(
            "others_have_access",
            path=str(path),
            mode=f"{mode:04o}",
            advice=f"chmod {'o-rwx' if access == 'group' else 'go-rwx'} {path}",
        )


def write_nothing_for_others() -> None:
    """Let what this process makes from now on be its user's alone."""
    os.umask(OWNER_ONLY)
