"""The port to the store that holds all truth: `StateBackendClient`, and what every adapter promises.

**Revisions.** The store has one revision. Every commit that changes something raises it by at least one and is visible
as a whole or not at all; the keys that it puts carry it as their `mod_revision`. Revisions never go back, not even over
restarts, and no two commits share one.

**Consistency.** Reads are linearizable: they see every commit, by any client, that was acknowledged before they began.

**Durability.** Acknowledged writes survive `kill -9` of any process and loss of power (the memory adapter excepted).

**Keys** are non-empty text of any characters (slashes, NUL and all planes of Unicode included), kept as
UTF-8 and ordered by those bytes; keys of different keyspaces never meet. Values are bytes, possibly empty.
A prefix is empty or ends with ``/``.

**Limits** (`onager.state_backend.limits`) are checked before anything is sent: `LimitExceededError` means that
nothing was written.

**Errors.** Besides those named by a method, each can raise `StateUnavailableError` (nothing was written,
try again), `StateCorruptError` and, from the writing methods without a `TxnResult`, `OutcomeUnknownError`.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self, final

from onager.errors import InvalidRequestError, LimitExceededError, OutcomeUnknownError
from onager.state_backend.limits import MAX_TXN_OPS, check_key, check_prefix, check_txn, split_ops
from onager.state_backend.locks import acquire_lock, fenced, release, single_ops, unfenced
from onager.state_backend.model import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    DeleteRange,
    KeyRange,
    Keyspace,
    KeyValue,
    Lease,
    LeaseId,
    LockToken,
    Move,
    Op,
    OutcomeUnknown,
    Page,
    Put,
    SingleOp,
    Snapshot,
    TxnResult,
    WatchEvent,
)
from onager.state_backend.transactions import commit_settled


class StateBackendClient(ABC):
    """A client of the store; safe for any number of tasks of one event loop at once.

    The public methods check the contract and are the same for all; an adapter implements the primitives
    below them. Cancelling a call that writes leaves its outcome unknown.
    """

    # -- reading

    @final
    async def get(self, keyspace: Keyspace, key: str) -> KeyValue | None:
        """Return the key as it is now, or `None` when it is missing."""
        check_key(key)
        return (await self._read([(keyspace, key)], ())).values[keyspace, key]

    @final
    async def get_from_prefix(self, keyspace: Keyspace, prefix: str) -> Page[KeyValue]:
        """Return all keys below *prefix* at one revision: for listings that are known to be small."""
        check_prefix(prefix)
        return (await self._read((), [KeyRange(keyspace, prefix)])).ranges[0]

    @final
    async def scan(
        self, keyspace: Keyspace, prefix: str = "", *, limit: int, start_after: str | None = None
    ) -> Page[KeyValue]:
        """Return at most *limit* keys below *prefix* that come after *start_after*.

        Each page is at a revision of its own.
        """
        key_range = _checked(KeyRange(keyspace, prefix, start_after, limit))
        return (await self._read((), [key_range])).ranges[0]

    @final
    async def scan_keys(
        self, keyspace: Keyspace, prefix: str = "", *, limit: int, start_after: str | None = None
    ) -> Page[str]:
        """Return what `scan` would, but only the keys, without transferring the values."""
        return await self._read_keys(_checked(KeyRange(keyspace, prefix, start_after, limit)))

    @final
    async def read_txn(self, keys: Collection[tuple[Keyspace, str]] = (), ranges: Sequence[KeyRange] = ()) -> Snapshot:
        """Return *keys* and *ranges* as they were at one revision; at most `MAX_TXN_OPS` of both together."""
        if len(keys) + len(ranges) > MAX_TXN_OPS:
            raise LimitExceededError(
                f"a read of {len(keys) + len(ranges)} keys and ranges is more than the limit of {MAX_TXN_OPS}"
            )
        for _, key in keys:
            check_key(key)
        for key_range in ranges:
            _checked(key_range)
        return await self._read(keys, ranges)

    # -- writing

    @final
    async def put(self, keyspace: Keyspace, key: str, value: bytes, *, lease: LeaseId | None = None) -> int:
        """Set a key unconditionally; return its new `mod_revision`.

        `LeaseExpiredError` when the lease is gone.
        """
        return (await self._unconditional(Put(keyspace, key, value, lease))).revision

    @final
    async def delete(self, keyspace: Keyspace, key: str) -> bool:
        """Remove a key unconditionally; return whether it was there."""
        return (await self._unconditional(Delete(keyspace, key))).deleted > 0

    @final
    async def delete_range(self, keyspace: Keyspace, prefix: str) -> int:
        """Remove every key below *prefix* in one atomic operation; return how many there were."""
        return (await self._unconditional(DeleteRange(keyspace, prefix))).deleted

    @final
    async def put_txn(
        self,
        ops: Collection[Op],
        *,
        expect: Mapping[tuple[Keyspace, str], int] | None = None,
        fence: Collection[LockToken] = (),
    ) -> TxnResult:
        """Write all of *ops* in one commit if every expectation and every fence holds; else write nothing.

        *expect* maps a key to the `mod_revision` that it must have, or `ABSENT`; *fence* holds tokens whose
        locks must still be held. A broken fence is reported before a broken expectation. All puts of the
        transaction get one `mod_revision`; watchers see its changes in the order of *ops*. A key may be
        written only once, and not in a range that is deleted with it (`InvalidRequestError`).
        `LeaseExpiredError` when the lease of a put is gone: nothing was written.
        """
        expect = {} if expect is None else expect
        singles, conditions = single_ops(ops, expect), fenced(expect, fence)
        check_txn(singles, conditions)
        result = await self._commit(singles, conditions)
        return unfenced(result, expect, fence) if fence and isinstance(result, Conflict) else result

    @final
    async def put_all(self, ops: Iterable[Op]) -> dict[tuple[Keyspace, str], int]:
        """Write *ops* unconditionally, in as many commits as they need; return the revisions of what they put.

        Only for ops that may be repeated: those whose outcome is unknown are written again.
        """
        revisions: dict[tuple[Keyspace, str], int] = {}
        for batch in split_ops(ops):
            written = await commit_settled(self, batch, {})
            revisions |= {(op.keyspace, op.key): written.revision for op in batch if isinstance(op, Put)}
        return revisions

    @final
    async def mv(
        self,
        keyspace: Keyspace,
        key: str,
        to_keyspace: Keyspace,
        *,
        value: bytes | None = None,
        expected_revision: int | None = None,
        fence: Collection[LockToken] = (),
    ) -> TxnResult:
        """Move a key to *to_keyspace* under the same name, in one commit; a lease does not follow.

        It gets the new *value*, if there is one. `Conflict`, with both keys as found, when the source is missing, is
        not at *expected_revision*, or changes under the move, or when the target exists.
        """
        if keyspace == to_keyspace:
            raise InvalidRequestError(f"{keyspace}/{key} cannot be moved to where it is")
        check_key(key)
        source, target = (keyspace, key), (to_keyspace, key)
        seen = await self._read([source, target], ())
        found = seen.values[source]
        if found is None or expected_revision not in (None, found.mod_revision):
            return Conflict(seen.values, seen.revision)
        moved = Move(keyspace, key, to_keyspace, found.value if value is None else value)
        return await self.put_txn([moved], expect={source: found.mod_revision, target: ABSENT}, fence=fence)

    # -- leases and locks

    @final
    async def lease(self, ttl_s: float) -> Lease:
        """Grant a lease that ends *ttl_s* seconds after it was last kept alive, with its keys and locks.

        The store may round *ttl_s* up, and may let a lease live longer (a new leader or a restarted
        embedded store gives every lease its whole time again), never shorter.
        """
        if ttl_s <= 0:
            raise InvalidRequestError(f"a lease of {ttl_s} s has no time to live")
        return await self._grant(ttl_s)

    @abstractmethod
    async def keep_alive(self, lease: LeaseId) -> None:
        """Renew *lease* for its whole time; any client may. `LeaseExpiredError` when it is gone."""

    @abstractmethod
    async def revoke(self, lease: LeaseId) -> None:
        """End *lease* now: its keys are deleted, its locks released. One that is gone is no error."""

    @final
    @asynccontextmanager
    async def lock(
        self, keyspace: Keyspace, key: str, lease: LeaseId, *, timeout_s: float | None = None
    ) -> AsyncIterator[LockToken]:
        """Hold the lock *key* of *keyspace* inside the block, for as long as *lease* lives.

        Yield its token.

        The lock is unrelated to a key of that name. It excludes others only as far as writes carry the token as
        `fence`: a holder that was paused past its lease goes on unaware, and its fenced writes are refused. Not
        re-entrant; waiters get it in no promised order. `LockTimeoutError` when another holds it for *timeout_s*
        seconds (0: do not wait); `LeaseExpiredError` when the lease is gone. Leaving the block releases only this very
        lock; when the store does not answer then, or while the lock is taken, the lease's end releases it. So take a
        lease of its own for each lock.
        """
        check_key(key)
        token = await self._acquire(keyspace, key, lease, timeout_s)
        try:
            yield token
        finally:
            await self._release(token)

    async def _acquire(self, keyspace: Keyspace, key: str, lease: LeaseId, timeout_s: float | None) -> LockToken:
        return await acquire_lock(self, keyspace, key, lease, timeout_s)

    async def _release(self, token: LockToken) -> None:
        await release(self, token)

    # -- watching

    @final
    def watch(
        self, keyspace: Keyspace, prefix: str = "", *, from_revision: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Open a watch: ``async with backend.watch(ks, from_revision=page.revision + 1) as events``.

        Yields every change of a key below *prefix* by a commit at *from_revision* or later (default: later than the
        entry of the block), once, in order of revision, and inside one commit in the order of its operations (a range's
        keys by their bytes). A delete is reported with an empty value, also one by a lease's end. Raises
        `WatchCompactedError`, on entry or while iterating, when events were lost: list again. Watches say when to look;
        decisions must rest on reads and expectations.
        """
        check_prefix(prefix)
        if from_revision is not None and from_revision < 1:
            raise InvalidRequestError(f"a watch starts at revision 1 or later, not {from_revision}")
        return self._watch(keyspace, prefix, from_revision)

    # -- life

    @abstractmethod
    async def close(self) -> None:
        """Release the store; leases live on until they end.

        Calls after it raise `StateUnavailableError`; a second close does nothing.
        """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- what adapters implement: arguments are checked, results are as the public methods promise

    @abstractmethod
    async def _read(self, keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> Snapshot: ...

    @abstractmethod
    async def _read_keys(self, key_range: KeyRange) -> Page[str]: ...

    @abstractmethod
    async def _commit(self, ops: Collection[SingleOp], expect: Mapping[tuple[Keyspace, str], int]) -> TxnResult: ...

    @abstractmethod
    async def _grant(self, ttl_s: float) -> Lease: ...

    @abstractmethod
    def _watch(
        self, keyspace: Keyspace, prefix: str, from_revision: int | None
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]: ...

    async def _unconditional(self, op: SingleOp) -> Committed:
        check_txn([op], {})
        match await self._commit([op], {}):
            case Committed() as committed:
                return committed
            case OutcomeUnknown(why):
                raise OutcomeUnknownError(f"{type(op).__name__} on {op.keyspace} may or may not have happened: {why}")
            case other:
                raise AssertionError(f"an unconditional write was refused: {other}")


def _checked(key_range: KeyRange) -> KeyRange:
    check_prefix(key_range.prefix)
    if key_range.start_after is not None:
        check_key(key_range.start_after)
    if key_range.limit is not None and key_range.limit < 1:
        raise InvalidRequestError(f"a limit of {key_range.limit} reads nothing")
    return key_range
