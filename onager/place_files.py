"""What tells a shared directory from another one: its id, its generation and the marks of processes, as files in it.

- ``{place}/.onager-place/{id}/``: drawn when a cluster first used the directory; several clusters may use one
- ``{place}/.onager-place/{id}/generation-{n}``: an empty file; the largest counts, without any it is 1
- ``{place}/.onager-place/{id}/{incarnation}.{nonce}``: a process's mark, an empty file that others look for

Processes may be of several users. So folders and marks can be read by all who may enter the place, and written by all
who may write there. They can do no more to the place than before, since those who write could replace the folder.
"""

import errno
import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onager.exchange_layout import local_path
from onager.ids import Incarnation, new_nonce
from onager.synced import sync_directory

EXCHANGE: Final = "exchange"
WAREHOUSE: Final = "warehouse"
TITLES: Final = {EXCHANGE: "exchange directory (--exchange-dir)", WAREHOUSE: "warehouse (--warehouse)"}
"""What people call a place, by its name."""
_ROOT: Final = "root-"
_ROOT_NAME: Final = re.compile(rf"{_ROOT}[0-9a-f]{{16}}")

NO_EXCHANGE: Final = "EXCHANGE_NOT_SEEN"
"""The class of the failures of tasks whose executor does not see the exchange directory: it takes no more work."""
NO_PLACE: Final = "PLACE_NOT_SEEN"
"""The class of those whose executor does not see the warehouse; or a root: then a dot and its name follow."""
FOLDER: Final = ".onager-place"
_GENERATION: Final = "generation-"
_ID: Final = re.compile(r"[0-9a-f]{16}")
_MARK: Final = re.compile(r"[0-9a-f]{16}\.[0-9a-f]{16}")
READ_ONLY: Final = {errno.EROFS, errno.EACCES, errno.EPERM}
_MARK_MODE: Final = 0o644
"""Others open a mark, whatever this process's umask; who can do so, the folder decides."""
_OLD_S: Final = 24 * 3600.0
_OF_NAME: Final = r"[\w=+@%~-]"
"""A character of a file's name; in a text, others may end a path."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a process sees of a place in its directory."""

    id: str = ""
    """The id that was looked for; empty: it is not there, or none was looked for."""
    generation: int = 0
    """That of the id; 0: there is no id."""
    problem: str = ""
    """Why it sees nothing; empty: it sees the directory."""


NOTHING: Final = Seen()


def plain_path(path: str) -> str:
    """Return *path* as statements name files there, by one spelling; links are followed only where ``..`` needs it."""
    whole = str(Path(local_path(path)).absolute())
    whole = os.path.realpath(whole) if ".." in whole.split("/") else whole
    return f"/{whole.strip('/')}"


def is_named(path: str, text: str) -> bool:
    """Return whether a directory, or something in it, is named in *text*."""
    ends = rf"(?!{_OF_NAME}|\.+{_OF_NAME})"
    return re.search(rf"(?<!{_OF_NAME})(?<!\.){re.escape(path)}{ends}", text) is not None


def root_name(path: str) -> str:
    """Return the name of the place that a root is: all machines have it at the same path."""
    return f"{_ROOT}{hashlib.sha256(plain_path(path).encode()).hexdigest()[:16]}"


def is_place(name: str) -> bool:
    """Return whether *name* can be the name of a place."""
    return name in TITLES or is_root(name)


def is_root(name: str) -> bool:
    """Return whether the place *name* is a root."""
    return _ROOT_NAME.fullmatch(name) is not None


def title(name: str) -> str:
    """Return what people call a place."""
    return "directory of files (--root)" if is_root(name) else TITLES.get(name, name)


def holds_something(directory: Path) -> bool:
    """Return whether *directory* has anything in it besides the ids of a place; `OSError` if it cannot be read."""
    return any(path.name != FOLDER for path in directory.iterdir())


def look(path: str, place_id: str) -> Seen:
    """Return what the directory at *path* says of *place_id*; empty: only whether it is there."""
    directory = Path(local_path(path))
    try:
        if not directory.is_dir():
            return Seen(problem="it is no directory" if directory.exists() else "it is not there")
        if not has_id(path, place_id):
            return NOTHING
        return Seen(place_id, _generation(_folder(path, place_id)))
    except OSError as error:
        return Seen(problem=f"it cannot be read ({error.strerror or error})")


def is_id(text: str) -> bool:
    """Return whether *text* can be the id of a place; it becomes part of paths."""
    return _ID.fullmatch(text) is not None


def has_id(path: str, place_id: str) -> bool:
    """Return whether the directory at *path* has the id; `OSError` when that cannot be found out."""
    return is_id(place_id) and _exists(_folder(path, place_id))


def make_id(path: str, place_id: str) -> None:
    """Give the directory at *path* an id, on its disk when this returns."""
    folder = _folder(path, place_id)
    for directory in (folder.parent, folder):
        with suppress(FileExistsError):
            directory.mkdir()
            directory.chmod(_mode_below(directory.parent.stat().st_mode))
    for directory in (folder, folder.parent, folder.parent.parent):
        sync_directory(directory)


def remove_id(path: str, place_id: str, incarnation: Incarnation) -> None:
    """Remove an id that no place has got, unless others than *incarnation* have left marks there."""
    if is_id(place_id):
        folder = _folder(path, place_id)
        with suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208 names
                if name.startswith(f"{incarnation}."):
                    (folder / name).unlink()
            folder.rmdir()


def make_generation(path: str, place_id: str, generation: int) -> None:
    """Write *generation* into the directory at *path*, on its disk when this returns; earlier ones go."""
    folder = _folder(path, place_id)
    (folder / f"{_GENERATION}{generation}").touch()
    sync_directory(folder)
    for name in os.listdir(folder):  # noqa: PTH208 names
        if (found := _number(name)) is not None and found < generation:
            with suppress(FileNotFoundError, PermissionError):  # another user's, where the sticky bit is set
                (folder / name).unlink()


def write_mark(path: str, incarnation: Incarnation, place_id: str) -> str:
    """Write a mark of *incarnation* under a new name, and return the name."""
    mark = f"{incarnation}.{new_nonce()}"
    with (_folder(path, place_id) / mark).open("x") as file:
        with suppress(OSError):  # some file systems have no modes
            os.fchmod(file.fileno(), _MARK_MODE)
        return mark


def kept_mark(path: str, incarnation: Incarnation, place_id: str, mark: str, *, is_old: bool = False) -> str:
    """Return *mark* if it is there and not old, or else write another one; empty where this process may only read.

    `OSError` when the disk fails or is full.
    """
    if mark and not is_old and has_mark(path, mark, place_id):
        return mark
    if mark:
        remove_mark(path, mark, place_id)
    try:
        return write_mark(path, incarnation, place_id)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        return ""


def has_mark(path: str, mark: str, place_id: str) -> bool:
    """Return whether the directory at *path* has a *mark* beside this id; `OSError` when that cannot be found out."""
    is_one = _MARK.fullmatch(mark) is not None and is_id(place_id)
    return is_one and _exists(_folder(path, place_id) / mark)


def remove_mark(path: str, mark: str, place_id: str) -> None:
    """Remove a mark, if it is there and can be."""
    if _MARK.fullmatch(mark):
        with suppress(OSError):
            (_folder(path, place_id) / mark).unlink()


def remove_old_marks(path: str, mark: str, place_id: str) -> int:
    """Touch *mark*, and remove marks that are a day older, which nobody touches any more; return how many."""
    folder = _folder(path, place_id)
    own = folder / mark
    os.utime(own)
    before_s = own.stat().st_mtime - _OLD_S
    removed = 0
    for name in os.listdir(folder):  # noqa: PTH208 names
        if name != mark and _MARK.fullmatch(name):
            with suppress(FileNotFoundError, PermissionError):
                if (folder / name).stat().st_mtime < before_s:
                    (folder / name).unlink()
                    removed += 1
    return removed


def mount_of(path: str) -> str:
    """Return which mount the directory at *path* is on: its number, place and source; empty if that is not known."""
    try:
        descriptor = os.open(local_path(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            text = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="utf-8")
        finally:
            os.close(descriptor)
        number = dict(line.split(":", 1) for line in text.splitlines()).get("mnt_id", "").strip()
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    mount = next((line for line in mounts if line.split(" ", 1)[0] == number), "")
    return " ".join([*mount.split()[:5], *mount.partition(" - ")[2].split()[:2]])  # without options, which may change


def _mode_below(mode: int) -> int:
    """Return the mode of a folder in a directory with *mode*: the same rights, and it can be read by all who enter."""
    return 0o700 | (mode & 0o3077) | (mode & 0o011) << 2


def _folder(path: str, place_id: str) -> Path:
    return Path(local_path(path)) / FOLDER / place_id


def _exists(path: Path) -> bool:
    """Return whether there is something at *path*; asked of the server where it is on another machine."""
    try:
        # Opened, since only that passes by what a mount remembers of names.
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _generation(folder: Path) -> int:
    return max([number for name in os.listdir(folder) if (number := _number(name)) is not None], default=1)  # noqa: PTH208 names


def _number(name: str) -> int | None:
    number = name.removeprefix(_GENERATION)
    return int(number) if number != name and number.isdecimal() else None
