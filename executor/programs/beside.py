"""Runs programs beside an executor: a process that outlives the executor's JVM, and ends with the executor.

When its JVM dies, the executor's process replaces itself (`onager.executor.main`). The process that runs programs stays
its child, and a pipe between them stays open; an environment variable tells the new program of both.
"""

import contextlib
import os
import subprocess
import sys
import threading
from typing import Final

import structlog

from onager.executor.settings import ExecutorSettings
from onager.private_process import without_own_variables

_VARIABLE: Final = "ONAGER_PROGRAM_HOST"
_LEAVE: Final = b"l"
_LEAVE_S: Final = 10.0
_PAUSE_S: Final = 1.0

log = structlog.get_logger()


class ProgramHost:
    """Keeps the process that runs programs running."""

    def __init__(self, settings: ExecutorSettings) -> None:
        """Take it over from this process's life before, or start it."""
        self._settings = settings.for_programs
        self._leaves = threading.Event()
        self._lock = threading.Lock()
        pid, _, pipe = os.environ.pop(_VARIABLE, "").partition(":")
        self._pid, self._pipe = (int(pid), int(pipe)) if pid and pipe else (0, -1)
        self._process: subprocess.Popen[bytes] | None = None
        """Unless it was taken over."""
        if self._pid:
            os.set_inheritable(self._pipe, False)
        else:
            self._start()
        self._keeper = threading.Thread(target=self._keep, name="onager-programs", daemon=True)
        self._keeper.start()

    def _start(self) -> None:
        reader, writer = os.pipe()
        try:
            process = subprocess.Popen(  # noqa: S603 - our own
                [sys.executable, "-m", "onager.executor.programs", str(reader)],
                env=without_own_variables(os.environ),
                stdin=subprocess.DEVNULL,
                pass_fds=[reader],
                start_new_session=True,
            )
        except BaseException:
            os.close(writer)
            raise
        finally:
            os.close(reader)
        self._pid, self._pipe, self._process = process.pid, writer, process
        with contextlib.suppress(BrokenPipeError):  # it has died already
            os.write(writer, self._settings.model_dump_json().encode() + b"\n")

    def _keep(self) -> None:
        while not self._leaves.is_set():
            if not self._pid:
                self._start_again()
                continue
            code = self._ended()
            with self._lock:
                if self._leaves.is_set() or code == 0:  # 0: it was drained, and so was the executor
                    return
                log.warning("programs_process_died", exit_code=code)
                os.close(self._pipe)
                self._pid, self._pipe = 0, -1

    def _ended(self) -> int | None:
        """Wait for its end, and return its exit code; None if it died while this process was replacing itself."""
        if self._process is not None:
            return self._process.wait()
        try:
            _, status = os.waitpid(self._pid, 0)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status)

    def _start_again(self) -> None:
        if self._leaves.wait(_PAUSE_S):
            return
        with self._lock:
            if self._leaves.is_set():
                return
            try:
                self._start()
            except OSError as error:  # for example, too many processes
                log.warning("programs_process_not_started", error=str(error))

    def hand_over(self) -> None:
        """Keep it running while this process replaces itself, which may take a while; this one starts no other."""
        with self._lock:
            self._leaves.set()
            if self._pid:
                os.set_inheritable(self._pipe, True)
                os.environ[_VARIABLE] = f"{self._pid}:{self._pipe}"

    def close(self) -> None:
        """Have it leave, and wait for its end: its programs go on elsewhere."""
        with self._lock:
            self._leaves.set()
            if not self._pid:
                return
            try:
                os.write(self._pipe, _LEAVE)
            except OSError:
                return
        self._keeper.join(_LEAVE_S)
