"""Bugs of how transactions are settled: those of jobs, and of whatever else is written once."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

from onager.scheduler.jobs import job_log
from onager.scheduler.jobs.job_store import JobStore
from onager.state_backend import (
    Committed,
    Conflict,
    Delete,
    DeleteRange,
    Keyspace,
    Move,
    OutcomeUnknown,
    Put,
    transactions,
)

_settle = JobStore._settle


def _append_expects_no_absence() -> AbstractContextManager[Any]:
    """The next key of the log is not expected to be absent: two schedulers write over each other (X10)."""

    async def settle(self: JobStore, ops: Any, expect: Mapping[Any, int], changes: Any = None) -> int | None:
        return await _settle(self, ops, {k: v for k, v in expect.items() if k[0] is not Keyspace.JobLog}, changes)

    return mock.patch.object(JobStore, "_settle", settle)


def _unknown_is_taken_for_failure() -> AbstractContextManager[Any]:
    """After an unknown outcome the same batch is written again, under the next number."""

    async def settle(self: JobStore, ops: Any, expect: Mapping[Any, int], changes: Any = None) -> int | None:
        if changes is not None:
            return await _settle(self, ops, expect, changes)
        result = await self._backend.put_txn(ops, expect=expect)
        if not isinstance(result, OutcomeUnknown):
            return result.revision if isinstance(result, Committed) else None
        moved = {k: v for k, v in expect.items() if k[0] is not Keyspace.JobLog}
        again = [
            replace(op, key=_next(op.key)) if op.keyspace is Keyspace.JobLog and isinstance(op, Put) else op
            for op in ops
        ]
        return await _settle(self, again, moved, changes)

    return mock.patch.object(JobStore, "_settle", settle)


def _next(key: str) -> str:
    job_id, generation, seq = key.split("/")
    return job_log.log_key(job_id, int(generation), int(seq) + 1)


def _unknown_is_taken_for_success() -> AbstractContextManager[Any]:
    """A write of unknown outcome is believed to have happened."""

    async def settle(self: JobStore, ops: Any, expect: Mapping[Any, int], changes: Any = None) -> int | None:
        if changes is not None:
            return await _settle(self, ops, expect, changes)
        result = await self._backend.put_txn(ops, expect=expect)
        if isinstance(result, OutcomeUnknown):
            return max(expect.values()) + 1
        return result.revision if isinstance(result, Committed) else None

    return mock.patch.object(JobStore, "_settle", settle)


def _end_is_not_atomic() -> AbstractContextManager[Any]:
    """The job leaves its keyspace in one write, and comes into the other by the next (X11)."""

    async def settle(self: JobStore, ops: Any, expect: Mapping[Any, int], changes: Any = None) -> int | None:
        moves = [op for op in ops if isinstance(op, Move)]
        if not moves:
            return await _settle(self, ops, expect, changes)
        leaving = [Delete(op.keyspace, op.key) for op in moves]
        if not isinstance(await self._backend.put_txn(leaving, expect=expect), Committed):
            return None
        coming = [Put(op.to_keyspace, op.key, op.value) if isinstance(op, Move) else op for op in ops]
        return await _settle(self, coming, {}, changes)

    return mock.patch.object(JobStore, "_settle", settle)


def _snapshot_truncates_what_readers_need() -> AbstractContextManager[Any]:
    """Chunks of the snapshot before go before the header names the new one."""

    async def settle(self: JobStore, ops: Any, expect: Mapping[Any, int], changes: Any = None) -> int | None:
        early = [op for op in ops if isinstance(op, DeleteRange) and op.keyspace is Keyspace.GraphChunks]
        if early:
            await self._backend.put_txn(early)
        return await _settle(self, [op for op in ops if op not in early], expect, changes)

    return mock.patch.object(JobStore, "_settle", settle)


def _conflict_is_ignored() -> AbstractContextManager[Any]:
    """A scheduler that loses the race for a log position continues as if it had won (X15: ownership is not checked)."""

    async def settle(self: JobStore, ops: Any, expect: Mapping[Any, int], changes: Any = None) -> int | None:
        return await _settle(self, ops, expect, changes) or max(expect.values()) + 1

    return mock.patch.object(JobStore, "_settle", settle)


def _conflict_is_taken_for_the_own_write() -> AbstractContextManager[Any]:
    """After an unknown outcome, whatever is found counts as written by this very transaction."""

    def earlier(_: Any, __: Any, conflict: Conflict) -> Committed:
        return Committed(conflict.revision)

    return mock.patch.object(transactions, "_earlier", earlier)


OF_TRANSACTIONS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "append-expects-no-absence": _append_expects_no_absence,
    "unknown-taken-for-failure": _unknown_is_taken_for_failure,
    "unknown-taken-for-success": _unknown_is_taken_for_success,
    "end-not-atomic": _end_is_not_atomic,
    "snapshot-truncates-early": _snapshot_truncates_what_readers_need,
    "conflict-ignored": _conflict_is_ignored,
    "conflict-taken-for-own-write": _conflict_is_taken_for_the_own_write,
}
