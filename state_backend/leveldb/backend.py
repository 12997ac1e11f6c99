"""The LevelDB adapter: the store of one scheduler process, in a directory.

One thread owns the database. Commands that arrive while it waits for the disk run as one group, and are written as one
batch with one `fsync`. Everything is checked when the directory is opened (`onager.state_backend.leveldb.directory`).
Leases outlive the process, and so does what is bound to them, such as locks. After an opening each lease has its whole
time to be kept alive, so that executors can report after a restart before any is declared lost. Watches reach back no
further than the opening.

When a write fails (a full disk), the database is opened again, and what it then holds decides the results of the
callers. While reopening fails, everything is refused as unavailable, and each new call tries again.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Self, TypeVar

import plyvel

from onager.clock import Clock, SystemClock
from onager.errors import OutcomeUnknownError, StateCorruptError, StateUnavailableError
from onager.state_backend.leveldb.directory import StateDirectory, damaged, reason
from onager.state_backend.local import Command, Engine, Group, LocalBackend, WatchHub

T = TypeVar("T")

_GROUP_COMMANDS: Final = 1024
"""Most commands of one group, to bound the memory of a batch (commands carry up to 1.5 MiB, most far less)."""
_GROUP_NUMBER: Final = b"mgroup"
_NOTHING: Final = Group({}, ())


class LevelDBBackend(LocalBackend):
    """The client of a state directory; `open` makes it."""

    def __init__(self, worker: "_Worker", clock: Clock) -> None:
        super().__init__(clock, WatchHub(worker.engine.revision))
        self._worker = worker
        worker.start(self.deliver)
        self._start_sweeper()

    @classmethod
    async def open(cls, path: Path, *, clock: Clock | None = None) -> Self:
        """Open the state directory at *path*, or create it.

        `StateLockedError` when it is already open, `StateNotWritableError` when it cannot be created or written,
        `StateCorruptError` when anything in it is damaged or missing, `SchemaVersionError` when a newer Onager wrote
        it.
        """
        clock = SystemClock() if clock is None else clock
        worker = await asyncio.to_thread(lambda: _Worker(StateDirectory(path), clock))
        return cls(worker, clock)

    async def close(self) -> None:
        """Finish the calls in flight, and release the directory."""
        if self._is_closed:
            return
        await super().close()
        await asyncio.to_thread(self._worker.stop)

    async def _run(self, command: Command[T]) -> T:
        self._check_open()
        return await self._worker.submit(command, is_read=False)

    async def _query(self, command: Command[T]) -> T:
        self._check_open()
        return await self._worker.submit(command, is_read=True)


@dataclass(slots=True)
class _Request:
    command: Callable[[Engine], Any]
    is_read: bool
    done: "asyncio.Future[Any]"
    result: Any = None
    error: Exception | None = None

    def settle(self) -> None:
        if self.done.done():
            return  # the caller was cancelled
        if self.error is None:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(self.error)

    def run(self, run: Callable[[Callable[[Engine], Any]], Any]) -> None:
        try:
            self.result = run(self.command)
        except Exception as error:  # noqa: BLE001 passed to the caller
            self.error = error


class _Worker:
    """The thread that owns the database."""

    def __init__(self, directory: StateDirectory, clock: Clock) -> None:
        self._directory = directory
        self._table = _LevelTable(directory)
        try:
            self._group_number = int(self._table.get(_GROUP_NUMBER) or 0)
            self.engine = Engine(self._table, clock)
            self._is_broken = False
        except BaseException:
            directory.close()
            raise
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=f"leveldb {directory.path}", daemon=True)

    def start(self, deliver: Callable[[Group], None]) -> None:
        self._deliver = deliver
        self._event_loop = asyncio.get_running_loop()
        self._thread.start()

    def submit(self, command: Callable[[Engine], T], *, is_read: bool) -> "asyncio.Future[T]":
        done: asyncio.Future[T] = self._event_loop.create_future()
        self._requests.put(_Request(command, is_read, done))
        return done

    def stop(self) -> None:
        self._requests.put(None)
        self._thread.join()
        self._directory.close()

    def _loop(self) -> None:
        is_last = False
        while not is_last:
            requests, is_last = self._next_requests()
            group: Group | None = None
            try:
                group = self._serve(requests)
            except Exception as error:  # noqa: BLE001 every caller of the group gets it, the thread lives on
                for request in requests:
                    request.error = error
            try:
                self._event_loop.call_soon_threadsafe(self._settle, requests, group)
            except RuntimeError:
                return  # the event loop is closed: no caller is left

    def _next_requests(self) -> tuple[list[_Request], bool]:
        requests: list[_Request] = []
        request = self._requests.get()
        while request is not None:
            requests.append(request)
            if len(requests) == _GROUP_COMMANDS:
                return requests, False
            try:
                request = self._requests.get_nowait()
            except Empty:
                return requests, False
        return requests, True

    def _settle(self, requests: Iterable[_Request], group: Group | None) -> None:
        try:
            if group is not None:
                self._deliver(group)
        finally:  # the callers must not wait for ever
            for request in requests:
                request.settle()

    def _serve(self, requests: list[_Request]) -> Group:
        lost_revision = None
        if self._is_broken:
            self._reopen()
            lost_revision = self.engine.revision
        self.engine.run(Engine.expire)
        writes = [request for request in requests if not request.is_read]
        for request in writes:
            request.run(self.engine.run)
        group = self.engine.take()
        try:
            self._write(group)
        except plyvel.IOError as error:
            if not self._has_survived(error):
                group = _NOTHING
                for request in writes:
                    request.error = StateUnavailableError(
                        f"{self._directory.path}: {reason(error)}; nothing was written"
                    )
        # Reads and writes of the group were requested at the same time: reads that see all the writes are linearizable.
        for request in requests:
            if request.is_read:
                request.run(lambda command: command(self.engine))
        return replace(group, lost_revision=lost_revision)

    def _write(self, group: Group) -> None:
        if not group.writes:
            return
        self._group_number += 1
        try:
            with self._directory.db.write_batch(transaction=True, sync=True) as batch:
                batch.put(_GROUP_NUMBER, b"%d" % self._group_number)
                for raw, record in group.writes.items():
                    if record is None:
                        batch.delete(raw)
                    else:
                        batch.put(raw, record)
        except plyvel.CorruptionError as error:  # found by a compaction
            self._is_broken = True
            raise damaged(self._directory.path, reason(error)) from error

    def _has_survived(self, error: plyvel.IOError) -> bool:
        """Open again after a failed write, and return whether the group was written."""
        self._is_broken = True
        number = self._group_number
        try:
            self._reopen()
        except StateUnavailableError as unavailable:
            raise OutcomeUnknownError(
                f"{self._directory.path}: {reason(error)}; it could not be opened again to see whether that was written"
            ) from unavailable
        return self._group_number == number

    def _reopen(self) -> None:
        self._directory.reopen()
        self.engine.reload()
        self._group_number = int(self._table.get(_GROUP_NUMBER) or 0)
        self._is_broken = False


class _LevelTable:
    """The open database as the engine's table; damage found while reading is raised as such."""

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory

    def get(self, raw: bytes) -> bytes | None:
        try:
            record: bytes | None = self._directory.db.get(raw, verify_checksums=True)
        except plyvel.Error as error:
            raise self._translated(error) from error
        return record

    def rows(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._iterate(start, stop, include_value=True)

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        return self._iterate(start, stop, include_value=False)

    def _iterate(self, start: bytes, stop: bytes, *, include_value: bool) -> Iterator[Any]:
        try:
            with self._directory.db.iterator(
                start=start, stop=stop, include_value=include_value, verify_checksums=True
            ) as rows:
                yield from rows
        except plyvel.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: plyvel.Error) -> StateCorruptError | StateUnavailableError:
        if isinstance(error, plyvel.CorruptionError):
            return damaged(self._directory.path, reason(error))
        return StateUnavailableError(f"{self._directory.path}: {reason(error)}")
