"""What tells one machine from another: processes on the same one see each other's process ids and loopback."""

import functools
import hashlib
import socket
from pathlib import Path
from typing import Final

import psutil

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACES: Final = ("pid", "net")


@functools.cache
def this_machine() -> str:
    """Return the name of the machine for this process: 16 hex digits.

    Two processes get the same one if the kernel was booted once for both, and their host name and their namespaces of
    processes and of networks are the same. So two containers of one host are two machines. Where the kernel tells no
    namespaces, as on macOS, the host name and the time of its start are compared.
    """
    return hashlib.sha256("\n".join([socket.gethostname(), *_kernel()]).encode()).hexdigest()[:16]


def _kernel() -> list[str]:
    try:
        namespaces = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in _NAMESPACES]
        return [_BOOT.read_text().strip(), *namespaces]
    except OSError:
        return [str(int(psutil.boot_time()))]
