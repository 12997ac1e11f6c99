"""The HTTP server in the scheduler's event loop: uvicorn, with limits on what a connection may do."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from onager.clock import Clock
from onager.errors import InvalidSettingError
from onager.protocol.call_limits import HTTP_CONNECTIONS, HTTP_HEAD_BYTES, HTTP_HEAD_S, STREAM_STALLED_S
from onager.protocol.ports import unusable_address
from onager.protocol.security import ServerSecurity
from onager.protocol.security.files import Pair, read_authority, read_pair
from onager.protocol.security.servers import check_openness
from onager.scheduler import timing
from onager.scheduler.app import SchedulerApp
from onager.scheduler.http.access import Access
from onager.scheduler.http.application import application
from onager.scheduler.http.routing import Server

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = structlog.get_logger(__name__)

FLAG: Final = "--http-listen"
_BACKLOG: Final = 256
_KEPT_ALIVE_S: Final = 5


@asynccontextmanager
async def serving_http(
    scheduler: SchedulerApp,
    listen: str,
    clock: Clock,
    registry: "CollectorRegistry | None" = None,
    refusals: Counter[str] | None = None,
) -> AsyncIterator[str]:
    """Serve *scheduler* at *listen* over HTTP inside the block; yield the URL of the page.

    `InvalidSettingError` when the address cannot be used, or when others would reach it unsafely.
    """
    settings = scheduler.settings
    security = settings.server_security
    check_openness(security, listen, FLAG)
    tls = _Tls(security) if security.tls_cert is not None else None
    listener = _bound(listen)
    port = listener.getsockname()[1]
    addresses = [listen, *([settings.advertise] if settings.advertise else [])]
    access = Access(security, listen, addresses, settings.http_names, clock)
    here = Server(scheduler, access, clock, registry, Counter() if refusals is None else refusals)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what callers do wrong is no error here
    server = _Uvicorn(
        uvicorn.Config(
            application(here),
            http=_Protocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEPT_ALIVE_S,
            h11_max_incomplete_event_size=HTTP_HEAD_BYTES,
            reset_contextvars=True,
            ssl_context_factory=None if tls is None else lambda *_: tls.context,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    url = f"{'http' if tls is None else 'https'}://{listen.rpartition(':')[0]}:{port}/"
    log.info("http_ready", url=url)
    try:
        yield url
    finally:
        scheduler.stopping.set()
        await server.stop(timing.STOP_GRACE_S)
        serving.cancel()
        await asyncio.wait([serving])


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the scheduler."""
        yield

    async def stop(self, grace_s: float) -> None:
        """Take no more requests, finish the current ones, and cut off every connection."""
        for server in getattr(self, "servers", ()):
            server.close()
        if self.server_state.tasks:
            await asyncio.wait(list(self.server_state.tasks), timeout=grace_s)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class _Protocol(H11Protocol):
    """A connection whose client must send its request's head in time, and must read what it is sent."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._heading = _Timer(self.loop, HTTP_HEAD_S, transport.abort)
        self._unread = _Timer(self.loop, STREAM_STALLED_S, self._not_read)
        super().connection_made(transport)
        if len(self.connections) > HTTP_CONNECTIONS:
            log.warning("http_connection_refused", address=self.client, most=HTTP_CONNECTIONS)
            transport.abort()
        else:
            self._heading.start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heading.stop()
        self._unread.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._heading.stop()
        elif not self.transport.is_closing():
            self._heading.start()

    def on_response_complete(self) -> None:
        self._heading.stop()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.start()

    def resume_writing(self) -> None:
        self._unread.stop()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._unread.start()  # closing waits until all is sent

    def _not_read(self) -> None:
        log.info("http_answer_not_read", address=self.client, after_s=STREAM_STALLED_S)
        self.transport.abort()


class _Timer:
    """Calls something once after a while, unless it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, after_s: float, action: Callable[[], None]) -> None:
        self._loop = loop
        self._after_s = after_s
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start it, if it does not run."""
        self._handle = self._handle or self._loop.call_later(self._after_s, self._action)

    def stop(self) -> None:
        """Stop it."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None


class _Tls:
    """The TLS of the server; what is renewed in the files is read at the next handshake."""

    def __init__(self, security: ServerSecurity) -> None:
        self._security = security
        self._files = self._read()
        self._current = self.context = self._made()
        self.context.sni_callback = self._look_again

    def _read(self) -> tuple[Pair | None, bytes | None]:
        """Return the content of the files; `InvalidSettingError` when they cannot be used."""
        authority = self._security.tls_client_ca
        pair = read_pair(self._security.tls_cert, self._security.tls_key)
        return pair, None if authority is None else read_authority("--tls-client-ca", authority)

    def _made(self) -> ssl.SSLContext:
        assert self._security.tls_cert is not None
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.set_alpn_protocols(["http/1.1"])
        made.load_cert_chain(self._security.tls_cert, self._security.tls_key)
        if self._security.tls_client_ca is not None:
            made.verify_mode = ssl.CERT_REQUIRED
            made.load_verify_locations(cafile=self._security.tls_client_ca)
        return made

    def _look_again(self, connection: ssl.SSLObject, *_: object) -> None:
        """Give a connection, whose handshake begins, what the files have now."""
        try:
            files = self._read()
            if files != self._files:
                self._current, self._files = self._made(), files
                log.info("certificates_read_again", file=str(self._security.tls_cert))
        except (InvalidSettingError, OSError) as error:
            # For example, the certificate is new and the key is not yet: the next handshake will find both.
            log.warning("certificates_not_read_again", error=str(error))
        connection.context = self._current


def _bound(listen: str) -> socket.socket:
    """Return a socket that listens at ``host:port``."""
    host, _, port = listen.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        listener = socket.create_server(
            address,
            family=family,
            backlog=_BACKLOG,
            dualstack_ipv6=family is socket.AF_INET6 and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise unusable_address(FLAG, listen) from error
    listener.setblocking(False)
    return listener
