"""Threads for blocking calls, a pool for each kind: slow calls do not hold up those of another kind."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_STARTS: Final = 4
_CANCELS: Final = 2
_CLEAN_UPS: Final = 4
"""Removals on a network disk may take minutes, and many at once do not help."""


class Calls:
    """Calls of one kind, of which a limited number run at once; the others wait."""

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=f"onager-{name}")

    async def __call__(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what *call* returns, or raise what it raises, from a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: call(*args, **kwargs))

    def close(self) -> None:
        """Start nothing more, without waiting for calls that run."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Threads:
    """The pools of one agent; none is asyncio's own, in which any call may wait."""

    def __init__(self, places: int) -> None:
        """*places*: the shared directories."""
        self.starts = Calls("start", _STARTS)
        self.cancels = Calls("cancel", _CANCELS)
        self.clean_ups = Calls("clean-up", _CLEAN_UPS)
        self.liveness = Calls("liveness", 2)
        """Checks that the worker lives: for its supervision, and for judging a failure."""
        self.looks = Calls("look", 1)
        """Scans of the exchange directory."""
        self.probes = Calls("probe", 1)
        """Checks for space in it."""
        self.places = Calls("place", max(1, places))
        """Looks at shared directories, one at each: a disk that hangs holds up no other."""
        self.samples = Calls("sample", 1)
        """Samples of what the processes use."""
        self.logs = Calls("logs", 1)
        """Reads of what tasks logged."""

    def close(self) -> None:
        """Start nothing more."""
        for calls in vars(self).values():
            calls.close()
