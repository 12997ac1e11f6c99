"""Renewals of many leases over one stream to a member: a stream for each renewal costs several times as much."""

import asyncio
from collections import defaultdict, deque
from contextlib import suppress
from typing import Any

import grpc
from aetcd import rpc


class Renewals:
    """The stream to one member. A renewal opens it, if it is not open."""

    def __init__(self, stub: rpc.LeaseStub) -> None:
        self._stub = stub
        self._unsent: asyncio.Queue[int] = asyncio.Queue()
        self._waiting: defaultdict[int, deque[asyncio.Future[int]]] = defaultdict(deque)
        """Who waits for the answers about a lease, in the order of the requests."""
        self._running: asyncio.Task[None] | None = None

    async def renew(self, lease: int, timeout_s: float, metadata: grpc.aio.Metadata) -> int:
        """Renew *lease* for its whole time; return that in seconds, 0 when the lease is gone.

        `grpc.aio.AioRpcError` when the member does not answer within *timeout_s*. Then the other renewals that wait for
        it fail, too.
        """
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[lease].append(answer)
        self._unsent.put_nowait(lease)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(metadata), name="renewals of leases")
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self.cut()
            raise _failure(grpc.StatusCode.DEADLINE_EXCEEDED, "it does not answer a lease's renewal") from None

    def cut(self) -> None:
        """End the stream; the renewals that wait fail."""
        if self._running is not None:
            self._running.cancel()

    async def close(self) -> None:
        """End the stream, and wait for its end."""
        self.cut()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self, metadata: grpc.aio.Metadata) -> None:
        """Exchange requests and answers until the stream ends."""
        stream = self._stub.LeaseKeepAlive(metadata=metadata)
        sending = asyncio.create_task(self._send(stream), name="requests for renewals")
        why = _failure(grpc.StatusCode.UNAVAILABLE, "its stream of renewals ended")
        try:
            while answer := await stream.read():
                self._take(answer)
        except rpc.AioRpcError as error:
            why = error
        finally:
            sending.cancel()
            with suppress(Exception):
                stream.cancel()
            self._fail(why)

    async def _send(self, stream: Any) -> None:
        with suppress(rpc.AioRpcError, asyncio.InvalidStateError):  # who reads the stream learns why it ended
            while True:
                await stream.write(rpc.LeaseKeepAliveRequest(ID=await self._unsent.get()))

    def _take(self, answer: Any) -> None:
        waiting = self._waiting.get(answer.ID)
        if waiting is None:
            return
        first = waiting.popleft()
        if not waiting:
            del self._waiting[answer.ID]
        if not first.done():
            first.set_result(answer.TTL)

    def _fail(self, why: rpc.AioRpcError) -> None:
        unanswered, self._waiting = self._waiting, defaultdict(deque)
        self._unsent = asyncio.Queue()
        for waiting in unanswered.values():
            for each in waiting:
                if not each.done():
                    each.set_exception(why)


def _failure(code: grpc.StatusCode, why: str) -> rpc.AioRpcError:
    return rpc.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), why)
