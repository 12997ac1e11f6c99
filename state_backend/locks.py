"""Locks, fences and moves: recipes over transactions and leases, the same for every adapter.

A lock is a record of the keyspace `Locks`, bound to the holder's lease: it is free once it is released, or the lease
has ended. Taking it expects that there is none. A fence expects the revision at which the holder put it. A waiter puts
a record of its own, bound to its lease, and so notices when that ends.
"""

import asyncio
import json
import os
import secrets
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from onager.errors import (
    InvalidRequestError,
    LeaseExpiredError,
    LockTimeoutError,
    OutcomeUnknownError,
    StateUnavailableError,
    WatchCompactedError,
)
from onager.state_backend.model import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    EventKind,
    Fenced,
    Keyspace,
    LeaseId,
    LockToken,
    Move,
    Op,
    Put,
    SingleOp,
)
from onager.state_backend.transactions import commit_settled, revision_found

if TYPE_CHECKING:
    from onager.state_backend.port import StateBackendClient

_RELEASE_S: Final = 5.0
"""Longest wait for the store by a caller that is done with a lock, or cancelled; then the lease's end releases it."""


async def acquire_lock(
    backend: "StateBackendClient", keyspace: Keyspace, key: str, lease: LeaseId, timeout_s: float | None
) -> LockToken:
    """Take a lock as `StateBackendClient.lock` says, to hold it until its lease ends."""
    loop = asyncio.get_running_loop()
    deadline_s = None if timeout_s is None else loop.time() + timeout_s
    holder = {"holder": f"{socket.gethostname()}/{os.getpid()}", "lease": lease, "nonce": secrets.token_hex(8)}
    record = json.dumps(holder).encode()
    place = _place(keyspace, key)
    while True:
        result = await _try(backend, Put(*place, record, lease))
        if isinstance(result, Committed):
            return LockToken(keyspace, key, result.revision, lease)
        if deadline_s is not None and deadline_s <= loop.time():
            raise LockTimeoutError(f"lock {keyspace}/{key} is held by another after {timeout_s} s")
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                # A key of its own for each wait: a late deletion of the last one is not taken for the lease's end.
                waiting = Put(Keyspace.Locks, f"waiting/{secrets.token_hex(8)}", record, lease)
                await _wait_freed(backend, place, waiting, result)


async def release(backend: "StateBackendClient", token: LockToken) -> None:
    """Free the lock if *token* still holds it; when the store does not answer, the lease's end frees it."""
    place = _place(token.keyspace, token.key)
    with suppress(StateUnavailableError, OutcomeUnknownError, TimeoutError):
        async with asyncio.timeout(_RELEASE_S):
            await commit_settled(backend, [Delete(*place)], {place: token.revision})


async def _try(backend: "StateBackendClient", put: Put) -> Committed | Conflict:
    place = (put.keyspace, put.key)
    attempt = asyncio.ensure_future(commit_settled(backend, [put], {place: ABSENT}))
    try:
        return await asyncio.shield(attempt)
    except asyncio.CancelledError:
        # The caller is gone, but the lock may still be taken in its name: free it.
        with suppress(StateUnavailableError, OutcomeUnknownError, LeaseExpiredError, TimeoutError):
            async with asyncio.timeout(_RELEASE_S):
                if isinstance(taken := await attempt, Committed):
                    await commit_settled(backend, [Delete(*place)], {place: taken.revision})
        raise


async def _wait_freed(backend: "StateBackendClient", place: tuple[Keyspace, str], waiting: Put, held: Conflict) -> None:
    """Return when the lock at *place*, which was *held*, may be free; `LeaseExpiredError` once *waiting* is gone."""
    try:
        await backend.put_all([waiting])
        with suppress(WatchCompactedError):  # then it is time to look, too
            async with backend.watch(Keyspace.Locks, from_revision=held.revision + 1) as events:
                async for event in events:
                    if event.kind is EventKind.DELETE and event.key == waiting.key:
                        raise LeaseExpiredError(f"lease {waiting.lease} is gone, and with it the place in the queue")
                    if event.kind is EventKind.DELETE and (event.keyspace, event.key) == place:
                        return
    finally:
        with suppress(StateUnavailableError, OutcomeUnknownError):
            await backend.delete(waiting.keyspace, waiting.key)


def _place(keyspace: Keyspace, key: str) -> tuple[Keyspace, str]:
    """Return the place of the record that exists while the lock is held."""
    return Keyspace.Locks, f"held/{keyspace}/{key}"


def fenced(
    expect: Mapping[tuple[Keyspace, str], int], fence: Collection[LockToken]
) -> Mapping[tuple[Keyspace, str], int]:
    """Return *expect*, and that the locks of *fence* are still held."""
    if not fence:
        return expect
    # Of two tokens of one lock, the older one counts: it is broken.
    tokens = sorted(fence, key=lambda token: -token.revision)
    return {**{_place(token.keyspace, token.key): token.revision for token in tokens}, **expect}


def unfenced(
    conflict: Conflict, expect: Collection[tuple[Keyspace, str]], fence: Collection[LockToken]
) -> Conflict | Fenced:
    """Return *conflict*, which is with `fenced`, as one with *expect*, unless a fence is broken."""
    for token in fence:
        if revision_found(conflict, _place(token.keyspace, token.key)) != token.revision:
            return Fenced(token)
    return Conflict({place: conflict.found[place] for place in expect}, conflict.revision)


def is_fence_broken(conflict: Conflict, expect: Mapping[tuple[Keyspace, str], int]) -> bool:
    """Return whether one of *expect* was a fence, and is broken."""
    locks = {place: revision for place, revision in expect.items() if place[0] is Keyspace.Locks and revision != ABSENT}
    return any(revision_found(conflict, place) != revision for place, revision in locks.items())


def single_ops(ops: Collection[Op], expect: Mapping[tuple[Keyspace, str], int]) -> Collection[SingleOp]:
    """Return *ops* with each move as what it consists of; `InvalidRequestError` unless *expect* guards it."""
    singles: list[SingleOp] = []
    for op in ops:
        if not isinstance(op, Move):
            singles.append(op)
            continue
        if not expect.get((op.keyspace, op.key)) or expect.get((op.to_keyspace, op.key)) != ABSENT:
            raise InvalidRequestError(
                f"a move of {op.keyspace}/{op.key} has to expect its revision, and that {op.to_keyspace} lacks it"
            )
        singles += [Put(op.to_keyspace, op.key, op.value), Delete(op.keyspace, op.key)]
    return singles
