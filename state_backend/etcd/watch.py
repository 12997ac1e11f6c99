"""A watch that continues at another member when the one that served it fails."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, Self

from aetcd import rpc

from onager.errors import StateUnavailableError, WatchCompactedError
from onager.state_backend.etcd.calls import Calls
from onager.state_backend.etcd.failures import access_refused
from onager.state_backend.etcd.streams import requested
from onager.supervision import is_cancelled

_BATCHES: Final = 64
"""Batches held for a slow reader; beyond that, etcd has to hold them."""
_PAUSE_S: Final = 0.1


class EtcdWatch:
    """The events of the keys from *first* to *end* (exclusive) by commits at *revision* or later, in batches.

    A batch holds one or more whole commits. Cancelling the wait for one loses nothing.
    """

    def __init__(self, calls: Calls, first: bytes, end: bytes, revision: int) -> None:
        self._calls = calls
        self._first = first
        self._end = end
        self._next_revision = revision
        self._batches: asyncio.Queue[list[Any] | Exception | None] = asyncio.Queue(_BATCHES)
        """`None` means that the block was left."""
        self._is_over = False
        self._failure: Exception | None = None
        self._pump: asyncio.Task[None] | None = None
        self._refusals = 0

    async def __aenter__(self) -> Self:
        self._pump = asyncio.create_task(self._run(), name="etcd watch")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        self._is_over = True
        if self._batches.empty():  # a reader may be waiting
            self._batches.put_nowait(None)

    def __aiter__(self) -> AsyncIterator[list[Any]]:
        return self

    async def __anext__(self) -> list[Any]:
        """Return the next batch of etcd's events.

        `WatchCompactedError` when events were lost, `StateUnavailableError` when no member answers; any other error
        that ends the watch is raised here, too. Ends when the block is left.
        """
        if self._failure is not None:
            raise self._failure
        batch = None if self._is_over else await self._batches.get()
        if batch is None:
            if self._batches.empty():  # for other waiting readers
                self._batches.put_nowait(None)
            raise StopAsyncIteration
        if isinstance(batch, Exception):
            self._failure = batch
            raise batch
        return batch

    async def _run(self) -> None:
        try:
            while True:
                await self._follow()
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            await self._batches.put(StateUnavailableError(f"the watch was broken off ({error!r})"))
        except Exception as error:  # noqa: BLE001 - raised where it is read: no reader may wait for ever
            await self._batches.put(error)

    async def _follow(self) -> None:
        """Open a stream and read it until it breaks; raise only errors that a new stream would not fix."""
        endpoint, metadata = await self._calls.connected()
        stream = endpoint.watch.Watch(metadata=metadata)
        endpoint.streams.add(stream)
        create = rpc.WatchCreateRequest(key=self._first, range_end=self._end, start_revision=self._next_revision)
        try:
            async with requested(stream, rpc.WatchRequest(create_request=create)):
                while answer := await stream.read():
                    await self._take(answer)
        except asyncio.CancelledError:
            # Switching members cancels the streams of the old one; that does not cancel this task.
            if is_cancelled():
                raise
        except (rpc.AioRpcError, _BrokenError) as error:
            if isinstance(error, rpc.AioRpcError) and (error.details() or "").startswith("etcdserver: invalid auth"):
                self._calls.forget_token()
            else:
                self._calls.leave(endpoint)
            await asyncio.sleep(_PAUSE_S)
        else:
            self._calls.leave(endpoint)
            await asyncio.sleep(_PAUSE_S)
        finally:
            endpoint.streams.discard(stream)

    async def _take(self, answer: Any) -> None:
        if answer.compact_revision:
            raise WatchCompactedError(self._next_revision, answer.compact_revision)
        if answer.canceled:
            self._refuse(answer.cancel_reason)
        if answer.events:
            self._refusals = 0
            # Commits are never split between answers, so the next stream continues after the last one.
            await self._batches.put(list(answer.events))
            self._next_revision = answer.events[-1].kv.mod_revision + 1

    def _refuse(self, reason: str) -> None:
        if "permission denied" in reason.lower() or "auth token" in reason:
            # etcd says the same of an old token.
            self._refusals += 1
            self._calls.forget_token()
            if self._refusals > 1:
                raise access_refused(reason, "the watch's member", self._calls.url)
        if "compacted" in reason:
            raise WatchCompactedError(self._next_revision, self._next_revision)
        raise _BrokenError(reason)


class _BrokenError(Exception):
    """The server ended the watch for a reason that may pass."""
