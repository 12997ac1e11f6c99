"""A state store that the command opens itself, when no scheduler runs."""

import asyncio
import getpass
import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self

from onager.client.state import ClusterState
from onager.clock import SystemClock
from onager.errors import InvalidSettingError, StateLockedError
from onager.logs import configure_logging
from onager.protocol.security import Caller
from onager.scheduler.jobs.audit import Audit
from onager.state_admin.admin import StateAdmin, without_credentials
from onager.state_admin.backup_file import BackupFile, BackupReader
from onager.state_admin.restoring import Target, look_at_target, new_mark, restore_records
from onager.state_backend import StateBackendClient, open_backend
from onager.state_backend.urls import FORMS, state_directory


class DirectState(ClusterState):
    """A store opened here, without a connection to schedulers; for one thread."""

    def __init__(self, url: str, *, may_be_new: bool = False) -> None:
        """Open the store at *url*; raises if it does not exist, unless *may_be_new*."""
        configure_logging("warning")
        _check_url(url, may_be_new=may_be_new)
        self.url = url
        self.clock = SystemClock()
        self._runner = asyncio.Runner()
        try:
            self.backend: StateBackendClient = self._runner.run(open_backend(_as_a_guest(url), clock=self.clock))
        except StateLockedError as error:
            self._runner.close()
            if may_be_new:
                raise  # a restore needs exclusive access
            raise StateLockedError(
                f"{error}; or use that scheduler: give --scheduler HOST:PORT instead of --backend"
            ) from error
        except BaseException:
            self._runner.close()
            raise
        self._admin = StateAdmin(self.backend, self.clock, without_credentials(url), Audit(self.backend, self.clock))

    @property
    def is_shared(self) -> bool:
        """Return whether other processes, such as schedulers, may use the store at the same time."""
        return state_directory(self.url) is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self.backend.close())
        finally:
            self._runner.close()

    def target(self) -> Target:
        """Return what the store contains, before a restore."""
        return self._runner.run(look_at_target(self.backend))

    def restore(self, reader: BackupReader, backup: BackupFile, target: Target) -> int:
        """Replace the store's records with those of a checked backup; return how many were written."""
        mark = new_mark(self.clock, str(backup.path.absolute()), backup.records)
        return self._runner.run(restore_records(self.backend, target, reader.records(), mark, _user(), self.clock))

    def _call(self, method: str, request: Any, deadline_s: float = 0.0) -> Any:  # noqa: ARG002 - it takes what it takes
        admin = self._admin
        remove = partial(admin.remove, caller=_user())
        calls: dict[str, Any] = {"ListState": admin.list, "GetState": admin.get, "RemoveState": remove}
        return self._runner.run(calls[method](request))

    def _stream(self, method: str, request: Callable[[], Any], deadline_s: float | None = None) -> Iterator[Any]:  # noqa: ARG002
        admin = self._admin
        streams: dict[str, Any] = {"WatchState": admin.watch, "CheckState": admin.check, "BackupState": admin.backup}
        stream = streams[method](request())

        async def following() -> list[Any]:
            async for item in stream:
                return [item]
            return []

        try:
            while item := self._runner.run(following()):
                yield item[0]
        finally:
            self._runner.run(stream.aclose())


def _user() -> Caller:
    """Return who runs this command: no scheduler has asked for a token."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        name = str(os.getuid())
    return Caller(name, socket.gethostname())


def _as_a_guest(url: str) -> str:
    """Return *url* with compaction of etcd's history off, which is left to the schedulers."""
    if not url.startswith("etcd:") or "compact_history=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}compact_history=off"


def _check_url(url: str, *, may_be_new: bool) -> None:
    if url.startswith("memory:"):
        raise InvalidSettingError("--backend", url, f"a memory store keeps nothing: give {FORMS}")
    directory = state_directory(url)
    if directory is None or may_be_new:
        return
    if not (directory / "CURRENT").is_file() and not any(directory.glob("*.ldb")) and not any(directory.glob("*.log")):
        raise InvalidSettingError("--backend", url, "the directory has no store; give the directory of the scheduler")
