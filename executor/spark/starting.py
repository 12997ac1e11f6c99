"""Starting Spark's JVM, and telling why it did not start: no Java, an old one, a signal, or what it said itself."""

import os
import re
import signal
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen, TimeoutExpired
from threading import Thread
from typing import Any, Final

from pyspark import java_gateway

from onager.errors import OnagerError
from onager.executor.work import WorkerDiedError

_DEATH_S: Final = 2.0
"""How long a process whose connection broke may take to be gone."""
_SHELL_SIGNALS: Final = 128
"""A shell's exit code for what a signal ended is this and the signal's number."""
_LINES: Final = 20
_LINES_TOLD: Final = 5
_NEEDED: Final = "install Java 17 or newer, and let JAVA_HOME name it"
_TOO_OLD: Final = "UnsupportedClassVersionError"
_SILENCE: Final = "CMD: bad array subscript"
"""So ends Spark's script, with exit code 1, when the small JVM that puts the command together is killed."""
_NOTE: Final = re.compile(r"(NOTE: )?Picked up (JDK_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS):")
"""Java says so first whenever the variable is set: no reason for anything."""
_IS_MISSING: Final = re.compile(r"JAVA_HOME is not set|java: (No such file|not found|Permission denied|Is a directory)")


class StartingJvm:
    """A process that PySpark starts, and the last that it wrote to standard error."""

    def __init__(self, process: Popen[bytes]) -> None:
        self.process = process
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._reader = Thread(target=self._forward, name="stderr of Spark's JVM", daemon=True)
        self._reader.start()

    def _forward(self) -> None:
        """Pass on what the process writes, for as long as it lives."""
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                sys.stderr.write(text := line.decode(errors="replace"))
                sys.stderr.flush()
                self._lines.append(text.rstrip())

    def error(self, error: Exception) -> Exception:
        """Return what to tell when PySpark raised *error*: `WorkerDiedError` when starting again may help."""
        try:
            code = self.process.wait(_DEATH_S)
        except TimeoutExpired:
            return OnagerError(f"Spark could not be started: {error}")  # its JVM is there, and refuses something
        self._reader.join(_DEATH_S)
        said = [line for line in self._lines if not _NOTE.match(line)]
        number = _signal_of(code)
        if number is not None:
            memory = "; that is what happens to it when memory runs out" if number is signal.SIGKILL else ""
            return WorkerDiedError(f"Spark's JVM was killed by {number.name} while it started{memory}")
        if any(_TOO_OLD in line for line in said):
            return OnagerError(f"Spark could not be started: {_java()} is too old for it; {_NEEDED}")
        if any(_IS_MISSING.search(line) for line in said):
            return OnagerError(f"Spark could not be started: there is no Java at {_java()}; {_NEEDED}")
        if all(_SILENCE in line for line in said):
            return WorkerDiedError(
                "Spark's JVM was killed before it said anything while it started, by which signal Spark's script hides"
            )
        words = "\n".join(said[-_LINES_TOLD:]) or "nothing"
        return OnagerError(f"Spark could not be started: its JVM ended with exit code {code}, and said:\n{words}")


@contextmanager
def started_jvms() -> Iterator[list[StartingJvm]]:
    """Yield what PySpark starts meanwhile: it keeps a JVM to itself that has not said yet where it listens."""
    started: list[StartingJvm] = []

    def start(*arguments: Any, **options: Any) -> Popen[bytes]:
        started.append(StartingJvm(Popen(*arguments, **{**options, "stderr": PIPE})))  # noqa: S603 - PySpark's own
        return started[-1].process

    java_gateway.Popen = start
    try:
        yield started
    finally:
        java_gateway.Popen = Popen


def _signal_of(code: int) -> signal.Signals | None:
    """Return by which signal a process ended, itself or what a shell ran in its place, given its exit code."""
    number = -code if code < 0 else code - _SHELL_SIGNALS
    return signal.Signals(number) if number in signal.valid_signals() else None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"JAVA_HOME ({home})" if home else "the PATH (JAVA_HOME is not set)"
