"""Threads for calls that may never return, used again, since a new one takes time."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class DaemonThreads(Executor):
    """A thread pool for which the process does not wait at its end. Threads are made as they are needed, and stay."""

    def __init__(self, name: str, most: int) -> None:
        """At most *most* calls run at a time; threads are called *name* with a number."""
        self._name = name
        self._most = most
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], Any]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> "Future[Any]":
        """Return what *fn* returns, or raises, once a thread has called it."""
        done: Future[Any] = Future()
        if not self._idle.acquire(blocking=False) and self._count < self._most:
            threading.Thread(target=self._run, name=f"{self._name}-{self._count + 1}", daemon=True).start()
            self._count += 1
        self._work.put((done, fn, args))  # not before: a thread that cannot be made is an error of the call
        return done

    def _run(self) -> None:
        while True:
            done, work, args = self._work.get()
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(work(*args))
                except BaseException as error:  # noqa: BLE001 - it goes to the caller that awaits
                    done.set_exception(error)
            del done, work, args  # what they hold is closed in this thread
            self._idle.release()
