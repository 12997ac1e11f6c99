"""The daemon of Spark's Python workers: PySpark's own, but what workers print says of which attempt it is.

Started by Spark as ``python -m`` with this module's name (`spark.python.daemon.module`), so it must import little, and
start no threads.
"""

import json
import sys
from typing import Any, Final, TextIO

from pyspark import daemon
from pyspark.taskcontext import TaskContext

ATTEMPTS: Final = "onager.attempts"
"""The local property of Spark jobs that names the attempts of a run: ``JOB/STAGE.ATTEMPT|PARTITION:ATTEMPT,…``."""
ATTEMPT: Final = "mdc.onager.attempt"
"""The one for jobs that are all of one attempt."""
_LONGEST: Final = 8 * 1024
"""A longer line is written as several."""


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


def main() -> None:
    """Run PySpark's daemon, with workers whose output is marked."""
    inner = daemon.worker

    def worker(*arguments: Any) -> int:
        if not isinstance(sys.stdout, MarkedText):  # the process is used again and again
            sys.stdout, sys.stderr = MarkedText(sys.stdout), MarkedText(sys.stderr)
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
