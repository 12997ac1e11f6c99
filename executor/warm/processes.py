"""Processes that are forked from a warm one, from the agent's side."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import structlog

from onager.executor.warm.serving import REQUEST
from onager.private_process import without_own_variables

_PROGRAM: Final = "import sys; sys.path[:] = {path!r}; from {module} import main; main({control})"
_START_S: Final = 60.0
_STOP_S: Final = 5.0
_SHORT_LIFE_S: Final = 5.0
_PAUSE_S: Final = 1.0
_CHUNK: Final = 64 * 1024

log = structlog.get_logger()


class NotStartedError(Exception):
    """No process could be forked; the text says why."""


class ForkedProcess:
    """A forked process; a context manager that on exit kills it and everything that it started."""

    def __init__(self, channel: socket.socket, news: socket.socket, output: int) -> None:
        """*news*: where the warm process writes pid and exit code; a half close makes it kill the process."""
        self._channel = channel
        self._news_socket = news
        self._output = output
        self._news = b""
        self._is_over = False

    def kill(self) -> None:
        """Kill the process and everything that it started; thread-safe."""
        with contextlib.suppress(OSError):  # closed: the process has ended
            self._news_socket.shutdown(socket.SHUT_WR)

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


P = TypeVar("P", bound=ForkedProcess)


class WarmProcesses(Generic[P]):
    """Keeps a warm process running, from which others are forked."""

    def __init__(self, module: str, kind: type[P], **environment: str) -> None:
        """*module*: its ``main``, with a socket, is the warm process, whose *environment* has these variables, too.

        *kind*: what a forked process is here.
        """
        self._module = module
        self._kind = kind
        self._environment = environment
        self._changed = threading.Condition()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._why = "none was started yet"
        """Why there is no warm process, while there is none."""
        self._is_closed = False
        self._keeper = threading.Thread(target=self._keep, name="onager-warm", daemon=True)
        self._keeper.start()

    def fork(self) -> P:
        """Return a new process, which waits for a request; raises `NotStartedError` when none can be started."""
        end_s = time.monotonic() + _START_S
        while True:
            with self._changed:
                while self._control is None and not self._is_closed and time.monotonic() < end_s:
                    self._changed.wait(_PAUSE_S)
                control = self._control
                if control is None or self._is_closed:
                    raise NotStartedError("the executor stops" if self._is_closed else self._why)
                try:
                    return _fork(control, self._kind)
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
            log.warning("warm_process_died", of=self._module, why=why)
            if time.monotonic() - began_s < _SHORT_LIFE_S:
                time.sleep(_PAUSE_S)

    def _run_warm(self) -> str:
        """Start the warm process, wait for its end, and return how it ended."""
        ours, theirs = socket.socketpair()
        with ours:
            with self._changed, theirs:
                if self._is_closed:
                    return ""
                self._process = process = self._start_warm(theirs)
                self._control = ours
                self._changed.notify_all()
            process.wait()
            with self._changed:
                if self._control is ours:
                    self._control = None
        return f"process {process.pid}, from which they are forked, ended with {process.returncode}"

    def _start_warm(self, control: socket.socket) -> "subprocess.Popen[bytes]":
        """Start the warm process with this one's module path and, but for Onager's own variables, its environment."""
        program = _PROGRAM.format(path=sys.path, module=self._module, control=control.fileno())
        return subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-c", program],
            env={**without_own_variables(os.environ), **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=2,  # for output of imported modules: standard output may carry a result
            pass_fds=[control.fileno()],
            start_new_session=True,
        )


def _fork(control: socket.socket, kind: type[P]) -> P:
    channel, their_channel = socket.socketpair()
    news, their_news = socket.socketpair()
    output, their_output = os.pipe()
    os.set_blocking(output, False)
    made = kind(channel, news, output)
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
