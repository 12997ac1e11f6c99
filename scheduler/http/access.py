"""Who calls over HTTP: by a token, by the page's cookie, or anybody where no token is needed."""

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import structlog
from starlette.requests import HTTPConnection

from onager.access_errors import (
    AuthenticationError,
    HostRefusedError,
    OriginRefusedError,
    TokenMissingError,
    TokenRefusedError,
)
from onager.clock import Clock
from onager.protocol.security import Role, ServerSecurity
from onager.protocol.security.principal import note_address, note_principal
from onager.protocol.security.servers import token_file
from onager.protocol.security.tokens import HEADER, Token
from onager.scheduler.http.attempts import LoginAttempts
from onager.scheduler.http.cookies import Cookies

COOKIE: Final = "onager"
SAFE_COOKIE: Final = "__Host-onager"
"""Its name under TLS: browsers take a cookie of such a name only from the host itself, and over TLS."""
_LOOKING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}

log = structlog.get_logger(__name__)


class Caller(NamedTuple):
    """Who makes a request. To the gRPC service it is the context of the call."""

    address: str
    """Where the request comes from, without the port."""
    principal: str = ""
    role: Role | None = None
    """None: it may do everything."""
    by: Literal["nobody", "token", "cookie"] = "nobody"
    expires_ms: int | None = None

    def peer(self) -> str:
        """Return the address as gRPC writes it."""
        return f"ipv6:[{self.address}]:0" if ":" in self.address else f"ipv4:{self.address}:0"


class Access:
    """Decides who a caller is, and whether the request may come from where it does."""

    def __init__(
        self, security: ServerSecurity, listen: str, addresses: Iterable[str], names: Iterable[str], clock: Clock
    ) -> None:
        """Take callers by the settings of *security*; *addresses* (``host:port``) and *names* are of this server.

        It listens at *listen*.
        """
        self._tokens = token_file(security, listen)
        self.has_tls = security.tls_cert is not None
        """Whether the server speaks TLS."""
        self.cookie = SAFE_COOKIE if self.has_tls else COOKIE
        """The name of the cookie."""
        self._named = frozenset(name.lower() for name in names)
        hosts = {_place(address).host for address in addresses}
        self._hosts = self._named | hosts | {"localhost", "ip6-localhost", socket.gethostname().lower()}
        self._attempts = LoginAttempts(clock)
        self._cookies = None if self._tokens is None else Cookies(self._tokens.named, clock)

    def identify(self, request: HTTPConnection) -> Caller:
        """Return who makes *request*, and keep its name for the rest of the request.

        `TokenMissingError`, `TokenRefusedError`, `SessionEndedError`; `HostRefusedError` and `OriginRefusedError` for
        what a browser was made to send by somebody else's page.
        """
        address = request.client.host if request.client is not None else ""
        try:
            caller = self._identify(request, address)
            self.check_origin(request, has_cookie=caller.by == "cookie")
        except AuthenticationError as error:
            log.warning("caller_refused", call=request.url.path, address=address, why=type(error).__name__)
            raise
        note_principal(caller.principal)
        note_address(caller)
        return caller

    def log_in(self, request: HTTPConnection, offered: str) -> tuple[Caller, str]:
        """Return who shows a token at the login, and the cookie for it; a line of the token file will do, too.

        `TokenRefusedError`; `LoginsLimitedError` after too many of these; `OriginRefusedError`. Where no token is
        needed, the cookie is empty.
        """
        address = request.client.host if request.client is not None else ""
        self.check_origin(request)
        if self._tokens is None or self._cookies is None:
            self._check_host(request)
            return Caller(address), ""
        self._attempts.check(address)
        words = offered.split()
        found = self._tokens.find(f"Bearer {words[-1]}") if words else None
        if found is None:
            self._attempts.failed(address)
            log.warning("login_refused", address=address)
            raise TokenRefusedError
        cookie, expires_ms = self._cookies.make(found)
        log.info("logged_in", principal=found.name, role=found.role, address=address)
        return _caller(address, found, "cookie", expires_ms), cookie

    def check_attempts(self, request: HTTPConnection) -> None:
        """Raise `LoginsLimitedError` after too many wrong logins from there."""
        self._attempts.check(request.client.host if request.client is not None else "")

    def _identify(self, request: HTTPConnection, address: str) -> Caller:
        if self._tokens is None or self._cookies is None:
            self._check_host(request)
            return Caller(address)
        if shown := request.headers.getlist(HEADER):
            # With several tokens it would be unclear which one counts.
            found = self._tokens.find(shown[0]) if len(shown) == 1 else None
            if found is None:
                raise TokenRefusedError
            return _caller(address, found, "token")
        if cookie := request.cookies.get(self.cookie):
            token, expires_ms = self._cookies.read(cookie)
            return _caller(address, token, "cookie", expires_ms)
        raise TokenMissingError

    def _check_host(self, request: HTTPConnection) -> None:
        """Refuse a name that is not ours: without tokens, a page could have its own name rebound to this address.

        An address in the place of a name cannot be rebound.
        """
        host = _place(request.headers.get("host", "")).host
        if host not in self._hosts and not _is_address(host):
            raise HostRefusedError(host)

    def check_origin(self, request: HTTPConnection, *, has_cookie: bool = False) -> None:
        """Raise `OriginRefusedError` for what a page of somebody else lets a browser do.

        The browser would do it with its cookie, its certificate, or from its place in the network.

        Browsers name the origin with everything that changes something; other programs need not.
        """
        if request.scope["method"] in _LOOKING:
            return
        host = request.headers.get("host", "")
        origin = request.headers.get("origin")
        if origin is None:
            if has_cookie:
                raise OriginRefusedError("", host)
            return
        scheme, _, place = origin.partition("://")
        if scheme in _DEFAULT_PORTS and (
            _place(place, scheme) == _place(host, scheme) or _place(place, scheme).host in self._named
        ):
            return
        raise OriginRefusedError(origin, host)


def _caller(address: str, token: Token, by: Literal["token", "cookie"], expires_ms: int | None = None) -> Caller:
    return Caller(address, token.name, token.role, by, expires_ms)


class _Place(NamedTuple):
    host: str
    port: str


def _place(text: str, scheme: str = "http") -> _Place:
    """Return the parts of ``host``, ``host:port``, ``[address]`` or ``[address]:port``."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    return _Place(host.lower(), port or _DEFAULT_PORTS[scheme])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
