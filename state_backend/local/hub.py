"""Watches inside one process: the recent events of each keyspace, and the waiting readers."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from onager.errors import StateUnavailableError, WatchCompactedError
from onager.state_backend.model import Keyspace, WatchEvent

HISTORY_EVENTS: Final = 4096
"""Most events that are kept for each keyspace."""
HISTORY_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of values that are kept for each keyspace."""


class WatchHub:
    """Delivers published events to watches; belongs to one event loop.

    A watch holds a position in its keyspace's history, not a queue of its own. A watch that falls behind the history
    gets an error that it lost events, and costs nothing until then. What was committed before *revision* is not in the
    history.
    """

    def __init__(
        self, revision: int, *, history_events: int = HISTORY_EVENTS, history_bytes: int = HISTORY_BYTES
    ) -> None:
        self._histories = {keyspace: _History(revision, history_events, history_bytes) for keyspace in Keyspace}
        self._is_closed = False

    def publish(self, events: Iterable[WatchEvent]) -> None:
        """Append *events*, in the order of their revisions, and wake the waiting readers."""
        touched: dict[Keyspace, _History] = {}
        for event in events:
            history = touched.setdefault(event.keyspace, self._histories[event.keyspace])
            history.append(event)
        for history in touched.values():
            history.wake()

    def lose(self, revision: int) -> None:
        """Forget everything up to *revision*: a watch that has not listed since gets an error that it lost events."""
        for history in self._histories.values():
            history.lose(revision)

    def close(self) -> None:
        """Fail every watch, and all later ones."""
        self._is_closed = True
        for history in self._histories.values():
            history.wake()

    @asynccontextmanager
    async def watch(
        self, keyspace: Keyspace, prefix: str, from_revision: int | None
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Implement `StateBackendClient.watch`."""
        history = self._histories[keyspace]
        position = history.end if from_revision is None else history.position_of(from_revision)
        events = _Watch(self, history, position, prefix, from_revision or 0)
        try:
            yield events
        finally:
            events.end()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed


class _Watch(AsyncIterator[WatchEvent]):
    """A position in a history that moves on as it is read."""

    def __init__(self, hub: WatchHub, history: "_History", position: int, prefix: str, from_revision: int) -> None:
        self._hub = hub
        self._history = history
        self._position = position
        self._prefix = prefix
        self._from_revision = from_revision
        self._is_over = False

    async def __anext__(self) -> WatchEvent:
        while not self._is_over:
            if self._hub.is_closed:
                raise StateUnavailableError("the state backend is closed")
            if self._position == self._history.end:
                await self._history.changed()
                continue
            event = self._history.at(self._position)
            self._position += 1
            if event.mod_revision >= self._from_revision and event.key.startswith(self._prefix):
                return event
        raise StopAsyncIteration

    def end(self) -> None:
        """End the iteration of readers."""
        self._is_over = True
        self._history.wake()


class _History:
    """The last events of one keyspace; positions count from the first event ever published."""

    def __init__(self, revision: int, most_events: int, most_bytes: int) -> None:
        self._events: deque[WatchEvent] = deque()
        self._start = 0
        self._bytes = 0
        self._compacted = revision
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def end(self) -> int:
        return self._start + len(self._events)

    def append(self, event: WatchEvent) -> None:
        self._events.append(event)
        self._bytes += len(event.value)
        while len(self._events) > self._most_events or self._bytes > self._most_bytes:
            self._drop()

    def lose(self, revision: int) -> None:
        self._start = self.end + 1  # one past the end stands for the lost events
        self._events.clear()
        self._bytes = 0
        self._compacted = revision
        self.wake()

    def position_of(self, revision: int) -> int:
        if revision <= self._compacted:
            raise WatchCompactedError(revision, self._compacted)
        position = self.end
        while position > self._start and self._events[position - 1 - self._start].mod_revision >= revision:
            position -= 1
        return position

    def at(self, position: int) -> WatchEvent:
        if position < self._start:
            raise WatchCompactedError(self._compacted, self._compacted)
        return self._events[position - self._start]

    async def changed(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def _drop(self) -> None:
        event = self._events.popleft()
        self._start += 1
        self._bytes -= len(event.value)
        self._compacted = event.mod_revision
