"""What a program prints, on its way to where it is kept."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from onager.executor.attempt_logs import LINE_BYTES
from onager.program_output import (
    FAILED,
    LIVE,
    LOST,
    MAX_TEXT,
    RAISED,
    REFUSED,
    STDERR,
    STDOUT,
    Frame,
    OutputFolder,
    frames_of,
)
from onager.protocol import onager_pb2 as pb

_ROOT: Final = "0"
_CHUNK: Final = 64 * 1024
_BLOCK: Final = LINE_BYTES

log = structlog.get_logger()


class Printed:
    """Reads what a process prints until it has closed everything; keeps what no earlier attempt has printed."""

    def __init__(self, kept: OutputFolder, shown: dict[str, int], on_lines: Callable[[str], None]) -> None:
        """*shown*: the last call of each task behind which earlier attempts have printed.

        *on_lines* gets all lines, some at a time.
        """
        self._kept = kept
        self._is_live = not shown.get(_ROOT)
        self._number = shown.get(_ROOT, 0)
        self._on_lines = on_lines
        self._rest = {STDOUT: b"", STDERR: b""}
        self._has_space = True
        self._turn = asyncio.Lock()
        self.refused = ""
        """Why the program cannot go on, if it cannot."""
        self.is_lost = False
        """Whether another attempt counts."""
        self.failed: pb.FailedCall | None = None
        """The call whose error ends the program, if one does."""
        self.raised: dict[str, str] = {}
        """Of a script of SQL: the error that ends it, as ``error_class``, ``sql_state`` and ``message``."""

    async def read(self, frames: int, stdout: int, stderr: int) -> None:
        """Read the three descriptors, and close them."""
        await asyncio.gather(
            self._each(frames, self._take_frames), self._raw(stdout, STDOUT), self._raw(stderr, STDERR)
        )
        for rest in self._rest.values():
            if rest:
                self._on_lines(rest.decode(errors="replace"))

    async def _raw(self, descriptor: int, stream: int) -> None:
        def take(content: bytes) -> bytes:
            if self._is_live:
                self._keep(Frame(stream, self._number, _ROOT, content))
            return b""

        await self._each(descriptor, take)

    async def _each(self, descriptor: int, take: Callable[[bytes], bytes]) -> None:
        """Call *take* with what can be read; what it returns comes again with what follows."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_CHUNK)
        pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
        )
        rest = b""
        try:
            while content := await reader.read(_CHUNK):
                async with self._turn:  # the disk may take a while: then the program waits, and nobody else
                    rest = await asyncio.to_thread(take, rest + content)
        finally:
            pipe.close()

    def _take_frames(self, content: bytes) -> bytes:
        try:
            found, taken = frames_of(content)
        except ValueError:  # something else of the program writes there
            self._keep(Frame(STDOUT, self._number, _ROOT, content[:MAX_TEXT]))
            return b""
        for frame in found:
            if frame.stream == FAILED and frame.text.isdigit():
                self.failed = pb.FailedCall(task=frame.task, number=frame.number, tasks=int(frame.text))
                continue
            if frame.task == _ROOT:
                self._number = max(self._number, frame.number)
            if frame.stream == LIVE:
                self._is_live = True
            elif frame.stream == REFUSED:
                self.refused = frame.text.decode(errors="replace")
            elif frame.stream == LOST:
                self.is_lost = True
            elif frame.stream == RAISED:
                self.raised = _error_in(frame.text)
            elif frame.stream in self._rest:
                self._keep(frame)
        return content[taken:]

    def _keep(self, frame: Frame) -> None:
        try:
            self._kept.add(frame)
            self._has_space = True
        except OSError as error:
            if self._has_space:
                self._has_space = False
                log.warning("output_not_kept", error=str(error))
        text = self._rest[frame.stream] + frame.text
        end = text.rfind(b"\n") + 1
        if len(text) - end > _CHUNK:
            end = len(text)
        self._rest[frame.stream] = text[end:]
        for lines in _blocks(text[:end]):
            self._on_lines(lines.decode(errors="replace"))


def _error_in(text: bytes) -> dict[str, str]:
    """Return the error that a frame says; nothing if it says none: a program may write there, too."""
    try:
        said = json.loads(text)
        return {name: str(said[name]) for name in ("error_class", "sql_state", "message")}
    except (ValueError, KeyError, TypeError):
        return {}


def _blocks(text: bytes) -> Iterator[bytes]:
    """Yield the lines of *text*, short ones together: one by one they would keep this process from all else."""
    start = 0
    while start < len(text):
        end = text.rfind(b"\n", start, start + _BLOCK) + 1 or text.find(b"\n", start) + 1 or len(text)
        yield text[start:end].removesuffix(b"\n")
        start = end
