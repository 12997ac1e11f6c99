"""Threads for calls that block, a pool for each kind: calls that take long keep none of another kind waiting."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_STARTS: Final = 4
_CANCELS: Final = 2
_CLEAN_UPS: Final = 4
"""Removals on a network disk may take minutes, and it is no use to have many at once."""


class Calls:
    """Calls of one kind, at most so many at once; the others wait for those."""

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=f"onager-{name}")

    async def __call__(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what *call* returns, or raise what it raises, from a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: call(*args, **kwargs))

    def close(self) -> None:
        """Begin nothing more; what goes on is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Threads:
    """The pools of one agent; none is asyncio's own, in which anything may wait."""

    def __init__(self) -> None:
        self.starts = Calls("start", _STARTS)
        self.cancels = Calls("cancel", _CANCELS)
        self.clean_ups = Calls("clean-up", _CLEAN_UPS)
        self.liveness = Calls("liveness", 2)
        """Whether the worker lives: for who watches over it, and for who judges a failure."""
        self.looks = Calls("look", 1)
        """Through the exchange directory."""
        self.probes = Calls("probe", 1)
        """Whether there is space in it."""

    def close(self) -> None:
        """Begin nothing more."""
        for calls in (self.starts, self.cancels, self.clean_ups, self.liveness, self.looks, self.probes):
            calls.close()
