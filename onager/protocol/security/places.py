"""Which addresses are of this machine alone."""

import ipaddress


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` can be reached from this machine only, by what it says: no name is looked up."""
    host = _host(address)
    if host.lower() in {"localhost", "ip6-localhost"}:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def leads_nowhere_else(address: str) -> bool:
    """Whether a connection to ``host:port`` stays on this machine; that to the unspecified address does, too."""
    if is_loopback(address):
        return True
    try:
        return ipaddress.ip_address(_host(address)).is_unspecified
    except ValueError:
        return False


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
