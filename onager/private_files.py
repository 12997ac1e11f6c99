"""Private directories and files: creates them, and checks those that exist."""

import os
import stat
from pathlib import Path

from onager.lazy_logger import LazyLogger

log = LazyLogger()

OWNER_ONLY = 0o077
"""The umask of processes whose files are for their own user only."""


def make_private_directory(path: Path, access: str = "owner") -> None:
    """Make the directory *path* for this user alone, or also for its group, and its parents as usual.

    An existing one is left as it is, since its mode may be intended; if others can look into it, that is logged.
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
    """Log a warning when users other than the owner of *path*, or than its group, can read or write it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (0o007 if access == "group" else OWNER_ONLY):
        log.warning(
            "others_have_access",
            path=str(path),
            mode=f"{mode:04o}",
            advice=f"chmod {'o-rwx' if access == 'group' else 'go-rwx'} {path}",
        )


def write_nothing_for_others() -> None:
    """Make everything that this process creates from now on private to its user."""
    os.umask(OWNER_ONLY)
