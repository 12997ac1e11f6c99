"""What task attempts log: the last 256 KiB of each, in the agent's memory, so that they outlive the JVM's errors.

Lines come from the JVM and its Python workers (`onager.executor.spark.jvm_output`), from the processes of jobs'
functions, and from what the agent logs while it works on an attempt. They leave redacted, when somebody asks for them,
and at the end of a failed attempt, with its report.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import structlog

from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_LOG_BYTES, MAX_LOGS, MAX_LOGS_BYTES, MAX_TAIL_CHARS
from onager.protocol.task_keys import task_id, task_key
from onager.redaction import REDACTED, shown_text

ATTEMPTS: Final = 512
"""Attempts that logged something, of which lines are kept."""
_ENDED_KNOWN: Final = 10_000
"""Attempts of which is remembered that they have ended, whether they logged something or not."""
TOTAL_BYTES: Final = 32 * 1024 * 1024
"""Lines of all of them together."""
LINE_BYTES: Final = 8 * 1024
"""A longer line is cut."""
_LINE_COST: Final = 64
"""Bytes that a line takes besides its text."""
_MAX_COST: Final = 9 * MAX_LOG_BYTES
"""Short lines take up more memory than text: of lines of fewer than 8 bytes, fewer are kept."""
_REDACTED_AHEAD: Final = 4 * 1024
"""A secret that begins so far before what is shown is still found."""
_SILENT_EVENTS: Final = frozenset({"function_printed", "function_printed_more"})
"""Events that repeat lines of a job's function, which come by themselves."""


_SHOWN_FIRST: Final = frozenset({"timestamp", "level", "event", "job_id", "stage_id", "partition", "attempt"})
"""Fields that a line begins with, or that say whose it is."""


class _Log:
    """The lines of one attempt."""

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.begin = 0
        """How many bytes were dropped before the first line."""
        self.size = 0
        self.cost = 0

    @property
    def end(self) -> int:
        return self.begin + self.size

    def add(self, line: bytes) -> int:
        """Append *line*, drop the oldest ones beyond the limit, and return by how much the memory in use grew."""
        before = self.cost
        self.lines.append(line)
        self.size += len(line)
        self.cost += len(line) + _LINE_COST
        while self.size > MAX_LOG_BYTES or self.cost > _MAX_COST:
            gone = self.lines.popleft()
            self.begin += len(gone)
            self.size -= len(gone)
            self.cost -= len(gone) + _LINE_COST
        return self.cost - before

    def since(self, position: int) -> tuple[int, bytes]:
        """Return the whole lines after *position*, and the position of the first one."""
        taken: list[bytes] = []
        at = self.end
        for line in reversed(self.lines):
            if at - len(line) < position:
                break
            at -= len(line)
            taken.append(line)
        return at, b"".join(reversed(taken))


class AttemptLogs:
    """The logs of one executor's attempts; thread-safe.

    An attempt that logs nothing costs nothing. When there are too many, or too many bytes, the ended attempts go first,
    those that have been silent for longest before others.
    """

    def __init__(self, attempts: int = ATTEMPTS, total_bytes: int = TOTAL_BYTES) -> None:
        self._max_attempts = attempts
        self._max_bytes = total_bytes
        self._lock = threading.Lock()
        self._going: OrderedDict[TaskKey, _Log] = OrderedDict()
        self._ended: OrderedDict[TaskKey, _Log] = OrderedDict()
        self._over: OrderedDict[TaskKey, None] = OrderedDict()
        self._bytes = 0

    def add(self, key: TaskKey, text: str) -> None:
        """Append the line *text*, without its line break, to the log of an attempt."""
        line = text.encode(errors="replace")
        line = line[:LINE_BYTES] + "…\n".encode() if len(line) > LINE_BYTES else line + b"\n"
        with self._lock:
            kept = self._ended if key in self._over else self._going
            log = kept.get(key)
            if log is None:
                log = kept[key] = _Log()
            kept.move_to_end(key)
            self._bytes += log.add(line)
            while len(self._going) + len(self._ended) > self._max_attempts or self._bytes > self._max_bytes:
                _, gone = (self._ended or self._going).popitem(last=False)
                self._bytes -= gone.cost

    def end(self, key: TaskKey) -> None:
        """Note that an attempt is over; what it logged stays for a while."""
        with self._lock:
            self._over[key] = None  # lines of other threads and processes may come later
            if len(self._over) > _ENDED_KNOWN:
                self._over.popitem(last=False)
            log = self._going.pop(key, None)
            if log is not None:
                self._ended[key] = log

    def tail(self, key: TaskKey, most_bytes: int = MAX_TAIL_CHARS) -> str:
        """Return the last lines of an attempt, redacted, up to *most_bytes* of UTF-8; empty if it logged nothing."""
        return self._tail(key, most_bytes, 0)[2].decode()

    def answer(self, ask: pb.LogsAsk) -> pb.LogsAnswer:
        """Return what is asked, the latest attempts first if not all fit."""
        after = {task_key(each.task): each.position for each in ask.after}
        with self._lock:
            found = [key for kept in (self._going, self._ended) for key in reversed(kept) if _is_asked(key, ask)]
            ends = {key: self._log(key).end for key in found}
        answer = pb.LogsAnswer()
        left = MAX_LOGS_BYTES
        for key in found:
            if ends[key] <= after.get(key, -1):
                continue
            most = MAX_LOG_BYTES if key in after else ask.tail_bytes
            is_full = len(answer.logs) >= MAX_LOGS
            begin, end, text = (0, 0, b"") if is_full else self._tail(key, min(most, left), after.get(key, 0))
            if not text:
                answer.left_out += 1
                continue
            left -= len(text)
            answer.logs.add(task=task_id(key), text=text, begin=begin, end=end)
        return answer

    def _log(self, key: TaskKey) -> _Log:
        return self._going.get(key) or self._ended.get(key) or _Log()

    def _tail(self, key: TaskKey, most_bytes: int, after: int) -> tuple[int, int, bytes]:
        """Return the last redacted lines after a position, and the positions of their begin and end."""
        with self._lock:
            log = self._log(key)
            end = log.end
            wanted = max(after, end - most_bytes)
            ahead = log.since(max(0, wanted - _REDACTED_AHEAD))[1]
            begin, before = log.since(wanted)
        # A secret between quotes may span lines, so what is shown may have fewer of them.
        shown = _shown(ahead).removeprefix(_shown(ahead[: len(ahead) - len(before)]))
        text = (shown or (f"{REDACTED}\n" if before else "")).encode()
        if len(text) > most_bytes:  # redaction made it longer
            text = text[-most_bytes:].partition(b"\n")[2]
            begin = max(begin, end - len(text))
        return begin, end, text


def _is_asked(key: TaskKey, ask: pb.LogsAsk) -> bool:
    return (
        key.job_id == ask.job_id
        and (not ask.HasField("stage_id") or key.stage_id == ask.stage_id)
        and (not ask.HasField("partition") or key.partition == ask.partition)
        and (not ask.HasField("attempt") or key.task_attempt == ask.attempt)
    )


def _shown(text: bytes) -> str:
    """Return lines for people: without secrets, and without characters that terminals act on."""
    plain = shown_text(text.decode(errors="replace"))
    if plain.isascii() and plain.replace("\n", "").replace("\t", "").isprintable():
        return plain
    return "".join(c if c.isprintable() or c in "\n\t" else "·" for c in plain)


# ---------------------------------------------------------------- the attempt that a thread works on

_current: ContextVar[tuple[AttemptLogs, TaskKey] | None] = ContextVar("attempt", default=None)


@contextmanager
def working_on(logs: AttemptLogs | None, key: TaskKey) -> Iterator[None]:
    """Name the attempt in whatever this thread, or coroutine, logs within the context, and keep it in *logs*."""
    if logs is None:
        yield
        return
    token = _current.set((logs, key))
    named = structlog.contextvars.bind_contextvars(
        job_id=key.job_id, stage_id=key.stage_id, partition=key.partition, attempt=key.task_attempt
    )
    try:
        yield
    finally:
        structlog.contextvars.reset_contextvars(**named)
        _current.reset(token)


def current_attempt() -> tuple[AttemptLogs, TaskKey] | None:
    """Return the attempt that this thread, or coroutine, works on."""
    return _current.get()


def keep_line(event: Mapping[str, object]) -> None:
    """Keep a line that the agent logs, by its fields, if it is about the attempt that is worked on."""
    if (found := _current.get()) is None or event.get("event") in _SILENT_EVENTS:
        return
    logs, key = found
    fields = " ".join(f"{name}={value}" for name, value in event.items() if name not in _SHOWN_FIRST)
    logs.add(key, f"{event.get('timestamp', '')} {event.get('level', '')} {event.get('event', '')} {fields}".rstrip())
