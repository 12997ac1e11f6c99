"""Checks the file system where a job writes, in threads of its own.

A file system that is gone answers no call, and none can be cancelled: shared threads would be lost to it.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final

from onager.errors import BusyError, InvalidRequestError
from onager.private_paths import PrivatePaths
from onager.scheduler import timing
from onager.scheduler.jobs.job_specs import check_place

_THREADS: Final = 16


async def check_place_apart(path: str, private: PrivatePaths) -> None:
    """Do what `check_place` does; `InvalidRequestError` also for a *path* whose file system does not answer.

    `BusyError` while all threads wait for such file systems.
    """
    begun = threading.Event()

    def look() -> None:
        begun.set()
        check_place(path, private)

    try:
        async with asyncio.timeout(timing.OUTPUT_LOOK_S):
            await asyncio.get_running_loop().run_in_executor(_daemons, look)
    except TimeoutError:
        if not begun.is_set():
            raise BusyError(f"{path} could not be looked at: the file systems of other outputs do not answer") from None
        raise InvalidRequestError(
            f"{path} cannot be written: its file system did not answer within {timing.OUTPUT_LOOK_S:g} s; "
            "give another directory"
        ) from None


class _Daemons(Executor):
    """A thread pool for which the process does not wait at its end."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], Any]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        self._work.put((done, fn, args))
        if len(self._threads) < _THREADS:
            self._threads.append(threading.Thread(target=self._run, name="places", daemon=True))
            self._threads[-1].start()
        return done

    def _run(self) -> None:
        while True:
            done, work, args = self._work.get()
            if not done.set_running_or_notify_cancel():
                continue  # the caller is gone
            try:
                done.set_result(work(*args))
            except BaseException as error:  # noqa: BLE001 - it goes to the caller that awaits
                done.set_exception(error)


_daemons: Final = _Daemons()
