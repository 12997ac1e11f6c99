"""Paths that jobs may read and write: neither the state, the exchange directory, files of tokens, nor the system's."""

import os
import tempfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Final

from onager.errors import InvalidRequestError
from onager.exchange_layout import has_scheme, local_path
from onager.place_files import FOLDER

_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - looked at, not used


SYSTEM: Final = ("/proc", "/sys", "/dev")
"""What the system shows as files, such as the environment of processes."""


def steps_back(path: str) -> bool:
    """Return whether *path* has a part ``..`` or ``.``, so that its target depends on existing files."""
    return any(part in ("..", ".") for part in local_path(path).split("/"))


class PrivatePaths:
    """Files and directories that belong to Onager alone, and the places that jobs may use, as found on this machine."""

    def __init__(
        self,
        paths: Iterable[str | Path | None],
        secrets: Iterable[Path | None] = (),
        shared: Iterable[str] = (),
        *,
        roots: Iterable[str] | None = None,
        tables: str = "",
    ) -> None:
        """Keep *paths*; those behind a URI of another file system are compared by text alone.

        The directories of *secrets*, files with tokens and keys, are private, too: see `secret_places`. *roots*: the
        only directories that jobs may use; None: all that are not private. *tables*: where tables lie that are made
        without a location, which is always one of them.
        """
        self._given = tuple(str(path) for path in paths if path is not None and str(path))
        self._secrets = tuple(path for path in secrets if path is not None)
        self._shared = tuple(shared)
        self._given_roots = None if roots is None else tuple(roots)
        self._tables = tables

    def with_paths(self, paths: Iterable[str | Path | None], *, tables: str = "") -> "PrivatePaths":
        """Return these, with *paths* and another place of *tables* besides."""
        more = PrivatePaths([*paths, *self._given], self._secrets, self._shared, roots=self._given_roots)
        more._tables = tables or self._tables
        return more

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Return the paths without links. The first call looks at the file system."""
        places = secret_places(self._secrets, self._shared) if self._secrets else []
        return tuple(dict.fromkeys(real_path(str(path)) for path in (*self._given, *places)))

    @cached_property
    def roots(self) -> tuple[str, ...] | None:
        """Return the only directories that jobs may use, without links; None: all that are not private."""
        given = self._given_roots
        return None if given is None else tuple(dict.fromkeys(real_path(root) for root in given))

    @cached_property
    def _places(self) -> tuple[str, ...]:
        return (*(self.roots or ()), *([real_path(self._tables)] if self._tables else []))

    def meets(self, path: str) -> str | None:
        """Return the private path that *path* is, lies in or contains; None when there is none.

        Links are followed, and a directory that is mounted at a second place is recognised there. A root below a
        private path is none of it. `InvalidRequestError` for an impossible file name.
        """
        real = real_path(path)
        for private in self.paths:
            if self._is_opened(real, private):
                continue
            if _is_below(real, private) or _is_below(private, real):
                return private
            if not (has_scheme(real) or has_scheme(private)) and (
                _is_mounted(real, private) or _is_mounted(private, real)
            ):
                return private
        return None

    def refusal(self, path: str) -> str | None:
        """Return why nothing can be read or written at *path*, as the rest of a sentence; None when it can."""
        if FOLDER in local_path(path).split("/"):
            return f"{FOLDER} is where Onager keeps files of its own; give a directory elsewhere"
        if (met := self.meets(path)) is not None:
            whose = "which is the system's" if met in SYSTEM else "where Onager keeps files of its own"
            return f"it meets {met}, {whose}; give a directory elsewhere"
        if self.roots is None or any(_is_below(real_path(path), place) for place in self._places):
            return None
        roots = ", ".join(self.roots) or "there are none"
        return (
            f"it is in none of the directories that jobs may use ({roots}); start executors with --root DIRECTORY "
            "(ONAGER_EXECUTOR_ROOTS)"
        )

    def is_root(self, path: str) -> bool:
        """Return whether *path* is a root itself, and not where tables lie."""
        real = real_path(path)
        return real in (self.roots or ()) and not (self._tables and real == real_path(self._tables))

    def is_below_root(self, path: str) -> bool:
        """Return whether *path* lies below a root, or below where tables lie, and is not that directory itself."""
        real = real_path(path)
        return any(real != place and _is_below(real, place) for place in self._places)

    def _is_opened(self, real: str, private: str) -> bool:
        """Return whether *real* lies below a place for jobs that itself lies below *private*."""
        return any(_is_below(real, at) and at != private and _is_below(at, private) for at in self._places)


NO_PATHS = PrivatePaths(())


def secret_places(files: Iterable[Path | None], shared: Iterable[str]) -> list[Path]:
    """Return what is private because of *files* with tokens or keys: each directory in which one lies, as a whole.

    Of a directory that people or jobs use for other things, only the file is private: one that is or holds one of the
    *shared* directories, the user's home, the working directory or a directory of temporary files.
    """
    own = (os.path.expanduser("~"), os.getcwd(), tempfile.gettempdir(), *_TEMPORARY)  # noqa: PTH109, PTH111 - as text
    used = [real_path(path) for path in (*shared, *own) if path]
    places: list[Path] = []
    for file in filter(None, files):
        # What a link leads to lies elsewhere, and both can be read.
        for path in (file.absolute(), Path(real_path(str(file)))):
            real = real_path(str(path.parent))
            is_used = any(_is_below(place, real) for place in used)
            places += [path] if is_used else [path.parent]
    return list(dict.fromkeys(places))


def real_path(path: str) -> str:
    """Return *path* without links; a URI of another file system stays."""
    if has_scheme(path):
        return path.rstrip("/")
    try:
        return os.path.realpath(local_path(path))
    except ValueError as error:
        raise InvalidRequestError(f"{path!r} cannot be a path: {error}") from error


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _is_mounted(path: str, directory: str) -> bool:
    """Return whether *path*, or some directory above it, is *directory* by another name."""
    try:
        wanted = Path(directory).stat()
    except OSError:
        return False
    for above in (Path(path), *Path(path).parents):
        try:
            if os.path.samestat(above.stat(), wanted):
                return True
        except OSError:
            continue
    return False
