"""Answers that go on for as long as a job does: how many there may be, and how they end."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from typing import Any, Final

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from onager.errors import BusyError, OnagerError, OneAtATimeError
from onager.protocol.call_limits import HTTP_EXPORTS_OF_ADDRESS, HTTP_STREAMS, HTTP_STREAMS_OF_ADDRESS, StreamLimit
from onager.scheduler import timing
from onager.scheduler.http import encoding

log = structlog.get_logger(__name__)

_BEAT: Final = b": \n\n"
"""A comment: browsers skip it."""


class Streams:
    """The streams of a server, in all and of each address."""

    def __init__(self, stopping: asyncio.Event) -> None:
        """All streams end with *stopping*, so that their callers turn to another scheduler."""
        self._of_address: Counter[str] = Counter()
        self._stopping = stopping

    def events(self, address: str, parts: AsyncGenerator[bytes, None], check: Callable[[], object]) -> "Stream":
        """Return an answer of server-sent events, with heartbeats; *parts* are whole messages.

        *check* is called now and then, and raises an error of ours once the caller may read no more.
        """
        return Stream(self._counted(address), self._beating(parts, check), encoding.SSE)

    def file(self, address: str, parts: AsyncGenerator[bytes, None], media_type: str = encoding.NDJSON) -> "Stream":
        """Return an answer that is sent as it is made."""
        return Stream(self._counted(address), parts, media_type)

    def followed(
        self, address: str, parts: AsyncGenerator[bytes, None], check: Callable[[], object], media_type: str
    ) -> "Stream":
        """Return an answer like `file` that goes on; *check* as in `events`. It is cut off by an error."""
        return Stream(self._counted(address), self._checked(parts, check, b""), media_type)

    def export(self, address: str, parts: AsyncGenerator[bytes, None], media_type: str) -> "Stream":
        """Return an answer like `file`. Few exports run at a time, so the limit for one address is lower."""
        return Stream(self._counted(f"export {address}", HTTP_EXPORTS_OF_ADDRESS), parts, media_type)

    @contextmanager
    def _counted(self, address: str, limit: StreamLimit | None = None) -> Iterator[None]:
        """Count a stream.

        `OneAtATimeError` when the address has too many; `BusyError` when there are too many here: another scheduler may
        have room.
        """
        most = (limit or HTTP_STREAMS_OF_ADDRESS).most
        if self._of_address[address] >= most:
            raise OneAtATimeError(f"{most} streams go to {address}, which is the limit of one address: close some")
        if self._of_address.total() >= HTTP_STREAMS.most:
            raise BusyError(f"{HTTP_STREAMS.most} streams are under way, which is the limit of one process")
        self._of_address[address] += 1
        try:
            yield
        finally:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]

    async def _beating(
        self, parts: AsyncGenerator[bytes, None], check: Callable[[], object]
    ) -> AsyncGenerator[bytes, None]:
        """Yield *parts*, heartbeats where none come for a while, and an error as the last message."""
        yield b"retry: %d\n\n" % timing.EVENTS_AGAIN_MS
        try:
            async with aclosing(self._checked(parts, check, _BEAT)) as checked:
                async for part in checked:
                    yield part
        except OnagerError as error:
            log.info("stream_broken", error=str(error))
            problem = {"error": type(error).__name__, "detail": str(error), "retryable": error.retryable}
            yield encoding.sse(encoding.encoded(problem), kind="problem")

    async def _checked(
        self, parts: AsyncGenerator[bytes, None], check: Callable[[], object], beat: bytes
    ) -> AsyncGenerator[bytes, None]:
        """Yield *parts*, and *beat* where none come for a while, until the server stops."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        coming: asyncio.Future[bytes | None] | None = None
        clock_s = asyncio.get_running_loop().time
        checked_s = clock_s()
        try:
            while not stopping.done():
                if clock_s() - checked_s >= timing.HEARTBEAT_S:
                    check()
                    checked_s = clock_s()
                coming = coming or asyncio.ensure_future(anext(parts, None))
                either: set[asyncio.Future[Any]] = {coming, stopping}
                await asyncio.wait(either, timeout=timing.HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    yield beat
                    continue
                part, coming = coming.result(), None
                if part is None:
                    return
                yield part
        finally:
            stopping.cancel()
            if coming is not None:
                coming.cancel()
                with suppress(asyncio.CancelledError, OnagerError):
                    await coming
            await parts.aclose()


class Stream(StreamingResponse):
    """An answer that is sent in parts as they come. At most one part waits for a caller that does not read."""

    def __init__(
        self, counted: AbstractContextManager[None], parts: AsyncGenerator[bytes, None], media_type: str
    ) -> None:
        # X-Accel-Buffering: nginx would hold messages back.
        super().__init__(parts, headers={"cache-control": "no-store", "x-accel-buffering": "no"}, media_type=media_type)
        self._counted = counted
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send it, if it may be one more, until all is sent or the caller has gone."""
        with self._counted:
            sending = asyncio.create_task(self._send(send))
            leaving = asyncio.create_task(_left(receive))
            try:
                await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                # Cancelled once, so that it can end what it has begun.
                sending.cancel()
                leaving.cancel()
                await asyncio.wait([sending, leaving])
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        async with aclosing(self._parts) as parts:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    """Return when the caller has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
