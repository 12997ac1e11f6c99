"""The processes of jobs' functions, from the agent's side: asks them, and takes their answers."""

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from onager.errors import FunctionLostError
from onager.executor.spark.functions.child import framed, unframed
from onager.executor.warm.processes import ForkedProcess, NotStartedError, WarmProcesses

_MAX_ANSWER: Final = 1 << 20
_CHUNK: Final = 64 * 1024
_LAST_CHUNKS: Final = 32
"""More than a pipe or a socket holds."""
_LONGEST_WAIT_S: Final = 3600.0
"""A selector takes no more than 24 days."""


class FunctionProcess(ForkedProcess):
    """A process that calls one function."""

    def __init__(self, channel: socket.socket, news: socket.socket, output: int) -> None:
        super().__init__(channel, news, output)
        self._answer = bytearray()

    def ask(self, *parts: bytes) -> None:
        """Send the request; no error if the process is dead."""
        with contextlib.suppress(OSError):
            for part in parts:
                self._channel.sendall(framed(part))

    def answer(self, timeout_s: float | None, on_output: Callable[[bytes], None]) -> bytes | None:
        """Wait until the process has ended, and return its answer, or None when it gave none.

        *on_output* receives its output meanwhile. Raises `TimeoutError` when it was killed after *timeout_s*.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        takers: dict[Any, Callable[[], bool]] = {
            self._channel: self._take_answer,
            self._news_socket: self._take_news,
            self._output: lambda: self._take_output(on_output),
        }
        is_late = False
        with selectors.DefaultSelector() as waiting:
            for source, take in takers.items():
                waiting.register(source, selectors.EVENT_READ, take)
            while not self._is_over:
                left_s = None if deadline_s is None or is_late else max(deadline_s - time.monotonic(), 0)
                ready = waiting.select(None if left_s is None else min(left_s, _LONGEST_WAIT_S))
                for key, _ in ready:
                    if not key.data():
                        waiting.unregister(key.fileobj)
                is_late = is_late or (deadline_s is not None and time.monotonic() >= deadline_s)
                if is_late or len(self._answer) > _MAX_ANSWER or unframed(self._answer) is not None:
                    self.kill()
        for take in takers.values():  # data that arrived just before the end
            for _ in range(_LAST_CHUNKS):
                if not take():
                    break
        answer = unframed(self._answer)
        if is_late and answer is None:
            raise TimeoutError
        return answer

    def _take_output(self, on_output: Callable[[bytes], None]) -> bool:
        try:
            chunk = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return False
        on_output(chunk)
        return bool(chunk)

    def _take_answer(self) -> bool:
        try:
            chunk = self._channel.recv(_CHUNK, socket.MSG_DONTWAIT)
        except OSError:
            return False
        self._answer += chunk
        return bool(chunk) and len(self._answer) <= _MAX_ANSWER


class FunctionProcesses(WarmProcesses[FunctionProcess]):
    """Keeps a warm process running, from which the processes of functions are forked."""

    def __init__(self) -> None:
        super().__init__("onager.executor.spark.functions.warm", FunctionProcess)

    def fork(self) -> FunctionProcess:
        """Return a new process, which waits for a request; raises `FunctionLostError` when none can be started."""
        try:
            return super().fork()
        except NotStartedError as error:
            raise not_started(str(error)) from None


def not_started(why: str) -> FunctionLostError:
    """Return the error for a function whose process could not be started."""
    return FunctionLostError(
        f"no process for the job's function could be started on this executor ({why}); check the limits of its "
        "processes (such as pids of its container) and of its memory"
    )
