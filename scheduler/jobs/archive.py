"""Files of what happened to jobs, for longer than the store keeps it.

DIRECTORY/2026-11-23/job.ndjson.zst    the job's head, then the batches of its log in order, a JSON object a line
"""

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import zstandard

from onager.ids import JobId
from onager.scheduler import timing
from onager.scheduler.disk import HISTORIES
from onager.scheduler.jobs import history
from onager.scheduler.jobs.job_heads import JobHead
from onager.scheduler.records import unpack
from onager.state_backend import Keyspace, KeyValue, StateBackendClient, each_page
from onager.synced import sync_directory

_PARTS_AT_ONCE: Final = 8


class HistoryArchive:
    """A directory of its own machine, or one that schedulers share: they write the same file of a job."""

    def __init__(self, backend: StateBackendClient, directory: Path) -> None:
        self._backend = backend
        self._directory = directory

    async def write(self, head: JobHead) -> Path:
        """Write the history of an ended job, unless it is there; return the file. `DiskError` where that fails.

        The file has its name only once it is whole.
        """
        ended = datetime.fromtimestamp((head.ended_ms or head.submitted_ms) / 1000, UTC)
        path = self._directory / f"{ended:%Y-%m-%d}" / f"{head.job_id}.ndjson.zst"
        if await HISTORIES.call(_is_written, path):
            return path
        written = await HISTORIES.call(_Writing, path, late=_Writing.discard)
        try:
            await HISTORIES.call(written.add, head.model_dump_json().encode())
            pages = each_page(
                self._backend.scan, Keyspace.History, history.prefix(JobId(head.job_id)), limit=_PARTS_AT_ONCE
            )
            async for parts in pages:
                await HISTORIES.call(written.add_all, parts.items)
            # Much is written here only.
            await HISTORIES.call(written.finish, within_s=timing.DISK_LONG_S)
        except BaseException:
            HISTORIES.post(written.discard)
            raise
        return path


def _is_written(path: Path) -> bool:
    """Return whether the file is there, on its disk: its writer may have ended before it could sync its directory."""
    if not path.exists():
        return False
    sync_directory(path.parent.parent)
    sync_directory(path.parent)
    return True


class _Writing:
    """A file on its way; its methods block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        directories = [path.parent, *path.parent.parents]
        self._named_in = {path.parent, path.parent.parent} | {each.parent for each in directories if not each.exists()}
        """The directories that name the file, and those in which one is made for it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        self._file = self._partial.open("wb")
        self._zstd = zstandard.ZstdCompressor().stream_writer(self._file)

    def add(self, line: bytes) -> None:
        self._zstd.write(line + b"\n")

    def add_all(self, parts: tuple[KeyValue, ...]) -> None:
        for part in parts:
            self.add(unpack(part.value, f"history {part.key}"))

    def finish(self) -> None:
        self._zstd.flush(zstandard.FLUSH_FRAME)
        os.fsync(self._file.fileno())
        self._file.close()
        self._partial.replace(self._path)
        for directory in sorted(self._named_in):
            sync_directory(directory)

    def discard(self) -> None:
        try:
            self._file.close()
        finally:
            self._partial.unlink(missing_ok=True)
