"""Starting Spark's JVM, and finding out why it did not start: no Java, an old Java, a signal, or its own error."""

import os
import re
import signal
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from subprocess import PIPE, Popen, TimeoutExpired
from threading import Thread
from typing import Any, Final

from pyspark import java_gateway

from onager.errors import OnagerError
from onager.executor.spark.jvm_end import signal_of
from onager.executor.spark.jvm_output import JvmOutput
from onager.executor.work import WorkerDiedError
from onager.private_process import without_own_variables
from onager.redaction import is_secret, without_logins

_DEATH_S: Final = 2.0
"""How long a process whose connection broke may take to exit."""
_LINES: Final = 20
_LINES_SHOWN: Final = 5
_SECRETS: Final = frozenset({"credential", "passphrase"})
"""Words in names of secret settings, besides those of `spark.redaction.regex`."""
_DRIVER: Final = "spark.driver."
_NEEDED: Final = "install Java 17 or newer, and let JAVA_HOME name it"
_TOO_OLD: Final = "UnsupportedClassVersionError"
_SILENCE: Final = "CMD: bad array subscript"
"""The last output of Spark's launch script, with exit code 1, when the JVM that builds the command is killed."""
_NOTE: Final = re.compile(r"(NOTE: )?Picked up (JDK_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS):")
"""Java prints this whenever the variable is set; it is not an error."""
_IS_MISSING: Final = re.compile(r"JAVA_HOME is not set|java: (No such file|not found|Permission denied|Is a directory)")


class StartingJvm:
    """A process that PySpark starts, and its last lines of standard error."""

    def __init__(self, process: Popen[bytes], output: JvmOutput) -> None:
        self.process = process
        self._output = output
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._reader = Thread(target=self._forward, name="stderr of Spark's JVM", daemon=True)
        self._reader.start()

    def _forward(self) -> None:
        """Forward the process's standard error until it ends: to this process's own, and to the logs of attempts."""
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                if text := self._output.take(line.decode(errors="replace")):
                    sys.stderr.write(text)
                    sys.stderr.flush()
                    self._lines.extend(text.rstrip().split("\n"))

    def error(self, error: Exception) -> Exception:
        """Return the error to raise when PySpark raised *error*: `WorkerDiedError` when a restart may help."""
        try:
            code = self.process.wait(_DEATH_S)
        except TimeoutExpired:
            return OnagerError(f"Spark could not be started: {error}")  # the JVM runs, and reported an error
        self._reader.join(_DEATH_S)
        said = [line for line in self._lines if not _NOTE.match(line)]
        number = signal_of(code)
        if number is not None:
            memory = "; the operating system does that when memory runs out" if number is signal.SIGKILL else ""
            return WorkerDiedError(f"Spark's JVM was killed by {number.name} while it started{memory}")
        if any(_TOO_OLD in line for line in said):
            return OnagerError(f"Spark could not be started: {_java()} is too old for it; {_NEEDED}")
        if any(_IS_MISSING.search(line) for line in said):
            return OnagerError(f"Spark could not be started: there is no Java at {_java()}; {_NEEDED}")
        if all(_SILENCE in line for line in said):
            return WorkerDiedError(
                "Spark's JVM was killed while it started, without any output; Spark's script hides the signal"
            )
        words = "\n".join(said[-_LINES_SHOWN:]) or "nothing"
        return OnagerError(f"Spark could not be started: its JVM ended with exit code {code} and wrote:\n{words}")


@contextmanager
def started_jvms(output: JvmOutput) -> Iterator[list[StartingJvm]]:
    """Yield the processes that PySpark starts within the context; PySpark hides a JVM until it has its port.

    What they write, for as long as they live, goes through *output*. Their environment has none of Onager's own
    variables, and their command line, which every user of the machine can read, none of the secret settings: PySpark
    sets all settings again through its connection.
    """
    started: list[StartingJvm] = []

    def start(command: Sequence[str], *, env: Mapping[str, str], **options: Any) -> Popen[bytes]:
        process = Popen(  # noqa: S603 - PySpark's own
            _without_secrets(command), **{**options, "env": without_own_variables(env), "stderr": PIPE}
        )
        started.append(StartingJvm(process, output))
        return process

    java_gateway.Popen = start
    try:
        yield started
    finally:
        java_gateway.Popen = Popen


def _without_secrets(command: Sequence[str]) -> list[str]:
    """Return the *command* without the settings that hold a secret, each ``--conf NAME=VALUE``.

    Those of the driver's JVM itself remain: it needs them on its command line.
    """
    kept: list[str] = []
    for word in command:
        name, _, value = word.partition("=")
        is_found = is_secret(name, _SECRETS) or without_logins(value) != value
        if kept and kept[-1] == "--conf" and is_found and not name.startswith(_DRIVER):
            kept.pop()
        else:
            kept.append(word)
    return kept


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"JAVA_HOME ({home})" if home else "the PATH (JAVA_HOME is not set)"
