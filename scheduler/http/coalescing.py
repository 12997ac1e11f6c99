"""Callers that ask the same at the same time share the answer."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Coalesced(Generic[T]):
    """Does the same work once for all callers that wait for it.

    A caller does not get the result of work that began before it came: its own changes would not be in it. So work for
    a key is done once at a time, however many callers there are, and each of them waits for two rounds at most.
    """

    def __init__(self) -> None:
        self._rounds: dict[Hashable, list[asyncio.Future[T]]] = {}
        """By key: the work that is under way, and the work that begins after it."""

    async def get(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Return what *work* returns, done after this call began; of callers with the same *key*, only one does it."""
        rounds = self._rounds.setdefault(key, [])
        if len(rounds) < 2:  # noqa: PLR2004 - as said above
            rounds.append(asyncio.ensure_future(self._after(rounds[0] if rounds else None, work)))
            rounds[-1].add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(rounds[-1])

    async def _after(self, current: "asyncio.Future[T] | None", work: Callable[[], Awaitable[T]]) -> T:
        if current is not None:
            await asyncio.wait([current])
        return await work()

    def _ended(self, key: Hashable, done: "asyncio.Future[T]") -> None:
        if not done.cancelled():
            done.exception()  # all callers may have gone
        self._rounds[key].remove(done)
        if not self._rounds[key]:
            del self._rounds[key]
