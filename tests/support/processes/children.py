"""A child process that dies with the test run, whatever ends that, and free ports for it to listen on."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.parts import free_ports, start_child
from tests.support.processes.forked import ForkedProcess
from tests.support.waiting import HANGS_S

__all__ = ["end", "free_port", "free_ports", "start"]


def free_port() -> int:
    """Return a port that nobody has, and that is given to no connection."""
    return free_ports(1)[0]


def start(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str], *, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start *command* with its output appended to *log*, apart from our Ctrl-C."""
    return start_child(command, log, environment, cwd=cwd)


def end(process: subprocess.Popen[bytes] | ForkedProcess, within_s: float = HANGS_S) -> None:
    """Ask *process* to end, and kill it when it does not; one that is stopped has to be woken up for that."""
    if process.poll() is None:
        process.terminate()
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
