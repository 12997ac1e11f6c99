"""A request to stop a task, which the code that runs the task checks or reacts to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf


class TaskCancelledError(Exception):
    """The task was asked to stop."""


class Cancellation:
    """The cancellation of one task; thread-safe."""

    def __init__(
        self, stop: Callable[[], None] = lambda: None, limit: Callable[[float], None] = lambda _: None
    ) -> None:
        """*stop* stops what the task does in the JVM; *limit* says in how many seconds `run_out` is to be called."""
        self._stop = stop
        self._limit = limit
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._stops: list[Callable[[], None]] = []
        self._error_when_over: Exception | None = None
        self.error: Exception | None = None
        """What the task failed of, if that is why it was asked to stop."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the task was asked to stop."""
        return self._is_cancelled

    def cancel(self, error: Exception | None = None) -> None:
        """Ask the task to stop; *error*: what it failed of, if it did."""
        with self._lock:
            if not self._is_cancelled:
                self._is_cancelled, self.error = True, error
            stops = list(self._stops)
        for stop in (*stops, self._stop):
            stop()

    def run_out(self) -> None:
        """Ask the task to stop, because its time is over."""
        self.cancel(self._error_when_over)

    @contextmanager
    def limited(self, limit_s: float, error: Exception) -> Iterator[Callable[[], None]]:
        """Ask the task to stop, which then failed of *error*, once the context has taken *limit_s*; 0: however long.

        Yields a function that lifts the limit.
        """
        self._error_when_over = error
        self._limit(limit_s or inf)
        try:
            yield lambda: self._limit(inf)
        finally:
            self._limit(inf)

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
