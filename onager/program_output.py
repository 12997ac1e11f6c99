"""What programs print: frames that say which task of the program printed them, and behind which of its calls.

A program that goes on prints again what it printed before. What it printed behind an earlier call than the last one of
which something was kept is dropped: so each line is kept once, and those behind that call twice at most.

    frame = stream (1 byte) | number of the call (4) | length of the task (2) | length of the text (4) | task | text

Numbers are big-endian. `onager.programs.output` writes such frames, too; it imports nothing of Onager.
"""

import contextlib
import re
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

HEAD: Final = struct.Struct("!BIHI")
STDOUT: Final = 1
STDERR: Final = 2
LIVE: Final = 3
"""Not printed: the program's main thread has got to where the last attempt ended."""
REFUSED: Final = 4
"""Not printed: why the program cannot go on."""
LOST: Final = 5
"""Not printed: another attempt of the program counts."""
FAILED: Final = 6
"""Not printed: the call whose error ends the program; the text is how many tasks its task had started by then."""
RAISED: Final = 7
"""Not printed: the error that ends a script of SQL, as JSON: ``error_class``, ``sql_state``, ``message``."""
_NAME: Final = re.compile(r"([0-9]{6})-([0-9]{15})")
MAX_TEXT: Final = 64 * 1024
"""Bytes of the text of a frame."""
_MAX_TASK: Final = 1024
SEGMENT_BYTES: Final = 8 * 1024 * 1024
_LOOK_S: Final = 1.0
"""How often an attempt looks whether a later one has begun."""
KEPT: Final = 4
"""Segments of an attempt that are kept of its beginning, and as many of its end."""


class Frame(NamedTuple):
    """Something that was printed."""

    stream: int
    number: int
    """How many calls the task had made by then."""
    task: str
    text: bytes

    def encoded(self) -> bytes:
        """Return the frame as bytes."""
        task = self.task.encode()
        return HEAD.pack(self.stream, self.number, len(task), len(self.text)) + task + self.text


def frames_of(content: bytes | bytearray) -> tuple[list[Frame], int]:
    """Return the whole frames at the beginning of *content*, and how many bytes they take.

    `ValueError` for what is no frame: whatever else a process writes there.
    """
    found, at = [], 0
    while at + HEAD.size <= len(content):
        stream, number, task_length, length = HEAD.unpack_from(content, at)
        if not STDOUT <= stream <= RAISED or length > MAX_TEXT or task_length > _MAX_TASK:
            raise ValueError(f"there is no frame of what a program prints at byte {at}")
        text_at = at + HEAD.size + task_length
        if text_at + length > len(content):
            break
        task = bytes(content[at + HEAD.size : text_at]).decode(errors="replace")
        found.append(Frame(stream, number, task, bytes(content[text_at : text_at + length])))
        at = text_at + length
    return found, at


class Segment(NamedTuple):
    """A file with a part of what an attempt printed."""

    attempt: int
    start: int
    """How many bytes of frames come before it."""

    @property
    def name(self) -> str:
        """Return the name of the file."""
        return f"{self.attempt:06d}-{self.start:015d}"


def segments(folder: Path) -> list[Segment]:
    """Return the segments in the folder of a program's output, in order; none if there is no folder."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(Segment(int(each[1]), int(each[2])) for each in found if each is not None)


class Cut(NamedTuple):
    """From where a retry has made calls again: what was printed behind them is printed anew."""

    attempt: int
    """The last attempt before."""
    task: str = ""
    """Empty: another text of the program has gone on, and all that it prints is shown."""
    number: int = 0
    tasks: int = 0
    """How many tasks the task had started by then; later ones are started anew."""

    def apply(self, last: dict[str, int]) -> None:
        """Take out of *last* (see `shown`) what came behind."""
        if not self.task:
            last.clear()
            return
        begin = f"{self.task}."
        for task in list(last):
            if task == self.task:
                last[task] = min(last[task], self.number)
            elif task.startswith(begin) and int(task.removeprefix(begin).partition(".")[0]) >= self.tasks:
                del last[task]


def shown(folder: Path, cuts: Sequence[Cut] = ()) -> dict[str, int]:
    """Return the last call of each task behind which something is kept of what earlier attempts printed."""
    last: dict[str, int] = {}
    pending = list(cuts)
    for segment in segments(folder):
        while pending and pending[0].attempt < segment.attempt:
            pending.pop(0).apply(last)
        with contextlib.suppress(ValueError):  # damaged: it is printed again
            for frame in frames_of((folder / segment.name).read_bytes())[0]:
                last[frame.task] = max(last.get(frame.task, 0), frame.number)
    for cut in pending:
        cut.apply(last)
    return last


class OutputFolder:
    """Keeps what an attempt prints: the beginning and the end, if it is much; nothing once a later one has begun.

    What a process prints that has slept is printed again by the attempt that has begun meanwhile. Who follows the
    output is there already, and would miss it here.
    """

    def __init__(self, folder: Path, attempt: int) -> None:
        """*folder*: of the program; it is made. `OSError` if that fails."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._attempt = attempt
        self._start = self._size = 0
        self._starts = [0]
        (folder / Segment(attempt, 0).name).touch()  # for those before it to see
        self._looked_s = time.monotonic()
        self._is_latest = True

    def add(self, frame: Frame) -> None:
        """Append *frame*; `OSError` if that fails."""
        if time.monotonic() - self._looked_s > _LOOK_S:
            self._is_latest = all(each.attempt <= self._attempt for each in segments(self._folder))
            self._looked_s = time.monotonic()
        if not self._is_latest:
            return
        content = frame.encoded()
        if self._size - self._start + len(content) > SEGMENT_BYTES:
            self._begin_segment()
        self._size += len(content)
        try:
            with (self._folder / Segment(self._attempt, self._start).name).open("ab", buffering=0) as file:
                is_torn = file.write(content) < len(content)
        except OSError:
            self._begin_segment()
            raise
        if is_torn:  # a frame that is cut off is the last one of its segment
            self._begin_segment()

    def _begin_segment(self) -> None:
        self._start = self._size
        self._starts.append(self._start)
        if len(self._starts) > 2 * KEPT:
            gone = Segment(self._attempt, self._starts.pop(KEPT))
            (self._folder / gone.name).unlink(missing_ok=True)
