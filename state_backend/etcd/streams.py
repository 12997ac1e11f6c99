"""Bidirectional streams on which only one request is sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def requested(stream: Any, request: Any) -> AsyncIterator[None]:
    """Send *request* while the block reads the answers, and end *stream* with the block.

    The block must not wait for the request to be sent: if the stream is cancelled before it is connected, as when its
    member is given up, gRPC lets that wait for ever. Reading ends with the stream.
    """
    sending = asyncio.create_task(stream.write(request))
    try:
        yield
    finally:
        sending.cancel()
        with suppress(Exception):
            stream.cancel()
        await asyncio.gather(sending, return_exceptions=True)
