"""Jobs as logs in the state backend: submit, load, append by compare-and-set, snapshots, and the end.

There is no lock and no owner: an append expects the header to be unchanged and the next log position to be absent. So
any number of schedulers may work on a job, and one of them wins each position.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import structlog

from onager.clock import Clock
from onager.errors import (
    BusyError,
    CatalogConflictError,
    JobConflictError,
    JobNotFoundError,
    PlanningError,
    SchemaVersionError,
    StateCorruptError,
    StateUnavailableError,
)
from onager.execution_graph import Event, EventBatch, ExecutionGraph, OutputsTaken, encode_batch
from onager.ids import JobId, script_of
from onager.scheduler.catalog.changes import CatalogChanges
from onager.scheduler.catalog.committing import CatalogCommits, CatalogWrites
from onager.scheduler.jobs import history, job_log
from onager.scheduler.jobs.blobs import BlobStore, BlobWrites
from onager.scheduler.jobs.commit_observer import CommitObserver
from onager.scheduler.jobs.job_cache import JobCache
from onager.scheduler.jobs.job_changes import changes_of
from onager.scheduler.jobs.job_heads import DueFlag, JobHead, JobHeads, JobTerms, head_of, unreadable_head
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.snapshots import first_snapshot, next_snapshot
from onager.scheduler.loops import in_portions
from onager.scheduler.records import NOTHING_MORE, Expected, Extra, pack
from onager.state_backend import (
    ABSENT,
    KeyRange,
    Keyspace,
    KeyValue,
    Op,
    Put,
    StateBackendClient,
    commit_settled,
    op_bytes,
    revision_found,
)
from onager.state_backend import (
    Committed as TxnCommitted,
)

log = structlog.get_logger(__name__)

SNAPSHOT_MIN_LOG_BYTES: Final = 64 * 1024
"""A log lighter than this is never worth a snapshot."""
SNAPSHOT_LOG_RATIO: Final = 2
"""A log that is this many times as large as its snapshot is worth the next snapshot.

An event takes three times the bytes of the output that it leaves in a snapshot. So a job's graph grows by more than
half between two snapshots, and all of them together are less than three times as large as the last one. A scheduler
that takes a job over reads the log, and an event takes four times as long to read as an output: hence no higher ratio.
"""
MAX_BATCH_BYTES: Final = 1024 * 1024
"""A larger batch is committed as a snapshot, whose chunks have no total limit."""
COMPRESS_BATCH_ABOVE_BYTES: Final = 2 * 1024
"""Most writes are batches, whose events are alike: they shrink to a fifth."""
_INLINE_BYTES: Final = 1024 * 1024
_INLINE_OPS: Final = 64
"""A snapshot, and history, of up to so many bytes and keys share the transaction of their header."""
_SMALL_LOG_BYTES: Final = 16 * 1024
"""A log up to this size is kept beside its graph, so that the end of a small job does not read it."""
_READ_AT_ONCE: Final = 8
"""Jobs read in one round: each may be a large one."""
_READS_AT_ONCE: Final = 2
"""Rounds at the same time."""
_TRIES: Final = 50

UNCOMMITTABLE: Final = (PlanningError, StateCorruptError, SchemaVersionError)
"""What says of changes of the catalog that they can never be made."""

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Committed:
    """The events are in the store."""

    job: StoredJob


@dataclass(frozen=True, slots=True)
class Lost:
    """Another writer was first: load and decide again."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing of the batch is in the store: the changes of the catalog that go with it cannot be made."""

    why: str
    is_conflict: bool
    """Whether another job has changed the catalog: planned anew, the job may succeed."""


class JobStore(JobCache):
    """The jobs of one namespace, with this scheduler's cache of their graphs."""

    observer = CommitObserver()
    """Observes what is committed here; set where metrics are kept."""

    def __init__(
        self,
        backend: StateBackendClient,
        heads: JobHeads,
        clock: Clock,
        writer: str = "",
        *,
        due_flags: Sequence[DueFlag] = (),
        blobs: BlobStore | None = None,
    ) -> None:
        """Make it for the scheduler *writer*, whose id its batches bear; *due_flags* are set for each job that ends.

        What jobs change in the catalog is read from *blobs*, which share what is at hand.
        """
        super().__init__(heads, clock)
        self._blobs = blobs or BlobStore(backend)
        self._catalog = CatalogCommits(backend)
        self.on_tables_changed: Callable[[JobId, Sequence[str]], None] = lambda _, __: None
        """Called with the keys of what a job has changed in the catalog, by the scheduler that committed it."""
        self._due_flags = due_flags
        self._writer = writer
        self._backend = backend
        self._clock = clock
        self._commits_under_way: dict[JobId, asyncio.Event] = {}
        """The jobs of which this scheduler is committing a batch; each event is set when that ends."""
        self._loads_under_way: dict[JobId, asyncio.Event] = {}
        self._reading_stored = asyncio.Semaphore(_READS_AT_ONCE)

    async def submit(
        self,
        graph: ExecutionGraph,
        terms: JobTerms | None = None,
        blob: BlobWrites | None = None,
        extra: Extra = NOTHING_MORE,
    ) -> tuple[StoredJob, bool]:
        """Store a new job, and *blob* with it or before it; return it, and whether it existed already.

        A job of the same id and spec is the same job, however long ago it was submitted and whatever became of it;
        with another spec it is a `JobConflictError`. *extra* is written in the same transaction: `BusyError` when there
        is no such job, and what that expects does not hold.
        """
        job_id = JobId(graph.job_id)
        terms = terms or JobTerms()
        first = await first_snapshot(graph, terms)
        header = first.header
        head = head_of(graph, terms)
        more, expected = extra
        ops = [
            *first.chunks,
            Put(Keyspace.ActiveJobs, job_id, header.encoded()),
            Put(Keyspace.JobHeads, job_id, self.heads.encoded(head)),
            *more,
        ]
        expect = {(keyspace, str(job_id)): ABSENT for keyspace in job_log.HEADER_KEYSPACES} | dict(expected)
        revision = await self._store_new(ops, expect, blob)
        if revision is not None:
            job = first.stored(revision)
            self.observer.submitted()
            self._learn(job, head, revision)
            return job, False
        try:
            found = await self.load(job_id)
        except JobNotFoundError:
            raise BusyError(f"what belongs to job {job_id} has changed: try again") from None
        if found.graph.spec_digest != graph.spec_digest:
            raise JobConflictError(job_id)
        existed = found.header.batch_id != header.batch_id or found.seq > 0
        if not existed:
            self.observer.submitted()
        return found, existed

    async def _store_new(self, ops: Sequence[Op], expect: Expected, blob: BlobWrites | None) -> int | None:
        """Write a new job, with *blob* if possible, else after it; return the revision, or None when that conflicts."""
        if blob is not None:
            result = await self._backend.put_txn([*ops, *blob.ops], expect={**expect, **blob.expect})
            if isinstance(result, TxnCommitted):
                blob.committed(result.revision)
                return result.revision
            await blob.put()  # another job references it, too, or the job exists
        settled = await commit_settled(self._backend, ops, expect)
        return settled.revision if isinstance(settled, TxnCommitted) else None

    async def get(self, job_id: JobId) -> StoredJob:
        """Return the job, from the cache when it is there; errors as in `load`."""
        return self.cached(job_id) or await self.load(job_id)

    async def load(self, job_id: JobId) -> StoredJob:
        """Read the job from the store, at one revision; a concurrent call for the job reads only what has come since.

        `JobNotFoundError` when there is none. `StateCorruptError` or `SchemaVersionError` when its record cannot be
        read; a damaged job is marked in its head, and no scheduler works on it any more.
        """
        under_way = self._loads_under_way.get(job_id)
        if under_way is not None:
            await under_way.wait()
            return await self.fresh(job_id)
        self._loads_under_way[job_id] = done = asyncio.Event()
        try:
            return await self._load(job_id)
        finally:
            del self._loads_under_way[job_id]
            done.set()

    async def _load(self, job_id: JobId) -> StoredJob:
        keys, ranges = job_log.load_request(job_id)
        found = await self._backend.read_txn(keys, ranges)
        try:
            job = await in_portions(job_log.read_job(job_id, found))
        except StateCorruptError as error:
            await self._mark_broken(job_id, str(error))
            raise
        except SchemaVersionError as error:
            # The scheduler that wrote it can read it: leave the record and its head as they are.
            self.heads.mark_unreadable(job_id, str(error))
            raise
        if job is None:
            self.forget(job_id)
            raise JobNotFoundError(job_id)
        self._learn(job, head_of(job.graph, job.header), None)
        return job

    async def as_stored(
        self, job_ids: Sequence[JobId], look: Callable[[ExecutionGraph], _Found]
    ) -> dict[JobId, _Found | None]:
        """Return what *look* finds in jobs that are not needed further; None for one that is missing or damaged.

        The jobs are not cached, and listeners are not called; few of them are in memory at a time, however many callers
        ask. A job whose version is too new to read is not in the answer.
        """
        found: dict[JobId, _Found | None] = {j: look(job.graph) for j in job_ids if (job := self.cached(j)) is not None}
        left = [job_id for job_id in job_ids if job_id not in found]
        for start in range(0, len(left), _READ_AT_ONCE):
            async with self._reading_stored:
                found |= await self._looked_at(left[start : start + _READ_AT_ONCE], look)
        return found

    async def _looked_at(
        self, job_ids: Sequence[JobId], look: Callable[[ExecutionGraph], _Found]
    ) -> dict[JobId, _Found | None]:
        requests = [job_log.load_request(job_id) for job_id in job_ids]
        read = await self._backend.read_txn(
            [key for keys, _ in requests for key in keys], [each for _, ranges in requests for each in ranges]
        )
        found: dict[JobId, _Found | None] = {}
        for number, job_id in enumerate(job_ids):
            mine = replace(read, ranges=read.ranges[2 * number : 2 * number + 2])
            with contextlib.suppress(SchemaVersionError):
                try:
                    job = await in_portions(job_log.read_job(job_id, mine))
                except StateCorruptError:
                    job = None
                found[job_id] = None if job is None else look(job.graph)
        return found

    async def fresh(self, job_id: JobId) -> StoredJob:
        """Return the job as it is in the store now; errors as in `load`.

        For a cached job, only the log's tail is read.
        """
        for _ in range(_TRIES):
            known = self._active.get(job_id)
            if known is None:
                return self._ended.get(job_id) or await self.load(job_id)
            header = known.header
            tail = KeyRange(
                Keyspace.JobLog,
                job_log.log_prefix(job_id, header.generation),
                job_log.log_key(job_id, header.generation, known.seq),
            )
            found = await self._backend.read_txn([(Keyspace.ActiveJobs, job_id)], [tail])
            stored = found.values[Keyspace.ActiveJobs, job_id]
            if stored is not None and stored.mod_revision == known.header_revision:
                break
            # Once our own snapshot is written, only its tail has to be read, not the whole log.
            if not await self._has_committed(job_id) and self.cached(job_id) is known:
                return await self.load(job_id)
        else:
            return await self.load(job_id)
        tip = known.seq + len(found.ranges[0].items)
        now = self.cached(job_id) or known
        if now.seq < tip and await self._has_committed(job_id):  # it may be our own batch, which needs no decoding
            now = self.cached(job_id) or known
        if now.seq >= tip:
            return now
        batches: list[EventBatch] = []
        try:
            job = await in_portions(job_log.follow(known, found.ranges[0].items, batches))
        except (StateCorruptError, SchemaVersionError):
            return await self.load(job_id)  # this marks a damaged job
        self._learn(job, head_of(job.graph, header), None, batches)
        return self.cached(job_id) or job

    async def _has_committed(self, job_id: JobId) -> bool:
        """Wait for the commit of this scheduler that is under way, and return whether there was one."""
        under_way = self._commits_under_way.get(job_id)
        if under_way is not None:
            await under_way.wait()
        return under_way is not None

    async def commit(
        self, job: StoredJob, events: tuple[Event, ...], graph: ExecutionGraph
    ) -> Committed | Lost | Refused:
        """Commit *events*, which lead from the job's graph to *graph*, as the next batch of its log, all or none.

        It is one guarded transaction. If the store does not know the outcome, it is settled before this returns. The
        batch that ends the job moves its header to the ended jobs, and, if the job succeeds, makes its changes of the
        catalog: they are made with that batch or not at all.
        """
        job_id = JobId(job.header.job_id)
        self._commits_under_way[job_id] = done = asyncio.Event()
        try:
            return await self._commit(
                job, EventBatch(batch_id=secrets.token_hex(8), events=events, writer=self._writer), graph
            )
        finally:
            self._commits_under_way.pop(job_id, None)
            done.set()

    async def _commit(self, job: StoredJob, batch: EventBatch, graph: ExecutionGraph) -> Committed | Lost | Refused:
        plain = encode_batch(batch)
        value = pack(plain, above_bytes=COMPRESS_BATCH_ABOVE_BYTES)
        log_bytes = job.log_bytes + len(plain)
        threshold = max(SNAPSHOT_MIN_LOG_BYTES, SNAPSHOT_LOG_RATIO * job.header.snapshot_bytes)
        if not graph.is_active or len(value) > MAX_BATCH_BYTES or log_bytes > threshold:
            return await self._commit_snapshot(job, batch, graph, plain)
        header = job.header
        key = job_log.log_key(header.job_id, header.generation, job.seq + 1)
        head = head_of(graph, header)
        ops: list[Op] = [Put(Keyspace.JobLog, key, value)]
        # The stored head goes with the graph that this batch follows; the head as last seen may be older.
        if head != head_of(job.graph, header) or head != self.heads.get(JobId(header.job_id)):
            ops.append(Put(Keyspace.JobHeads, header.job_id, self.heads.encoded(head)))
        expect = {(Keyspace.ActiveJobs, header.job_id): job.header_revision, (Keyspace.JobLog, key): ABSENT}
        expect |= self._taken_from(batch)
        revision = await self._settle(ops, expect)
        if revision is None:
            return Lost()
        small = None if job.log is None or log_bytes > _SMALL_LOG_BYTES else (*job.log, plain)
        after = replace(job, graph=graph, seq=job.seq + 1, log_bytes=log_bytes, log=small)
        self.observer.committed(job, batch.events, after)
        self._learn(after, head, revision, [batch])
        return Committed(after)

    def _taken_from(self, batch: EventBatch) -> dict[tuple[Keyspace, str], int]:
        """Return what must be so for outputs to be taken: nothing has changed about the jobs that offer them."""
        jobs = {each.job_id for event in batch.events if isinstance(event, OutputsTaken) for each in event.taken}
        return {(Keyspace.JobHeads, job_id): self.heads.revision(JobId(job_id)) for job_id in jobs}

    async def _commit_snapshot(
        self, job: StoredJob, batch: EventBatch, graph: ExecutionGraph, plain: bytes
    ) -> Committed | Lost | Refused:
        """Commit a batch by writing the graph that it leads to: when the log is too large, and at the job's end.

        *plain* is the batch as JSON, for the job's history.
        """
        job_id = job.header.job_id
        parts = await history.closing_parts(self._backend, job, plain)
        if parts is None:
            return Lost()
        made = await next_snapshot(job, graph, batch.batch_id)
        head = self._with_due(head_of(graph, job.header))
        replacing, expect = made.replacing(job)
        expect |= self._taken_from(batch)
        ops: list[Op] = [Put(Keyspace.JobHeads, job_id, self.heads.encoded(head)), *replacing]
        # Names of chunks are unique to their snapshot, and all parts of the history but the last are the same whoever
        # writes them: these may be written before the transaction, and again.
        before, last = [*made.chunks, *parts[:-1]], parts[-1]
        if len(before) < _INLINE_OPS and sum(map(op_bytes, before)) <= _INLINE_BYTES - op_bytes(last):
            ops = [*before, *ops]
        else:
            await self._backend.put_all(before)
        is_too_large = op_bytes(last) > _INLINE_BYTES
        if not is_too_large:
            ops.append(last)
        revision = await self._settle_end(ops, expect, graph)
        if not isinstance(revision, int):
            return revision
        after = made.stored(revision)
        if is_too_large:
            await self._backend.put_all([last])  # should this scheduler end right here, the history has a gap
        self.observer.committed(job, batch.events, after)
        self._learn(after, head, revision, [batch])
        if not graph.is_active:
            log.info("job_ended", job_id=job_id, state=head.state.value, seq=after.seq)
        return Committed(after)

    async def _settle_end(
        self,
        ops: Sequence[Op],
        expect: dict[tuple[Keyspace, str], int],
        graph: ExecutionGraph,
    ) -> int | Lost | Refused:
        """Commit *ops* as `_settle` does, with what the job changes in the catalog if it ends well with *graph*."""
        try:
            changes = await changes_of(graph, self._blobs)
            revision = await self._settle(ops, expect, changes)
        except CatalogConflictError as error:
            return Refused(str(error), is_conflict=True)
        except UNCOMMITTABLE as error:
            return Refused(str(error), is_conflict=False)
        if revision is None:
            return Lost()
        if changes is not None:
            self.on_tables_changed(JobId(graph.job_id), changes.keys)
        return revision

    async def _settle(
        self,
        ops: Sequence[Op],
        expect: dict[tuple[Keyspace, str], int],
        changes: CatalogChanges | None = None,
    ) -> int | None:
        """Commit *ops*, and *changes* of the catalog with them; return the revision, or None when another writer won.

        When only the catalog is not as expected, the changes are made anew. Raises what `CatalogCommits.prepare`
        raises.
        """
        for _ in range(_TRIES):
            beside = CatalogWrites() if changes is None else await self._catalog.prepare(changes)
            result = await commit_settled(self._backend, [*ops, *beside.ops], {**expect, **beside.expect})
            if isinstance(result, TxnCommitted):
                return result.revision
            self.heads.learn(result.found)
            if changes is None or any(revision_found(result, key) != at for key, at in expect.items()):
                return None
        raise StateUnavailableError(f"others changed the catalog each of {_TRIES} times: try again")

    async def mend_heads(self) -> None:
        """Write unreadable heads again from the jobs' records; where those are unreadable, too, mark the job broken.

        A head without a record says so, until its retention. If another scheduler has written the head since, nothing
        is left to do.
        """
        for job_id, revision in self.heads.damaged:
            with contextlib.suppress(StateCorruptError, SchemaVersionError):
                try:
                    job = await self.load(job_id)
                    head = self._with_due(head_of(job.graph, job.header))
                except JobNotFoundError:
                    head = unreadable_head(job_id, "its record is gone")
                result = await self._backend.put_txn(
                    [Put(Keyspace.JobHeads, job_id, self.heads.encoded(head))],
                    expect={(Keyspace.JobHeads, job_id): revision},
                )
                if isinstance(result, TxnCommitted):
                    log.info("job_head_mended", job_id=job_id)
                    self.heads.seen(head, result.revision)

    def _with_due(self, head: JobHead) -> JobHead:
        """Return *head*; if it is that of an ended job, with the flags of what is due then."""
        if not self._due_flags or not head.state.is_terminal:
            return head
        # Webhooks are notified of a script, not of each of its steps.
        due = [flag for flag in self._due_flags if flag != "is_notice_due" or script_of(head.job_id) is None]
        return head.model_copy(update=dict.fromkeys(due, True))

    async def _mark_broken(self, job_id: JobId, why: str) -> None:
        log.error("job_record_damaged", job_id=job_id, error=why)
        self.forget(job_id)
        stored: KeyValue | None = await self._backend.get(Keyspace.JobHeads, job_id)
        head = unreadable_head(job_id, why)
        if stored is not None:
            with contextlib.suppress(StateCorruptError):
                head = JobHead.decoded(stored.value, job_id)
                if head.broken:
                    self.heads.seen(head, stored.mod_revision)
                    return  # it is marked already: otherwise every reader of the record would mark it again and again
        head = head.model_copy(update={"broken": why, "has_runnable_work": False, "reuses": ()})
        revision = stored.mod_revision if stored is not None else ABSENT
        result = await self._backend.put_txn(
            [Put(Keyspace.JobHeads, job_id, self.heads.encoded(head))], expect={(Keyspace.JobHeads, job_id): revision}
        )
        if isinstance(result, TxnCommitted):
            self.heads.seen(head, result.revision)
