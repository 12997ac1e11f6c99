"""Renewals of many leases over a stream to a member: a stream for each renewal costs several times as much."""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import grpc
from aetcd import rpc

_STALLED_S: Final = 0.3
"""A stream on which a request has waited for so long gets no more of them while another stream can take them.

A member serves the requests of a stream one by one. It may wait for a lease that has just expired, or ask its leader.
"""
_SILENT_S: Final = 1.5
"""A stream that is silent for longer when a renewal is given up is ended: a new one may find a member that works."""
_MAX_STREAMS: Final = 4


class Renewals:
    """The streams to one member: one, and more while it stalls."""

    def __init__(self, stub: rpc.LeaseStub) -> None:
        self._stub = stub
        self._streams: list[_Stream] = []

    async def renew(self, lease: int, timeout_s: float, metadata: grpc.aio.Metadata) -> int:
        """Renew *lease* for its whole time; return that in seconds, 0 when the lease is gone.

        `grpc.aio.AioRpcError` when the member does not answer within *timeout_s*, or the stream ends.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        return await self._stream(metadata).renew(lease)
                    except _SilentError:
                        # Not a failure of its own: each would have others turn to yet another member.
                        continue
        except TimeoutError:
            raise _failure(grpc.StatusCode.DEADLINE_EXCEEDED, "it does not answer a lease's renewal") from None

    def _stream(self, metadata: grpc.aio.Metadata) -> "_Stream":
        self._streams = [stream for stream in self._streams if not stream.is_over]
        best = min(self._streams, key=_Stream.waited_s, default=None)
        if best is None or (best.waited_s() > _STALLED_S and len(self._streams) < _MAX_STREAMS):
            best = _Stream(self._stub, metadata)
            self._streams.append(best)
        return best

    async def close(self) -> None:
        """End the streams, and wait for their end; the renewals that wait are cancelled."""
        for stream in self._streams:
            await stream.close()


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A renewal on its way."""

    lease: int
    asked_s: float
    answer: "asyncio.Future[int]"


class _Stream:
    """A stream, from its first request to its end."""

    def __init__(self, stub: rpc.LeaseStub, metadata: grpc.aio.Metadata) -> None:
        self._call: Any = stub.LeaseKeepAlive(metadata=metadata)
        self._loop = asyncio.get_running_loop()
        self._due: dict[_Request, None] = {}
        """The requests without an answer, in order."""
        self._unsent: asyncio.Queue[_Request] = asyncio.Queue()
        self._sent: dict[int, deque[_Request]] = {}
        """Those about each lease, in order."""
        self._is_ended = False
        self._seen_s = 0.0
        """When it gave an answer, or began to wait for one."""
        self._sending = asyncio.create_task(self._send(), name="requests for renewals")
        self._receiving = asyncio.create_task(self._receive(), name="renewals of leases")
        self._receiving.add_done_callback(self._fail)

    @property
    def is_over(self) -> bool:
        """Whether it gives no more answers."""
        return self._is_ended or self._receiving.done()

    def waited_s(self) -> float:
        """Return for how long the oldest request has waited for its answer."""
        oldest = next(iter(self._due), None)
        return 0.0 if oldest is None else self._loop.time() - oldest.asked_s

    async def renew(self, lease: int) -> int:
        """Request a renewal, and return the answer; `_SilentError` when the stream is ended because of its silence."""
        request = _Request(lease, self._loop.time(), self._loop.create_future())
        if not self._due:
            self._seen_s = request.asked_s
        self._due[request] = None
        self._unsent.put_nowait(request)
        try:
            return await request.answer
        finally:
            if self._due and self._loop.time() - self._seen_s > _SILENT_S:
                self._is_ended = True
                self._receiving.cancel()

    async def close(self) -> None:
        """End it, and wait for that; the renewals that wait are cancelled."""
        for request in self._due:
            request.answer.cancel()
        self._receiving.cancel()
        await asyncio.gather(self._receiving, self._sending, return_exceptions=True)

    async def _send(self) -> None:
        with suppress(rpc.AioRpcError, asyncio.InvalidStateError):  # the end of the answers says why
            while True:
                request = await self._unsent.get()
                if request.answer.done():  # it was given up
                    del self._due[request]
                    continue
                self._sent.setdefault(request.lease, deque()).append(request)
                await self._call.write(rpc.LeaseKeepAliveRequest(ID=request.lease))

    async def _receive(self) -> None:
        while answer := await self._call.read():
            self._seen_s = self._loop.time()
            sent = self._sent.get(answer.ID)
            if sent is None:
                continue
            request = sent.popleft()
            if not sent:
                del self._sent[answer.ID]
            del self._due[request]
            if not request.answer.done():
                request.answer.set_result(answer.TTL)

    def _fail(self, receiving: "asyncio.Task[None]") -> None:
        self._sending.cancel()
        with suppress(Exception):
            self._call.cancel()
        why = None if receiving.cancelled() else receiving.exception()
        if why is None:
            why = _SilentError() if self._is_ended else _failure(grpc.StatusCode.UNAVAILABLE, "it ended the stream")
        for request in self._due:
            if not request.answer.done():
                request.answer.set_exception(why)
        self._due = {}


class _SilentError(Exception):
    """A stream was ended because it gave no answers."""


def _failure(code: grpc.StatusCode, why: str) -> rpc.AioRpcError:
    return rpc.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), why)
