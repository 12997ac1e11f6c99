"""A directory whose disk fails or hangs at the call that a test chooses."""

import asyncio
import builtins
import errno
import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from onager.scheduler import disk
from tests.support.waiting import HANGS_S

_CALLS = (
    "access",
    "chmod",
    "fsync",
    "link",
    "listdir",
    "lstat",
    "mkdir",
    "open",
    "readlink",
    "remove",
    "rename",
    "replace",
    "rmdir",
    "scandir",
    "stat",
    "symlink",
    "unlink",
    "utime",
)
HANG = -1
"""Stands for an error number: the call does not return."""


class FaultyDisk:
    """Watches the calls that Python makes to *directory*; those from number `first` on meet `fault`."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = str(directory)
        self.calls: list[tuple[str, str]] = []
        """What was called, and in which thread."""
        self.first: int | None = None
        self.fault = errno.EIO
        self.is_back = threading.Event()
        self._fd_path = os.readlink
        for name in _CALLS:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))
        for module in (io, builtins):
            monkeypatch.setattr(module, "open", self._watched("open", module.open))

    def fail(self, fault: int, first: int) -> None:
        """Let calls fail with the error number *fault*, or hang, from the one with the number *first* on."""
        self.calls.clear()
        self.is_back.clear()
        self.fault, self.first = fault, first

    def mend(self) -> None:
        """Let calls succeed again, and those return that hang."""
        self.first = None
        self.is_back.set()

    def _watched(self, name: str, call: Any) -> Any:
        def watched(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if self._is_here(path, kwargs.get("dir_fd")):
                self._meet(name, path)
            return call(path, *args, **kwargs)

        return watched

    def _is_here(self, path: Any, dir_fd: int | None) -> bool:
        if isinstance(path, int) or dir_fd is not None:
            try:
                path = self._fd_path(f"/proc/self/fd/{path if isinstance(path, int) else dir_fd}")
            except OSError:
                return False
        text = os.fspath(path)
        return (text.decode() if isinstance(text, bytes) else text).startswith(self._root)

    def _meet(self, name: str, path: Any) -> None:
        number = len(self.calls)
        self.calls.append((name, threading.current_thread().name))
        if self.first is None or number < self.first:
            return
        if self.fault == HANG:
            self.is_back.wait(HANGS_S)
        else:
            raise OSError(self.fault, os.strerror(self.fault), str(path))


async def settled() -> None:
    """Wait until no call runs any more."""
    async with asyncio.timeout(HANGS_S):
        for each in (disk.EXCHANGE, disk.OUTPUTS, disk.HISTORIES):
            while each._running.begun_s or not each._threads._work.empty():  # noqa: ASYNC110 of threads
                await asyncio.sleep(0.001)
