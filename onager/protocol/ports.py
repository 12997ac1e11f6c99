"""Whether a port can be opened, and why not: gRPC does not give the reason."""

import errno
import os
import socket
from typing import Final

from onager.errors import InvalidSettingError

_ADVICE: Final = {
    errno.EADDRINUSE: (
        "another process listens there (ss -ltnp 'sport = :{port}' names it); stop it, or give another port"
    ),
    errno.EADDRNOTAVAIL: "this machine has no such address; 127.0.0.1 is its own, 0.0.0.0 stands for all it has",
    errno.EACCES: "this user may not listen there; give a port above 1023",
}


def check_address(flag: str, listen: str) -> None:
    """Raise `InvalidSettingError` about *flag* when no process could listen at *listen* (``host:port``) now."""
    why = _refusal(listen)
    if why:
        raise _unusable(flag, listen, why)


def can_listen(listen: str) -> bool:
    """Return whether a process could listen at *listen* (``host:port``) now."""
    return not _refusal(listen)


def unusable_address(flag: str, listen: str, said: str = "") -> InvalidSettingError:
    """Return the error for *flag*, an address (``host:port``) at which no port could be opened.

    *said*: the message of the failed attempt, in case there is another cause.
    """
    refused = f"it was refused ({said})" if said else "it was refused"
    return _unusable(flag, listen, _refusal(listen) or f"{refused}, and is free now; try again")


def _unusable(flag: str, listen: str, why: str) -> InvalidSettingError:
    return InvalidSettingError(flag, listen, f"the address cannot be used: {why}")


def _refusal(listen: str) -> str:
    """Return why a port cannot be opened; empty when it can."""
    name, _, digits = listen.rpartition(":")
    host, port = name.strip("[]"), int(digits)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except socket.gaierror as error:
        return f"{host} is no name or address that is known here ({error.strerror})"
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        return os.strerror(error.errno or 0) if advice is None else advice.format(port=port)
    return ""
