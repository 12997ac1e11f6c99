"""Which addresses belong to this machine alone."""

import ipaddress
import socket
from typing import Final

_ANY_HOST: Final = ("0.0.0.0", "[::]", "*")  # noqa: S104 - compared with, not listened on


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` can be reached from this machine only, judged by its text: no name is looked up."""
    host = _host(address)
    if host.lower() in {"localhost", "ip6-localhost"}:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def leads_nowhere_else(address: str) -> bool:
    """Whether a connection to ``host:port`` stays on this machine, as one to the unspecified address does."""
    return is_loopback(address) or is_unspecified(address)


def is_unspecified(address: str) -> bool:
    """Whether ``host:port`` names no machine, but all addresses of the machine that listens."""
    try:
        return ipaddress.ip_address(_host(address)).is_unspecified
    except ValueError:
        return False


def reached_at(listen: str, port: int) -> str:
    """Return the address at which others reach a server that listens at *listen* (``host:port``) and got *port*."""
    host = listen.rpartition(":")[0]
    return f"{socket.gethostname() if host in _ANY_HOST else host}:{port}"


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
