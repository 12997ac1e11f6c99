"""Restores a backup into a store that no scheduler uses.

During a restore the store holds a mark (``Admin/restore``). Schedulers refuse to start on such a store, and the mark is
removed only when everything is written. So an interrupted restore is noticed, and a repeated one starts from nothing. A
restore holds the lock of that name, and every batch is fenced by it, so two of them cannot mix.
"""

import asyncio
import json
import secrets
from collections.abc import Iterable
from typing import Final, NamedTuple

from onager.clock import Clock
from onager.errors import (
    InvalidRequestError,
    LeaseExpiredError,
    LockTimeoutError,
    StateBackendError,
    StateCorruptError,
)
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import Caller
from onager.scheduler.jobs.audit import DONE, AuditRecord
from onager.scheduler.records import Record, pack, unpack
from onager.state_admin.paths import keyspace_of
from onager.state_backend import (
    ABSENT,
    MAX_REQUEST_BYTES,
    Conflict,
    Delete,
    DeleteRange,
    KeyRange,
    Keyspace,
    LockToken,
    Op,
    Put,
    StateBackendClient,
    commit_settled,
    keep_lease,
    split_ops,
)

MARK_KEY: Final = "restore"
_MARK: Final = (Keyspace.Admin, MARK_KEY)
_KEPT: Final = (Keyspace.Admin, Keyspace.Audit, Keyspace.Locks)
_FORGOTTEN: Final = {Keyspace.Executors: "lease_id", Keyspace.Places: "generation"}
"""Numbers that mean something else by now: a lease may be another one here, and directories have newer generations."""
_BATCH_BYTES: Final = MAX_REQUEST_BYTES - 64 * 1024
"""This leaves room for the fence."""
_LEASE_TTL_S: Final = 30.0
"""How long a restore that was killed keeps others waiting, and how long deleting a keyspace may take: LevelDB deletes
some 900,000 records in that time, and keeps no lease alive meanwhile."""
_WAIT_S: Final = 1.5 * _LEASE_TTL_S
_NOT_ALONE: Final = (
    f"another restore into this store is under way, or has just ended, or this one was held up for {_LEASE_TTL_S:g} s: "
    "see that only one runs"
)


class RestoreMark(Record):
    """Says that a restore began and has not ended."""

    started_ms: int
    file: str
    records: int
    nonce: str
    """Distinguishes this restore from any other of the same file."""


class Target(NamedTuple):
    """The content of the store before a restore."""

    counts: dict[str, int]
    """Records by keyspace, of those that a restore deletes; counting stops at `_COUNTED`."""
    mark: RestoreMark | None
    mark_revision: int
    living: tuple[str, ...]
    """Executors and schedulers that called lately: some scheduler uses the store."""


_COUNTED: Final = 100_000


async def look_at_target(backend: StateBackendClient) -> Target:
    """Return the current content of the store."""
    counts: dict[str, int] = {}
    for keyspace in Keyspace:
        page = await backend.scan_keys(keyspace, limit=_COUNTED)
        if page.items and keyspace not in _KEPT:
            counts[keyspace.value] = len(page)
    seen = await backend.read_txn(
        [_MARK], [KeyRange(Keyspace.Heartbeats, limit=10), KeyRange(Keyspace.Schedulers, limit=10)]
    )
    found = seen.values[_MARK]
    return Target(
        counts,
        None if found is None else RestoreMark.decoded(found.value, "the mark of a restore"),
        ABSENT if found is None else found.mod_revision,
        tuple(
            [f"executor {item.key}" for item in seen.ranges[0]] + [f"scheduler {item.key}" for item in seen.ranges[1]]
        ),
    )


async def check_no_restore_pending(backend: StateBackendClient) -> None:
    """Raise `StateCorruptError` when a restore into the store did not finish."""
    found = await backend.get(*_MARK)
    if found is not None:
        mark = RestoreMark.decoded(found.value, "the mark of a restore")
        raise StateCorruptError(
            f"the restore of {mark.file} into this store was not finished, so most of its records may be missing: "
            "run it again (onager state restore FILE --backend URL), then start the scheduler"
        )


async def restore_records(
    backend: StateBackendClient,
    target: Target,
    records: Iterable[pb.StateRecord],
    mark: RestoreMark,
    caller: Caller,
    clock: Clock,
) -> int:
    """Delete the store's content, write *records*, and return how many; *target* is the content that was seen.

    The audit of the store stays, beside that of the backup, and the end of the restore is recorded with the records.
    `InvalidRequestError` when another restore is in progress, or has left its mark since *target* was seen.
    """
    try:
        async with (
            keep_lease(backend, _LEASE_TTL_S, clock) as kept,
            backend.lock(*_MARK, kept.id, timeout_s=_WAIT_S) as token,
        ):
            return await _restore(backend, target, records, mark, caller, token)
    except (LockTimeoutError, LeaseExpiredError) as error:
        raise InvalidRequestError(_NOT_ALONE) from error


async def _restore(
    backend: StateBackendClient,
    target: Target,
    records: Iterable[pb.StateRecord],
    mark: RestoreMark,
    caller: Caller,
    token: LockToken,
) -> int:
    begin = [Put(*_MARK, mark.encoded())]
    if isinstance(await commit_settled(backend, begin, {_MARK: target.mark_revision}, [token]), Conflict):
        raise InvalidRequestError(_NOT_ALONE)
    # One by one: each has to end before the lease does.
    for keyspace in Keyspace:
        if keyspace not in _KEPT:
            await commit_settled(backend, [DeleteRange(keyspace, "")], {}, [token])
    written = 0
    for batch in split_ops((_op(record) for record in records), _BATCH_BYTES):
        await commit_settled(backend, batch, {}, [token])
        written += len(batch)
        await asyncio.sleep(0)
    if written != mark.records:
        raise StateCorruptError(f"the backup has {written} records where {mark.records} were counted before")
    await commit_settled(backend, [Delete(*_MARK), _audited(mark, caller)], {}, [token])
    return written


def _audited(mark: RestoreMark, caller: Caller) -> Put:
    record = AuditRecord(
        at_ms=mark.started_ms,
        principal=caller.principal,
        address=caller.address,
        action="restore",
        target=mark.file,
        outcome=f"{DONE}: {mark.records} records",
    )
    return Put(Keyspace.Audit, f"{record.key_prefix}{mark.nonce}", record.encoded())


def _op(record: pb.StateRecord) -> Op:
    keyspace = keyspace_of(record.keyspace)
    forgotten = _FORGOTTEN.get(keyspace)
    return Put(keyspace, record.key, record.value if forgotten is None else _without(forgotten, record.value))


def _without(field: str, value: bytes) -> bytes:
    """Return a record without the number in *field*."""
    try:
        fields = json.loads(unpack(value, "a record"))
    except (ValueError, StateBackendError):
        return value  # it was damaged before; state check reports it
    if not isinstance(fields, dict) or field not in fields:
        return value
    return pack(json.dumps({**fields, field: 0}, ensure_ascii=False, separators=(",", ":")).encode())


def new_mark(clock: Clock, file: str, records: int) -> RestoreMark:
    """Return the mark of a restore that begins now."""
    return RestoreMark(started_ms=clock.now_ms(), file=file, records=records, nonce=secrets.token_hex(8))
