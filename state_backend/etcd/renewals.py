"""Renewals of many leases over a stream to a member: a stream for each renewal costs several times as much."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, Final

import grpc
from aetcd import rpc

_STALLED_S: Final = 0.3
"""A stream that owes answers, and has given none for so long, gets no more requests while another one can take them.

A member serves the requests of a stream one by one. It may wait for a lease that has just expired.
"""
_SILENT_S: Final = 1.5
"""A stream that is silent for longer when a renewal is given up is ended: a new one may find a member that works."""
_MOST_STREAMS: Final = 4


class Renewals:
    """The streams to one member: one, and more while it stalls."""

    def __init__(self, stub: rpc.LeaseStub) -> None:
        self._stub = stub
        self._streams: list[_Stream] = []

    async def renew(self, lease: int, timeout_s: float, metadata: grpc.aio.Metadata) -> int:
        """Renew *lease* for its whole time; return that in seconds, 0 when the lease is gone.

        `grpc.aio.AioRpcError` when the member does not answer within *timeout_s*, or the stream ends.
        """
        self._streams = [stream for stream in self._streams if not stream.is_over]
        best = min(self._streams, key=_Stream.silent_s, default=None)
        if best is None or (best.silent_s() > _STALLED_S and len(self._streams) < _MOST_STREAMS):
            best = _Stream(self._stub, metadata)
            self._streams.append(best)
        return await best.renew(lease, timeout_s)

    def cut(self) -> None:
        """End the streams; the renewals that wait fail."""
        for stream in self._streams:
            stream.end()

    async def close(self) -> None:
        """End the streams, and wait for their end; the renewals that wait are cancelled."""
        for stream in self._streams:
            await stream.close()


class _Stream:
    """A stream, from its first request to its end."""

    def __init__(self, stub: rpc.LeaseStub, metadata: grpc.aio.Metadata) -> None:
        self._call: Any = stub.LeaseKeepAlive(metadata=metadata)
        self._loop = asyncio.get_running_loop()
        self._unsent: asyncio.Queue[int] = asyncio.Queue()
        self._waiting: dict[int, deque[asyncio.Future[int]]] = {}
        """The futures of the answers about each lease, in the order of the requests."""
        self._heard_s = 0.0
        """When it gave an answer, or began to owe one."""
        self._sending = asyncio.create_task(self._send(), name="requests for renewals")
        self._receiving = asyncio.create_task(self._receive(), name="renewals of leases")
        self._receiving.add_done_callback(self._fail)

    @property
    def is_over(self) -> bool:
        """Whether it gives no more answers."""
        return self._receiving.done()

    def silent_s(self) -> float:
        """Return for how long it has owed answers without giving one."""
        return self._loop.time() - self._heard_s if self._waiting else 0.0

    async def renew(self, lease: int, timeout_s: float) -> int:
        """Request a renewal, and return the answer."""
        if not self._waiting:
            self._heard_s = self._loop.time()
        answer: asyncio.Future[int] = self._loop.create_future()
        self._waiting.setdefault(lease, deque()).append(answer)
        self._unsent.put_nowait(lease)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise _failure(grpc.StatusCode.DEADLINE_EXCEEDED, "it does not answer a lease's renewal") from None
        finally:
            if self.silent_s() > _SILENT_S:
                self.end()

    def end(self) -> None:
        """End it; the renewals that wait fail."""
        self._receiving.cancel()

    async def close(self) -> None:
        """End it, and wait for that; the renewals that wait are cancelled."""
        for waiting in self._waiting.values():
            for answer in waiting:
                answer.cancel()
        self.end()
        await asyncio.gather(self._receiving, self._sending, return_exceptions=True)

    async def _send(self) -> None:
        with suppress(rpc.AioRpcError, asyncio.InvalidStateError):  # the end of the answers says why
            while True:
                await self._call.write(rpc.LeaseKeepAliveRequest(ID=await self._unsent.get()))

    async def _receive(self) -> None:
        while answer := await self._call.read():
            self._heard_s = self._loop.time()
            waiting = self._waiting.get(answer.ID)
            if waiting is None:
                continue
            first = waiting.popleft()
            if not waiting:
                del self._waiting[answer.ID]
            if not first.done():
                first.set_result(answer.TTL)

    def _fail(self, receiving: "asyncio.Task[None]") -> None:
        self._sending.cancel()
        with suppress(Exception):
            self._call.cancel()
        why = None if receiving.cancelled() else receiving.exception()
        why = why or _failure(grpc.StatusCode.UNAVAILABLE, "its stream of renewals ended")
        for waiting in self._waiting.values():
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(why)
        self._waiting = {}


def _failure(code: grpc.StatusCode, why: str) -> rpc.AioRpcError:
    return rpc.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), why)
