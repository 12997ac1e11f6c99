"""Data that clients add to their sessions, by its content: rows of a DataFrame that are too many for a plan."""

import asyncio
import hashlib
import os
import re
import secrets
import zlib
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from onager.clock import Clock
from onager.errors import BusyError
from onager.exchange_layout import CONNECT_ARTIFACTS, connect_artifact, has_scheme, local_path
from onager.protocol.spark_connect import AddArtifactsResponse
from onager.scheduler.connect.failures import ConnectError, too_large, unsupported
from onager.scheduler.connect.records import MAX_ARTIFACTS, MAX_ARTIFACTS_BYTES, ArtifactRecord, SessionRecord
from onager.scheduler.connect.sessions import Session, Sessions

_NAME_CHARS: Final = 512
_NAME: Final = re.compile(r"[^\0\\]+")
_ORPHAN_S: Final = 24 * 3_600
_TRIES: Final = 8


@dataclass(slots=True)
class _Incoming:
    """A file that is coming in pieces."""

    name: str
    left: int
    """Pieces that are to come."""
    path: Path
    size: int = 0
    is_sound: bool = True
    digest: Any = field(default_factory=hashlib.sha256)


@dataclass(slots=True)
class _Upload:
    """What one call has brought."""

    left: int
    """How many bytes more the session may have."""
    coming: _Incoming | None = None
    taken: list[ArtifactRecord] = field(default_factory=list)
    answer: Any = field(default_factory=AddArtifactsResponse)


class Artifacts:
    """Takes files in, and removes those of no session."""

    def __init__(self, sessions: Sessions, exchange_dir: str, clock: Clock) -> None:
        self._sessions = sessions
        self._exchange_dir = exchange_dir
        self._clock = clock

    @property
    def _folder(self) -> Path:
        if has_scheme(self._exchange_dir):
            raise unsupported("files (addArtifacts) while the exchange directory is a URI")
        return Path(local_path(self._exchange_dir)) / CONNECT_ARTIFACTS

    async def add(self, session: Session, first: Any, others: AsyncIterator[Any]) -> Any:
        """Take in the files of a call, and return its answer; what does not match its checksum is left out."""
        upload = _Upload(MAX_ARTIFACTS_BYTES - sum(artifact.size_bytes for artifact in session.record.artifacts))
        try:
            await self._take(upload, first)
            async for request in others:
                await self._take(upload, request)
        finally:
            if upload.coming is not None:
                upload.coming.path.unlink(missing_ok=True)
        if upload.coming is not None:
            raise _bad(f"{upload.coming.name} ended before its last piece")
        return await self._keep(session, upload.taken, upload.answer)

    async def _take(self, upload: _Upload, request: Any) -> None:
        upload.left -= request.ByteSize()
        if upload.left < 0:
            size = MAX_ARTIFACTS_BYTES - upload.left
            raise too_large("what was added to the session", size, MAX_ARTIFACTS_BYTES)
        match request.WhichOneof("payload"):
            case "batch":
                for artifact in request.batch.artifacts:
                    upload.coming = self._begin(artifact.name, 1)
                    await self._piece(upload, artifact.data)
            case "begin_chunk" if upload.coming is None:
                upload.coming = self._begin(request.begin_chunk.name, request.begin_chunk.num_chunks)
                await self._piece(upload, request.begin_chunk.initial_chunk)
            case "chunk" if upload.coming is not None:
                await self._piece(upload, request.chunk)
            case _:
                raise _bad("the pieces of files came out of order")

    async def _piece(self, upload: _Upload, chunk: Any) -> None:
        file = upload.coming
        assert file is not None
        await asyncio.to_thread(_write, file, chunk)
        if not file.left:
            await self._finish(file, upload)
            upload.coming = None

    def _begin(self, name: str, chunks: int) -> _Incoming:
        parts = name.split("/")
        if len(name) > _NAME_CHARS or not _NAME.fullmatch(name) or any(part in ("", ".", "..") for part in parts):
            raise _bad(f"{name[:80]!r} cannot be the name of a file")
        if parts[0] != "cache" or len(parts) != 2:  # noqa: PLR2004 - the folder and a name
            raise unsupported("files of a program (addArtifacts): put them where all executors find them")
        if chunks < 1:
            raise _bad(f"{name} has no pieces")
        self._folder.mkdir(mode=0o777, exist_ok=True)
        return _Incoming(name, chunks, self._folder / f".{secrets.token_hex(8)}.tmp")

    async def _finish(self, file: _Incoming, upload: _Upload) -> None:
        upload.answer.artifacts.add(name=file.name, is_crc_successful=file.is_sound)
        if not file.is_sound:
            file.path.unlink(missing_ok=True)
            return
        digest = file.digest.hexdigest()
        if file.name != f"cache/{digest}":
            raise _bad(f"{file.name} has other content than its name says")
        await asyncio.to_thread(_settle, file.path, Path(local_path(self._exchange_dir)) / connect_artifact(digest))
        upload.taken.append(ArtifactRecord(name=file.name, digest=digest, size_bytes=file.size))

    async def _keep(self, session: Session, taken: list[ArtifactRecord], answer: Any) -> Any:
        new = {artifact.name: artifact for artifact in taken}

        def added(record: SessionRecord) -> SessionRecord:
            kept = [artifact for artifact in record.artifacts if artifact.name not in new]
            if len(kept) + len(new) > MAX_ARTIFACTS:
                raise too_large("the session", len(kept) + len(new), MAX_ARTIFACTS, "files")
            return record.model_copy(update={"artifacts": (*kept, *new.values())})

        for _ in range(_TRIES):
            if not new or await self._sessions.change(session, added) is not None:
                return answer
            session = await self._sessions.open(session.key)
        raise BusyError("the session changes too often for files to be added")

    async def sweep(self, kept: Collection[str]) -> None:
        """Remove files that no session has, once nobody can be reading them any more."""
        if not has_scheme(self._exchange_dir):
            await asyncio.to_thread(_remove_old, self._folder, kept, self._clock.now_ms() / 1000 - _ORPHAN_S)


def _write(file: _Incoming, chunk: Any) -> None:
    if file.left < 1:
        raise _bad(f"{file.name} has more pieces than it said")
    file.is_sound = file.is_sound and zlib.crc32(chunk.data) == chunk.crc
    with file.path.open("ab") as out:
        out.write(chunk.data)
    file.digest.update(chunk.data)
    file.size += len(chunk.data)
    file.left -= 1


def _settle(path: Path, target: Path) -> None:
    with path.open("rb") as written:
        os.fsync(written.fileno())
    path.replace(target)


def _remove_old(folder: Path, kept: Collection[str], before_s: float) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in kept and path.stat().st_mtime < before_s:
            path.unlink(missing_ok=True)


def _bad(why: str) -> ConnectError:
    return ConnectError("INVALID_ARTIFACT", f"[INVALID_ARTIFACT] {why}. SQLSTATE: 22023", "22023")
