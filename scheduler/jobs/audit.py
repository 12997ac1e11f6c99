"""Who changed what; `audit_notes` has everyday acts.

    Audit/at_ms-scheduler-random    who asked which scheduler for what, and what came of it

A record is stored before the act, as ``begun``, and again after it, with the outcome. An act whose record cannot be
stored is refused. One that stays ``begun`` may be done or not: the scheduler died, the caller left, or the store failed
in between. There is one exception: a full store takes no record, but has to take the removals that make space in it.
Then the log has the record (``audit_record_not_stored``).
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from onager.clock import Clock
from onager.errors import OnagerError, StateFullError
from onager.protocol.security import Caller
from onager.scheduler.records import Record
from onager.state_backend import Keyspace, StateBackendClient

log = structlog.get_logger(__name__)

BEGUN: Final = "begun"
DONE: Final = "done"
_TEXT_CHARS: Final = 1_000


class AuditRecord(Record):
    """One act, at somebody's request."""

    at_ms: int
    principal: str = ""
    """The name of the caller's token, if it has one; of a command that opened the store itself, the user's name."""
    address: str = ""
    """The caller's address, or the host of such a command."""
    scheduler_id: str = ""
    """Empty for such a command."""
    action: str
    target: str
    """The job, path or file."""
    detail: str = ""
    outcome: str = BEGUN
    """`BEGUN`, `DONE`, or why it was not done."""

    @property
    def key_prefix(self) -> str:
        """Return how its key begins, so that keys are in the order of time."""
        return f"{since_key(self.at_ms)}-{self.scheduler_id}-"


@dataclass(slots=True)
class Act:
    """An act that is under way."""

    key: str
    """The key of its record."""
    outcome: str = DONE
    """What is stored at its end, if it raises nothing."""


class Audit:
    """Records the acts that one process does."""

    def __init__(self, backend: StateBackendClient, clock: Clock, scheduler_id: str = "") -> None:
        self._backend = backend
        self._clock = clock
        self._scheduler_id = scheduler_id

    @asynccontextmanager
    async def act(self, caller: Caller, action: str, target: str, detail: str = "") -> AsyncIterator[Act]:
        """Record the body as an act; raises what storing the record raises, before the body begins."""
        record = AuditRecord(
            at_ms=self._clock.now_ms(),
            principal=caller.principal,
            address=caller.address,
            scheduler_id=self._scheduler_id,
            action=action,
            target=target,
            detail=detail[:_TEXT_CHARS],
        )
        act = Act(f"{record.key_prefix}{secrets.token_hex(4)}")
        try:
            await self._backend.put(Keyspace.Audit, act.key, record.encoded())
        except StateFullError as error:
            log.error("audit_record_not_stored", error=str(error), **record.model_dump())  # noqa: TRY400
        try:
            yield act
        except Exception as error:
            await self._end(act, record, str(error) or type(error).__name__)
            raise
        await self._end(act, record, act.outcome)

    async def _end(self, act: Act, record: AuditRecord, outcome: str) -> None:
        ended = record.model_copy(update={"outcome": outcome[:_TEXT_CHARS]})
        try:
            await self._backend.put(Keyspace.Audit, act.key, ended.encoded())
        except OnagerError as error:  # the act is over all the same
            log.warning("audit_outcome_not_stored", error=str(error), **ended.model_dump())


def since_key(at_ms: int) -> str:
    """Return a text that is before the keys of that millisecond, and after all earlier ones."""
    return f"{at_ms:015d}"


def key_ms(key: str) -> int:
    """Return the time in a record's key; 0 where it has none."""
    head = key.partition("-")[0]
    return int(head) if head.isascii() and head.isdecimal() else 0
