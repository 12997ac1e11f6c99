"""How much memory processes take at most while something runs."""

import threading
from collections.abc import Sequence
from typing import Self

import psutil

_EVERY_S = 0.02


class PeakMemory:
    """Samples the memory of processes within its context, relative to their memory at the start."""

    def __init__(self, processes: Sequence[psutil.Process]) -> None:
        self._processes = processes
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began = self._peak = 0

    @property
    def grown_mb(self) -> float:
        """The largest growth seen, in MB."""
        return round((self._peak - self._began) / 1e6, 1)

    def __enter__(self) -> Self:
        self._began = self._peak = self._now()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._left.wait(_EVERY_S):
            self._peak = max(self._peak, self._now())

    def _now(self) -> int:
        return sum(process.memory_info().rss for process in self._processes)
