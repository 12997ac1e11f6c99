"""How service methods are called, and how they fail.

Requests come as bytes. Their size is checked first, then they are decoded, then checked against the limits of their
fields, and only then passed to the method. Our errors become statuses with the typed error beside them; defects are
logged and reported as such, without the content of the request.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import cache, wraps
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import grpc
import structlog
from google.protobuf.message import DecodeError

from onager.errors import BusyError, InvalidRequestError, OnagerError, OneAtATimeError, RequestTooLargeError
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import Room, apart
from onager.protocol.call_limits import (
    MESSAGE_LIMITS,
    SMALL,
    STREAM_LIMITS,
    STREAM_SHARE_PERCENT,
    STREAM_STALLED_S,
    MessageLimit,
    StreamLimit,
)
from onager.protocol.checking import check, check_parts
from onager.protocol.security import caller, note_address
from onager.protocol.status import abort

log = structlog.get_logger(__name__)

_M = TypeVar("_M")


class SharedMessage:
    """An answer that many callers get: it is encoded once."""

    __slots__ = ("_encoded", "message")

    def __init__(self, message: Any) -> None:
        self.message = message
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """Return the message as bytes."""
        if self._encoded is None:
            self._encoded = self.message.SerializeToString()
        return self._encoded


def encoded(answer: Any) -> bytes:
    """Return an answer as gRPC sends it."""
    found: bytes = answer.encoded if isinstance(answer, SharedMessage) else answer.SerializeToString()
    return found


Unary = Callable[[Any, Any, Any], Awaitable[Any]]
Stream = Callable[[Any, Any, Any], AsyncIterator[Any]]


def translated(method: Unary) -> Unary:
    """Return *method* as gRPC calls it: it takes requests as bytes, and raises errors gRPC's way."""

    @wraps(method)
    async def served(self: Any, request: Any, context: Any) -> Any:
        try:
            note_address(context)
            known = _method(method.__name__)
            with known.room.taken(_size(request)) as room:
                message = await admitted(method.__name__, request)
                del request
                if known.limit.waits:
                    room.give_back()
                return await method(self, message, context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - the caller gets every error
            refusal = known_error(method.__name__, error)
            request = message = None  # noqa: F841 - gRPC keeps the stack of what `abort` raises
        return await abort(context, refusal)

    return served


def translated_stream(method: Stream) -> Stream:
    """Return *method*, which answers with a stream, as gRPC calls it, like `translated`."""

    @wraps(method)
    async def served(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            note_address(context)
            message = await admitted(method.__name__, request)
            with counted(self, method.__name__, STREAM_LIMITS[method.__name__]):
                async with aclosing(method(self, message, context)) as answers:  # type: ignore[type-var] # generators
                    async for answer in answers:
                        yield answer
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            refusal = known_error(method.__name__, error)
            request = message = None  # as above
        else:
            return
        await abort(context, refusal)

    return served


async def called(service: Any, name: str, request: Any, context: Any) -> Any:
    """Return what the method *name* of *service* answers a caller within this process, such as the HTTP interface.

    *request* is a message; it is checked as one that came over gRPC. Errors are raised, and are always of ours.
    """
    try:
        with _method(name).room.taken(request.ByteSize()):
            check(request, request.DESCRIPTOR.name)
            return await getattr(type(service), name).__wrapped__(service, request, context)
    except Exception as error:  # noqa: BLE001 - the caller gets every error
        raise known_error(name, error) from None


async def called_stream(service: Any, name: str, request: Any, context: Any) -> AsyncGenerator[Any, None]:
    """Yield what the method *name* of *service* answers a caller within this process, like `called`."""
    try:
        check(request, request.DESCRIPTOR.name)
        async with aclosing(getattr(type(service), name).__wrapped__(service, request, context)) as answers:
            async for answer in answers:
                yield answer.message if isinstance(answer, SharedMessage) else answer
    except Exception as error:  # noqa: BLE001 - the caller gets every error
        raise known_error(name, error) from None


@contextmanager
def counted(service: Any, name: str, limit: StreamLimit) -> Iterator[None]:
    """Count a stream of *service*; `BusyError` at the limit of all clients, and at the share of the current caller.

    *service* may say how large a share is: `stream_share_percent`.
    """
    under_way = _streams.setdefault(service, Counter())
    mine = (name, caller().client)
    share = limit.share(getattr(service, "stream_share_percent", STREAM_SHARE_PERCENT))
    why = ""
    if under_way[name] >= limit.most:
        why = f"{limit.most} streams of {name} are under way, which is the limit of one process"
    elif under_way[mine] >= share:
        why = f"{share} streams of {name} of {mine[1]} are under way, which is the share of one client: end some"
    if why:
        raise BusyError(why) if limit.can_wait else OneAtATimeError(f"{why}: try again when one of them has ended")
    under_way.update((name, mine))
    try:
        yield
    finally:
        under_way.subtract((name, mine))
        if not under_way[mine]:
            del under_way[mine]


_streams: Final[WeakKeyDictionary[Any, Counter[str | tuple[str, str]]]] = WeakKeyDictionary()


async def write_all(answers: AsyncIterator[Any], context: Any) -> None:
    """Send *answers* to the client of *context*; `BusyError` when it takes none for long.

    gRPC tells a client of the end of a call after what was sent before. So one that reads again goes on elsewhere.
    """
    async for answer in answers:
        try:
            async with asyncio.timeout(STREAM_STALLED_S):
                await context.write(answer)
        except TimeoutError:
            raise BusyError(f"nothing was read for {STREAM_STALLED_S:g} s: go on after what has come") from None


async def read_all(messages: AsyncIterator[_M]) -> AsyncIterator[_M]:
    """Yield what a client sends; `BusyError` when nothing comes for long: it has one of few places."""
    while True:
        try:
            async with asyncio.timeout(STREAM_STALLED_S):
                message = await anext(messages, None)
        except TimeoutError:
            raise BusyError(f"nothing came for {STREAM_STALLED_S:g} s: send it again") from None
        if message is None:
            return
        yield message


async def served_stream(answers: AsyncIterator[Any], context: Any) -> None:
    """Serve a stream with `write_all`."""
    try:
        async with aclosing(answers):  # type: ignore[type-var] # generators, all of them
            await write_all(answers, context)
    except BusyError as error:
        error.__traceback__ = None
        refusal = error
    else:
        return
    await abort(context, refusal)


async def admitted(name: str, request: Any) -> Any:
    """Return the request of method *name*, decoded and checked against the limits of its fields.

    `InvalidRequestError`, or `RequestTooLargeError` for one that is too large as a whole.
    """
    if not isinstance(request, bytes):
        check(request, request.DESCRIPTOR.name)
        return request
    method = _method(name)
    if len(request) > method.limit.most_bytes:
        raise RequestTooLargeError(f"the request of {name}", len(request), method.limit.most_bytes, method.limit.advice)
    return await apart(len(request), method.read, request)


def _size(request: Any) -> int:
    return len(request) if isinstance(request, bytes) else 0


class _Method(NamedTuple):
    request: Any
    limit: MessageLimit
    room: Room

    def read(self, data: bytes) -> Any:
        name = self.request.DESCRIPTOR.name
        if len(data) > _UNCOUNTED_BYTES:
            check_parts(data, self.request.DESCRIPTOR, self.limit.most_parts, self.limit.parts_advice)
        message = self.request()
        try:
            message.ParseFromString(data)
        except (DecodeError, RecursionError, MemoryError, ValueError) as error:
            # Without the cause: it contains nothing that a caller could use.
            raise InvalidRequestError(f"what came is no {name} of this protocol: it cannot be decoded") from error
        check(message, name)
        return message


_UNCOUNTED_BYTES: Final = 128 * 1024
"""This much is decoded in a few milliseconds, whatever it is."""
_ROOMS: Final = {service: Room() for service in pb.DESCRIPTOR.services_by_name}
"""Each service has one kind of caller: however much some send, the others are served."""


@cache
def _method(name: str) -> _Method:
    found = next(
        method
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if method.name == name
    )
    limit = MESSAGE_LIMITS.get(name, SMALL)
    return _Method(getattr(pb, found.input_type.name), limit, _ROOMS[found.containing_service.name])


def known_error(call: str, error: Exception) -> OnagerError:
    """Return the error for the caller; an unexpected one is logged, with a number by which to find it."""
    if isinstance(error, OnagerError):
        log.debug("call_refused", call=call, error=str(error))
        # The stack holds the request: it must not live until the next garbage collection.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return error
    incident = secrets.token_hex(4)
    log.error("call_failed", call=call, incident=incident, exc_info=error)
    return OnagerError(
        f"the process that serves {call} failed ({type(error).__name__}): its log has more of incident {incident}"
    )
