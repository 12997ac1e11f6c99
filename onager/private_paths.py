"""Paths that jobs may neither read nor write: the state, the exchange directory, files of tokens and keys."""

import os
import tempfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Final

from onager.errors import InvalidRequestError
from onager.exchange_layout import has_scheme, local_path

_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - looked at, not used


def steps_back(path: str) -> bool:
    """Return whether *path* has a part ``..`` or ``.``, so that its target depends on existing files."""
    return any(part in ("..", ".") for part in local_path(path).split("/"))


class PrivatePaths:
    """Files and directories that belong to Onager alone, as found on this machine."""

    def __init__(
        self, paths: Iterable[str | Path | None], secrets: Iterable[Path | None] = (), shared: Iterable[str] = ()
    ) -> None:
        """Keep *paths*; those behind a URI of another file system are compared by text alone.

        The directories of *secrets*, files with tokens and keys, are private, too: see `secret_places`.
        """
        self._given = tuple(str(path) for path in paths if path is not None and str(path))
        self._secrets = tuple(path for path in secrets if path is not None)
        self._shared = tuple(shared)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Return the paths without links. The first call looks at the file system."""
        places = secret_places(self._secrets, self._shared) if self._secrets else []
        return tuple(dict.fromkeys(_real(str(path)) for path in (*self._given, *places)))

    def meets(self, path: str) -> str | None:
        """Return the private path that *path* is, lies in or contains; None when there is none.

        Links are followed, and a directory that is mounted at a second place is recognised there. `InvalidRequestError`
        for an impossible file name.
        """
        real = _real(path)
        for private in self.paths:
            if _is_below(real, private) or _is_below(private, real):
                return private
            if not (has_scheme(real) or has_scheme(private)) and (
                _is_mounted(real, private) or _is_mounted(private, real)
            ):
                return private
        return None


NO_PATHS = PrivatePaths(())


def secret_places(files: Iterable[Path | None], shared: Iterable[str]) -> list[Path]:
    """Return what is private because of *files* with tokens or keys: each directory in which one lies, as a whole.

    Of a directory that people or jobs use for other things, only the file is private: one that is or holds one of the
    *shared* directories, the user's home, the working directory or a directory of temporary files.
    """
    own = (os.path.expanduser("~"), os.getcwd(), tempfile.gettempdir(), *_TEMPORARY)  # noqa: PTH109, PTH111 - as text
    used = [_real(path) for path in (*shared, *own) if path]
    places: list[Path] = []
    for file in filter(None, files):
        # What a link leads to lies elsewhere, and both can be read.
        for path in (file.absolute(), Path(_real(str(file)))):
            real = _real(str(path.parent))
            is_used = any(_is_below(place, real) for place in used)
            places += [path] if is_used else [path.parent]
    return list(dict.fromkeys(places))


def _real(path: str) -> str:
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
