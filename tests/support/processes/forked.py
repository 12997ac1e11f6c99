"""`onager` as a process that begins where its imports are done, for tests that start many of them.

Importing is most of what a command does that asks a scheduler for some records. So a server imports everything once and
forks, and its child goes on as ``python -m onager`` would: with a process id, signals and a death of its own.
"""

import asyncio
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from tests.support.waiting import HANGS_S

ROOT: Final = Path(__file__).resolve().parents[3]
IMPORTED: Final = (
    "onager.cli.app",
    "onager.cli.direct_state",
    "onager.cli.services",
    "onager.cli.state",
    "onager.client.state",
    "onager.executor.main",
    "onager.executor.spark.worker",
    "onager.scheduler.main",
    "onager.state_admin.backup_file",
    "onager.state_admin.restoring",
    "onager.state_backend.etcd",
    "onager.state_backend.leveldb",
)
LINE_BYTES: Final = 8 * 1024 * 1024
_REQUEST_BYTES: Final = 256 * 1024
_NUMBER_BYTES: Final = 32


class ForkedProcess:
    """A process as `subprocess.Popen` gives it, but for its pipes."""

    def __init__(self, pid: int, exit_code_fd: int) -> None:
        """*exit_code_fd*: where its exit code will be read."""
        self.pid = pid
        self.returncode: int | None = None
        self.exit_code_fd = exit_code_fd
        self._end = select.poll()
        self._end.register(exit_code_fd, select.POLLIN)

    def __del__(self) -> None:
        os.close(self.exit_code_fd)

    def poll(self) -> int | None:
        """Return the exit code; None while the process lives."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raise `subprocess.TimeoutExpired` after *timeout* seconds."""
        if self.returncode is None:
            if not self._end.poll(None if timeout is None else 1000 * timeout):
                raise subprocess.TimeoutExpired(f"onager (process {self.pid})", timeout or 0)
            self.returncode = int(os.read(self.exit_code_fd, _NUMBER_BYTES))
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forked:
    """A process as `asyncio.create_subprocess_exec` gives it, with its output in pipes and nothing to read."""

    def __init__(self, process: ForkedProcess, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self.pid = process.pid
        self.stdout = stdout
        self.stderr = stderr
        self._process = process
        self.terminate, self.kill, self.send_signal = process.terminate, process.kill, process.send_signal
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.exit_code_fd, self._on_end)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.exit_code_fd)
        self._ended.set()

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        await self._ended.wait()
        return self._process.wait()

    async def communicate(self) -> tuple[bytes, bytes]:
        out, err, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self.wait())
        return out, err


def fork(
    arguments: Sequence[str], environment: Mapping[str, str], *, stdout: int, stderr: int, cwd: Path = ROOT
) -> ForkedProcess:
    """Run the command line with *arguments* in a new process that has nothing but *environment*, below *cwd*."""
    request = json.dumps({"arguments": arguments, "environment": dict(environment), "cwd": str(cwd)}).encode()
    assert len(request) < _REQUEST_BYTES
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(_server(), [request], [stdout, stderr, theirs.fileno()])
    exit_code_fd = ours.detach()
    return ForkedProcess(int(os.read(exit_code_fd, _NUMBER_BYTES)), exit_code_fd)


def run_forked(
    arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, and return what it printed; kill it, and raise, after *timeout_s*."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = fork(arguments, environment, stdout=out.fileno(), stderr=err.fileno())
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["onager", *arguments], code, out.read().decode(), err.read().decode())


async def fork_onager(*arguments: str, environment: Mapping[str, str]) -> Forked:
    """Run the command line with *arguments* in a new process that has nothing but *environment*."""
    ours, theirs = zip(*(os.pipe() for _ in ("stdout", "stderr")), strict=True)
    try:
        process = fork(arguments, environment, stdout=theirs[0], stderr=theirs[1])
    finally:
        for end in theirs:
            os.close(end)
    return Forked(process, *[await _reader(end) for end in ours])


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader


@functools.cache
def _server() -> socket.socket:
    """Start the server on first use; it ends with this process, and what it forked with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", __name__, str(theirs.fileno())]
    # gRPC looks for the variable as it is imported, hence before a child's `main` could set it.
    environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
    nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    server = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()], **nothing)
    theirs.close()

    @atexit.register
    def end() -> None:
        ours.close()
        server.wait(HANGS_S)

    return ours


def serve(control: socket.socket) -> None:
    """Fork for each request, and report how each child ends; return in a child, and end with the parent."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the parent
    children: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 1000)
            _tell_of_ends(children)
        if control not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 3)
        if not request:
            _end(children)
        stdout, stderr, exit_code_fd = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for ours in (control.detach(), woken, wakes, exit_code_fd, *children.values()):
                os.close(ours)
            _become(json.loads(request), stdout, stderr)
            return
        os.write(exit_code_fd, str(pid).encode())
        children[pid] = exit_code_fd
        os.close(stdout)
        os.close(stderr)


def _tell_of_ends(children: dict[int, int]) -> None:
    for pid, exit_code_fd in list(children.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            del children[pid]
            with contextlib.suppress(BrokenPipeError):
                os.write(exit_code_fd, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(exit_code_fd)


def _end(children: dict[int, int]) -> NoReturn:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    raise SystemExit


def _become(request: dict, stdout: int, stderr: int) -> None:
    """Make this process what `execve` with the request would have made of it."""
    for given, taken in ((stdout, 1), (stderr, 2)):
        os.dup2(given, taken)
        os.close(given)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = ["onager", *request["arguments"]]
    sys.orig_argv = [sys.executable, "-m", "onager", *request["arguments"]]


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    from onager.cli import main

    main()
