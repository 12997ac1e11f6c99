"""How Spark Connect's calls are served: limits before anything is decoded, errors as Spark tells them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import DecodeError

from onager.errors import ConnectGivenUpError, InvalidRequestError, OnagerError, SchedulerUnreachableError
from onager.protocol.apart import Room, apart
from onager.protocol.call_limits import CONNECT_OPERATIONS, CONNECT_UPLOADS
from onager.protocol.checking import check_parts
from onager.protocol.limits import MIB
from onager.protocol.security import note_address
from onager.protocol.serving import counted, read_all, write_all
from onager.protocol.spark_connect import METHODS, SERVICE, request_of
from onager.scheduler.connect.failures import ConnectError, given_up, status_of, status_of_ours, too_large
from onager.scheduler.connect.plans import MAX_PLAN_BYTES
from onager.scheduler.connect.program_calls import CallAnsweredError, ProgramCall
from onager.scheduler.connect.program_targets import once_of
from onager.scheduler.connect.service import SparkConnectService

log = structlog.get_logger(__name__)

_SMALL_BYTES: Final = MIB
_BYTES: Final = {
    "ExecutePlan": MAX_PLAN_BYTES,
    "AnalyzePlan": MAX_PLAN_BYTES,
    "AddArtifacts": 4 * MIB,
    "Config": 2 * MIB,  # the outcome of a function of a program
}
"""The largest request of a method, or one message of it; others: `_SMALL_BYTES`."""
_PARTS: Final = 20_000


@dataclass(slots=True)
class _Call:
    """A call that is being served."""

    name: str
    context: Any
    request: Any = None
    """The request, or the first one, once it is decoded."""
    of_program: ProgramCall | None = None
    """The call of a program that it is."""


_Serve = Callable[[_Call, Any], Awaitable[Any]]


class SparkConnectHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg]
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
            return grpc.unary_stream_rpc_method_handler(self._served(name, self._stream))
        if method.client_streaming:
            return grpc.stream_unary_rpc_method_handler(self._served(name, self._upload))
        return grpc.unary_unary_rpc_method_handler(self._served(name, self._answer))

    def _served(self, name: str, serve: _Serve) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return what serves a method: *serve*, whose errors become the status of the call."""

        async def served(content: Any, context: Any) -> Any:
            call = _Call(name, context)
            note_address(context)
            try:
                return await serve(call, content)
            except Exception as error:  # noqa: BLE001 - the caller gets every error
                refusal = await self._refusal(call, error)
            call = content = None  # type: ignore[assignment] # gRPC keeps the stack of what `abort` raises
            return await context.abort(*refusal)

        return served

    # ---------------------------------------------------------------- the kinds of calls

    async def _answer(self, call: _Call, content: bytes) -> bytes:
        with self._room.taken(len(content)):
            await self._begin(call, await _decoded(call.name, content))

            async def serve() -> Any:
                return await getattr(self._service, call.name)(call.request, content, call.of_program)

            return await _outcome(call, serve)

    async def _stream(self, call: _Call, content: bytes) -> None:
        with counted(self, "operations", CONNECT_OPERATIONS):
            with self._room.taken(len(content)):
                await self._begin(call, await _decoded(call.name, content))
            answers = getattr(self._service, call.name)(call.request, content, call.of_program)
            async with aclosing(answers):
                if call.of_program is not None and call.of_program.is_at_hand:
                    await write_all(answers, call.context)
                else:
                    await self._write(answers, call.context)

    async def _upload(self, call: _Call, contents: AsyncIterator[bytes]) -> bytes:
        async def decoded() -> AsyncIterator[Any]:
            async for content in read_all(contents):
                yield await _decoded(call.name, content)

        with counted(self, "uploads", CONNECT_UPLOADS):
            requests = decoded()
            if (first := await anext(requests, None)) is None:
                raise InvalidRequestError("no file came")
            await self._begin(call, first)

            async def serve() -> Any:
                return await self._service.AddArtifacts(call.request, requests, call.of_program)

            return await _outcome(call, serve)

    # ---------------------------------------------------------------- parts

    async def _begin(self, call: _Call, request: Any) -> None:
        """Note what is asked for, and which call of a program it is, if any."""
        call.request = request
        call.of_program = await self._service.of_program(call.name, request, call.context.invocation_metadata())

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

    async def _refusal(self, call: _Call, error: Exception) -> Any:
        name = call.name
        if isinstance(error, ConnectGivenUpError) and call.of_program is not None:
            error = given_up(error)
        if isinstance(error, ConnectError):
            try:
                await _record(call, error)
            except Exception as why:  # noqa: BLE001 - the caller gets it instead, and asks again
                return await self._refusal(_Call(name, call.context), why)
            if call.request is not None:
                self._service.note(call.request, call.of_program, error)
            return status_of(error)
        if not isinstance(error, OnagerError):
            incident = secrets.token_hex(4)
            log.error("call_failed", call=name, incident=incident, exc_info=error)
            error = OnagerError(f"the process that serves {name} failed: its log has more of incident {incident}")
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return status_of_ours(error)


async def _outcome(call: _Call, serve: Callable[[], Awaitable[Any]]) -> bytes:
    """Return what was recorded of a program's call, or else serve it, and record what comes of it."""
    recorded = call.of_program
    if recorded is None or not recorded.name.is_recorded:
        return _encoded(await serve())
    if not recorded.record.is_done:
        if once_of(call.request) and not call.request.operation.HasField("set"):
            return _encoded(await serve())  # the function has not been called yet
        with suppress(CallAnsweredError):
            try:
                await recorded.settle([_encoded(await serve())])
            except ConnectError as error:
                if error.is_passing or not await recorded.let_stand():
                    raise
    (answer,) = [answer async for answer in recorded.responses()]
    return answer


async def _record(call: _Call, error: ConnectError) -> None:
    """Record the error of a program's call, unless it passes."""
    recorded = call.of_program
    if recorded is not None and recorded.name.is_recorded and not (error.is_passing or error.is_recorded):
        await recorded.settle_error(error)


def _encoded(answer: Any) -> bytes:
    return answer if isinstance(answer, bytes) else bytes(answer.SerializeToString())


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
