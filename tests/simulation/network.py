"""Calls between processes, with what networks do to them: delay, loss of request or answer, repetition, cuts.

`Channel` takes the place of gRPC's: stubs, messages, statuses and error details are the real ones, and every message
goes through its bytes. A server is an object whose methods are those of the service, or one of gRPC's generic handlers.
"""

import asyncio
import random  # noqa: TID251 seeded
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Never

from grpc import GenericRpcHandler, StatusCode
from grpc.aio import AbortError, AioRpcError, Metadata

from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import CHANNEL_OPTIONS
from onager.protocol.security import PROGRAM_HEADER
from onager.protocol.serving import encoded
from tests.simulation.loop import Process, VirtualLoop, current

REFUSED_S = 0.002
_OPTIONS = dict(CHANNEL_OPTIONS)
KEEPALIVE_S = (_OPTIONS["grpc.keepalive_time_ms"] + _OPTIONS["grpc.keepalive_timeout_ms"]) / 1000
_STREAM_METHODS = frozenset({"WatchJob", "FetchResult", "FetchBlob"})
_REQUESTS: dict[str, Any] = {
    method.name: getattr(pb, method.input_type.name)
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


@dataclass(slots=True)
class Rates:
    """How often messages meet with something, each from 0 to 1."""

    lost: float = 0.0
    repeated: float = 0.0
    slow: float = 0.0
    odd: float = 0.0
    """Reports with one more among them, of a task that there is not."""
    delay_s: float = 0.002
    slow_s: float = 1.0


class Aborted(AbortError):  # noqa: N818
    """What a handler ends with when it refuses a call."""

    def __init__(self, code: StatusCode, details: str, metadata: Any) -> None:
        super().__init__(details)
        self.code, self.details, self.metadata = code, details, tuple(metadata)


OF_PROGRAM: ContextVar[str] = ContextVar("program", default="")
"""While a call of a program is served: the attempt that makes it, ``ID/ATTEMPT/SECRET``."""

Metadatas = Sequence[tuple[str, Any]]


class ServerContext:
    """The context of a call, for its handler."""

    def __init__(self, peer: str, metadata: Metadatas = (), write: Callable[[bytes], None] | None = None) -> None:
        self._peer = peer
        self._metadata = metadata
        self._write = write

    def peer(self) -> str:
        return f"simulated:{self._peer}"

    def invocation_metadata(self) -> Metadatas:
        return self._metadata

    async def write(self, message: bytes) -> None:
        assert self._write is not None
        self._write(message)

    async def abort(self, code: StatusCode, details: str = "", trailing_metadata: Any = ()) -> Never:
        raise Aborted(code, details, trailing_metadata)


_CLOSED = object()


@dataclass(slots=True, eq=False)
class Server:
    """A process that serves at an address."""

    process: Process
    methods: dict[str, Callable[[Any, Any], Any]]
    handlers: "list[GenericRpcHandler[Any, Any]]"
    """For the methods of other services."""

    def handler_of(self, path: str) -> Any:
        """Return the handler of a method of another service; None if it is one of ours."""
        found = (handler.service(SimpleNamespace(method=path)) for handler in self.handlers)  # type: ignore[arg-type]
        return next((each for each in found if each is not None), None)


@dataclass(slots=True, eq=False)
class _Call:
    number: int
    path: str
    metadata: Metadatas
    source: Process
    address: str
    request: bytes
    answers: asyncio.Queue[Any]
    """Messages as bytes, an error, `_CLOSED` when its channel is, or None at a stream's end."""
    handlers: list[tuple[Process, asyncio.Task[None]]] = field(default_factory=list)
    is_over: bool = False
    is_mute: bool = False
    arrival_s: float = 0.0
    """When the last message of the answer arrives: none overtakes another."""
    deliveries: int = 0
    """How often the request arrived: the answer to the first one is the stream's."""

    @property
    def method(self) -> str:
        return self.path.rpartition("/")[2]


class Network:
    """All connections."""

    def __init__(self, loop: VirtualLoop, seed: int, trace: Callable[[str], None]) -> None:
        self._loop = loop
        self._draw = random.Random(f"network {seed}").random
        self._trace = trace
        self.is_over = False
        self.rates = Rates()
        self.servers: dict[str, Server] = {}
        self.cut: set[tuple[str, str]] = set()
        """Pairs of a process's name and an address that do not reach each other."""
        self.on_answer: Callable[[_Call, Any, Any], None] = lambda *_: None
        """Called with method, request and answer of every call at the moment that a server has answered it."""
        self.garble: Callable[[Any], None] = lambda _: None
        """Puts into some `ReportTasksRequest` what no executor of ours would."""
        self.never_repeated: frozenset[str] = frozenset()
        """Methods whose requests arrive once, as long as their connection lasts."""
        self._calls: dict[int, _Call] = {}
        self._number = 0
        self.connected: dict[Channel, None] = {}
        """Channels whose owners wait for the connection to break."""

    # ---------------------------------------------------------------- servers

    def listen(self, address: str, process: Process, *services: Any) -> None:
        handlers = [s for s in services if isinstance(s, GenericRpcHandler)]
        own = [s for s in services if s not in handlers]
        methods = {name: getattr(s, name) for s in own for name in type(s).__dict__ if name in _REQUESTS}
        self.servers[address] = Server(process, methods, handlers)

    def gone(self, process: Process) -> None:
        """Break what a dead process was part of."""
        self._close(process)
        for call in list(self._calls.values()):
            if call.source is process:
                self.cancel(call)
            elif any(served is process for served, _ in call.handlers):
                self._later(self._delay_s(), self._fail, call, "Connection reset by peer")

    async def stop(self, process: Process, grace_s: float) -> None:
        """Stop serving as gRPC's servers do: no new calls, and after the grace those that are under way are ended."""
        self._close(process)
        await asyncio.sleep(grace_s)
        for call in list(self._calls.values()):
            for served, task in call.handlers:
                if served is process and not task.done():
                    task.cancel()
                    self._later(self._delay_s(), self._fail, call, "the server is shutting down", StatusCode.CANCELLED)

    def _close(self, process: Process) -> None:
        for address, server in list(self.servers.items()):
            if server.process is process:
                del self.servers[address]
                self._break(address)

    def _break(self, address: str, source: str = "") -> None:
        """Break the connections to an address, of all sources or of one *source*, and notify waiters."""
        for channel in self.connected:
            if channel.address == address and source in ("", channel.source):
                self._later(self._delay_s(), channel.broken.set)

    # ---------------------------------------------------------------- calls

    def begin(self, path: str, address: str, request: bytes, metadata: Metadatas = ()) -> _Call:
        if self.is_over:
            raise rpc_error(StatusCode.CANCELLED, "the simulation is over")
        self._number += 1
        call = _Call(self._number, path, metadata, current(), address, request, asyncio.Queue())
        self._calls[call.number] = call
        fate = self._draw()
        self._trace(f"{call.source} -> {address} {call.method} #{call.number}")
        if (call.source.name, address) in self.cut or fate < self.rates.lost:
            self._lose(call, "request")
        else:
            self._later(self._delay_s(), self._arrive, call)
            if self._draw() < self.rates.repeated:
                delay_s = self._delay_s() + self._draw() * self.rates.slow_s
                if call.method not in self.never_repeated:
                    self._later(delay_s, self._arrive, call)
        return call

    def cancel(self, call: _Call) -> None:
        """Note that the caller has gone, and tell the other side."""
        call.is_over = True
        self._calls.pop(call.number, None)
        for _, task in call.handlers:
            if not task.done():
                self._later(self._delay_s(), task.cancel)

    def _later(self, delay_s: float, act: Callable[..., Any], *args: Any) -> None:
        self._loop.call_at(self._loop.time() + delay_s, act, *args, context=self._loop.world.context.copy())

    def _delay_s(self) -> float:
        if self._draw() < self.rates.slow:
            return self._draw() * self.rates.slow_s
        return self._draw() * self.rates.delay_s

    def _lose(self, call: _Call, what: str) -> None:
        # Half of the time the connection is seen to break; else there is silence until pings are missed.
        if self._draw() < 0.5:
            self._trace(f"#{call.number} {call.method}: {what} lost, connection broken")
            self._break(call.address, call.source.name)
            self._later(self._delay_s(), self._fail, call, "Socket closed")
        else:
            self._trace(f"#{call.number} {call.method}: {what} lost in silence")
            self._later(KEEPALIVE_S, self._fail, call, "keepalive watchdog timeout")

    def _fail(self, call: _Call, why: str, code: StatusCode = StatusCode.UNAVAILABLE) -> None:
        if not call.is_over:
            call.answers.put_nowait(rpc_error(code, why))
            self.cancel(call)

    def _arrive(self, call: _Call) -> None:
        server = self.servers.get(call.address)
        if server is None or not server.process.is_alive:
            self._later(REFUSED_S, self._fail, call, "Connection refused")
            return
        call.deliveries += 1
        if call.is_over and call.deliveries == 1:
            return  # the caller had gone before anything arrived
        self._trace(f"#{call.number} {call.method} arrives at {server.process}")
        if (handler := server.handler_of(call.path)) is not None:
            work = self._serve_generic(call, handler, is_first=call.deliveries == 1)
        elif call.method in _STREAM_METHODS:
            work = self._serve_stream(call, server, is_first=call.deliveries == 1)
        else:
            work = self._serve(call, server)
        task = self._loop.spawn(server.process, work)
        call.handlers.append((server.process, task))

    async def _serve(self, call: _Call, server: Server) -> None:
        request = _REQUESTS[call.method].FromString(call.request)
        if call.method == "ReportTasks" and self.rates.odd and self._draw() < self.rates.odd:
            self.garble(request)
        try:
            answer = await server.methods[call.method](request, ServerContext(call.source.name))
        except Aborted as refused:
            self._answer(call, rpc_error(refused.code, refused.details, refused.metadata))
            return
        self.on_answer(call, request, answer)
        self._answer(call, answer.SerializeToString())

    async def _serve_stream(self, call: _Call, server: Server, *, is_first: bool) -> None:
        request = _REQUESTS[call.method].FromString(call.request)
        messages: AsyncIterator[Any] = server.methods[call.method](request, ServerContext(call.source.name))
        try:
            async for message in messages:
                if is_first:
                    self._answer(call, encoded(message), is_last=False)
            if is_first:
                self._answer(call, None)
        except Aborted as refused:
            if is_first:
                self._answer(call, rpc_error(refused.code, refused.details, refused.metadata))
        finally:
            await messages.aclose()  # type: ignore[attr-defined]

    async def _serve_generic(self, call: _Call, handler: Any, *, is_first: bool) -> None:
        """Serve by one of gRPC's handlers, which takes and gives bytes, and writes the messages of a stream itself."""
        OF_PROGRAM.set(str(dict(call.metadata).get(PROGRAM_HEADER, "")))

        def write(message: bytes | None) -> None:
            if is_first:
                self._answer(call, message, is_last=message is None)

        context = ServerContext(call.source.name, call.metadata, write)
        try:
            if handler.unary_stream is None:
                self._answer(call, await handler.unary_unary(call.request, context))
            else:
                await handler.unary_stream(call.request, context)
                write(None)
        except Aborted as refused:
            if is_first or handler.unary_stream is None:
                self._answer(call, rpc_error(refused.code, refused.details, refused.metadata))

    def _answer(self, call: _Call, message: Any, *, is_last: bool = True) -> None:
        if call.is_over or call.is_mute:
            return
        if (call.source.name, call.address) in self.cut or self._draw() < self.rates.lost:
            self._lose(call, "answer")
            if not is_last:
                call.is_mute = True  # what follows cannot arrive without it
            return
        call.arrival_s = max(call.arrival_s, self._loop.time() + self._delay_s())
        self._later(call.arrival_s - self._loop.time(), self._deliver, call, message, is_last)

    def _deliver(self, call: _Call, message: Any, is_last: bool) -> None:  # noqa: FBT001
        if call.is_over:
            return
        call.answers.put_nowait(message)
        if is_last:
            call.is_over = True
            self._calls.pop(call.number, None)


def rpc_error(code: StatusCode, details: str, metadata: Any = ()) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(*metadata), details)


def _as_it_is(message: Any) -> Any:
    return message


class _Unary:
    def __init__(self, channel: "Channel", path: str, serialize: Any, parse: Any) -> None:
        self._channel, self._path = channel, path
        self._serialize, self._parse = serialize or _as_it_is, parse or _as_it_is

    def __call__(self, request: Any, *, timeout: float | None = None, metadata: Any = (), **_: Any) -> Any:
        return self._run(self._serialize(request), timeout, tuple(metadata or ()))

    async def _run(self, request: bytes, timeout_s: float | None, metadata: Metadatas) -> Any:
        network = self._channel.network
        call = network.begin(self._path, self._channel.address, request, metadata)
        try:
            async with asyncio.timeout(timeout_s):
                found = await self._channel.next_answer(call)
        except TimeoutError:
            raise rpc_error(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        finally:
            if not call.is_over:
                network.cancel(call)
        if isinstance(found, AioRpcError):
            raise found
        return self._parse(found)


class _Stream(_Unary):
    def __call__(self, request: Any, *, timeout: float | None = None, metadata: Any = (), **_: Any) -> Any:
        return self._iterate(self._serialize(request), timeout, tuple(metadata or ()))

    async def _iterate(self, request: bytes, timeout_s: float | None, metadata: Metadatas) -> AsyncIterator[Any]:
        network = self._channel.network
        call = network.begin(self._path, self._channel.address, request, metadata)
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        try:
            while True:
                try:
                    async with asyncio.timeout_at(deadline_s):
                        found = await self._channel.next_answer(call)
                except TimeoutError:
                    raise rpc_error(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
                if found is None:
                    return
                if isinstance(found, AioRpcError):
                    raise found
                yield self._parse(found)
        finally:
            if call.number in network._calls:
                network.cancel(call)


class Channel:
    """Stands where `grpc.aio.insecure_channel` would put one."""

    def __init__(self, network: Network, address: str) -> None:
        self.network, self.address = network, address
        self.source = ""
        self.broken = asyncio.Event()
        self._under_way: dict[_Call, None] = {}
        """In the order in which they began, which is the same in every process."""

    async def wait_for_state_change(self, _: Any) -> None:
        """Wait until the connection, which there is, breaks."""
        self.source = current().name
        self.broken.clear()
        if self.address not in self.network.servers:
            return
        self.network.connected[self] = None
        try:
            await self.broken.wait()
        finally:
            self.network.connected.pop(self, None)

    async def next_answer(self, call: _Call) -> Any:
        self._under_way[call] = None
        try:
            found = await call.answers.get()
        finally:
            self._under_way.pop(call, None)
        if found is _CLOSED:
            raise asyncio.CancelledError
        return found

    def unary_unary(
        self, path: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> _Unary:
        return _Unary(self, path, request_serializer, response_deserializer)

    def unary_stream(
        self, path: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> _Stream:
        return _Stream(self, path, request_serializer, response_deserializer)

    async def close(self, grace: float | None = None) -> None:  # noqa: ARG002
        """End what is under way by a cancellation that nobody asked its caller for, as gRPC does."""
        for call in self._under_way:
            call.answers.put_nowait(_CLOSED)
