"""A scheduler's port: TLS with renewable certificates, and callers that present a token."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from onager.access_errors import (
    AuthenticationError,
    RoleRefusedError,
    SessionEndedError,
    TokenMissingError,
    TokenRefusedError,
)
from onager.errors import InvalidSettingError
from onager.lazy_logger import LazyLogger
from onager.protocol.ports import unusable_address
from onager.protocol.security.files import read_authority, read_pair
from onager.protocol.security.places import is_loopback
from onager.protocol.security.principal import OWNER_HEADER, PROGRAM_HEADER, Caller, caller_of, note_principal
from onager.protocol.security.roles import CONNECT, Role, check_role
from onager.protocol.security.tokens import HEADER, Token, TokenFile
from onager.protocol.status import abort

REFUSALS: Final[dict[type[AuthenticationError], str]] = {
    TokenMissingError: "missing",
    TokenRefusedError: "unknown",
    RoleRefusedError: "role",
    SessionEndedError: "unknown",
}
"""The reasons by which refusals are counted."""
_ANY_WAY: Final = "--auth-token-file FILE, or --tls-client-ca FILE"
_WAYS: Final = {"--scaler-listen": "ONAGER_SCHEDULER_SCALER_TLS_CLIENT_CA, since KEDA shows no token"}
"""How callers of a port say who they are, where there is no choice."""
_HEALTH: Final = "/grpc.health.v1.Health/"
OnRefusal = Callable[[Caller, str, AuthenticationError], None]

log = LazyLogger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecurity:
    """The settings of who may call a scheduler."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    """Certificates of authorities; with it, every caller has to present a certificate of one of them."""
    auth_token_file: Path | None = None
    """Every call except health has to carry one of its tokens."""
    insecure: bool = False
    """Whether other machines may call without TLS, and without identifying themselves."""
    tokens_without_role: bool = False
    """Whether a token without a role, which allows everything, counts where other machines can call."""


class ServerAccess:
    """Opens ports for a server, after reading and checking the files that *security* names.

    `InvalidSettingError` for an unusable file, and if other machines can reach *listen* without TLS, or with neither a
    token nor a client certificate, unless *insecure* is set; or with a token without a role, unless
    *tokens_without_role* is set.
    """

    def __init__(self, security: ServerSecurity, listen: str, flag: str = "--listen") -> None:
        """Read the files; *flag* set *listen*, and a port whose callers can show no token has none in *security*."""
        self.refusals: Counter[str] = Counter(dict.fromkeys(REFUSALS.values(), 0))
        """Calls that were refused, by reason."""
        self.on_refusal: OnRefusal = lambda _, __, ___: None
        """Called with who made a call that was refused, which one, and why."""
        self._flag = flag
        self._security = security
        self._last = _Configuration.read(security)
        check_openness(security, listen, flag)
        self._token = token_file(security, listen)
        if self._token is not None:
            self._token.warn()

    @property
    def interceptors(self) -> "tuple[grpc.aio.ServerInterceptor[Any, Any], ...]":
        """The interceptors that the server needs."""
        return (_Nameless() if self._token is None else _TokenGuard(self._token, self._note),)

    def _note(self, caller: Caller, method: str, error: AuthenticationError) -> None:
        self.refusals[REFUSALS[type(error)]] += 1
        self.on_refusal(caller, method, error)

    def add_port(self, server: grpc.aio.Server, listen: str) -> int:
        """Open the port of *server* and return it; `InvalidSettingError` when the address cannot be used."""
        try:
            port = self._opened(server, listen)
        except RuntimeError as error:
            raise unusable_address(self._flag, listen) from error
        if not port:
            raise unusable_address(self._flag, listen)
        return port

    def _opened(self, server: grpc.aio.Server, listen: str) -> int:
        if self._last is None:
            return server.add_insecure_port(listen)
        credentials = grpc.dynamic_ssl_server_credentials(
            self._last.for_grpc(),
            self._look_again,  # type: ignore[arg-type]
            self._security.tls_client_ca is not None,
        )
        return server.add_secure_port(listen, credentials)

    def _look_again(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the files' content if it has changed, else None.

        gRPC calls this at every handshake, in a thread of its own.
        """
        try:
            now = _Configuration.read(self._security)
        except InvalidSettingError as error:
            # For example, the certificate is new and the key is not yet: the next handshake will find both.
            log.warning("certificates_not_read_again", error=str(error))
            return None
        if now is None or now == self._last:
            return None
        self._last = now
        log.info("certificates_read_again", file=str(self._security.tls_cert))
        return now.for_grpc()


def check_openness(security: ServerSecurity, listen: str, flag: str = "--listen") -> None:
    """Raise `InvalidSettingError` if other machines reach *listen*, and *security* lets them do so unsafely."""
    if security.insecure or is_loopback(listen):
        return
    lacking = []
    if security.tls_cert is None:
        lacking.append("connections are not encrypted (give --tls-cert FILE and --tls-key FILE)")
    if security.auth_token_file is None and security.tls_client_ca is None:
        lacking.append(f"callers need not say who they are (give {_WAYS.get(flag, _ANY_WAY)})")
    if lacking:
        raise InvalidSettingError(
            flag,
            listen,
            f"other machines reach this address, and {'; and '.join(lacking)}; "
            "or listen on 127.0.0.1; or say --insecure if every machine of the network is trusted",
        )


def token_file(security: ServerSecurity, listen: str) -> TokenFile | None:
    """Return the tokens that count at *listen*, if *security* names any.

    `InvalidSettingError` if one has no role, and other machines, which the settings do not trust, reach the address.
    """
    if security.auth_token_file is None:
        return None
    is_trusting = security.insecure or security.tokens_without_role or is_loopback(listen)
    return TokenFile(security.auth_token_file, needs_roles=not is_trusting)


@dataclass(frozen=True, slots=True)
class _Configuration:
    """The content of the files."""

    cert: bytes
    key: bytes
    client_ca: bytes | None

    @staticmethod
    def read(security: ServerSecurity) -> "_Configuration | None":
        pair = read_pair(security.tls_cert, security.tls_key)
        if security.tls_client_ca is None:
            return None if pair is None else _Configuration(*pair, None)
        if pair is None:
            raise InvalidSettingError(
                "--tls-client-ca", str(security.tls_client_ca), "it needs --tls-cert and --tls-key"
            )
        return _Configuration(*pair, read_authority("--tls-client-ca", security.tls_client_ca))

    def for_grpc(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key, self.cert)], self.client_ca)


class _Nameless(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Takes every call as nobody's: a call begins with the name of the caller in whose call its server was started."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any]"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        note_principal("")
        return await continuation(handler_call_details)


def _owner_of_program(found: Token, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """Return in whose name an executor passes on a call of a program; None for any other call.

    What it may do follows from the program's secret, which is looked at with the call.
    """
    if found.role not in (Role.EXECUTOR, None) or not method.startswith(CONNECT):
        return None
    named = dict(metadata)
    if PROGRAM_HEADER not in named or OWNER_HEADER not in named:
        return None
    return bytes(named[OWNER_HEADER]).decode(errors="replace")  # type: ignore[arg-type] # a binary header


class _TokenGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses every call, except health, without a valid token, or with one of another role; notes who calls."""

    def __init__(self, token: TokenFile, on_refusal: OnRefusal) -> None:
        self._token = token
        self._on_refusal = on_refusal

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any]"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        method = handler_call_details.method
        if method.startswith(_HEALTH):
            return await continuation(handler_call_details)
        shown = [value for key, value in handler_call_details.invocation_metadata or () if key == HEADER]
        # With several tokens it would be unclear which one counts.
        found = self._token.find(str(shown[0])) if len(shown) == 1 else None
        if found is None:
            return self._refusal(method, TokenRefusedError() if shown else TokenMissingError())
        try:
            owner = _owner_of_program(found, method, handler_call_details.invocation_metadata or ())
            if owner is None:
                check_role(found.name, found.role, method)
        except RoleRefusedError as error:
            return self._refusal(method, error, caller=found.name)
        note_principal(found.name if owner is None else owner)
        return await continuation(handler_call_details)

    def _refusal(self, method: str, error: AuthenticationError, caller: str = "") -> "grpc.RpcMethodHandler[Any, Any]":
        async def refuse(_: Any, context: Any) -> None:
            more = {"caller": caller} if caller else {}
            log.warning("caller_refused", call=method, address=context.peer(), why=type(error).__name__, **more)
            note_principal(caller)
            self._on_refusal(caller_of(context), method, error)
            await abort(context, error)

        # An error before the first message looks the same to a caller for all kinds of methods. And gRPC reads a stream
        # of requests only on demand, so nothing is read from a refused caller.
        return grpc.stream_stream_rpc_method_handler(refuse)
