"""A TCP proxy that injects network faults into its connections; it runs in this process, without privileges.

For HTTP/2 without TLS, whose frames it knows well enough to tell an answer from an acknowledgement.
"""

import asyncio
import contextlib
import random  # noqa: TID251 the caller's, seeded
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Self

from tests.support.processes.children import free_ports
from tests.support.waiting import HANGS_S, eventually

_CHUNK_BYTES: Final = 64 * 1024
_FRAME_HEADER_BYTES: Final = 9
_MESSAGE_FRAMES: Final = (0, 1)
"""DATA and HEADERS: part of a request or of an answer, in contrast to settings, pings and windows."""
_PREFACE_BYTES: Final = 24
"""What a client sends before its first frame."""


class _Frames:
    """Where one direction of an HTTP/2 connection stands."""

    def __init__(self, skip_bytes: int) -> None:
        self._skip = skip_bytes
        self._header = b""

    def has_message(self, data: bytes) -> bool:
        """Go on by *data*; return whether a frame of a request or an answer begins in it."""
        found = False
        while data:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
            missing = _FRAME_HEADER_BYTES - len(self._header)
            self._header += data[:missing]
            data = data[missing:]
            if len(self._header) == _FRAME_HEADER_BYTES:
                self._skip = int.from_bytes(self._header[:3])
                found |= self._header[3] in _MESSAGE_FRAMES
                self._header = b""
        return found


class Way:
    """One direction of all connections; bytes pass in order or not at all."""

    def __init__(self, name: str, counts: Counter[str]) -> None:
        self.name = name
        self.delay_s = 0.0
        """How long each piece of data is held up."""
        self.messages = 0
        """How many pieces of data carried part of a request (or an answer)."""
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._counts = counts
        self.is_dropping_next = False

    def hold(self) -> None:
        """Let nothing pass until `release`, as when packets are lost and sent again."""
        self._counts[f"held {self.name}"] += 1
        self._is_open.clear()

    def release(self) -> None:
        """Let what was held, and what comes, pass."""
        self._is_open.set()

    def drop_next(self) -> None:
        """Drop the next request (or answer), whole or in part, and then cut its connection."""
        self.is_dropping_next = True

    async def wait_open(self) -> None:
        await self._is_open.wait()

    def heal(self) -> None:
        self.delay_s = 0.0
        self.is_dropping_next = False
        self.release()


@dataclass(eq=False)
class _Connection:
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()


class TcpProxy:
    """Passes connections on to *target*; all switches work at once, on what is open and what comes."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.port = free_ports(1)[0]
        self.counts: Counter[str] = Counter()
        """How often each fault struck."""
        self.up = Way("requests", self.counts)
        self.down = Way("answers", self.counts)
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()

        def is_over() -> bool:
            self.cut()
            return not self._connections

        await eventually(is_over)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def has_connections(self) -> bool:
        """Whether any is open."""
        return bool(self._connections)

    # -- switches

    def cut(self) -> None:
        """Cut every open connection."""
        for connection in list(self._connections):
            self.counts["cut"] += 1
            connection.cut()

    def refuse(self) -> None:
        """Refuse new connections until `accept`; open ones stay."""
        if self._server is not None:
            self.counts["refused"] += 1
            self._server.close()
            self._server = None

    async def accept(self) -> None:
        """Take new connections."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=_CHUNK_BYTES)

    def drop_next_answer(self) -> None:
        """Let the next request through to be carried out, drop what the server answers, and cut."""
        self.down.drop_next()

    def drop_next_request(self) -> None:
        """Cut when the next request comes, before the server has all of it."""
        self.up.drop_next()

    async def heal(self) -> None:
        """End all faults."""
        self.up.heal()
        self.down.heal()
        await self.accept()

    async def misbehave(self, rng: random.Random, *, pause_s: float = 0.1, fault_s: float = 0.2) -> None:
        """Do one thing after the other that *rng* chooses, until cancelled; then heal.

        *pause_s* and *fault_s* are how long, on average, all is well and a fault lasts.
        """
        faults: list[Callable[[], None]] = [
            self.cut,
            self.drop_next_answer,
            self.drop_next_answer,
            self.drop_next_request,
            self.refuse,
            self.up.hold,
            self.down.hold,
            lambda: self._delay(self.up, rng),
            lambda: self._delay(self.down, rng),
        ]
        try:
            while True:
                await asyncio.sleep(rng.expovariate(1 / pause_s))
                fault = rng.choice(faults)
                fault()
                if rng.random() < 0.5:
                    self.cut()
                await asyncio.sleep(rng.expovariate(1 / fault_s))
                if rng.random() < 0.5:
                    self.cut()
                await self.heal()
        finally:
            await self.heal()

    # -- inside

    def _delay(self, way: Way, rng: random.Random) -> None:
        self.counts[f"delayed {way.name}"] += 1
        way.delay_s = rng.uniform(0.01, 0.1)

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        connection = _Connection([client_out])
        self._connections.add(connection)
        try:
            host, _, port = self.target.rpartition(":")
            server_in, server_out = await asyncio.open_connection(host, int(port), limit=_CHUNK_BYTES)
            connection.writers.append(server_out)
            connection.tasks += [
                asyncio.create_task(self._pump(client_in, server_out, self.up, _Frames(_PREFACE_BYTES))),
                asyncio.create_task(self._pump(server_in, client_out, self.down, _Frames(0))),
            ]
            await asyncio.wait(connection.tasks, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            self.counts["target refused"] += 1
        finally:
            connection.cut()
            self._connections.discard(connection)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: Way, frames: _Frames) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK_BYTES):
                if way.delay_s:
                    await asyncio.sleep(way.delay_s)
                await way.wait_open()
                has_message = frames.has_message(data)
                way.messages += has_message
                if has_message and way.is_dropping_next:
                    way.is_dropping_next = False
                    self.counts[f"dropped {way.name}"] += 1
                    return
                sink.write(data)
                await sink.drain()


@contextmanager
def proxies_of_a_thread() -> Iterator[Callable[[str], tuple[TcpProxy, asyncio.AbstractEventLoop]]]:
    """Make proxies for code that is not asynchronous: each comes with the loop, of a thread, that it is used in."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    made: list[TcpProxy] = []

    def make(target: str) -> tuple[TcpProxy, asyncio.AbstractEventLoop]:
        made.append(TcpProxy(target))
        asyncio.run_coroutine_threadsafe(made[-1].__aenter__(), loop).result(HANGS_S)
        return made[-1], loop

    yield make
    for each in made:
        asyncio.run_coroutine_threadsafe(each.__aexit__(), loop).result(HANGS_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(HANGS_S)
    loop.close()
