"""What came of calls of programs, in files of the exchange directory: what is too large for the store.

A file is a sequence of responses, each after its length and its CRC. It is written once, and on its disk before the
record names it. It goes with the program, as does what a scheduler left that died while it wrote.
"""

import os
import shutil
import struct
import zlib
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from onager.errors import DiskError, FetchFailedError
from onager.exchange_layout import PROGRAMS, local_path
from onager.ids import new_nonce
from onager.protocol.limits import MIB
from onager.scheduler import timing
from onager.scheduler.disk import EXCHANGE
from onager.synced import sync_directory

log = structlog.get_logger(__name__)

_HEADER: Final = struct.Struct("<II")
"""The length of a response, and its CRC-32."""
_AT_ONCE_BYTES: Final = MIB
"""What is written, or read, by one call of the disk, but for a response that is larger."""


@dataclass(slots=True)
class OutcomeWriter:
    """Writes a file, which nobody knows before `finish`."""

    folder: Path
    name: str = field(default_factory=new_nonce)
    size_bytes: int = 0
    _waiting: list[bytes] = field(default_factory=list)
    _waiting_bytes: int = 0

    async def add(self, response: bytes) -> None:
        """Write a response, perhaps later; `DiskError`."""
        self._waiting += (_HEADER.pack(len(response), zlib.crc32(response)), response)
        self._waiting_bytes += _HEADER.size + len(response)
        if self._waiting_bytes >= _AT_ONCE_BYTES:
            await self._write(is_last=False)

    async def finish(self) -> None:
        """Return once all of it is on its disk; `DiskError`."""
        await self._write(is_last=True)

    async def _write(self, *, is_last: bool) -> None:
        content = b"".join(self._waiting)
        within_s = timing.DISK_LONG_S
        await EXCHANGE.call(_append, self.folder / self.name, self.size_bytes, content, is_last, within_s=within_s)
        self.size_bytes += len(content)
        self._waiting, self._waiting_bytes = [], 0

    def drop(self) -> None:
        """Have the file removed, some time later, since no record names it."""
        EXCHANGE.post(_unlink, self.folder / self.name)


class OutcomeFiles:
    """The files of all programs, each of which has a folder."""

    def __init__(self, exchange_dir: str) -> None:
        self._root = Path(local_path(exchange_dir)) / PROGRAMS
        self.check_exchange: Callable[[], None] = lambda: None
        """Raises `PlaceNotSeenError` when this scheduler does not see the exchange directory; calls its disk."""
        self._known: set[str] = set()
        """The folders that programs had; others may belong to another cluster."""

    async def writer(self, folder: str) -> OutcomeWriter:
        """Return what writes a file into a program's *folder*; `DiskError`, `PlaceNotSeenError`."""
        await EXCHANGE.call(self.check_exchange)
        return OutcomeWriter(self._root / folder)

    async def read(self, folder: str, name: str, size_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yield the responses of a file; `FetchFailedError` if it is missing or damaged, `PlaceNotSeenError`."""
        path, at = self._root / folder / name, 0
        while at < size_bytes:
            try:
                responses, at = await EXCHANGE.call(_read, path, at, within_s=timing.DISK_LONG_S)
            except FetchFailedError:
                await EXCHANGE.call(self.check_exchange)  # another scheduler may see the directory where the file is
                raise
            for response in responses:
                yield response

    async def remove(self, folder: str) -> None:
        """Remove a program's *folder*, before its record goes; `DiskError`, `PlaceNotSeenError`."""
        await EXCHANGE.call(self.check_exchange)
        await EXCHANGE.call(_remove, self._root / folder, within_s=timing.DISK_LONG_S)
        self._known.discard(folder)

    async def sweep(self, kept: Collection[str]) -> None:
        """Remove the folders of programs that were there, and whose records somebody has removed."""
        for folder in self._known - set(kept):
            try:
                await self.remove(folder)
            except DiskError as error:
                log.warning("program_files_not_removed", folder=folder, error=str(error))
                if error.hangs:
                    break  # each of the others would wait as long
        self._known.update(kept)


def _append(path: Path, at: int, content: bytes, is_last: bool) -> None:  # noqa: FBT001 - `Disk.call` names no arguments
    path.parent.mkdir(mode=0o777, parents=True, exist_ok=True)
    with path.open("r+b" if at else "xb") as file:
        file.seek(at)
        file.write(content)
        file.flush()
        if is_last:
            os.fsync(file.fileno())
    if is_last:
        sync_directory(path.parent)
        sync_directory(path.parent.parent)


def _read(path: Path, at: int) -> tuple[Sequence[bytes], int]:
    """Return some responses from *at* on, and where the next ones begin."""
    responses: list[bytes] = []
    try:
        with path.open("rb") as file:
            file.seek(at)
            size = 0
            while size < _AT_ONCE_BYTES and (header := file.read(_HEADER.size)):
                length, checksum = _HEADER.unpack(header)
                response = file.read(length)
                if len(response) != length or zlib.crc32(response) != checksum:
                    raise FetchFailedError(f"what came of a call of a program is damaged: {path}")
                responses.append(response)
                size += _HEADER.size + length
    except (FileNotFoundError, struct.error) as error:
        raise FetchFailedError(f"what came of a call of a program is missing or damaged: {path}: {error}") from error
    if not responses:
        raise FetchFailedError(f"what came of a call of a program is cut off: {path}")
    return responses, at + size


def _remove(folder: Path) -> None:
    with suppress(FileNotFoundError):  # there was none, or another scheduler does it
        shutil.rmtree(folder)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
