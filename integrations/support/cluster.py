"""A real cluster on this machine, for the tests of integrations. They run in environments without Onager."""

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil


class Cluster:
    """``onager standalone``: a scheduler and an executor, which it starts again when they die."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        command = Path(os.environ["ONAGER_ROOT"], ".venv", "bin", "onager")
        self._path = directory / "standalone.log"
        self._log = self._path.open("wb")
        self._process = subprocess.Popen(
            [command, "standalone", "--listen", self.address, "--state-dir", directory / "state", "--no-http"],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        until(lambda: f"onager is ready at {self.address}" in self.output(), "readiness", 240.0)

    def output(self) -> str:
        """Return what it printed."""
        return self._path.read_text(errors="replace")

    def child(self, name: str) -> psutil.Process:
        """Return the process *name*: scheduler or executor."""
        children = psutil.Process(self._process.pid).children()
        return next(child for child in children if name in child.cmdline()[:5])

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait(60)
        self._log.close()


def until(holds: Callable[[], Any], what: str, within_s: float = 120.0) -> Any:
    """Wait until *holds* gives something, and return it."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if found := holds():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {within_s:g} s: {what}")
