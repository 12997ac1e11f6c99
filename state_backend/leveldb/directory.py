"""Opens a state directory: locks it, checks that it is whole, and explains what is wrong if it is not."""

import errno
import os
import threading
from pathlib import Path
from typing import Any, Final

import plyvel

from onager.errors import (
    SchemaVersionError,
    StateCorruptError,
    StateLockedError,
    StateNotWritableError,
    StateUnavailableError,
)
from onager.private_files import make_private_directory
from onager.state_backend.leveldb.log import find_damage

SCHEMA_VERSION: Final = 2
_SCHEMA_KEY: Final = b"mschema_version"
_OPTIONS: Final[dict[str, Any]] = {
    "create_if_missing": True,
    # Without it, a flipped bit in the log silently drops what follows.
    "paranoid_checks": True,
    "bloom_filter_bits": 10,
}

_NOT_WRITABLE: Final = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EMFILE,
    errno.ENFILE,
)

_open_paths: set[Path] = set()
_open_paths_guard = threading.Lock()


class StateDirectory:
    """A LevelDB directory that this object has open; *path* is absolute."""

    def __init__(self, path: Path) -> None:
        self.path = _writable_directory(path)
        with _open_paths_guard:
            # LevelDB also refuses a second opening by the same process, but releases its file lock by that.
            if self.path in _open_paths:
                raise _locked(self.path, "this process")
            _open_paths.add(self.path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    db: Any
    """The `plyvel.DB`."""

    def reopen(self) -> None:
        """Open again after a failed write; `StateUnavailableError` when that fails, and a later call tries again."""
        self.db.close()
        try:
            self.db = plyvel.DB(str(self.path), **_OPTIONS)
        except plyvel.CorruptionError as error:
            raise damaged(self.path, reason(error)) from error
        except plyvel.IOError as error:
            raise StateUnavailableError(
                f"{self.path} cannot be opened after a failed write: {reason(error)}; free some space on its disk"
            ) from error

    def close(self) -> None:
        """Release the directory."""
        if "db" in vars(self):
            self.db.close()
        with _open_paths_guard:
            _open_paths.discard(self.path)

    def _open(self) -> None:
        _check_files(self.path)
        try:
            self.db = plyvel.DB(str(self.path), **_OPTIONS)
            if _count_records(self.db) == 0:
                self.db.put(_SCHEMA_KEY, b"%d" % SCHEMA_VERSION, sync=True)
            found = self.db.get(_SCHEMA_KEY)
        except plyvel.CorruptionError as error:
            raise damaged(self.path, reason(error)) from error
        except plyvel.IOError as error:
            raise refused(self.path, reason(error)) from error
        if found is None or not found.isdigit():
            raise damaged(self.path, "it holds a LevelDB database without Onager's schema version")
        if int(found) != SCHEMA_VERSION:
            raise SchemaVersionError(f"state directory {self.path}", int(found), SCHEMA_VERSION)


def damaged(path: Path, what: str) -> StateCorruptError:
    """Return the error for a damaged directory, with the ways to recover."""
    return StateCorruptError(
        f"state directory {path} is damaged: {what}. Restore it from a backup, or move it away "
        f"(mv {path} {path}.damaged) and start with an empty one: jobs that were running have to be submitted again"
    )


def _locked(path: Path, by: str) -> StateLockedError:
    return StateLockedError(
        f"state directory {path} is open in {by}: stop the Onager scheduler that uses it (fuser {path}/LOCK names it), "
        "or give this one a directory of its own"
    )


def reason(error: plyvel.Error) -> str:
    """Return LevelDB's message in *error*, as text (plyvel passes bytes)."""
    what = error.args[0] if error.args else error
    return what.decode(errors="replace") if isinstance(what, bytes) else str(what)


def refused(path: Path, why: str) -> StateLockedError | StateNotWritableError | StateCorruptError:
    """Return the error for a directory that LevelDB cannot open or write, given LevelDB's words."""
    if "LOCK: Resource temporarily unavailable" in why or "already held by process" in why:
        return _locked(path, "another process")
    if any(os.strerror(number) in why for number in _NOT_WRITABLE):
        return StateNotWritableError(
            f"state directory {path} cannot be written ({why}): check its owner, its mode and the space on its disk"
        )
    return damaged(path, why)  # such as a read at an offset with a flipped bit


def _writable_directory(path: Path) -> Path:
    try:
        make_private_directory(path)
    except (FileExistsError, NotADirectoryError) as error:
        raise StateNotWritableError(f"{path} is not a directory; give another path for the state") from error
    except OSError as error:
        raise StateNotWritableError(
            f"state directory {path} cannot be made ({error.strerror}); make it writable, or give another path"
        ) from error
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        raise StateNotWritableError(
            f"state directory {path} cannot be written: change its owner or mode, or give another path"
        )
    return path.resolve()


def _check_files(path: Path) -> None:
    """Raise `StateCorruptError` for damage that LevelDB ignores.

    Missing files, wrong lengths of records.
    """
    names = {entry.name for entry in path.iterdir()}
    parts = sorted(name for name in names if name.endswith((".log", ".ldb")))
    if "CURRENT" not in names:
        if parts:
            raise damaged(path, f"the file CURRENT is missing beside {', '.join(parts[:3])}")
        return
    current = (path / "CURRENT").read_text(errors="replace").strip()
    if not current.startswith("MANIFEST-") or current not in names:
        raise damaged(path, f"its CURRENT names {current[:40]!r}, which is not there")
    logs = [name for name in parts if name.endswith(".log")]
    if not logs and (parts or current != "MANIFEST-000001"):  # that manifest is written before the first log
        raise damaged(path, "its log (*.log) is missing")
    for name in [current, *logs]:
        try:
            what = find_damage((path / name).read_bytes())
        except OSError as error:
            raise damaged(path, f"{name} cannot be read ({error.strerror})") from error
        if what is not None:
            raise damaged(path, f"{name}: {what}")


def _count_records(db: Any) -> int:
    """Read every block once, so that damage is found when a scheduler starts, not in the middle of a job."""
    with db.iterator(verify_checksums=True, fill_cache=False, include_value=False) as rows:
        return sum(1 for _ in rows)
