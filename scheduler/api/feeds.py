"""One reader of what many follow: it reads once, and all its followers get what it has read."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

from onager.errors import OnagerError
from onager.protocol.serving import known_error
from onager.scheduler import timing

_MESSAGES_A_S: Final = 500
"""Sending one costs about 0.2 ms: this is a tenth of a core."""


def pace_s(followers: int) -> float:
    """Return the time between two messages to each of *followers*, so that all together get no more than some."""
    return max(timing.WATCH_EVERY_S, followers / _MESSAGES_A_S)


class Feed:
    """A reader, and what its followers wait for."""

    def __init__(self) -> None:
        self.version = 0
        """Counts changes."""
        self.is_over = False
        self.error: OnagerError | None = None
        self.followers = 0
        self.task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def change(self) -> None:
        """Wake the followers."""
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def next(self, seen: int) -> int:
        """Return the version once it is another one than *seen*; raise the reader's error after what it had read."""
        while self.version == seen and not self.is_over:
            await self._changed.wait()
        if self.error is not None and self.version == seen:
            raise self.error
        return self.version


F = TypeVar("F", bound=Feed)


class Feeds(Generic[F]):
    """One feed for each key that has followers."""

    def __init__(self, make: Callable[[], F], read: Callable[[F, str], AsyncIterator[None]]) -> None:
        self._make = make
        self._read = read
        self._feeds: dict[str, F] = {}

    @asynccontextmanager
    async def following(self, key: str) -> AsyncIterator[F]:
        """Yield the feed; its reader runs as long as somebody follows it."""
        feed = self._feeds.get(key)
        if feed is None or feed.is_over:
            feed = self._feeds[key] = self._make()
            feed.task = asyncio.create_task(self._run(key, feed))
        feed.followers += 1
        try:
            yield feed
        finally:
            feed.followers -= 1
            if not feed.followers and feed.task is not None:
                feed.task.cancel()
                if self._feeds.get(key) is feed:
                    del self._feeds[key]

    async def _run(self, key: str, feed: F) -> None:
        try:
            async for _ in self._read(feed, key):
                feed.change()
        except OnagerError as error:
            feed.error = error
        except Exception as error:  # noqa: BLE001 - the followers get every error
            feed.error = known_error(key, error)
        finally:
            feed.is_over = True
            feed.change()
