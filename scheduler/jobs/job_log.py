"""How a job lies in the store: a header, immutable snapshot chunks, and the log of batches after the snapshot.

    ActiveJobs/job                  header: generation, the log position that the snapshot covers, its chunks
    GraphChunks/job/snapshot/n      the graph at that position
    JobLog/job/generation/seq       batches of events after it, create-only
    History/job/seq                 all batches before them (`onager.scheduler.jobs.history`)

Every snapshot starts a generation of the log. A snapshot is committed at the very end of the log (its transaction
expects the next entry to be absent), so a generation is covered whole by the next snapshot and goes by one range
delete, one snapshot later. An ended job has a header in CompletedJobs or FailedJobs, the chunks of its final graph, and
no log.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

from onager.errors import StateCorruptError
from onager.execution_graph import (
    EventBatch,
    ExecutionGraph,
    JobState,
    apply_all,
    decode_batch,
    decoding_graph,
    encoding_graph,
)
from onager.ids import JobId
from onager.scheduler.jobs.job_heads import JobTerms
from onager.scheduler.records import packing, unpack
from onager.state_backend import KeyRange, Keyspace, KeyValue, Op, Put, Snapshot, split_value

_PORTION_BYTES: Final = 64 * 1024
"""The bytes that take a few milliseconds to read or to write."""
HEADER_KEYSPACES: Final = (Keyspace.ActiveJobs, Keyspace.CompletedJobs, Keyspace.FailedJobs)


class JobHeader(JobTerms):
    """Names the newest snapshot of a job."""

    job_id: str
    seq: int
    """The last log position that the snapshot covers."""
    generation: int
    """The generation of the log that follows it."""
    snapshot: str
    chunks: int
    snapshot_bytes: int
    """Bytes of the graph before compression, to compare with those of the log."""
    batch_id: str
    """The batch that this snapshot was committed with, to settle a write of unknown outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    """A job as it is stored at log position `seq`: one scheduler's cache."""

    graph: ExecutionGraph
    seq: int
    header: JobHeader
    header_revision: int
    keyspace: Keyspace
    log_bytes: int = 0
    """Bytes of log after the snapshot, before compression."""
    log: tuple[bytes, ...] | None = None
    """The batches after the snapshot, as JSON, if all are known here and small; else they are read for the history."""


def log_prefix(job_id: str, generation: int) -> str:
    """Return the prefix of one generation of a job's log."""
    return f"{job_id}/{generation:08d}/"


def log_key(job_id: str, generation: int, seq: int) -> str:
    """Return the key of one batch."""
    return f"{log_prefix(job_id, generation)}{seq:012d}"


def snapshot_prefix(job_id: str, snapshot: str) -> str:
    """Return the prefix of a snapshot's chunks."""
    return f"{job_id}/{snapshot}/"


def end_keyspace(graph: ExecutionGraph) -> Keyspace:
    """Return the keyspace for the header of *graph*."""
    if graph.is_active:
        return Keyspace.ActiveJobs
    return Keyspace.CompletedJobs if graph.state is JobState.SUCCESSFUL else Keyspace.FailedJobs


def snapshot_ops(job_id: str, snapshot: str, graph: ExecutionGraph) -> Generator[None, None, tuple[list[Op], int]]:
    """Return the puts of a snapshot's chunks, and the bytes of the graph before compression; works in portions."""
    plain = yield from encoding_graph(graph)
    pieces = split_value((yield from packing(plain)))
    prefix = snapshot_prefix(job_id, snapshot)
    ops: list[Op] = [Put(Keyspace.GraphChunks, f"{prefix}{n:04d}", piece) for n, piece in enumerate(pieces)]
    return ops, len(plain)


def load_request(job_id: JobId) -> tuple[list[tuple[Keyspace, str]], list[KeyRange]]:
    """Return the keys and ranges to read, at one revision, to load a job."""
    return (
        [(keyspace, job_id) for keyspace in HEADER_KEYSPACES],
        [KeyRange(Keyspace.GraphChunks, f"{job_id}/"), KeyRange(Keyspace.JobLog, f"{job_id}/")],
    )


def read_job(job_id: JobId, found: Snapshot) -> Generator[None, None, StoredJob | None]:
    """Return the job that a read of `load_request` found, None when there is no header; works in portions.

    Raises `StateCorruptError` or `SchemaVersionError` when its record cannot be read.
    """
    for keyspace in HEADER_KEYSPACES:
        stored = found.values[keyspace, job_id]
        if stored is not None:
            break
    else:
        return None
    header = JobHeader.decoded(stored.value, f"the header of job {job_id}")
    chunks, entries = found.ranges
    graph = yield from _read_snapshot(header, chunks.items)
    job = StoredJob(
        graph=graph,
        seq=header.seq,
        header=header,
        header_revision=stored.mod_revision,
        keyspace=keyspace,
    )
    prefix = log_prefix(job_id, header.generation)
    return (yield from follow(job, [e for e in entries.items if e.key.startswith(prefix)]))


def follow(
    job: StoredJob, entries: Sequence[KeyValue], batches: list[EventBatch] | None = None
) -> Generator[None, None, StoredJob]:
    """Return *job* after the next *entries* of its log; `StateCorruptError` when one is missing between them.

    Their batches are added to *batches*. Works in portions: a long log takes a while.
    """
    graph, seq, log_bytes = job.graph, job.seq, job.log_bytes
    portion = 0
    for entry in entries:
        seq += 1
        if entry.key != log_key(job.header.job_id, job.header.generation, seq):
            raise StateCorruptError(f"the log of job {job.header.job_id} has {entry.key} where {seq} is expected")
        plain = unpack(entry.value, f"batch {entry.key}")
        batch = decode_batch(plain)
        if batches is not None:
            batches.append(batch)
        graph = apply_all(graph, batch.events)
        log_bytes += len(plain)
        portion += len(plain)
        if portion > _PORTION_BYTES:
            portion = 0
            yield
    return StoredJob(
        graph=graph,
        seq=seq,
        header=job.header,
        header_revision=job.header_revision,
        keyspace=job.keyspace,
        log_bytes=log_bytes,
    )


def read_batch(entry: KeyValue) -> EventBatch:
    """Return the batch in a log entry."""
    return decode_batch(unpack(entry.value, f"batch {entry.key}"))


def _read_snapshot(header: JobHeader, chunks: Sequence[KeyValue]) -> Generator[None, None, ExecutionGraph]:
    what = f"the snapshot of job {header.job_id}"
    prefix = snapshot_prefix(header.job_id, header.snapshot)
    mine = [c.value for c in chunks if c.key.startswith(prefix)]
    if len(mine) != header.chunks:
        raise StateCorruptError(f"{what} has {len(mine)} of {header.chunks} chunks")
    return (yield from decoding_graph(unpack(b"".join(mine), what)))
