"""How the executor's JVM ended: its exit code or signal, and whether memory ran out."""

import re
import signal
from pathlib import Path
from typing import Final

from onager.executor.work import WorkerEnd

EXIT_OPTION: Final = "-XX:+ExitOnOutOfMemoryError"
"""Ends a JVM that threw an OutOfMemoryError, at once and with exit code 3; without it, the JVM may go on crippled.

It ends also where Spark would have caught the error and spilled (`TaskMemoryManager.allocatePage`), but not for Spark's
own `SparkOutOfMemoryError`, which no JVM throws. Source: Spark on YARN ends its executors by the same trigger
(`YarnSparkHadoopUtil.addOutOfMemoryErrorArgument`)."""
_CHOICE: Final = re.compile(r"-XX:(OnOutOfMemoryError=|[+-](ExitOnOutOfMemoryError|CrashOnOutOfMemoryError)\b)")
_OUT_OF_MEMORY: Final = (3, 52)
"""The exit codes after an OutOfMemoryError: the JVM's own, and that of Spark (`SparkExitCode.OOM`)."""
_SHELL_SIGNALS: Final = 128
"""A shell's exit code for a command that a signal ended is this plus the signal's number."""


def exit_option(given: str) -> str:
    """Return the JVM's option for OutOfMemoryErrors; empty if the options *given* choose something themselves."""
    return "" if _CHOICE.search(given) else EXIT_OPTION


class MemoryKills:
    """Counts the processes of this process's cgroup that were killed because memory ran out, where that can be read."""

    def __init__(self, proc: Path = Path("/proc/self"), root: Path = Path("/sys/fs/cgroup")) -> None:
        self._file = _file_of(proc, root)
        self._before = self._count()

    def look(self) -> None:
        """Note how many there are so far."""
        self._before = self._count()

    @property
    def are_more(self) -> bool:
        """Whether there have been more since the last look."""
        return self._count() > self._before

    def _count(self) -> int:
        try:
            text = self._file.read_text() if self._file is not None else ""
        except OSError:
            return 0
        found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        return 0 if found is None else int(found[1])


def _file_of(proc: Path, root: Path) -> Path | None:
    """Return the file of this process's cgroup that counts the kills, if possible without those of its descendants."""
    try:
        lines = (proc / "cgroup").read_text().splitlines()
    except OSError:
        return None
    places = {controllers: path.lstrip("/") for _, controllers, path in (line.split(":", 2) for line in lines)}
    candidates = []
    if "" in places:
        candidates += [root / places[""] / name for name in ("memory.events.local", "memory.events")]
    if "memory" in places:
        candidates.append(root / "memory" / places["memory"] / "memory.oom_control")
    return next((path for path in candidates if path.is_file()), None)


def described(code: int, *, was_killed_for_memory: bool) -> WorkerEnd:
    """Return how a JVM with the exit code *code* ended.

    *was_killed_for_memory*: the kernel killed a process of its cgroup lately.
    """
    ended_by = signal_of(code)
    name = "" if ended_by is None else ended_by.name
    how = f"by {name}" if name else f"with exit code {code}"
    if code in _OUT_OF_MEMORY:
        return WorkerEnd(f"{how}, after an OutOfMemoryError", is_memory=True)
    if name == "SIGKILL" and was_killed_for_memory:
        return WorkerEnd(f"{how}, because the memory of its control group ran out", is_memory=True)
    return WorkerEnd(how)


def signal_of(code: int) -> signal.Signals | None:
    """Return the signal that ended a process, or a shell's command, by the exit code; None if none did."""
    number = -code if code < 0 else code - _SHELL_SIGNALS
    return signal.Signals(number) if number in signal.valid_signals() else None
