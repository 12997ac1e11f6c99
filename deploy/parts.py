"""The processes of a local cluster: each is started, ended and started again by itself, and dies with its starter."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 180.0
_STOP_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.1
_TAIL_LINES: Final = 15
# Below the ports that the kernel gives to outgoing connections: one of those could take the port of a part that is
# down, and who tries such a port may even end up connected to itself.
_PORTS: Final = range(12_000, 32_000)
_KEPT: Final[deque[int]] = deque()
"""The sockets, as file descriptors, that keep ports which `free_ports` gave."""
_MAX_KEPT: Final = 256
# The kernel signals the child when the *thread* that started it ends, so one that lives as long as we do starts all.
_STARTER: Final = ThreadPoolExecutor(1, thread_name_prefix="start processes")
# In the child, since code between fork and exec is not safe beside other threads.
_LAUNCH: Final = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(sys.argv[2]))  # PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
os.execv(sys.argv[3], sys.argv[3:])
"""


class StartError(Exception):
    """The cluster cannot be started; the text says why."""


def start_child(
    command: Sequence[str | Path],
    log: Path,
    environment: Mapping[str, str],
    *,
    cwd: Path | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Start *command* with its output appended to *log*, apart from our Ctrl-C; when we end it gets *death_signal*."""
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), str(int(death_signal)), *map(str, command)]

    def popen() -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(
                launch,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=dict(environment),
                start_new_session=True,
            )

    return _STARTER.submit(popen).result()


def free_ports(count: int) -> list[int]:
    """Return *count* different ports that nobody has, and keep them from others while what listens there is down.

    A socket that is bound and does not listen refuses connections, as nobody would, and leaves the port to servers,
    which all set SO_REUSEADDR. The last few hundred are kept.
    """
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(_PORTS)
        keeper = socket.socket()
        try:
            keeper.bind((HOST, port))
        except OSError:
            keeper.close()
            continue
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _KEPT.append(keeper.detach())
        if len(_KEPT) > _MAX_KEPT:
            os.close(_KEPT.popleft())
        found.append(port)
    return found


def is_free(address: str) -> bool:
    """Return whether nobody listens at *address*, ``host:port`` of this machine."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


@dataclass(slots=True, eq=False)
class Part:
    """One process of the cluster, running or not."""

    name: str
    command: Sequence[str | Path]
    environment: Mapping[str, str]
    """What it has beyond ours."""
    directory: Path
    """Where its log and the file with its process id are."""
    cwd: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    is_dead: bool = field(default=False, init=False)
    """Whether it was already reported that it ended by itself."""
    _log_began: int = field(default=0, init=False)

    @property
    def log(self) -> Path:
        """Return the file with its output over all of its lives."""
        return self.directory / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """Return the id of its process, of the last one when it does not run."""
        assert self.process is not None, f"{self.name} was never started"
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Return whether its process is there, be it stopped by a signal."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it, and do not wait until it serves."""
        assert not self.is_running, f"{self.name} runs"
        self._log_began = self.log.stat().st_size if self.log.exists() else 0
        environment = {**os.environ, **self.environment}
        # Schedulers and executors end in order when we are gone.
        self.process = start_child(self.command, self.log, environment, cwd=self.cwd, death_signal=signal.SIGTERM)
        self.is_dead = False
        self._pid_file.write_text(f"{self.pid}\n")

    def output(self) -> str:
        """Return what it has printed in this life."""
        with self.log.open("rb") as log:
            log.seek(self._log_began)
            return log.read().decode(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal if the process is there."""
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill this process, and none that it has started, with signal 9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def ask_to_end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send *number*; a process that is stopped is woken up for that."""
        self.send(number)
        self.send(signal.SIGCONT)

    def await_end(self, within_s: float = _STOP_TIMEOUT_S) -> int:
        """Return its exit code; after *within_s* it is killed with all that it has started."""
        if self.process is None:
            return 0
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._pid_file.unlink(missing_ok=True)
        return self.process.returncode

    def await_sign(self, condition: Callable[[], bool], is_given_up: Callable[[], bool] = lambda: False) -> None:
        """Return when *condition* holds; `StartError` when the process ends before, and when it takes too long."""
        end_s = time.monotonic() + START_TIMEOUT_S
        while not condition():
            if is_given_up():
                raise StartError("stopped while it was starting")
            if not self.is_running:
                code = None if self.process is None else self.process.returncode
                last = "\n".join(self.output().splitlines()[-_TAIL_LINES:])
                raise StartError(f"{self.name} ended with code {code}:\n{last}")
            if time.monotonic() > end_s:
                raise StartError(f"no sign of {self.name} after {START_TIMEOUT_S:g} s; its log is {self.log}")
            time.sleep(_POLL_S)

    @property
    def _pid_file(self) -> Path:
        return self.directory / f"{self.name}.pid"
