"""Callers that ask the same at the same time share the answer."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Flights(Generic[T]):
    """The work for one key: what is under way, and what begins after it, for those who came meanwhile."""

    current: "asyncio.Future[T]"
    following: "asyncio.Future[T] | None" = None


class Coalesced(Generic[T]):
    """Does the same work once for all who wait for it.

    Work that had begun before a caller came is not for this caller: what he has changed himself would not be in it. So
    however many callers there are, work for a key is done once at a time, and each of them waits for two rounds at
    most.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flights[T]] = {}

    async def get(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Return what *work* returns, done after this call began; of callers with the same *key*, only one does it."""
        flights = self._flights.get(key)
        if flights is None:
            flights = self._flights[key] = _Flights(asyncio.ensure_future(work()))
            flights.current.add_done_callback(lambda done: self._landed(key, done))
            return await asyncio.shield(flights.current)
        if flights.following is None:
            flights.following = asyncio.ensure_future(self._after(flights.current, work))
        return await asyncio.shield(flights.following)

    async def _after(self, current: "asyncio.Future[T]", work: Callable[[], Awaitable[T]]) -> T:
        await asyncio.wait([current])
        return await work()

    def _landed(self, key: Hashable, done: "asyncio.Future[T]") -> None:
        if not done.cancelled():
            done.exception()  # all who waited for it may have gone
        flights = self._flights.pop(key)
        if flights.following is not None:
            self._flights[key] = _Flights(flights.following)
            flights.following.add_done_callback(lambda done: self._landed(key, done))
