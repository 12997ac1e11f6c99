"""Blobs: stage plans, job specs, manifests and explanations, by the SHA-256 of their plain bytes.

A blob's keys in `Keyspace.Plans` are ``digest/n`` (its chunks, each compressed for itself, so that two writers of the
same blob can never spoil each other's), ``digest/meta`` (how many there are), and ``digest/ref/job`` (who names it).
Whoever names a blob puts ``meta`` anew together with its own reference; whoever collects it expects ``meta`` as it was
when no reference was left. So a blob cannot go while somebody begins to use it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from onager.errors import NotFoundError, OutcomeUnknownError, StateCorruptError
from onager.ids import BlobDigest, JobId
from scheduler.records import Record, pack_blob, unpack
from state_backend import (
    ABSENT,
    MAX_TXN_OPS,
    Committed,
    Conflict,
    DeleteRange,
    KeyRange,
    Keyspace,
    KeyValue,
    Op,
    OutcomeUnknown,
    Put,
    StateBackendClient,
    op_bytes,
    split_ops,
    split_value,
)

_TRIES: Final = 20
_PAGE: Final = 1_000
_BATCH: Final = 24
"""Blobs named in one transaction: each takes two operations and one condition."""
_NAMED: Final = 1_000
_ONE_TXN_BYTES: Final = 1024 * 1024
"""Chunks above this go first, in transactions of their own, and are named at the end."""
_BESIDE_BYTES: Final = 64 * 1024
"""A blob up to this size may go with what else is written."""
_AT_HAND: Final = 64


class BlobMeta(Record):
    """How many chunks a blob has, and how many plain bytes."""

    chunks: int
    size_bytes: int


def digest_of(content: bytes) -> BlobDigest:
    """Return the name of the blob with *content*."""
    return BlobDigest(hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, slots=True)
class BlobWrites:
    """What stores blobs, to go with something else in one transaction."""

    ops: Sequence[Op]
    expect: Mapping[tuple[Keyspace, str], int]
    committed: Callable[[int], None]
    """To be told the revision."""
    put: Callable[[], Awaitable[None]]
    """Stores them alone, whatever there is already: to be asked when the transaction was not committed."""


class BlobStore:
    """Blobs in the state backend; a blob stays for as long as some job's reference to it does."""

    def __init__(self, backend: StateBackendClient) -> None:
        self._backend = backend
        self._named: OrderedDict[BlobDigest, int] = OrderedDict()
        """The revisions at which this replica named blobs last: queries come again."""
        self._at_hand: OrderedDict[BlobDigest, bytes] = OrderedDict()
        """What was stored with new jobs a moment ago."""

    async def put(self, job_id: JobId, blobs: Iterable[bytes]) -> None:
        """Store *blobs*, durable when this returns, with a reference by *job_id*; repeating changes nothing."""
        contents = {digest_of(content): content for content in blobs}
        digests = sorted(contents)
        for start in range(0, len(digests), _BATCH):
            await self._put_some(job_id, {d: contents[d] for d in digests[start : start + _BATCH]})

    def writes(self, job_id: JobId, content: bytes) -> BlobWrites | None:
        """Return what stores a blob, as far as is known here, with a reference by *job_id*.

        None for one that is too large to go with something else.
        """
        if len(content) > _BESIDE_BYTES:
            return None
        digest = digest_of(content)
        revision = self._named.get(digest, ABSENT)
        pieces = split_value(content)
        chunks = _chunk_ops(digest, pieces) if revision == ABSENT else []
        names = _name_ops(job_id, digest, BlobMeta(chunks=len(pieces), size_bytes=len(content)))
        return BlobWrites(
            [*chunks, *names],
            {_meta_key(digest): revision},
            committed=lambda at: self._note_stored(digest, content, at),
            put=lambda: self.put(job_id, [content]),
        )

    def at_hand(self, digest: str) -> bytes | None:
        """Return a blob that went with a new job, if that was stored here a moment ago."""
        return self._at_hand.get(BlobDigest(digest))

    async def get(self, digest: BlobDigest) -> bytes:
        """Return a blob's plain bytes; `NotFoundError` when there is none, `StateCorruptError` when it is damaged."""
        what = f"blob {digest}"
        found = await self._backend.read_txn(ranges=[KeyRange(Keyspace.Plans, f"{digest}/")])
        values = {item.key.removeprefix(f"{digest}/"): item.value for item in found.ranges[0]}
        if "meta" not in values:
            raise NotFoundError(f"{what} is not known here: no job names it any more")
        meta = BlobMeta.decoded(values["meta"], what)
        try:
            content = b"".join(unpack(values[str(n)], what) for n in range(meta.chunks))
        except KeyError as error:
            raise StateCorruptError(f"{what} is damaged: chunk {error} of {meta.chunks} is missing") from error
        if digest_of(content) != digest:
            raise StateCorruptError(f"{what} is damaged: its content has another digest")
        return content

    async def release(self, job_id: JobId, digests: Iterable[BlobDigest]) -> None:
        """Take back the references of *job_id*, and remove the blobs that nobody names any more."""
        for digest in sorted(set(digests)):
            await self._backend.delete(Keyspace.Plans, f"{digest}/ref/{job_id}")
            await self._collect(digest)

    async def orphans(self, is_known: Callable[[JobId], bool]) -> set[tuple[JobId, BlobDigest]]:
        """Return the references by jobs that are not known: of submissions that broke off, or removed jobs."""
        found: set[tuple[JobId, BlobDigest]] = set()
        start_after: str | None = None
        while True:
            page = await self._backend.scan_keys(Keyspace.Plans, limit=_PAGE, start_after=start_after)
            for key in page:
                digest, _, rest = key.partition("/")
                kind, _, job_id = rest.partition("/")
                if kind == "ref" and not is_known(JobId(job_id)):
                    found.add((JobId(job_id), BlobDigest(digest)))
            if not page.has_more:
                return found
            start_after = page.items[-1]

    async def _collect(self, digest: BlobDigest) -> None:
        prefix = f"{digest}/"
        for _ in range(_TRIES):
            found = await self._backend.read_txn(
                [(Keyspace.Plans, f"{prefix}meta")], [KeyRange(Keyspace.Plans, f"{prefix}ref/", limit=1)]
            )
            meta = found.values[Keyspace.Plans, f"{prefix}meta"]
            if meta is None or found.ranges[0].items:
                return
            result = await self._backend.put_txn(
                [DeleteRange(Keyspace.Plans, prefix)],
                expect={(Keyspace.Plans, f"{prefix}meta"): meta.mod_revision},
            )
            if isinstance(result, Committed):
                return

    async def _put_some(self, job_id: JobId, contents: Mapping[BlobDigest, bytes]) -> None:
        is_small = sum(map(len, contents.values())) <= _ONE_TXN_BYTES
        # What was not named here before is new, most of the time; a conflict tells as much as a look would have.
        revisions = {d: self._named.get(d, ABSENT) for d in contents} if is_small else await self._revisions(contents)
        for _ in range(_TRIES):
            chunks: list[Op] = []
            names: list[Op] = []
            for digest, content in contents.items():
                pieces = split_value(content)
                if revisions[digest] == ABSENT:
                    chunks += _chunk_ops(digest, pieces)
                names += _name_ops(job_id, digest, BlobMeta(chunks=len(pieces), size_bytes=len(content)))
            ops = [*chunks, *names]
            if len(ops) > MAX_TXN_OPS or sum(map(op_bytes, ops)) > _ONE_TXN_BYTES:
                for batch in split_ops(chunks):
                    await self._write(batch)
                ops = names
            match await self._backend.put_txn(ops, expect={_meta_key(d): at for d, at in revisions.items()}):
                case Committed(revision=revision):
                    self._note_named(contents, revision)
                    return
                case Conflict(found=found):
                    revisions = _revisions_in(found, contents)  # somebody else names one of them, too
                case OutcomeUnknown():
                    revisions = await self._revisions(contents)
                case other:
                    raise AssertionError(f"blobs were refused: {other}")
        raise OutcomeUnknownError(f"blobs of job {job_id} could not be stored in {_TRIES} tries; try again")

    async def _revisions(self, digests: Iterable[BlobDigest]) -> dict[BlobDigest, int]:
        found = await self._backend.read_txn([_meta_key(digest) for digest in digests])
        return _revisions_in(found.values, digests)

    def _note_named(self, digests: Iterable[BlobDigest], revision: int) -> None:
        for digest in digests:
            self._named[digest] = revision
            self._named.move_to_end(digest)
        while len(self._named) > _NAMED:
            self._named.popitem(last=False)

    def _note_stored(self, digest: BlobDigest, content: bytes, revision: int) -> None:
        self._note_named([digest], revision)
        self._at_hand[digest] = content
        while len(self._at_hand) > _AT_HAND:
            self._at_hand.popitem(last=False)

    async def _write(self, batch: Sequence[Op]) -> None:
        for _ in range(_TRIES):
            if isinstance(await self._backend.put_txn(batch), Committed):
                return
        raise OutcomeUnknownError("chunks of a blob could not be stored; try again")


def _meta_key(digest: BlobDigest) -> tuple[Keyspace, str]:
    return Keyspace.Plans, f"{digest}/meta"


def _revisions_in(
    found: Mapping[tuple[Keyspace, str], KeyValue | None], digests: Iterable[BlobDigest]
) -> dict[BlobDigest, int]:
    metas = {digest: found[_meta_key(digest)] for digest in digests}
    return {digest: ABSENT if meta is None else meta.mod_revision for digest, meta in metas.items()}


def _name_ops(job_id: JobId, digest: BlobDigest, meta: BlobMeta) -> list[Op]:
    return [
        Put(Keyspace.Plans, f"{digest}/meta", meta.encoded()),
        Put(Keyspace.Plans, f"{digest}/ref/{job_id}", b""),
    ]


def _chunk_ops(digest: BlobDigest, pieces: Sequence[bytes]) -> list[Op]:
    return [Put(Keyspace.Plans, f"{digest}/{n}", pack_blob(piece)) for n, piece in enumerate(pieces)]
