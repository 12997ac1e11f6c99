"""What an executor's processes use: this one, the JVM, and Spark's Python workers."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psutil

_DAEMONS: Final = frozenset({"pyspark.daemon", "onager.executor.spark.worker_daemon"})
"""Modules of the process that forks Spark's Python workers, which keep its command line."""
_WORKER: Final = "pyspark.worker"
"""The module of a Python worker that was not forked."""


@dataclass(frozen=True, slots=True)
class TreeUse:
    """What a process and all below it use."""

    rss_bytes: int
    cpu_percent: int
    """Since the look before, 0 at the first; 100: one core."""
    python_workers: int


@dataclass(frozen=True, slots=True)
class _Seen:
    rss_bytes: int
    cpu_s: float
    command: tuple[str, ...]
    parent: int


class ProcessTree:
    """A process and all below it, looked at again and again by one thread."""

    def __init__(self, pid: int | None = None, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        """*pid*: the root, this process by default."""
        self._root = psutil.Process(pid)
        self._monotonic_s = monotonic_s
        self._looked_s = 0.0
        self._cpu_s: dict[tuple[int, float], float] | None = None
        """The processor time at the last look, by process id and time of creation; None before the first look."""

    def look(self) -> TreeUse:
        """Return what the processes use; those that end meanwhile are left out."""
        found: dict[tuple[int, float], _Seen] = {}
        for process in (self._root, *self._root.children(recursive=True)):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    found[process.pid, process.create_time()] = _Seen(
                        process.memory_info().rss, times.user + times.system, tuple(process.cmdline()), process.ppid()
                    )
            except psutil.Error:
                continue
        now_s, before = self._monotonic_s(), self._cpu_s
        percent = 0
        if before is not None and now_s > self._looked_s:
            spent_s = sum(max(0.0, seen.cpu_s - before.get(key, 0.0)) for key, seen in found.items())
            percent = round(100 * spent_s / (now_s - self._looked_s))
        self._looked_s, self._cpu_s = now_s, {key: seen.cpu_s for key, seen in found.items()}
        daemons = {pid for (pid, _), seen in found.items() if not _DAEMONS.isdisjoint(seen.command)}
        workers = sum(
            seen.parent in daemons or (_WORKER in seen.command and pid not in daemons)
            for (pid, _), seen in found.items()
        )
        return TreeUse(sum(seen.rss_bytes for seen in found.values()), percent, workers)
