"""Why a port could not be opened: gRPC says no more than that it was not."""

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


def unusable_address(flag: str, listen: str) -> InvalidSettingError:
    """Return what is to be said of *flag*, an address (``host:port``) at which no port could be opened."""
    host, _, port = listen.rpartition(":")
    return InvalidSettingError(flag, listen, f"the address cannot be used: {_refusal(host.strip('[]'), int(port))}")


def _refusal(host: str, port: int) -> str:
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
    return "it was refused, and is free now; try again"
