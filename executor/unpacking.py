"""Unpacks one archive, as a program of its own that has limits; imports nothing but the standard library.

``python -I unpacking.py ARCHIVE zip|tar FOLDER FILES BYTES``. The content of an archive decides how much memory, time
and space Python takes to read it, so an agent does not read it itself. The exit code is 0; or 1 with a line of JSON on
standard output: ``{"refused": …}`` or ``{"errno": …, "text": …}``.
"""

import errno
import json
import lzma
import os
import resource
import stat
import sys
import tarfile
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

MEMORY_BYTES: Final = 512 * 1024**2
CPU_S: Final = 300
_NAME_CHARS: Final = 1000
"""No path that is made of such names is too long for the system, whatever links it goes through."""
_CHUNK_BYTES: Final = 1024**2
_DAMAGED: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    KeyError,  # a hard link to a file that is not there
    ValueError,
    RuntimeError,  # a password, a compression or an encryption that zipfile does not know, or nesting without end
)
"""What Python raises for an archive that it cannot unpack."""


class RefusedError(Exception):
    """The archive is not one to unpack."""


class Folder:
    """Where an archive is unpacked, and how much it may become."""

    def __init__(self, path: Path, most_files: int, most_bytes: int) -> None:
        self._path = path
        self._most_files = most_files
        self._most_bytes = most_bytes
        self._links: list[Path] = []
        self._files = 0
        self._bytes = 0

    def check_room(self, files: int, size: int) -> None:
        """Refuse *files* more with *size* bytes if they are too much."""
        files, size = self._files + files, self._bytes + size
        if files > self._most_files or size > self._most_bytes:
            raise RefusedError(
                f"has {files:,} files of {size:,} bytes or more, and at most {self._most_files:,} of "
                f"{self._most_bytes:,} are unpacked: give less, or put it where all executors find it"
            )

    def count(self) -> None:
        """Count a member, without its bytes."""
        self.check_room(1, 0)
        self._files += 1

    def directory(self, name: str) -> None:
        """Make a directory."""
        self._below(f"{name}/")

    def file(self, name: str, content: IO[bytes], mode: int) -> None:
        """Write a file, and count its bytes."""
        path = self._below(name)
        with path.open("xb") as file:
            while piece := content.read(_CHUNK_BYTES):
                self.check_room(0, len(piece))
                self._bytes += len(piece)
                file.write(piece)
            if mode:
                os.fchmod(file.fileno(), mode & 0o755 | 0o600)

    def link(self, name: str, target: str) -> None:
        """Make a symbolic link; whether it leads outside is found by `check_links`."""
        path = self._below(name)
        if len(target) > _NAME_CHARS or target.startswith("/"):
            raise RefusedError(f"cannot be unpacked: the link {name[:200]!r} leads outside of it")
        path.symlink_to(target)
        self._links.append(path)

    def check_links(self) -> None:
        """Refuse links that lead outside, also through other links."""
        root = self._path.resolve()
        for link in self._links:
            if link.is_symlink() and not link.resolve().is_relative_to(root):
                name = str(link.relative_to(self._path))
                raise RefusedError(f"cannot be unpacked: the link {name[:200]!r} leads outside of it")

    def _below(self, name: str) -> Path:
        """Return the path for *name*, in a directory that is there, with nothing at the path; no link leads there."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or len(name) > _NAME_CHARS:
            raise RefusedError(f"cannot be unpacked: {name[:200]!r} leads outside of it")
        *above, last = parts if not name.endswith("/") else [*parts, ""]
        path = self._path
        for part in above:
            path /= part
            with suppress(FileExistsError):
                path.mkdir()
            if not stat.S_ISDIR(path.lstat().st_mode):
                raise RefusedError(f"cannot be unpacked: {name[:200]!r} leads through a file, or a link")
        if not last:
            return path
        path /= last
        if path.is_symlink() or path.is_file():
            path.unlink()  # a later member of an archive replaces an earlier one
        return path


def unzip(archive: Path, folder: Folder) -> None:
    """Unpack a zip file."""
    with zipfile.ZipFile(archive) as opened:
        members = opened.infolist()
        folder.check_room(len(members), sum(member.file_size for member in members))
        for member in members:
            folder.count()
            if member.is_dir():
                folder.directory(member.filename)
                continue
            with opened.open(member) as content:
                folder.file(member.filename, content, member.external_attr >> 16 & 0o777)


def untar(archive: Path, folder: Folder) -> None:
    """Unpack a tar file, compressed or not."""
    with tarfile.open(archive) as opened:
        for member in opened:
            folder.count()
            if member.isdir():
                folder.directory(member.name)
            elif member.issym():
                folder.link(member.name, member.linkname)
            elif member.isreg() or member.islnk():
                folder.check_room(0, member.size)
                content = opened.extractfile(member)
                if content is None:
                    raise RefusedError(f"cannot be unpacked: {member.name[:200]!r} is no file")
                folder.file(member.name, content, member.mode)
            else:
                raise RefusedError(f"cannot be unpacked: {member.name[:200]!r} is neither a file nor a directory")


def _limit(most_bytes: int) -> None:
    limits = {"AS": MEMORY_BYTES, "FSIZE": most_bytes, "CPU": CPU_S, "CORE": 0, "NOFILE": 64}
    for name, most in limits.items():
        with suppress(ValueError, OSError, AttributeError):  # a system that knows no such limit, or has a lower one
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def main(archive: str, kind: str, target: str, most_files: str, most_bytes: str) -> int:
    """Unpack; return the exit code."""
    _limit(int(most_bytes))
    folder = Folder(Path(target), int(most_files), int(most_bytes))
    try:
        (unzip if kind == "zip" else untar)(Path(archive), folder)
        folder.check_links()
    except RefusedError as error:
        answer: dict[str, object] = {"refused": str(error)}
    except MemoryError:
        answer = {"refused": f"cannot be unpacked: it takes more than {MEMORY_BYTES:,} bytes of memory"}
    except _DAMAGED as error:
        answer = {"refused": f"cannot be unpacked: {error}"}
    except OSError as error:
        if error.errno in (None, errno.EFBIG):  # without a number, it is of a module for compressed files
            answer = {"refused": f"cannot be unpacked: {error}"}
        else:
            answer = {"errno": error.errno, "text": error.strerror or str(error)}
    else:
        return 0
    sys.stdout.write(json.dumps(answer))
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
