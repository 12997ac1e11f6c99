"""Recipes over `StateBackendClient.put_txn`: transactions whose outcome is known in the end."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from onager.errors import LeaseExpiredError, OutcomeUnknownError, StateUnavailableError
from onager.state_backend.model import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    Fenced,
    Keyspace,
    KeyValue,
    LockToken,
    Move,
    Op,
    OutcomeUnknown,
    Put,
)

if TYPE_CHECKING:
    from onager.state_backend.port import StateBackendClient

_TRIES: Final = 20
_PAUSE_S: Final = 0.02
"""After the second try of a write whose outcome is unknown; each further pause is longer by this."""

_Seen = TypeVar("_Seen")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Write(Generic[_Result]):
    """A decision to write *ops* if *expect* holds, as in `commit_settled`.

    *written* takes the revision of the commit, and returns the result.
    """

    ops: Collection[Op]
    expect: Mapping[tuple[Keyspace, str], int]
    written: Callable[[int], _Result]


async def transact(
    backend: "StateBackendClient",
    what: str,
    read: Callable[[], Awaitable[_Seen]],
    decide: Callable[[_Seen], Write[_Result] | _Result],
    *,
    tries: int = _TRIES,
) -> _Result:
    """Read, decide and write, again for as long as others change meanwhile what was read; return the result.

    *decide* has no effects of its own: it is asked anew after each conflict. `StateUnavailableError`, which names
    *what*, when others were first *tries* times; `OutcomeUnknownError` as in `commit_settled`.
    """
    for number in range(tries):
        decision = decide(await read())
        if not isinstance(decision, Write):
            return decision
        result = await commit_settled(backend, decision.ops, decision.expect)
        if isinstance(result, Committed):
            return decision.written(result.revision)
        await asyncio.sleep(_PAUSE_S * number)
    raise StateUnavailableError(f"{what} changes too often: others were first {tries} times; try again")


async def commit_settled(
    backend: "StateBackendClient",
    ops: Collection[Op],
    expect: Mapping[tuple[Keyspace, str], int],
    fence: Collection[LockToken] = (),
) -> Committed | Conflict:
    """Write *ops* if every expectation holds; while the outcome is unknown, write the same again.

    If *ops* change a key of *expect* that nobody deletes, only one of these writes can happen. A conflict after an
    unknown outcome then says which: the first key, in the order of *expect*, that *ops* put has the value that they
    put, or another. Where it matters who wrote, that value names the writer. `OutcomeUnknownError` when the store does
    not say for long, `LeaseExpiredError` when a lock of *fence* is lost.
    """
    is_unsure = False
    for number in range(_TRIES):
        try:
            result = await backend.put_txn(ops, expect=expect, fence=fence)
        except StateUnavailableError as error:
            if is_unsure:
                raise OutcomeUnknownError(f"an earlier try may have been written: {error}") from error
            raise
        match result:
            case Committed():
                return result
            case Conflict():
                return (_earlier(ops, expect, result) if is_unsure else None) or result
            case OutcomeUnknown():
                is_unsure = True
                await asyncio.sleep(_PAUSE_S * number)
            case Fenced(token):
                raise LeaseExpiredError(f"lock {token.keyspace}/{token.key} is lost: its lease ended")
    where = next(iter(expect), None) or "the store"
    raise OutcomeUnknownError(f"a write to {where} could not be settled in {_TRIES} tries: read it, and try again")


def revision_found(conflict: Conflict, place: tuple[Keyspace, str]) -> int:
    """Return the revision at which *place* was found, or `ABSENT`."""
    return revision_of(conflict.found[place])


def revision_of(item: KeyValue | None) -> int:
    """Return the revision of *item*, or `ABSENT` if there is none."""
    return ABSENT if item is None else item.mod_revision


def _earlier(ops: Collection[Op], expect: Mapping[tuple[Keyspace, str], int], conflict: Conflict) -> Committed | None:
    """Return the commit of an earlier try of *ops*, if *conflict* is with that."""
    written = {(op.keyspace, op.key): op.value for op in ops if isinstance(op, Put)}
    written |= {(op.to_keyspace, op.key): op.value for op in ops if isinstance(op, Move)}
    gone = {(op.keyspace, op.key) for op in ops if isinstance(op, Delete | Move)}
    own = [place for place in expect if place in written or place in gone]
    if any(revision_found(conflict, place) == expect[place] for place in own):
        return None  # an earlier try would have changed it
    for place in own:
        if place in written:
            found = conflict.found[place]
            is_own = found is not None and found.value == written[place]
            return Committed(found.mod_revision) if found is not None and is_own else None
    is_gone = bool(own) and all(conflict.found[place] is None for place in own)
    return Committed(conflict.revision, 1) if is_gone else None
