"""The processes of jobs' functions, from the agent's side: starts them, talks to them, and kills them."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import structlog

from onager.errors import FunctionLostError
from onager.executor.spark.functions.child import framed, unframed
from onager.executor.spark.functions.warm import REQUEST
from onager.private_process import without_own_variables

_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; from onager.executor.spark.functions import warm; warm.main({control})"
)
_MAX_ANSWER: Final = 1 << 20
_CHUNK: Final = 64 * 1024
_LAST_CHUNKS: Final = 32
"""More than a pipe or a socket holds."""
_START_S: Final = 60.0
_STOP_S: Final = 5.0
_SHORT_LIFE_S: Final = 5.0
_PAUSE_S: Final = 1.0
_LONGEST_WAIT_S: Final = 3600.0
"""A selector takes no more than 24 days."""

log = structlog.get_logger()


class FunctionProcess:
    """A process that calls one function; a context manager that on exit kills it and everything that it started."""

    def __init__(self, channel: socket.socket, news: socket.socket, output: int) -> None:
        """*news*: where the warm process writes pid and exit code; a half close makes it kill the process."""
        self._channel = channel
        self._news_socket = news
        self._output = output
        self._news = b""
        self._answer = bytearray()
        self._is_over = False

    def kill(self) -> None:
        """Kill the process and everything that it started; thread-safe."""
        with contextlib.suppress(OSError):  # closed: the process has ended
            self._news_socket.shutdown(socket.SHUT_WR)

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

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, negative for a signal; None when unknown."""
        lines = self._news.decode().splitlines()
        return int(lines[1]) if len(lines) > 1 else None

    @property
    def not_started(self) -> str:
        """Why the process could not be started; empty when it was, or when the reason is unknown."""
        return "" if self._pid is not None else self._news.decode().strip()

    @property
    def _pid(self) -> int | None:
        first = self._news.partition(b"\n")[0]
        return int(first) if first.isdigit() else None

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

    def _take_news(self) -> bool:
        try:
            chunk = self._news_socket.recv(_CHUNK)
        except OSError:
            chunk = b""
        self._news += chunk
        self._is_over = not chunk
        return not self._is_over

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        while not self._is_over:
            self._take_news()
        if self.exit_code is None and self._pid is not None:
            # The warm process has died, and its children with it, but not what they started.
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
        self._channel.close()
        self._news_socket.close()
        os.close(self._output)


class FunctionProcesses:
    """Keeps a warm process running, from which the processes of functions are forked."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._why = "none was started yet"
        """Why there is no warm process, while there is none."""
        self._is_closed = False
        self._keeper = threading.Thread(target=self._keep, name="onager-functions", daemon=True)
        self._keeper.start()

    def fork(self) -> FunctionProcess:
        """Return a new process, which waits for a request; raises `FunctionLostError` when none can be started."""
        end_s = time.monotonic() + _START_S
        while True:
            with self._changed:
                while self._control is None and not self._is_closed and time.monotonic() < end_s:
                    self._changed.wait(_PAUSE_S)
                control = self._control
                if control is None or self._is_closed:
                    raise not_started("the executor stops" if self._is_closed else self._why)
                try:
                    return _fork(control)
                except (BrokenPipeError, ConnectionResetError):
                    self._control = None  # the warm process died; the keeper starts another

    def close(self) -> None:
        """End the warm process and all processes forked from it."""
        with self._changed:
            self._is_closed = True
            if self._control is not None:
                self._control.close()
                self._control = None
            process = self._process
            self._changed.notify_all()
        self._keeper.join(_STOP_S)
        if self._keeper.is_alive() and process is not None:
            process.kill()

    def _keep(self) -> None:
        while not self._is_closed:
            began_s = time.monotonic()
            try:
                why = self._run_warm()
            except OSError as e:  # for example, too many processes
                why = str(e)
            if self._is_closed:
                return
            self._why = why
            log.warning("functions_process_died", why=why)
            if time.monotonic() - began_s < _SHORT_LIFE_S:
                time.sleep(_PAUSE_S)

    def _run_warm(self) -> str:
        """Start the warm process, wait for its end, and return how it ended."""
        ours, theirs = socket.socketpair()
        with ours:
            with self._changed, theirs:
                if self._is_closed:
                    return ""
                self._process = process = _start_warm(theirs)
                self._control = ours
                self._changed.notify_all()
            process.wait()
            with self._changed:
                if self._control is ours:
                    self._control = None
        return f"process {process.pid}, from which they are forked, ended with {process.returncode}"


def not_started(why: str) -> FunctionLostError:
    """Return the error for a function whose process could not be started."""
    return FunctionLostError(
        f"no process for the job's function could be started on this executor ({why}); check the limits of its "
        "processes (such as pids of its container) and of its memory"
    )


def _start_warm(control: socket.socket) -> "subprocess.Popen[bytes]":
    """Start the warm process with this process's module path and, but for Onager's own variables, its environment."""
    program = _PROGRAM.format(path=sys.path, control=control.fileno())
    return subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", program],
        env=without_own_variables(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=2,  # for output of imported modules: standard output may carry a result
        pass_fds=[control.fileno()],
        start_new_session=True,
    )


def _fork(control: socket.socket) -> FunctionProcess:
    channel, their_channel = socket.socketpair()
    news, their_news = socket.socketpair()
    output, their_output = os.pipe()
    os.set_blocking(output, False)
    made = FunctionProcess(channel, news, output)
    theirs = (their_channel.detach(), their_news.detach(), their_output)
    try:
        socket.send_fds(control, [REQUEST], list(theirs))
    except OSError:
        channel.close()
        news.close()
        os.close(output)
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    return made
