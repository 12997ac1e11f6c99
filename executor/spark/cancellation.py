"""A request to stop a task, which the code that runs the task checks or reacts to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TaskCancelledError(Exception):
    """The task was asked to stop."""


class Cancellation:
    """The cancellation of one task; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._stops: list[Callable[[], None]] = []

    @property
    def is_cancelled(self) -> bool:
        """Whether the task was asked to stop."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Ask the task to stop."""
        with self._lock:
            self._is_cancelled = True
            stops = list(self._stops)
        for stop in stops:
            stop()

    def check(self) -> None:
        """Raise `TaskCancelledError` if the task was asked to stop."""
        if self._is_cancelled:
            raise TaskCancelledError

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call *stop* when the task is asked to stop within the context, or at once if it already was."""
        with self._lock:
            self._stops.append(stop)
            is_late = self._is_cancelled
        if is_late:
            stop()
        try:
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)
