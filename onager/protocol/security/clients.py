"""Connections to servers: channels, credentials, and the meaning of a refusal."""

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import grpc

from onager.errors import InvalidSettingError, OnagerError, SchedulerUnreachableError, TlsError
from onager.protocol.limits import CHANNEL_OPTIONS, Option
from onager.protocol.security.files import read_authority, read_pair
from onager.protocol.security.places import leads_nowhere_else
from onager.protocol.security.reasons import reason_of
from onager.protocol.security.renewal import RenewedChannel, RenewedCredentials
from onager.protocol.security.roles import Role
from onager.protocol.security.tokens import TokenFile
from onager.protocol.status import from_rpc_error
from onager.supervision import unless_cut

TLS_CA: Final = "ONAGER_TLS_CA"
INSECURE: Final = "ONAGER_INSECURE"

_FILES: Final = ("tls_ca", "tls_cert", "tls_key", "auth_token_file")
_YES: Final = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """How a client secures its calls to schedulers."""

    tls_ca: Path | None = None
    """Certificates of the authorities that signed the schedulers' certificates; with it, connections use TLS."""
    tls_cert: Path | None = None
    """The client's own certificate, for schedulers that require one."""
    tls_key: Path | None = None
    auth_token_file: Path | None = None
    """Each call carries the token of the file's only line, or of the first line with a role for such callers."""
    insecure: bool = False
    """Whether plaintext may leave this machine."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return what the variables say, ``ONAGER_TLS_CA`` for `tls_ca` and so on; empty ones count as unset."""
        given = {name: environment.get(f"ONAGER_{name.upper()}") for name in _FILES}
        files = {name: Path(path) for name, path in given.items() if path}
        return cls(**files, insecure=is_set(INSECURE, environment))


def is_set(variable: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a variable that is a switch is on."""
    return environment.get(variable, "").lower() in _YES


class ClientAccess:
    """Makes channels to schedulers, after reading and checking the files that *security* names.

    Channels over TLS follow files that change.

    `InvalidSettingError` for an unusable file, and for plaintext to another machine without *insecure*.
    """

    def __init__(
        self, security: ClientSecurity, addresses: Iterable[str], roles: Collection[Role] = (Role.CLIENT, Role.ADMIN)
    ) -> None:
        """Make channels that carry a token of one of *roles*."""
        self._roles = tuple(roles)
        pair = read_pair(security.tls_cert, security.tls_key)
        self._credentials: RenewedCredentials | None = None
        self._has_certificate = pair is not None
        self._token = None if security.auth_token_file is None else TokenFile(security.auth_token_file)
        self.metadata()  # so that a file without a matching line is reported now
        if security.tls_ca is not None:
            files = [path for path in (security.tls_ca, security.tls_cert, security.tls_key) if path is not None]
            self._credentials = RenewedCredentials(files, lambda: _read(security))
        elif pair is not None:
            raise InvalidSettingError(
                "--tls-cert", str(security.tls_cert), "a certificate of ours needs --tls-ca, to know that of schedulers"
            )
        self._keeps_to_itself = self._credentials is None and not security.insecure
        for address in addresses:
            self.check(address)

    def check(self, address: str, flag: str = "--scheduler") -> None:
        """Raise `InvalidSettingError` if plaintext would go to another machine at *address* without *insecure*."""
        if self._keeps_to_itself and not leads_nowhere_else(address):
            raise InvalidSettingError(
                flag,
                address,
                "it is on another machine, and the connection would not be encrypted; give --tls-ca FILE "
                f"({TLS_CA}), or say --insecure ({INSECURE}=1) if the network between is trusted",
            )

    def channel(self, address: str) -> grpc.Channel:
        """Return a channel to *address* for blocking calls; each call carries the token."""
        if self._credentials is None:
            channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        else:
            channel = self._renewed(grpc.secure_channel, address)
        return channel if self._token is None else grpc.intercept_channel(channel, _TokenBearer(self.metadata))

    def aio_channel(self, address: str, options: Iterable[Option] = ()) -> grpc.aio.Channel:
        """Return a channel to *address* for asyncio; its calls need `metadata`. *options* replace ours."""
        all_options = list({**dict(CHANNEL_OPTIONS), **dict(options)}.items())
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=all_options)
        channel: grpc.aio.Channel = self._renewed(grpc.aio.secure_channel, address, all_options)
        return channel

    def _renewed(
        self, secure_channel: Callable[..., Any], address: str, options: Sequence[Option] = CHANNEL_OPTIONS
    ) -> Any:
        assert self._credentials is not None
        return RenewedChannel(self._credentials, lambda now: secure_channel(address, now, options=options))

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata that a call of an `aio_channel` must carry."""
        return () if self._token is None else self._token.metadata(*self._roles)

    async def call(self, method: Callable[..., Awaitable[Any]], request: object, address: str, timeout_s: float) -> Any:
        """Return the answer to a call of a stub's *method*, on an `aio_channel` to *address*.

        An `OnagerError` is raised: `SchedulerUnreachableError` also when the channel is closed meanwhile.
        """
        try:
            return await unless_cut(
                method(request, timeout=timeout_s, metadata=self.metadata()),
                SchedulerUnreachableError(address, "its connection was closed"),
            )
        except grpc.aio.AioRpcError as error:
            raise self.error_of(error, address) from error

    def error_of(self, error: grpc.RpcError, address: str) -> OnagerError:
        """Return what `from_rpc_error` does, or `TlsError` when no safe connection was made."""
        details = str(error.details() if hasattr(error, "details") else "") or ""
        has_tls = self._credentials is not None
        reason = reason_of(details, has_tls=has_tls, has_certificate=self._has_certificate)
        return from_rpc_error(error, address) if reason is None else TlsError(address, reason.kind, reason.advice)


def _read(security: ClientSecurity) -> grpc.ChannelCredentials:
    assert security.tls_ca is not None
    authority = read_authority("--tls-ca", security.tls_ca)
    cert, key = read_pair(security.tls_cert, security.tls_key) or (None, None)
    return grpc.ssl_channel_credentials(authority, key, cert)


@dataclass(frozen=True, slots=True)
class _CallDetails:
    """What gRPC needs to know of a call; it looks only at the names."""

    method: str
    timeout: float | None
    metadata: tuple[tuple[str, str | bytes], ...]
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _TokenBearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    """Adds the token, as its file has it now, to every call."""

    def __init__(self, metadata: Callable[[], tuple[tuple[str, str], ...]]) -> None:
        self._metadata = metadata

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return continuation(self._with_token(details), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return continuation(self._with_token(details), request)

    def _with_token(self, details: Any) -> _CallDetails:
        return _CallDetails(
            details.method,
            details.timeout,
            (*(details.metadata or ()), *self._metadata()),
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
