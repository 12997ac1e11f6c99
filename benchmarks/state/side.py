"""One of the two sides of a comparison: a store that is open, and callers that work on it."""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.state import SCANNED

Call = Callable[[int], Any]
"""Does an operation once, given how many were done before; a coroutine function where the side is `AsyncSide`."""


@dataclass(slots=True)
class Sample:
    """How long each call took, and all of them together, in seconds."""

    latencies_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0

    def add(self, other: "Sample") -> None:
        """Add the calls of another round."""
        self.latencies_s += other.latencies_s
        self.elapsed_s += other.elapsed_s

    @property
    def per_s(self) -> float:
        """Calls a second, by all callers together."""
        return len(self.latencies_s) / self.elapsed_s

    def quantile_ms(self, share: float) -> float:
        """Return the time that *share* of the calls did not exceed."""
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Side(ABC):
    """A store and its operations."""

    @abstractmethod
    async def fill(self) -> None:
        """Write what is scanned."""

    @abstractmethod
    def ready(self, operation: str, caller: int) -> AbstractAsyncContextManager[Call]:
        """Make *caller* ready (its lock, its watch), and yield its call."""

    @abstractmethod
    async def drive(self, calls: Sequence[Call], seconds: float) -> Sample:
        """Let every caller call for *seconds*, all at once."""

    async def measure(self, operation: str, callers: int, seconds: float) -> Sample:
        """Return one round."""
        async with AsyncExitStack() as stack:
            calls = [await stack.enter_async_context(self.ready(operation, caller)) for caller in range(callers)]
            return await self.drive(calls, seconds)


class AsyncSide(Side):
    """Callers are tasks of one event loop."""

    async def drive(self, calls: Sequence[Call], seconds: float) -> Sample:
        """Run a task for each caller."""
        sample = Sample()
        begun_s = time.perf_counter()
        await asyncio.gather(*(_repeat(call, begun_s + seconds, sample.latencies_s) for call in calls))
        sample.elapsed_s = time.perf_counter() - begun_s
        return sample


class ThreadSide(Side):
    """Callers are threads."""

    async def drive(self, calls: Sequence[Call], seconds: float) -> Sample:
        """Run a thread for each caller, while the event loop rests."""
        sample = Sample()
        begun_s = time.perf_counter()
        own: list[list[float]] = [[] for _ in calls]
        threads = [
            threading.Thread(target=_repeat_in_thread, args=(call, begun_s + seconds, latencies_s))
            for call, latencies_s in zip(calls, own, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sample.elapsed_s = time.perf_counter() - begun_s
        sample.latencies_s = [latency_s for latencies_s in own for latency_s in latencies_s]
        return sample


@asynccontextmanager
async def plain(call: Call) -> AsyncIterator[Call]:
    """Yield *call*, which needs nothing to be ready."""
    yield call


def scanned_keys() -> Iterable[str]:
    """Return the keys that are scanned, in order."""
    return (f"job/{number:06}" for number in range(SCANNED))


async def _repeat(call: Callable[[int], Awaitable[object]], end_s: float, latencies_s: list[float]) -> None:
    number = 0
    now_s = time.perf_counter()
    while now_s < end_s:
        begun_s = now_s
        await call(number)
        now_s = time.perf_counter()
        latencies_s.append(now_s - begun_s)
        number += 1


def _repeat_in_thread(call: Call, end_s: float, latencies_s: list[float]) -> None:
    number = 0
    now_s = time.perf_counter()
    while now_s < end_s:
        begun_s = now_s
        call(number)
        now_s = time.perf_counter()
        latencies_s.append(now_s - begun_s)
        number += 1
