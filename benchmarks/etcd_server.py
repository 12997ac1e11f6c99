"""An etcd of one member, for one run: a child process on free ports over a directory that the caller owns."""

import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Self

from benchmarks.cluster import free_address

INSTALL_ADVICE: Final = (
    "etcd is not on PATH: run `make setup-dev`, or install it: sudo apt-get install etcd-server etcd-client (Debian, "
    "Ubuntu), brew install etcd (macOS)"
)
_UNPACKED: Final = Path(__file__).resolve().parents[1] / ".venv" / "etcd" / "usr" / "bin"
"""Where set-up puts it when it cannot install it."""
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 20.0
_PR_SET_PDEATHSIG: Final = 1


class EtcdServer:
    """One member with etcd's default settings, but a larger quota; a context manager that stops it."""

    def __init__(self, directory: Path) -> None:
        self.address = free_address()
        """``host:port`` for clients."""
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def url(self) -> str:
        """What ``--backend`` takes."""
        return f"etcd://{self.address}"

    @property
    def pid(self) -> int | None:
        """The process, None when it does not run."""
        return None if self._process is None else self._process.pid

    def _start(self) -> None:
        program = etcd_program()
        if program is None:
            raise FileNotFoundError(INSTALL_ADVICE)
        client, peer = f"http://{self.address}", f"http://{free_address()}"
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program, "--name", "one", "--data-dir", str(self._directory / "data"),
                    "--listen-client-urls", client, "--advertise-client-urls", client,
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                    "--initial-cluster", f"one={peer}", "--quota-backend-bytes", str(8 << 30),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us
                preexec_fn=die_with_parent,  # noqa: PLW1509 one call of the kernel, of a library that is loaded
            )  # fmt: skip
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        end_s = time.monotonic() + _START_TIMEOUT_S
        host, _, port = self.address.rpartition(":")
        while True:
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"etcd ended with code {self._process.returncode}:\n{self._tail()}")
            try:
                # It listens for clients once it has a leader.
                socket.create_connection((host, int(port)), timeout=1.0).close()
            except OSError:
                if time.monotonic() > end_s:
                    raise TimeoutError(f"etcd did not start within {_START_TIMEOUT_S:g} s:\n{self._tail()}") from None
                time.sleep(0.05)
            else:
                return

    @property
    def _log(self) -> Path:
        return self._directory / "etcd.log"

    def _tail(self, lines: int = 20) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def etcd_program() -> str | None:
    """Return where etcd is: on PATH, or where set-up unpacked it."""
    return shutil.which("etcd") or shutil.which("etcd", path=str(_UNPACKED))


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent is killed (`prctl(2)`; on Linux only)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
