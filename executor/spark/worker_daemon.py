"""The daemon of Spark's Python workers: PySpark's own, but what workers print says of which attempt it is.

Started by Spark as ``python -m`` with this module's name (`spark.python.daemon.module`), so it must start no Python
threads. It imports what workers need, once; each worker is a fork of it.
"""

import gc
import importlib
import json
import os
import signal
import sys
import warnings
from typing import Any, Final, TextIO

from pyspark import SparkFiles, daemon
from pyspark.taskcontext import TaskContext

ATTEMPTS: Final = "onager.attempts"
"""The local property of Spark jobs that names the attempts of a run: ``JOB/STAGE.ATTEMPT|PARTITION:ATTEMPT,…``."""
ATTEMPT: Final = "mdc.onager.attempt"
"""The one for jobs that are all of one attempt."""
_IMPORTED: Final = ("pandas", "pyarrow", "pyspark.worker", "pyspark.sql.pandas.conversion")
"""What each worker would import. The threads of numpy and pyarrow are fork-safe."""
_LONGEST: Final = 8 * 1024
"""A longer line is written as several."""
FILES: Final = "SPARK_JOB_ARTIFACT_UUID"
"""The variable with the digest of the program's files that this daemon's workers have, if any."""
_NO_FILES: Final = "default"
_LOOKS_EVERY_S: Final = 60
_IDLE_LOOKS: Final = 10
"""After so many looks without a worker, a daemon for a program's files ends; Spark starts another one if need be."""


class MarkedText:
    """Takes the place of a worker's standard output or error: writes whole lines, each with its attempt."""

    def __init__(self, inner: TextIO) -> None:
        self._inner = inner
        self._begun = ""

    def write(self, text: str) -> int:
        """Write the lines that *text* completes."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._write(line)
        if lines:
            self._inner.flush()
        while len(self._begun) > _LONGEST:
            self._write(self._begun[:_LONGEST])
            self._begun = self._begun[_LONGEST:]
        return len(text)

    def flush(self) -> None:
        """Write what is there."""
        if self._begun:
            self._write(self._begun)
            self._begun = ""
        self._inner.flush()

    def _write(self, line: str) -> None:
        attempt = attempt_here()
        if not attempt:
            self._inner.write(f"{line}\n")
            return
        for start in range(0, len(line) or 1, _LONGEST):
            escaped = json.dumps(line[start : start + _LONGEST], ensure_ascii=False)[1:-1]
            self._inner.write(f"\x1e{attempt}\x1f\x1f{escaped}\n")

    def writelines(self, lines: Any) -> None:
        """Write all of *lines*."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def attempt_here() -> str:
    """Return the attempt that this worker process works on, as text; empty when it is not known."""
    context = TaskContext.get()
    if context is None:
        return ""
    stage, bar, tasks = (context.getLocalProperty(ATTEMPTS) or "").partition("|")
    if not bar:
        return context.getLocalProperty(ATTEMPT) or ""
    mine = f",{context.partitionId()}:"
    found = f",{tasks},".partition(mine)[2].partition(",")[0]
    return f"{stage}/{context.partitionId()}.{found}" if found else ""


def find_files(digest: str) -> None:
    """Let SparkFiles find the files of a program, which are in the folder that its modules are looked for in."""
    inner = SparkFiles.getRootDirectory

    def folder(_: type[SparkFiles]) -> str:
        return next((path for path in sys.path if path.endswith(f"/.connect/{digest}")), "") or inner()

    SparkFiles.getRootDirectory = classmethod(folder)


class IdleEnd:
    """Ends this process once it has had no children for a while: there is a daemon for each program's files."""

    def __init__(self) -> None:
        self._looks = 0

    def look(self, *_: Any) -> None:
        """Look for children, as the handler of a signal."""
        try:
            os.waitpid(-1, os.WNOHANG)
            self._looks = 0
        except ChildProcessError:
            self._looks += 1
        if self._looks >= _IDLE_LOOKS:
            sys.exit(0)


def import_for_workers() -> None:
    """Import what workers need, which takes over a second, before they are forked."""
    for name in _IMPORTED:
        importlib.import_module(name)
    # The warning also counts the threads of libraries.
    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
    gc.freeze()  # so that workers share its memory


def main() -> None:
    """Run PySpark's daemon, with workers whose output is marked, and that find the files of their program."""
    inner = daemon.worker
    if (digest := os.environ.get(FILES, _NO_FILES)) == _NO_FILES:
        import_for_workers()
    else:  # the files may hold a package of the same name
        find_files(digest)
        signal.signal(signal.SIGALRM, IdleEnd().look)
        signal.setitimer(signal.ITIMER_REAL, _LOOKS_EVERY_S, _LOOKS_EVERY_S)

    def worker(*arguments: Any) -> int:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # timers are the parent's alone
        if not isinstance(sys.stdout, MarkedText):  # the process is used again and again
            sys.stdout, sys.stderr = MarkedText(sys.stdout), MarkedText(sys.stderr)
            if (numpy := sys.modules.get("numpy")) is not None:
                numpy.random.seed()  # Python's own generator seeds itself after a fork
        try:
            code: int = inner(*arguments)
            return code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
