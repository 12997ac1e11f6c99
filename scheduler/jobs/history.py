"""What a job did: the batches of its log, kept beyond the snapshots and the end that remove the log.

    History/job/position    the batches from that log position on, one a line, compressed

The transaction of a snapshot, or of a job's end, puts the generation of the log that it closes here, together with its
own batch, which is in no log. So positions go on from one part to the next, and from the last part to the log. Parts
are cut by size alone: two schedulers that close the same generation write the same parts, but for the last one, which
holds the batch that only one of them commits.
"""

from bisect import bisect_right
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import structlog

from onager.errors import JobNotFoundError, StateCorruptError
from onager.execution_graph import Event, EventBatch, decode_batch
from onager.ids import JobId
from onager.protocol.apart import apart
from onager.scheduler.jobs import job_log
from onager.scheduler.jobs.recent_batches import RecentBatches
from onager.scheduler.loops import in_portions
from onager.scheduler.records import pack, unpack
from onager.state_backend import KeyRange, Keyspace, KeyValue, Put, Snapshot, StateBackendClient

log = structlog.get_logger(__name__)

_PART_BYTES: Final = 256 * 1024
"""Bytes of batches, before compression, after which the next part begins: to read a page, one or two are read."""
_PART_EVENTS: Final = 1_000
"""About how many events a part has."""
_PARTS_AT_ONCE: Final = 8
_COMPRESS_ABOVE_BYTES: Final = 512
_PAGE_KEYS: Final = 10_000
_PAGE_EVENTS: Final = 8_000
"""About how many events a page has for those who read all of a history."""
_EVENT_BYTES: Final = 300
_LOG_KEYS: Final = 100
"""Batches of a log that are read at a time: each may have as many bytes as a value of the store."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch of a job's log, at its position; None where it was not kept."""

    position: int
    batch: EventBatch | None

    @property
    def events(self) -> Sequence[Event]:
        """Return what is known to have happened."""
        return () if self.batch is None else self.batch.events


def size_of(entries: Iterable[Entry]) -> int:
    """Return about how many bytes the events of *entries* have, so how long it takes to go through them."""
    return _EVENT_BYTES * sum(len(entry.events) for entry in entries)


def prefix(job_id: str) -> str:
    """Return the prefix of a job's history."""
    return f"{job_id}/"


def key(job_id: str, position: int) -> str:
    """Return the key of the part that begins at a log position."""
    return f"{prefix(job_id)}{position:012d}"


def batch_in(entry: KeyValue) -> bytes | None:
    """Return the batch of a log entry as JSON, None if the entry is visibly damaged.

    A job whose graph is in memory goes on without it, and it is the history alone that lacks it.
    """
    what = f"batch {entry.key}"
    try:
        batch = unpack(entry.value, what)
        if batch.startswith(b"{") and batch.endswith(b"}") and b"\n" not in batch:
            return batch
        why = f"{what} is damaged: it is not an object on one line"
    except StateCorruptError as error:
        why = str(error)
    log.error("batch_not_kept", batch=entry.key, error=why, advice="the job goes on; look for damage in the store")
    return None


def parts(job_id: str, log: Iterable[bytes | None], after: int, last: bytes) -> Generator[None, None, list[Put]]:
    """Return the parts that hold the batches of a *log*, as JSON, whose positions follow *after*, and *last*.

    A batch that is None is left out: no part covers its position. Works in portions.
    """
    made: list[Put] = []
    lines: list[bytes] = []
    begins, size = after + 1, 0
    for position, line in enumerate(chain(log, (last,)), after + 1):
        if line is None or size >= _PART_BYTES:
            if lines:
                made.append(_part(job_id, begins, lines))
                yield
            begins, lines, size = position + (line is None), [], 0
        if line is not None:
            lines.append(line)
            size += len(line)
    return [*made, _part(job_id, begins, lines)]


async def closing_parts(backend: StateBackendClient, job: job_log.StoredJob, last: bytes) -> list[Put] | None:
    """Return the parts that the generation of the log and *last*, the batch that closes it, make.

    What is damaged of the log is left out. None if another writer has closed it.
    """
    header = job.header
    if job.log is not None:
        return await in_portions(parts(header.job_id, job.log, header.seq, last))
    entries: Sequence[KeyValue] = ()
    if job.seq > header.seq:
        generation = job_log.log_prefix(header.job_id, header.generation)
        found = await backend.get_from_prefix(Keyspace.JobLog, generation)
        entries = found.items[: job.seq - header.seq]
        if not entries or entries[-1].key != job_log.log_key(header.job_id, header.generation, job.seq):
            return None
    return await in_portions(parts(header.job_id, map(batch_in, entries), header.seq, last))


def _part(job_id: str, begins: int, lines: Sequence[bytes]) -> Put:
    return Put(Keyspace.History, key(job_id, begins), pack(b"\n".join(lines), above_bytes=_COMPRESS_ABOVE_BYTES))


def read_part(item: KeyValue, after: int = 0, limit: int | None = None) -> list[Entry]:
    """Return the entries of a part after the position *after*, with about *limit* events together, or all of them.

    `StateCorruptError` or `SchemaVersionError` when they cannot be read.
    """
    begins = int(item.key.rpartition("/")[2])
    lines = unpack(item.value, f"history {item.key}").split(b"\n")
    positions = range(max(begins, after + 1), begins + len(lines))
    return _up_to(limit, (Entry(position, decode_batch(lines[position - begins])) for position in positions))


def _read_parts(parts: Sequence[KeyValue | None], after: int, limit: int) -> list[Entry]:
    """Return the entries of successive *parts*, as `read_part`; None stands for one whose retention is over."""
    found: list[Entry] = []
    for part in parts:
        if part is not None and limit > 0:
            some = read_part(part, after, limit)
            limit -= sum(len(entry.events) for entry in some)
            found += some
    return found


def _up_to(limit: int | None, entries: Iterable[Entry]) -> list[Entry]:
    found: list[Entry] = []
    events = 0
    for entry in entries:
        found.append(entry)
        events += len(entry.events)
        if limit is not None and events >= limit:
            break
    return found


class JobHistory:
    """The histories of jobs."""

    def __init__(self, backend: StateBackendClient, recent: RecentBatches) -> None:
        self._backend = backend
        self._recent = recent

    async def after(self, job_id: JobId, position: int, limit: int) -> list[Entry]:
        """Return entries after *position*, up to about *limit* events; none at the end of what is known.

        A gap in what was kept is an entry without a batch, at the last position that it covers. `JobNotFoundError` when
        there is no such job; `StateCorruptError` or `SchemaVersionError` when what is stored cannot be read.
        """
        if recent := self._recent.after(job_id, position, limit):
            return [Entry(at, batch) for at, batch in recent]
        while True:
            found, is_moving = await self._look(job_id, position, limit)
            if not is_moving:
                break
        entries: list[Entry] = []
        events = 0
        for entry in found:
            if entry.position <= position:
                continue
            if events >= limit:
                break
            if entry.position > position + 1 and entry.batch is not None:
                entries.append(Entry(entry.position - 1, None))
            entries.append(entry)
            position = entry.position
            events += len(entry.events)
        return entries

    async def pages(
        self, job_id: JobId, position: int, *, to: int | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries after *position* in pages, up to the end of what is known, or *to* at least.

        Errors as in `after`.
        """
        while to is None or position < to:
            entries = await self.after(job_id, position, _PAGE_EVENTS)
            if not entries:
                return
            yield entries
            position = entries[-1].position

    async def _look(self, job_id: JobId, position: int, limit: int) -> tuple[list[Entry], bool]:
        """Return the entries of the part, or of the log, in which *position* is followed by another.

        Of a log, no more than have *limit* events together: it may have very many. Also whether the log went into the
        history meanwhile: then look again.
        """
        keys = (await self._backend.scan_keys(Keyspace.History, prefix(job_id), limit=_PAGE_KEYS)).items
        # A part goes on until the next one begins.
        first = max(0, bisect_right(keys, key(job_id, position + 1)) - 1)
        count = max(1, min(_PARTS_AT_ONCE, limit // _PART_EVENTS))
        for start in (first, first + count):
            names = [(Keyspace.History, name) for name in keys[start : start + count]]
            stored = (await self._backend.read_txn(names, [])).values if names else {}
            parts = [stored[name] for name in names]
            if entries := await apart(_PART_BYTES * len(parts), _read_parts, parts, position, limit):
                return entries, False
        headers = [(keyspace, str(job_id)) for keyspace in job_log.HEADER_KEYSPACES]
        header = _header(job_id, await self._backend.read_txn(headers, []))
        # What the history lacks may still be in the generation of the log that the last snapshot has closed.
        generations = [header.generation - 1, header.generation] if position < header.seq else [header.generation]
        tails = [
            KeyRange(
                Keyspace.JobLog,
                job_log.log_prefix(job_id, generation),
                job_log.log_key(job_id, generation, position),
                limit=_LOG_KEYS,
            )
            for generation in generations
            if generation >= 0
        ]
        seen = await self._backend.read_txn(headers, tails)
        log = next((tail.items for tail in seen.ranges if tail.items), ())
        if not log or int(log[0].key.rpartition("/")[2]) > position + 1:
            later = (await self._backend.scan_keys(Keyspace.History, prefix(job_id), limit=_PAGE_KEYS)).items
            if later != keys or _header(job_id, seen).generation != header.generation:
                return [], True
            if not log and header.seq > position:
                return [Entry(header.seq, None)], False
        return await apart(sum(len(item.value) for item in log), _read_log, log, limit), False


def _header(job_id: JobId, seen: Snapshot) -> job_log.JobHeader:
    stored = next((value for value in seen.values.values() if value is not None), None)
    if stored is None:
        raise JobNotFoundError(job_id)
    return job_log.JobHeader.decoded(stored.value, f"the header of job {job_id}")


def _read_log(items: Sequence[KeyValue], limit: int) -> list[Entry]:
    """Return the first of *items* that have *limit* events together, or all of them."""
    return _up_to(limit, (Entry(int(item.key.rpartition("/")[2]), job_log.read_batch(item)) for item in items))
