"""What the program prints goes to the process that runs it, with the call behind which it was printed.

What an earlier attempt has printed is dropped (`onager.program_output`).
"""

import contextlib
import io
import json
import os
import struct
import sys
import threading
from typing import Any

from onager.programs.tasks import CURRENT, ROOT

_HEAD = struct.Struct("!BIHI")
_STDOUT, _STDERR, _LIVE, _REFUSED, _LOST, _FAILED, _RAISED = 1, 2, 3, 4, 5, 6, 7
_MOST = 64 * 1024
"""Bytes of a frame."""
_MESSAGE_CHARS = 8_000


class Output:
    """Writes frames to a pipe; thread-safe."""

    def __init__(self, descriptor: int, shown: dict[str, int]) -> None:
        """*shown*: the last call of each task behind which earlier attempts have printed."""
        self._descriptor = descriptor
        self._shown = shown
        self._lock = threading.Lock()
        self._is_live = False
        self._pid = os.getpid()

    def printed(self, stream: int, text: bytes) -> None:
        """Send what was printed, unless an earlier attempt has; a forked process prints as a child does."""
        if os.getpid() != self._pid:
            os.write(stream, text)
            return
        task = CURRENT.get(None)
        path, number = (ROOT, 0) if task is None else (task.path, task.calls)
        if path == ROOT:
            self.reached(number)
        if number < self._shown.get(path, 0):
            return
        for start in range(0, len(text), _MOST):
            self._send(stream, number, path, text[start : start + _MOST])

    def reached(self, number: int) -> None:
        """Note how far the main thread is: what child processes print counts from then on."""
        if not self._is_live and number >= self._shown.get(ROOT, 0):
            self._is_live = True
            self._send(_LIVE, number, ROOT, b"")

    def ends(self) -> None:
        """Show what the main thread prints from now on: why the program ends, which no earlier attempt has said."""
        self._shown = {path: number for path, number in self._shown.items() if path != ROOT}
        self.reached(0)

    def refused(self, why: str) -> None:
        """Send why the program cannot go on."""
        self._send(_REFUSED, 0, ROOT, why.encode()[:_MOST])

    def lost(self) -> None:
        """Send that another attempt counts."""
        self._send(_LOST, 0, ROOT, b"")

    def failed(self, path: str, number: int, tasks: int) -> None:
        """Send which call's error ends the program, and how many tasks its task had started by then."""
        self._send(_FAILED, number, path, str(tasks).encode())

    def raised(self, condition: str, sql_state: str, message: str, place: str = "") -> None:
        """Send the error that ends the program: the beginning of *message*, and *place*, which says where."""
        said = {"error_class": condition, "sql_state": sql_state, "message": message[:_MESSAGE_CHARS] + place}
        self._send(_RAISED, 0, ROOT, json.dumps(said, ensure_ascii=False).encode()[:_MOST])

    def _send(self, stream: int, number: int, path: str, text: bytes) -> None:
        task = path.encode()
        frame = memoryview(_HEAD.pack(stream, number, len(task), len(text)) + task + text)
        with self._lock, contextlib.suppress(OSError):
            while frame:
                frame = frame[os.write(self._descriptor, frame) :]


def spark_text(error: BaseException) -> tuple[str, bool]:
    """Return the text of *error* without the stack trace of the JVM, and whether there was one."""
    text, of_java, _ = str(error).partition("\n\nJVM stacktrace:")
    return text.strip(), bool(of_java)


class _Stream(io.RawIOBase):
    def __init__(self, output: Output, stream: int) -> None:
        self._output = output
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, text: Any) -> int:
        content = bytes(text)
        self._output.printed(self._stream, content)
        return len(content)

    def fileno(self) -> int:
        """Return the descriptor that child processes inherit."""
        return self._stream


def take_over(output: Output) -> None:
    """Have `print` and whatever else writes to Python's streams write to *output*, line by line."""
    for name, stream in (("stdout", _STDOUT), ("stderr", _STDERR)):
        raw = io.BufferedWriter(_Stream(output, stream), 1)
        is_error = stream == _STDERR  # of which Python keeps nothing back; else a line is one frame
        text = io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", line_buffering=True, write_through=is_error)
        setattr(sys, name, text)
