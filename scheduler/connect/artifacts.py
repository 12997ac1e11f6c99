"""Files that clients add to their sessions: those of a program, and rows of DataFrames too many for a plan."""

import hashlib
import os
import re
import secrets
import shutil
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from onager.exchange_layout import CONNECT_ARTIFACTS, CONNECT_UNPACKED, connect_artifact, has_scheme, local_path
from onager.program_files import ARCHIVES, program_file
from onager.protocol.spark_connect import AddArtifactsResponse
from onager.scheduler import timing
from onager.scheduler.connect.failures import RUNTIME, ConnectError, failed, too_large, unsupported
from onager.scheduler.connect.records import MAX_ARTIFACTS, MAX_ARTIFACTS_BYTES, ArtifactRecord
from onager.scheduler.connect.sessions import Session, Sessions
from onager.scheduler.disk import EXCHANGE
from onager.synced import sync_directory

_NAME_CHARS: Final = 512
_NAME: Final = re.compile(r"[^\0\\]+")
_CACHE: Final = "cache"
_JARS: Final = "jars and classes of a program (addArtifacts): give them to the executors (--spark-conf spark.jars=…)"
_REFUSED: Final = {
    "jars": _JARS,
    "classes": _JARS,
    "forward_to_fs": "copyFromLocalToFs: write the file where the executors find it",
}
_ORPHAN_S: Final = 24 * 3_600


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


@dataclass(eq=False, repr=False)
class Artifacts:
    """Takes files in, and removes those of no session."""

    sessions: Sessions
    exchange_dir: str
    check_exchange: Callable[[], None]
    """Raises `PlaceNotSeenError` when another directory is there. It calls the disk."""

    @property
    def _folder(self) -> Path:
        if has_scheme(self.exchange_dir):
            raise unsupported("files (addArtifacts) while the exchange directory is a URI")
        return Path(local_path(self.exchange_dir)) / CONNECT_ARTIFACTS

    async def add(self, session: Session, first: Any, others: AsyncIterator[Any]) -> Any:
        """Take in the files of a call, and return its answer; what does not match its checksum is left out."""
        upload = _Upload(MAX_ARTIFACTS_BYTES - sum(artifact.size_bytes for artifact in session.record.artifacts))
        try:
            await self._take(upload, first)
            async for request in others:
                await self._take(upload, request)
        finally:
            if upload.coming is not None:
                EXCHANGE.post(upload.coming.path.unlink)
        if upload.coming is not None:
            raise _bad(f"{upload.coming.name} ended before its last piece")
        await EXCHANGE.call(self.check_exchange)
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
        await EXCHANGE.call(_write, file, chunk)
        if not file.left:
            await self._finish(file, upload)
            upload.coming = None

    def _begin(self, name: str, chunks: int) -> _Incoming:
        parts = name.split("/")
        if len(name) > _NAME_CHARS or not _NAME.fullmatch(name) or any(part in ("", ".", "..") for part in parts):
            raise _bad(f"{name[:80]!r} cannot be the name of a file")
        if parts[0] in _REFUSED:
            raise unsupported(_REFUSED[parts[0]])
        if not (parts[0] == _CACHE and len(parts) == 2) and program_file(name) is None:  # noqa: PLR2004 - the folder and a name
            raise _bad(f"{name[:80]!r} cannot be the name of a file, or of an archive that is unpacked")
        if chunks < 1:
            raise _bad(f"{name} has no pieces")
        return _Incoming(name, chunks, self._folder / f".{secrets.token_hex(8)}.tmp")

    async def _finish(self, file: _Incoming, upload: _Upload) -> None:
        upload.answer.artifacts.add(name=file.name, is_crc_successful=file.is_sound)
        if not file.is_sound:
            await EXCHANGE.call(partial(file.path.unlink, missing_ok=True))
            return
        digest = file.digest.hexdigest()
        if file.name.startswith(f"{_CACHE}/") and file.name != f"{_CACHE}/{digest}":
            raise _bad(f"{file.name} has other content than its name says")
        target = Path(local_path(self.exchange_dir)) / connect_artifact(digest)
        await EXCHANGE.call(_settle, file.path, target, within_s=timing.DISK_LONG_S)
        upload.taken.append(ArtifactRecord(name=file.name, digest=digest, size_bytes=file.size))

    async def _keep(self, session: Session, taken: list[ArtifactRecord], answer: Any) -> Any:
        async def tried(session: Session) -> Session | None:
            artifacts, clashes = merged(session.record.artifacts, taken)
            if len(artifacts) > MAX_ARTIFACTS:
                raise too_large("the session", len(artifacts), MAX_ARTIFACTS, "files")
            clash[:] = [_clash(clashes)] if clashes else []
            answered = answer.SerializeToString() + session.of_answer(AddArtifactsResponse)
            return await self.sessions.change(session, {"artifacts": artifacts}, *(clash or [answered]))

        clash: list[ConnectError] = []
        if taken:
            await self.sessions.until_done(session, tried)
        if clash:
            raise clash[0]
        return answer

    async def sweep(self, kept: Collection[str]) -> None:
        """Remove files that no session has, once no reader can be left."""
        if not has_scheme(self.exchange_dir):
            await EXCHANGE.call(self.check_exchange)  # what lies in another directory may be another cluster's
            await EXCHANGE.call(_remove_old, self._folder, kept, within_s=timing.DISK_LONG_S)


def merged(
    known: Iterable[ArtifactRecord], new: Iterable[ArtifactRecord]
) -> tuple[tuple[ArtifactRecord, ...], list[str]]:
    """Return the files of a session that had *known* and gets *new*, and which of *new* it does not get.

    These are files for a program's Python, which has another one of the name, and may have imported that.
    """
    files = {artifact.name: artifact for artifact in known}
    names: dict[str, tuple[str, bool]] = {}
    """Of files for Python, by what they are called, and by what they are found: digest, and whether it is unpacked."""
    clashes = []
    for artifact in (*files.values(), *new):
        file = program_file(artifact.name)
        if file is None:
            files[artifact.name] = artifact
            continue
        content = (artifact.digest, file.place == ARCHIVES)
        if names.get(file.key, content) != content or names.get(file.alias, content) != content:
            clashes.append(file.key)
        elif file.key not in names:
            names[file.key] = names[file.alias] = content
            files[artifact.name] = artifact
    return tuple(files.values()), clashes


def _write(file: _Incoming, chunk: Any) -> None:
    if file.left < 1:
        raise _bad(f"{file.name} has more pieces than it said")
    file.is_sound = file.is_sound and zlib.crc32(chunk.data) == chunk.crc
    if not file.size:
        file.path.parent.mkdir(mode=0o777, exist_ok=True)
    with file.path.open("ab") as out:
        out.write(chunk.data)
    file.digest.update(chunk.data)
    file.size += len(chunk.data)
    file.left -= 1


def _settle(path: Path, target: Path) -> None:
    with path.open("rb") as written:
        os.fsync(written.fileno())
    path.replace(target)
    sync_directory(target.parent)


def _remove_old(folder: Path, kept: Collection[str]) -> None:
    """Remove what was not used for long; another scheduler, or an executor, may be at it as well."""
    if not folder.is_dir():
        return
    os.utime(folder)  # so it has the time of the machine that dates the files, whatever the clock of this one says
    before_s = folder.stat().st_mtime - _ORPHAN_S
    paths = list(folder.iterdir())
    old = [path for path in paths if path.name not in kept and _is_older(path, before_s)]
    others = set(paths) - set(old)
    # What links in the folders of programs lead to is used with these.
    linked = {name for path in others for name in _linked_from(path)}
    in_use = {name.removesuffix(CONNECT_UNPACKED) for name in linked} | {path.name for path in others}
    for path in old:
        if path.name.removesuffix(CONNECT_UNPACKED) in in_use:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):  # it is tried again at the next sweep
                path.unlink()


def _is_older(path: Path, before_s: float) -> bool:
    try:
        return path.stat().st_mtime < before_s
    except FileNotFoundError:
        return False


def _linked_from(folder: Path) -> list[str]:
    """Return where the links in *folder* lead to."""
    try:
        return [link.readlink().name for link in folder.iterdir() if link.is_symlink()] if folder.is_dir() else []
    except FileNotFoundError:
        return []


def _clash(names: list[str]) -> ConnectError:
    why = f"the session has another {', '.join(names[:5])}, which cannot be replaced: give the new one another name"
    return failed("ARTIFACT_ALREADY_EXISTS", "42713", f"{why}.", classes=RUNTIME)


def _bad(why: str) -> ConnectError:
    return failed("INVALID_ARTIFACT", "22023", f"{why}.")
