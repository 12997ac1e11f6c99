"""What schedulers and executors are told alike: where they serve and whom, and how they log."""

from pathlib import Path
from typing import Literal

from pydantic import field_validator
from pydantic_settings import BaseSettings

from onager.protocol.limits import DEFAULT_ADDRESS
from onager.protocol.security import ServerSecurity, reached_at
from onager.protocol.security.places import is_unspecified


class ProcessSettings(BaseSettings):
    """Settings of any process that may serve a port, which an executor does in push mode only."""

    listen: str = DEFAULT_ADDRESS
    """``host:port`` to serve on; port 0 takes a free one and says which."""
    advertise: str | None = None
    """``host:port`` under which others reach this process; what it listens on by default."""
    tls_cert: Path | None = None
    """The certificate to serve with, and those between it and its authority; read again when renewed."""
    tls_key: Path | None = None
    """The key of the certificate."""
    tls_client_ca: Path | None = None
    """Certificates of authorities; with it, callers have to show a certificate of one of them."""
    auth_token_file: Path | None = None
    """Tokens, one a line: every call but those for health has to carry one; read again when the file changes."""
    insecure: bool = False
    """Whether other machines may be served without TLS, and without a token or certificate of theirs."""

    exchange_access: Literal["owner", "group"] = "owner"
    """Who reaches what is made in the exchange directory: the user of this process alone (0700, 0600), or the group of
    the directory too (2770, 0660), where schedulers and executors run as several users of one group."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is logged: lines of this level and above."""
    log_format: Literal["console", "json"] = "console"
    """Lines for people, or one JSON object a line."""

    @field_validator(
        "listen",
        "advertise",
        "metrics_listen",
        "health_listen",
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
        """Return where others reach a process that serves on *port*."""
        if self.advertise is not None:
            return self.advertise
        return reached_at(self.listen, port)

    @property
    def server_security(self) -> ServerSecurity:
        """Return what the settings say of who may call."""
        return ServerSecurity(
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_client_ca=self.tls_client_ca,
            auth_token_file=self.auth_token_file,
            insecure=self.insecure,
        )
