"""How Spark Connect's calls are served: limits before anything is decoded, errors as Spark tells them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import DecodeError

from onager.errors import InvalidRequestError, OnagerError, SchedulerUnreachableError
from onager.protocol.apart import Room, apart
from onager.protocol.call_limits import CONNECT_OPERATIONS, CONNECT_UPLOADS
from onager.protocol.checking import check_parts
from onager.protocol.limits import MIB
from onager.protocol.security import note_peer
from onager.protocol.serving import counted, read_all, write_all
from onager.protocol.spark_connect import METHODS, SERVICE, request_of
from onager.scheduler.connect.failures import ConnectError, status_of, status_of_ours, too_large
from onager.scheduler.connect.plans import MAX_PLAN_BYTES
from onager.scheduler.connect.service import SparkConnectService

log = structlog.get_logger(__name__)

_SMALL_BYTES: Final = MIB
_BYTES: Final = {
    "ExecutePlan": MAX_PLAN_BYTES,
    "AnalyzePlan": MAX_PLAN_BYTES,
    "AddArtifacts": 4 * MIB,
}
"""The largest request of a method, or one message of it; others: `_SMALL_BYTES`."""
_PARTS: Final = 20_000

_Handler = Callable[[Any, Any], Awaitable[Any]]


class SparkConnectDoor(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Serves Spark Connect on a scheduler's port."""

    def __init__(self, service: SparkConnectService, stopping: asyncio.Event, stream_share_percent: int) -> None:
        """*stopping*: streams end, to be gone on with elsewhere."""
        self._service = service
        self._stopping = stopping
        self.stream_share_percent = stream_share_percent
        self._room = Room()
        self._handlers = {f"/{SERVICE}/{name}": self._handler(name) for name in METHODS}

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call, None for other services' methods."""
        return self._handlers.get(details.method)

    def _handler(self, name: str) -> Any:
        method = METHODS[name]
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streaming(name))
        if method.client_streaming:
            return grpc.stream_unary_rpc_method_handler(self._uploading(name))
        return grpc.unary_unary_rpc_method_handler(self._unary(name))

    # ---------------------------------------------------------------- the kinds of calls

    def _unary(self, name: str) -> _Handler:
        call = getattr(self._service, name)

        async def served(content: bytes, context: Any) -> Any:
            request: Any = None
            note_peer(context)
            try:
                with self._room.taken(len(content)):
                    request = await _decoded(name, content)
                    answer = await call(request, content)
                    return answer if isinstance(answer, bytes) else answer.SerializeToString()
            except Exception as error:  # noqa: BLE001 - the caller gets every error
                refusal = self._told(name, request, error)
            return await context.abort(*refusal)

        return served

    def _streaming(self, name: str) -> _Handler:
        call = getattr(self._service, name)

        async def served(content: bytes, context: Any) -> None:
            request: Any = None
            note_peer(context)
            try:
                with counted(self, "operations", CONNECT_OPERATIONS):
                    with self._room.taken(len(content)):
                        request = await _decoded(name, content)
                    async with aclosing(call(request, content)) as answers:
                        await self._write(answers, context)
            except Exception as error:  # noqa: BLE001 - as above
                refusal = self._told(name, request, error)
            else:
                return
            request = content = None  # type: ignore[assignment] # gRPC keeps the stack of what `abort` raises
            await context.abort(*refusal)

        return served

    def _uploading(self, name: str) -> _Handler:
        async def served(contents: AsyncIterator[bytes], context: Any) -> Any:
            first: Any = None

            async def decoded() -> AsyncIterator[Any]:
                async for content in read_all(contents):
                    yield await _decoded(name, content)

            note_peer(context)
            try:
                with counted(self, "uploads", CONNECT_UPLOADS):
                    requests = decoded()
                    first = await _first(requests)
                    answer = await self._service.AddArtifacts(first, requests)
                    return answer.SerializeToString()
            except Exception as error:  # noqa: BLE001 - as above
                refusal = self._told(name, first, error)
            return await context.abort(*refusal)

        return served

    # ---------------------------------------------------------------- parts

    async def _write(self, answers: AsyncIterator[bytes], context: Any) -> None:
        """Write what *answers* yields; `BusyError` for a client that takes nothing for long: it comes again."""

        async def until_stopping() -> AsyncIterator[bytes]:
            while (answer := await self._next(answers)) is not None:
                yield answer

        await write_all(until_stopping(), context)

    async def _next(self, answers: AsyncIterator[bytes]) -> bytes | None:
        """Return the next answer, None after the last one; `SchedulerUnreachableError` when this process stops."""
        coming = asyncio.ensure_future(anext(answers, None))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([coming, stopping], return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return coming.result()
            raise SchedulerUnreachableError("this address", "the scheduler stops; others go on")
        finally:
            stopping.cancel()
            if not coming.done():
                coming.cancel()
                await asyncio.wait([coming])

    def _told(self, name: str, request: Any, error: Exception) -> Any:
        if isinstance(error, ConnectError):
            if request is not None:
                self._service.note(request, error)
            return status_of(error)
        if not isinstance(error, OnagerError):
            incident = secrets.token_hex(4)
            log.error("call_failed", call=name, incident=incident, exc_info=error)
            error = OnagerError(f"the process that serves {name} failed: its log has more of incident {incident}")
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return status_of_ours(error)


async def _first(requests: AsyncIterator[Any]) -> Any:
    found = await anext(requests, None)
    if found is None:
        raise InvalidRequestError("no file came")
    return found


async def _decoded(name: str, content: bytes) -> Any:
    if len(content) > (most := _BYTES.get(name, _SMALL_BYTES)):
        raise too_large(f"the request {name}", len(content), most)
    return await apart(len(content), _parsed, name, content)


def _parsed(name: str, content: bytes) -> Any:
    message = request_of(name)()
    check_parts(content, message.DESCRIPTOR, _PARTS, "send less at a time")
    try:
        message.ParseFromString(content)
    except (DecodeError, RecursionError, MemoryError, ValueError) as error:
        why = f"what came is no {message.DESCRIPTOR.name} of this protocol: it cannot be decoded"
        raise InvalidRequestError(why) from error
    return message
