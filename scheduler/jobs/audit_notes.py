"""What the audit tells of everyday acts: submissions, results that were fetched, changes of tables, logins, refusals.

They are recorded after they were done, some seconds later, all together, so that they cost nobody a write. Where one
caller does much, the first acts have records of their own, and the others one record with their number. So neither a
busy client nor a flood of refused calls fills the store; `Retention` removes the oldest beyond a limit.
"""

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from onager.access_errors import AuthenticationError
from onager.clock import Clock
from onager.errors import OnagerError
from onager.protocol.security import Caller
from onager.scheduler import timing
from onager.scheduler.jobs.audit import DONE, AuditRecord
from onager.scheduler.loops import every
from onager.state_backend import Keyspace, Put, StateBackendClient

log = structlog.get_logger(__name__)

SUBMIT: Final = "submit"
FETCH: Final = "fetch"
CHANGE_TABLES: Final = "change_tables"
INTERRUPT: Final = "interrupt"
LOGIN: Final = "login"
REFUSE: Final = "refuse"
MAX_GROUPS: Final = 40
"""Groups of acts that are distinguished until they are stored: by caller, action and outcome."""
MAX_EACH: Final = 5
"""Acts of a group with records of their own."""
_NAMED: Final = 10
"""Targets of further ones that are named."""
_MARK: Final = "n"
_TEXT_CHARS: Final = 300
_MANY: Final = "many callers"


class _Group(NamedTuple):
    caller: Caller
    action: str
    outcome: str


@dataclass(slots=True)
class _Acts:
    each: list[tuple[int, str, str]] = field(default_factory=list)
    """When, target, and detail of the first."""
    more: int = 0
    last_ms: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, at_ms: int, target: str, detail: str) -> None:
        if len(self.each) < MAX_EACH:
            self.each.append((at_ms, target, detail))
            return
        self.more += 1
        self.last_ms = at_ms
        if len(self.named) < _NAMED and target not in self.named:
            self.named.append(target)


class AuditNotes:
    """Collects the everyday acts of a scheduler, and stores them now and then."""

    def __init__(self, backend: StateBackendClient, clock: Clock, scheduler_id: str, *, is_on: bool) -> None:
        self._backend = backend
        self._clock = clock
        self._scheduler_id = scheduler_id
        self._is_on = is_on
        self._acts: dict[_Group, _Acts] = {}

    def note(self, caller: Caller, action: str, target: str, detail: str = "", outcome: str = DONE) -> None:
        """Take in an act that was done, or, by its *outcome*, not done."""
        if not self._is_on:
            return
        group = _Group(caller, action, outcome[:_TEXT_CHARS])
        if group not in self._acts and len(self._acts) >= MAX_GROUPS:
            group = _Group(Caller(address=_MANY), action, "")
        acts = self._acts.setdefault(group, _Acts())
        acts.add(self._clock.now_ms(), target[:_TEXT_CHARS], detail[:_TEXT_CHARS])

    def refused(self, caller: Caller, call: str, error: AuthenticationError) -> None:
        """Take in a call, or a login, that was refused."""
        self.note(caller, REFUSE, call.rpartition("/")[2] if call.startswith("/onager.") else call, "", str(error))

    async def run(self) -> None:
        """Store what was noted, for as long as the scheduler lives."""
        if not self._is_on:
            await asyncio.Event().wait()
        await every(timing.AUDIT_NOTED_S, self.store)

    async def store(self) -> None:
        """Store what was noted since the last time; what cannot be stored is kept, as numbers."""
        taken, self._acts = self._acts, {}
        if not taken:
            return
        records = [record for group, acts in taken.items() for record in self._records(group, acts)]
        puts = [
            Put(Keyspace.Audit, f"{record.key_prefix}{_MARK}{secrets.token_hex(4)}", record.encoded())
            for record in records
        ]
        try:
            await self._backend.put_all(puts)
        except OnagerError as error:
            log.warning("audit_notes_not_stored", error=str(error), records=len(records))
            for group, acts in taken.items():
                self._keep(group, acts)

    def _keep(self, group: _Group, acts: _Acts) -> None:
        if group not in self._acts and len(self._acts) >= MAX_GROUPS:
            group = _Group(Caller(address=_MANY), group.action, "")
        now = self._acts.setdefault(group, _Acts())
        now.more += len(acts.each) + acts.more
        now.last_ms = max(now.last_ms, acts.last_ms, *(at_ms for at_ms, _, _ in acts.each), 0)
        now.named = [*dict.fromkeys([*(target for _, target, _ in acts.each), *acts.named, *now.named])][:_NAMED]

    def _records(self, group: _Group, acts: _Acts) -> list[AuditRecord]:
        entries = [*acts.each]
        if acts.more:
            names = ", ".join(name for name in acts.named if name)
            entries.append((acts.last_ms, "", f"{acts.more} more{names and f', of: {names}'}"))
        return [
            AuditRecord(
                at_ms=at_ms,
                principal=group.caller.principal,
                address=group.caller.address,
                scheduler_id=self._scheduler_id,
                action=group.action,
                target=target,
                detail=detail,
                outcome=group.outcome,
            )
            for at_ms, target, detail in entries
        ]


def is_note(key: str) -> bool:
    """Return whether a record of the audit, by its key, tells of an everyday act."""
    return key.rpartition("-")[2].startswith(_MARK)
