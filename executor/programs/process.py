"""The process of an attempt: forked from the warm one, or, with a Python of its own, started anew."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from onager.executor.programs.folder import Folder, command, environment, imported, needs_own_python, run_by
from onager.executor.programs.warm import DESCRIPTORS
from onager.executor.warm.processes import ForkedProcess, NotStartedError, WarmProcesses
from onager.protocol import onager_pb2 as pb

_NEWS_BYTES: Final = 64


class Pipes(NamedTuple):
    """The ends of the pipes that the process writes to: what it prints as frames, and what else it prints."""

    frames: int
    stdout: int
    stderr: int

    def close(self) -> None:
        """Close them."""
        for descriptor in self:
            with contextlib.suppress(OSError):
                os.close(descriptor)


class ProgramProcess(Protocol):
    """The process of a program."""

    @property
    def pid(self) -> int:
        """Return its process id."""
        ...

    async def wait(self) -> int:
        """Return its exit code once it has ended, or a signal's number with a minus."""
        ...

    def kill(self) -> None:
        """Kill it, and what it has started in its group."""
        ...


class WarmProgram(ForkedProcess):
    """A forked process, as `WarmProcesses` makes it."""

    def take(self) -> tuple[socket.socket, socket.socket]:
        """Return the channel for its terms, and the socket for its process id and exit code; close the rest."""
        os.close(self._output)
        return self._channel, self._news_socket


def warm_processes() -> WarmProcesses[WarmProgram]:
    """Return the warm process of programs; a set's order is the same in each attempt."""
    return WarmProcesses("onager.executor.programs.warm", WarmProgram, PYTHONHASHSEED="0")


async def started(
    warm: WarmProcesses[WarmProgram], program: pb.ProgramSpec, folder: Folder, terms: Mapping[str, Any], pipes: Pipes
) -> ProgramProcess:
    """Start the process of a program.

    `OSError` or `NotStartedError` if that fails, `UserCodeError` if the program's own Python is not there.
    """
    if needs_own_python(program):
        return await _started_cold(program, folder, terms, pipes)
    return await _started_warm(warm, program, folder, terms, pipes)


# ---------------------------------------------------------------- forked


@dataclass(eq=False)
class _Forked:
    pid: int
    _news: socket.socket

    async def wait(self) -> int:
        loop, said = asyncio.get_running_loop(), b""
        try:
            while more := await loop.sock_recv(self._news, _NEWS_BYTES):
                said += more
        except OSError:
            said = b""  # the warm process is gone, and its children with it
        finally:
            self._news.close()
        return int(said) if said.strip() else -signal.SIGKILL

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # the warm process kills it, and its group, wherever it has gone
            self._news.shutdown(socket.SHUT_WR)


async def _started_warm(
    warm: WarmProcesses[WarmProgram], program: pb.ProgramSpec, folder: Folder, terms: Mapping[str, Any], pipes: Pipes
) -> ProgramProcess:
    path, arguments = run_by(program, folder.work)
    given = {
        "terms": terms,
        "environment": environment(program),
        "work": str(folder.work),
        "imported": imported(program, folder.work),
        "path": path,
        "arguments": arguments,
    }
    loop = asyncio.get_running_loop()
    channel, news = (await asyncio.to_thread(warm.fork)).take()
    with channel:
        news.setblocking(False)
        content = json.dumps(given).encode()
        await asyncio.to_thread(_send, channel, content, [pipes.stdout, pipes.stderr, pipes.frames])
    said = b""
    while not said.endswith(b"\n"):
        if not (more := await loop.sock_recv(news, 1)):
            news.close()
            raise NotStartedError("the process from which it is forked has died")
        said += more
    if not said.strip().isdigit():
        news.close()
        raise NotStartedError(said.decode(errors="replace").strip())
    return _Forked(int(said), news)


def _send(channel: socket.socket, content: bytes, descriptors: list[int]) -> None:
    assert len(descriptors) == DESCRIPTORS
    sent = socket.send_fds(channel, [content], descriptors)
    channel.sendall(content[sent:])


# ---------------------------------------------------------------- started anew


@dataclass(eq=False)
class _Cold:
    _process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)


async def _started_cold(
    program: pb.ProgramSpec, folder: Folder, terms: Mapping[str, Any], pipes: Pipes
) -> ProgramProcess:
    with tempfile.TemporaryFile("w+") as given:  # a pipe might not be read
        json.dump({**terms, "output": pipes.frames}, given)
        given.seek(0)
        process = await asyncio.create_subprocess_exec(
            *command(program, folder.work, given.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipes.stdout,
            stderr=pipes.stderr,
            pass_fds=[given.fileno(), pipes.frames],
            env=environment(program),
            cwd=folder.work,
            start_new_session=True,
        )
    return _Cold(process)
