"""Blobs: stage plans, job specs, manifests and explanations, by the SHA-256 of their plain bytes.

A blob's keys in `Keyspace.Plans` are ``digest/n`` (its chunks, each compressed for itself), ``digest/meta`` (how many
there are), and ``digest/ref/job`` (a job that references it). Any number of jobs reference one blob at once, and none
waits for another:
- Chunks are written once, by the writer that finds them absent; the first of them in the transaction that puts
  ``meta``, after all others. So if the first chunk is there, all of the blob is. It stays at its revision until the
  blob goes.
- A job that references the blob expects that first chunk as it was seen, and puts ``meta`` again together with its
  reference.
- A collector expects ``meta`` as it was when no reference was left. So a blob cannot go while a job begins to use it,
  and a job that begins too late finds the chunk gone, and writes the blob again.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, TypeVar

import structlog

from onager.errors import NotFoundError, OutcomeUnknownError, StateCorruptError
from onager.execution_graph import ExecutionGraph
from onager.ids import BlobDigest, JobId
from onager.protocol.apart import apart
from onager.scheduler import timing
from onager.scheduler.records import Record, pack_blob, unpack
from onager.state_backend import (
    ABSENT,
    MAX_TXN_OPS,
    VALUE_CHUNK_BYTES,
    Committed,
    Conflict,
    Delete,
    DeleteRange,
    KeyRange,
    Keyspace,
    KeyValue,
    Op,
    OutcomeUnknown,
    Put,
    StateBackendClient,
    commit_settled,
    each_page,
    op_bytes,
    revision_found,
    revision_of,
    split_value,
)

log = structlog.get_logger(__name__)

_Read = TypeVar("_Read")

_TRIES: Final = 20
_BATCH: Final = 24
"""Blobs referenced, or collected, in one transaction: each takes up to three operations, and a condition."""
_STORED: Final = 1_000
_ONE_TXN_BYTES: Final = 1024 * 1024
"""For larger blobs, all chunks but the first are written before, in transactions of their own."""
_BESIDE_BYTES: Final = 64 * 1024
"""A blob up to this size may share a transaction with other writes."""
_AT_HAND_BYTES: Final = 8 * 1024 * 1024


class BlobMeta(Record):
    """How many chunks a blob has, and how many plain bytes."""

    chunks: int
    size_bytes: int


def digest_of(content: bytes) -> BlobDigest:
    """Return the name of the blob with *content*."""
    return BlobDigest(hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, slots=True)
class BlobWrites:
    """The writes that store blobs, to share a transaction with others."""

    ops: Sequence[Op]
    expect: Mapping[tuple[Keyspace, str], int]
    committed: Callable[[int], None]
    """To be called with the revision of the commit."""
    put: Callable[[], Awaitable[None]]
    """Stores them alone, whatever exists already: to be called when the transaction was not committed."""


class BlobStore:
    """Blobs in the state backend; a blob stays for as long as some job's reference to it does."""

    def __init__(self, backend: StateBackendClient) -> None:
        self._backend = backend
        self._stored: OrderedDict[BlobDigest, int] = OrderedDict()
        """The revisions of the first chunks of whole blobs, as last seen here: queries are often repeated."""
        self._at_hand: OrderedDict[BlobDigest, bytes] = OrderedDict()
        """Small blobs that were written or read here lately: the executor that runs a job soon asks for them."""
        self._at_hand_bytes = 0

    async def put(self, job_id: JobId, blobs: Iterable[bytes]) -> None:
        """Store *blobs*, durable when this returns, with a reference by *job_id*; repeating changes nothing."""
        group: dict[BlobDigest, bytes] = {}
        first_bytes = 0
        contents = list(blobs)
        by_digest = await apart(
            sum(map(len, contents)), lambda: sorted({digest_of(content): content for content in contents}.items())
        )
        for digest, content in by_digest:
            first_bytes += min(len(content), VALUE_CHUNK_BYTES)
            if len(group) == _BATCH or (group and first_bytes > _ONE_TXN_BYTES):
                await self._put_some(job_id, group)
                group, first_bytes = {}, min(len(content), VALUE_CHUNK_BYTES)
            group[digest] = content
        if group:
            await self._put_some(job_id, group)

    def writes(self, job_id: JobId, content: bytes) -> BlobWrites | None:
        """Return the writes that store a blob, as far as is known here, with a reference by *job_id*.

        None for a blob that is too large to share a transaction.
        """
        if len(content) > _BESIDE_BYTES:
            return None
        digest = digest_of(content)
        revision = self._stored.get(digest, ABSENT)
        chunks = _chunk_ops(digest, split_value(content)) if revision == ABSENT else []
        return BlobWrites(
            [*chunks, *_name_ops(job_id, digest, content)],
            {_chunk_key(digest, 0): revision},
            committed=lambda at: self._note_stored(digest, content, at if revision == ABSENT else revision),
            put=lambda: self._put_some(job_id, {digest: content}, is_there=True),
        )

    def at_hand(self, digest: str) -> bytes | None:
        """Return a blob that was written or read here lately, without asking the store."""
        return self._at_hand.get(BlobDigest(digest))

    async def get(self, digest: BlobDigest) -> bytes:
        """Return a blob's plain bytes; `NotFoundError` when there is none, `StateCorruptError` when it is damaged."""
        if (content := self._at_hand.get(digest)) is not None:
            return content
        what = f"blob {digest}"
        values: dict[tuple[Keyspace, str], KeyValue | None] = {}
        numbers = range(1)
        while numbers:
            keys = [_meta_key(digest), *(_chunk_key(digest, n) for n in numbers)]
            values |= (await self._backend.read_txn(keys)).values
            stored = values[_meta_key(digest)]
            if stored is None:
                raise NotFoundError(f"{what} is not known here: no job names it any more")
            meta = BlobMeta.decoded(stored.value, what)
            numbers = range(numbers.stop, meta.chunks)
        content = await apart(meta.size_bytes, _joined, values, meta.chunks, digest)
        self._note_at_hand(digest, content)
        return content

    async def find(self, digest: str, read: Callable[[bytes], _Read]) -> _Read | None:
        """Return what *read* makes of a blob; None, and a warning in the log, for one that is missing or damaged.

        *read* raises `StateCorruptError` for content that it cannot read.
        """
        try:
            content = await self.get(BlobDigest(digest))
            return await apart(len(content), read, content)
        except (NotFoundError, StateCorruptError) as error:
            log.warning("blob_not_read", digest=digest, error=str(error))
            return None

    async def release(self, job_id: JobId, digests: Iterable[BlobDigest]) -> None:
        """Remove the references of *job_id*, and the blobs that are left without any."""
        await self.release_all([(job_id, digest) for digest in digests])

    async def release_all(self, references: Iterable[tuple[JobId, BlobDigest]]) -> None:
        """Remove *references* of any jobs, and the blobs that are left without any."""
        taken_back = sorted(set(references))
        await self._backend.put_all(Delete(Keyspace.Plans, f"{digest}/ref/{job_id}") for job_id, digest in taken_back)
        await self.collect({digest for _, digest in taken_back})

    async def collect(self, digests: Iterable[BlobDigest]) -> None:
        """Remove the blobs without references, and the rest of blobs that were not completely stored."""
        ordered = sorted(digests)
        for start in range(0, len(ordered), _BATCH):
            await self._collect(ordered[start : start + _BATCH])

    async def orphans(self, is_known: Callable[[JobId], bool]) -> tuple[set[tuple[JobId, BlobDigest]], set[BlobDigest]]:
        """Return references by unknown jobs, and blobs without any reference.

        They are left by submissions that broke off, by removed jobs, and by removals that broke off.
        """
        references: set[tuple[JobId, BlobDigest]] = set()
        unnamed: set[BlobDigest] = set()
        named: str | None = None
        async for page in each_page(self._backend.scan_keys, Keyspace.Plans):
            for key in page:
                digest, _, rest = key.partition("/")
                kind, _, job_id = rest.partition("/")
                if kind != "ref":
                    unnamed.add(BlobDigest(digest))
                    continue
                if named != digest:  # keys are in order, hence a blob's references together, and at its end
                    named = digest
                    unnamed.discard(BlobDigest(digest))
                if not is_known(JobId(job_id)):
                    references.add((JobId(job_id), BlobDigest(digest)))
        return references, unnamed

    async def _collect(self, digests: Sequence[BlobDigest]) -> None:
        left = list(digests)
        for number in range(_TRIES):
            found = await self._backend.read_txn(
                [_meta_key(digest) for digest in left],
                [KeyRange(Keyspace.Plans, f"{digest}/ref/", limit=1) for digest in left],
            )
            left = [digest for digest, names in zip(left, found.ranges, strict=True) if not names.items]
            expect = {_meta_key(d): revision_of(found.values[_meta_key(d)]) for d in left}
            if not left or isinstance(
                await self._backend.put_txn(
                    [DeleteRange(Keyspace.Plans, f"{digest}/") for digest in left], expect=expect
                ),
                Committed,
            ):
                for digest in left:
                    self._stored.pop(digest, None)
                    self._at_hand_bytes -= len(self._at_hand.pop(digest, b""))
                return
            await _pause(number)  # another job references one of them, or the outcome is unknown

    async def _put_some(self, job_id: JobId, contents: Mapping[BlobDigest, bytes], *, is_there: bool = False) -> None:
        """Store blobs in one transaction, except chunks that can go before; *is_there*: another writer stored one."""
        stored = {d: _Stored(self._stored.get(d, ABSENT), is_whole=d in self._stored) for d in contents}
        new = [digest for digest in contents if digest not in self._stored]
        # A blob not seen here before is usually new; a conflict tells as much as a read would have.
        if is_there or sum(len(contents[digest]) for digest in new) > _ONE_TXN_BYTES:
            stored |= await self._look(contents if is_there else new)
        for number in range(_TRIES):
            expect = {_chunk_key(digest, 0): each.revision for digest, each in stored.items()}
            expect |= {_meta_key(digest): ABSENT for digest, each in stored.items() if not each.is_whole}
            absent = {digest: contents[digest] for digest, each in stored.items() if not each.is_whole}
            chunks = await apart(sum(map(len, absent.values())), _chunks_of, absent)
            names = [op for digest, content in contents.items() for op in _name_ops(job_id, digest, content)]
            ops = [*chain(*chunks.values()), *names]
            if len(ops) > MAX_TXN_OPS or sum(map(op_bytes, ops)) > _ONE_TXN_BYTES:
                for digest, (_, *others) in chunks.items():
                    if others:
                        expect[_chunk_key(digest, 1)] = await self._put_before(digest, others)
                ops = [*(first for first, *_ in chunks.values()), *names]
            match await self._backend.put_txn(ops, expect=expect):
                case Committed(revision=revision):
                    for digest, each in stored.items():
                        self._note_stored(digest, contents[digest], each.revision if each.is_whole else revision)
                    return
                case Conflict(found=found):  # another scheduler wrote one of them, too, or removed it
                    known = {d: _stored_in(found, d) for d, each in stored.items() if not each.is_whole}
                    moved = [d for d, each in stored.items() if revision_of(found[_chunk_key(d, 0)]) != each.revision]
                    stored |= await self._look(d for d in moved if d not in known)
                    stored |= known
                case OutcomeUnknown():
                    await _pause(number)
                    stored = await self._look(contents)
                case other:
                    raise AssertionError(f"blobs were refused: {other}")
            # No pause between look and write: the longer that takes, the likelier another job changes one of them.
        raise OutcomeUnknownError(f"blobs of job {job_id} could not be stored in {_TRIES} tries; try again")

    async def _put_before(self, digest: BlobDigest, chunks: Sequence[Op]) -> int:
        """Store all chunks of a blob but the first, and return the revision of the second.

        The second is written only if absent, and before all others: while it is at that revision, none was removed.
        """
        second = _chunk_key(digest, 1)
        result = await commit_settled(self._backend, chunks[:1], {second: ABSENT})
        await self._backend.put_all(chunks[1:])
        return result.revision if isinstance(result, Committed) else revision_found(result, second)

    async def _look(self, digests: Iterable[BlobDigest]) -> "dict[BlobDigest, _Stored]":
        keys = {digest: (_chunk_key(digest, 0), _meta_key(digest)) for digest in digests}
        if not keys:
            return {}
        found = await self._backend.read_txn([*chain(*keys.values())])
        return {digest: _stored_in(found.values, digest) for digest in keys}

    def _note_stored(self, digest: BlobDigest, content: bytes, revision: int) -> None:
        self._stored[digest] = revision
        self._stored.move_to_end(digest)
        while len(self._stored) > _STORED:
            self._stored.popitem(last=False)
        self._note_at_hand(digest, content)

    def _note_at_hand(self, digest: BlobDigest, content: bytes) -> None:
        if len(content) > _BESIDE_BYTES or digest in self._at_hand:
            return
        self._at_hand[digest] = content
        self._at_hand_bytes += len(content)
        while self._at_hand_bytes > _AT_HAND_BYTES:
            self._at_hand_bytes -= len(self._at_hand.popitem(last=False)[1])


class _Stored(NamedTuple):
    """What is known of a blob in the store."""

    revision: int
    """The revision of its first chunk."""
    is_whole: bool


async def _pause(number: int) -> None:
    """Pause after failed try *number*, from 0; the second try follows at once."""
    await asyncio.sleep(timing.BLOB_PAUSE_S * (2 ** min(number, 6) - 1))


def _meta_key(digest: BlobDigest) -> tuple[Keyspace, str]:
    return Keyspace.Plans, f"{digest}/meta"


def _chunk_key(digest: BlobDigest, number: int) -> tuple[Keyspace, str]:
    return Keyspace.Plans, f"{digest}/{number}"


def _stored_in(found: Mapping[tuple[Keyspace, str], KeyValue | None], digest: BlobDigest) -> _Stored:
    return _Stored(revision_of(found[_chunk_key(digest, 0)]), is_whole=found[_meta_key(digest)] is not None)


def _name_ops(job_id: JobId, digest: BlobDigest, content: bytes) -> list[Op]:
    meta = BlobMeta(chunks=max(1, -(-len(content) // VALUE_CHUNK_BYTES)), size_bytes=len(content))
    return [
        Put(Keyspace.Plans, f"{digest}/meta", meta.encoded()),
        Put(Keyspace.Plans, f"{digest}/ref/{job_id}", b""),
    ]


def _joined(values: Mapping[tuple[Keyspace, str], KeyValue | None], chunks: int, digest: BlobDigest) -> bytes:
    what = f"blob {digest}"
    pieces = []
    for n in range(chunks):
        stored = values.get(_chunk_key(digest, n))
        if stored is None:
            raise StateCorruptError(f"{what} is damaged: chunk {n} of {chunks} is missing")
        pieces.append(unpack(stored.value, what))
    content = b"".join(pieces)
    if digest_of(content) != digest:
        raise StateCorruptError(f"{what} is damaged: its content has another digest")
    return content


def _chunks_of(contents: Mapping[BlobDigest, bytes]) -> dict[BlobDigest, list[Op]]:
    return {digest: _chunk_ops(digest, split_value(content)) for digest, content in contents.items()}


def _chunk_ops(digest: BlobDigest, pieces: Sequence[bytes]) -> list[Op]:
    return [Put(Keyspace.Plans, f"{digest}/{n}", pack_blob(piece)) for n, piece in enumerate(pieces)]


def blobs_of(graph: ExecutionGraph) -> set[BlobDigest]:
    """Return every blob that the job references."""
    digests = {graph.spec_digest}
    if graph.plan is not None:
        plan = graph.plan
        digests |= {digest for digest in (plan.explain_digest, plan.frame_digest, plan.catalog_digest) if digest}
    digests |= {replan.explain_digest for replan in graph.replans if replan.explain_digest}
    for stage in graph.stages:
        if stage.spec.plan_digest:
            digests.add(stage.spec.plan_digest)
        if stage.spec.feed is not None:
            digests |= {portion.digest for portion in stage.spec.feed.portions}
        digests |= {o.payload_digest for o in stage.ledger.outputs.values() if o.payload_digest}
        digests |= {totals.bound_plan for totals in stage.ledger.operators}
    return {BlobDigest(d) for d in digests}
