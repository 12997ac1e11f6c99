"""A child process that dies with the test run, whatever ends that, and free ports for it to listen on."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

# The kernel kills the child when the *thread* that started it ends, so one that lives as long as we do starts all.
_STARTER: Final = ThreadPoolExecutor(1, thread_name_prefix="start processes")

# In the child, since code between fork and exec is not safe beside gRPC's threads.
_LAUNCH: Final = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""
# Below the ports that the kernel gives to outgoing connections: one of those could take a dead member's port, and a
# client that tries a dead port of that range may even end up connected to itself.
_PORTS: Final = range(12_000, 32_000)


def start(command: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start *command* with its output appended to *log*, apart from our Ctrl-C."""
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *map(str, command)]

    def popen() -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(
                launch,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    return _STARTER.submit(popen).result()


def end(process: subprocess.Popen[bytes], within_s: float = 10.0) -> None:
    """Ask *process* to end, and kill it when it does not; one that is stopped has to be woken up for that."""
    if process.poll() is None:
        process.terminate()
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Return *count* different ports that nobody listens on now."""
    found: set[int] = set()
    while len(found) < count:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.add(port)
    return list(found)
