"""Passes the calls of a program on to a scheduler that answers.

A program gets a socket instead of an address: no token, no certificate and no scheduler is within its reach, but for
the methods of Spark Connect. The socket serves who knows the attempt's secret, and no other process of its user. When a
scheduler is gone, or hangs, the next call goes to another one.
"""

import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import grpc

from onager.protocol.limits import MAX_MESSAGE_BYTES
from onager.protocol.security import CONNECT, OWNER_HEADER, PROGRAM_HEADER, ClientAccess

_SERVICE: Final = CONNECT.strip("/")
_STREAMS: Final = frozenset({"ExecutePlan", "ReattachExecute"})
_UPLOADS: Final = frozenset({"AddArtifacts"})
_UNARY: Final = frozenset(
    {
        "AnalyzePlan",
        "ArtifactStatus",
        "CloneSession",
        "Config",
        "FetchErrorDetails",
        "GetStatus",
        "Interrupt",
        "ReleaseExecute",
        "ReleaseSession",
    }
)
_OWN: Final = frozenset({"authorization", OWNER_HEADER, PROGRAM_HEADER})
"""Metadata that says who calls: only the executor's counts."""
_OF_EXECUTOR: Final = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_BYTES: Final = (None, None)
"""Messages are not decoded."""
_SIZES: Final = (
    ("grpc.max_receive_message_length", 2 * MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", 2 * MAX_MESSAGE_BYTES),
)
_ALIVE: Final = (
    ("grpc.keepalive_time_ms", 1_000),
    ("grpc.keepalive_timeout_ms", 1_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""A scheduler that hangs breaks no connection, and answers no pings."""


class Name(NamedTuple):
    """In whose name calls are passed on."""

    owner: str
    """Whose program it is."""
    program: str
    """The attempt: ``ID/ATTEMPT/SECRET``."""


class Schedulers:
    """Channels to schedulers, of which one is used until it does not answer."""

    def __init__(self, addresses: Sequence[str], access: ClientAccess) -> None:
        self._access = access
        self._channels = [access.aio_channel(address, [*_SIZES, *_ALIVE]) for address in addresses]
        self._at = 0

    @property
    def channel(self) -> grpc.aio.Channel:
        """Return the channel to call by."""
        return self._channels[self._at]

    def failed(self, channel: grpc.aio.Channel) -> None:
        """Note that no scheduler answers at *channel*."""
        if channel is self.channel:
            self._at = (self._at + 1) % len(self._channels)

    def metadata(self, given: Any, name: Name) -> list[tuple[str, str | bytes]]:
        """Return the metadata of a call, passed on in the name of *name*."""
        kept = [(key, value) for key, value in given or () if key not in _OWN]
        shown = [(OWNER_HEADER, name.owner.encode()), (PROGRAM_HEADER, name.program)]
        return [*kept, *self._access.metadata(), *shown]

    async def close(self) -> None:
        """Close the channels."""
        for channel in self._channels:
            await channel.close(None)


class _Relay(grpc.GenericRpcHandler):  # type: ignore[type-arg] # not generic when it runs
    """Answers each method by what a scheduler answers; messages stay as they are."""

    def __init__(self, schedulers: Schedulers, name: Name) -> None:
        self._schedulers = schedulers
        self._name = name

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return what serves a method; None for any but those of Spark Connect."""
        method = details.method
        name = method.removeprefix(CONNECT) if method.startswith(CONNECT) else ""
        if name in _UNARY:
            return grpc.unary_unary_rpc_method_handler(self._once(lambda channel: channel.unary_unary(method, *_BYTES)))
        if name in _UPLOADS:
            return grpc.stream_unary_rpc_method_handler(
                self._once(lambda channel: channel.stream_unary(method, *_BYTES))
            )
        if name in _STREAMS:
            return grpc.unary_stream_rpc_method_handler(self._stream(method))
        return None

    def _once(self, calling: Callable[[grpc.aio.Channel], Any]) -> Any:
        async def passed_on(request: Any, context: Any) -> bytes:
            await self._check(context)
            channel = self._schedulers.channel
            try:
                answer: bytes = await calling(channel)(request, metadata=self._metadata(context))
            except grpc.aio.AioRpcError as error:
                await self._fail(channel, error, context)
                raise
            return answer

        return passed_on

    def _stream(self, method: str) -> Any:
        async def passed_on(request: bytes, context: Any) -> AsyncIterator[bytes]:
            await self._check(context)
            channel = self._schedulers.channel
            try:
                async for response in channel.unary_stream(method, *_BYTES)(request, metadata=self._metadata(context)):
                    yield response
            except grpc.aio.AioRpcError as error:
                await self._fail(channel, error, context)

        return passed_on

    async def _check(self, context: Any) -> None:
        given = dict(context.invocation_metadata() or ()).get(PROGRAM_HEADER, "")
        if not hmac.compare_digest(str(given).encode(), self._name.program.encode()):
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, "only the process of the program calls by this socket"
            )

    def _metadata(self, context: Any) -> list[tuple[str, str | bytes]]:
        return self._schedulers.metadata(context.invocation_metadata(), self._name)

    async def _fail(self, channel: grpc.aio.Channel, error: grpc.aio.AioRpcError, context: Any) -> None:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            self._schedulers.failed(channel)
        # A refusal of the executor's own token, while it is replaced, is none of the program.
        code = grpc.StatusCode.UNAVAILABLE if error.code() in _OF_EXECUTOR else error.code()
        await context.abort(code, error.details() or "", tuple(error.trailing_metadata() or ()))


@asynccontextmanager
async def relaying(schedulers: Schedulers, name: Name, path: str) -> AsyncIterator[str]:
    """Serve the calls of the attempt *name* at the socket *path*; yield the target for its channel."""
    server = grpc.aio.server(options=_SIZES)
    server.add_generic_rpc_handlers((_Relay(schedulers, name),))
    target = f"unix:{path}"
    server.add_insecure_port(target)
    await server.start()
    try:
        yield target
    finally:
        await server.stop(None)
