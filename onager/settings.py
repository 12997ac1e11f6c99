"""The settings that schedulers and executors share: where and whom they serve, and how they log."""

from dataclasses import fields
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from onager.machine import this_machine
from onager.protocol.limits import DEFAULT_ADDRESS
from onager.protocol.security import ServerSecurity, reached_at
from onager.protocol.security.places import is_unspecified


class ProcessSettings(BaseSettings):
    """Settings of a process that may serve a port; an executor does so in push mode only."""

    listen: str = DEFAULT_ADDRESS
    """``host:port`` to serve on; port 0 takes a free one, which the process prints."""
    advertise: str | None = None
    """``host:port`` under which others reach this process; by default, the address it listens on."""
    tls_cert: Path | None = None
    """The certificate to serve with, followed by any intermediate ones; read again when the file changes."""
    tls_key: Path | None = None
    """The private key of the certificate."""
    tls_client_ca: Path | None = None
    """Certificates of authorities; with it, callers must present a certificate signed by one of them."""
    auth_token_file: Path | None = None
    """Tokens, one per line: every call except health checks must carry one; read again when the file changes."""
    insecure: bool = False
    """Whether other machines may call without TLS, and without a token or certificate."""
    tokens_without_role: bool = False
    """Whether tokens without a role count although other machines reach an address of this process: whoever has such a
    token may do everything. For the time in which a cluster's tokens get their roles."""

    machine: str = Field(default_factory=this_machine, max_length=64, pattern=r"^[\w.-]+$")
    """What tells this machine from others: processes that give the same name see each other's process ids and loopback
    addresses. By default it follows from the kernel's boot id, the host name, and the namespaces of processes and of
    networks."""

    exchange_access: Literal["owner", "group"] = "owner"
    """Who may access the files that this process makes in the exchange directory: only its own user (0700, 0600), or
    also the directory's group (2770, 0660), for schedulers and executors that run as several users of one group."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""
    log_format: Literal["console", "json"] = "console"
    """Lines for people, or one JSON object per line."""

    @field_validator(
        "listen",
        "advertise",
        "metrics_listen",
        "health_listen",
        "http_listen",
        "scaler_listen",
        "stream_listen",
        "stream_advertise",
        check_fields=False,
    )
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        host, colon, port = value.rpartition(":")
        if not (host and colon and port.isdecimal() and int(port) < 2**16):
            raise ValueError(f"give host:port, such as {DEFAULT_ADDRESS}")
        return value

    @field_validator("advertise", "stream_advertise", check_fields=False)
    @classmethod
    def _leads_here(cls, value: str | None) -> str | None:
        if value is not None and (value.endswith(":0") or is_unspecified(value)):
            raise ValueError(
                "give the host and port under which others reach this process, such as a name of its machine"
            )
        return value

    def advertised(self, port: int) -> str:
        """Return the address under which others reach this process, which serves on *port*."""
        if self.advertise is not None:
            return self.advertise
        return reached_at(self.listen, port)

    @property
    def server_security(self) -> ServerSecurity:
        """Return the security settings of the port."""
        return ServerSecurity(**{field.name: getattr(self, field.name) for field in fields(ServerSecurity)})
