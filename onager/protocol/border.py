"""How servers pass requests to services: as bytes, so that none is decoded before its size is checked."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha._async import ReflectionServicer
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server

from onager.errors import BusyError, InvalidRequestError, OnagerError, RequestTooLargeError
from onager.protocol import onager_pb2 as pb
from onager.protocol.call_limits import FOREIGN_BYTES, FOREIGN_STREAMS
from onager.protocol.security import note_address
from onager.protocol.serving import counted, encoded, served_stream
from onager.protocol.status import abort


class Border:
    """Stands in for a server when services are added, so that none of them decodes requests on its own.

    Our services get the bytes. Foreign ones (health, reflection) get messages, as they expect, and never see one that
    cannot be decoded.
    """

    def __init__(self, server: grpc.aio.Server, *, foreign_bytes: int = FOREIGN_BYTES) -> None:
        """Make one for *server*; requests of foreign services have at most *foreign_bytes*."""
        self._server = server
        self._most = foreign_bytes

    def add_looking(self, checks: HealthServicer, services: Sequence[str]) -> None:
        """Add the health service (*checks*), and reflection for *services*."""
        add_HealthServicer_to_server(checks, self)
        names = [*services, health.SERVICE_NAME, reflection.SERVICE_NAME]
        add_ServerReflectionServicer_to_server(ReflectionServicer(names), self)

    def add_generic_rpc_handlers(self, handlers: "tuple[grpc.GenericRpcHandler[Any, Any], ...]") -> None:
        """Add the handlers that generated code makes for a service."""
        self._server.add_generic_rpc_handlers([_Handlers(handler, self._most) for handler in handlers])

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Do nothing: generated code passes the same methods to both functions."""


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def __init__(self, inner: "grpc.GenericRpcHandler[Any, Any]", foreign_bytes: int) -> None:
        self._inner = inner
        self._most = foreign_bytes
        self._raw: dict[str, Any] = {}

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call, None for unknown methods."""
        found = self._raw.get(details.method)
        if found is None and (handler := self._inner.service(details)) is not None:
            found = self._raw[details.method] = self._taking_bytes(details.method, handler)
        return found

    def _taking_bytes(self, path: str, handler: Any) -> Any:
        """Return *handler* with a deserializer that cannot fail, and a limit of concurrent streams."""
        raw = handler._replace(request_deserializer=None)
        if path.startswith(f"/{pb.DESCRIPTOR.package}."):
            if raw.unary_stream is None:
                return raw
            return raw._replace(unary_stream=_written(raw.unary_stream), response_serializer=encoded)
        decode = handler.request_deserializer
        if handler.unary_unary is not None:

            async def unary(request: Any, context: Any) -> Any:
                request = _decoded(decode, request, self._most)
                return await handler.unary_unary(await _taken(request, context), context)

            return raw._replace(unary_unary=unary)
        if handler.unary_stream is not None:

            async def stream(request: Any, context: Any) -> Any:
                request = _decoded(decode, request, self._most)
                async with self._stream(path, context):
                    return await handler.unary_stream(await _taken(request, context), context)

            return raw._replace(unary_stream=stream)

        async def streams(requests: AsyncIterator[Any], context: Any) -> None:
            async def messages() -> AsyncIterator[Any]:
                async for request in requests:
                    request = _decoded(decode, request, self._most)  # noqa: PLW2901 - see there
                    yield await _taken(request, context)

            async with self._stream(path, context):
                await served_stream(handler.stream_stream(messages(), context), context)

        return raw._replace(stream_stream=streams)

    @asynccontextmanager
    async def _stream(self, path: str, context: Any) -> AsyncIterator[None]:
        with ExitStack() as stack:
            try:
                note_address(context)
                stack.enter_context(counted(self, path, FOREIGN_STREAMS))
            except BusyError as error:
                await abort(context, error)
            yield


def _written(stream: Callable[[Any, Any], AsyncIterator[Any]]) -> Callable[[Any, Any], Awaitable[None]]:
    async def written(request: Any, context: Any) -> None:
        answers = stream(request, context)
        del request  # gRPC keeps the stack of what `abort` raises
        await served_stream(answers, context)

    return written


def _decoded(decode: Callable[[bytes], Any], request: bytes, most: int) -> Any:
    """Return the message, or the error of decoding it.

    The caller's variable of the bytes is replaced, since gRPC keeps the stack of what `abort` raises, which must not
    hold them.
    """
    if len(request) > most:
        return RequestTooLargeError("the request", len(request), most, "send less at a time")
    try:
        return decode(request)
    except (DecodeError, ValueError):
        return InvalidRequestError("what came cannot be decoded")


async def _taken(message: Any, context: Any) -> Any:
    if isinstance(message, OnagerError):
        await abort(context, message)
    return message
