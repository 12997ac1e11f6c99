"""The administration of one store, in the protocol's messages."""

import asyncio
from collections.abc import AsyncGenerator

from onager.clock import Clock
from onager.errors import VersionMismatchError
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import BACKUP_FORMAT
from onager.protocol.security import Caller
from onager.scheduler.jobs.audit import DONE, Audit
from onager.state_admin.auditing import list_audit
from onager.state_admin.looking import list_keys, read_record
from onager.state_admin.removing import remove_records
from onager.state_admin.watching import watch_records
from onager.state_backend import StateBackendClient
from onager.version import __version__

_FINDINGS_PER_MESSAGE = 500


class StateAdmin:
    """What ``onager state`` does, on a store that a scheduler or the command itself has open."""

    def __init__(self, backend: StateBackendClient, clock: Clock, source: str, audit: Audit) -> None:
        self._backend = backend
        self._audit = audit
        self._clock = clock
        self._source = source

    async def list(self, request: pb.ListStateRequest) -> pb.ListStateResponse:
        """Return keys."""
        return await list_keys(self._backend, request.prefix, request.limit)

    async def get(self, request: pb.GetStateRequest) -> pb.GetStateResponse:
        """Return one record, decoded."""
        return await read_record(self._backend, request.key)

    def watch(self, request: pb.WatchStateRequest) -> AsyncGenerator[pb.StateChange, None]:
        """Yield changes until closed."""
        return watch_records(self._backend, request.prefix, request.from_revisions)

    async def audit(self, request: pb.ListAuditRequest) -> pb.ListAuditResponse:
        """Return a page of the audit, oldest first."""
        return await list_audit(self._backend, request)

    async def remove(self, request: pb.RemoveStateRequest, caller: Caller) -> pb.RemoveStateResponse:
        """Remove a record, or all records below a prefix, as *caller* asked."""
        if request.dry_run:
            return await remove_records(self._backend, request.path, is_dry_run=True, is_forced=request.force)
        detail = "forced" if request.force else ""
        async with self._audit.act(caller, "remove_state", request.path, detail) as act:
            response = await remove_records(
                self._backend, request.path, is_dry_run=False, is_forced=request.force, spared=act.key
            )
            act.outcome = f"{DONE}: {response.keys} removed"
        return response

    async def check(self, request: pb.CheckStateRequest) -> AsyncGenerator[pb.StateCheck, None]:  # noqa: ARG002
        """Yield what is wrong with the store, and a summary at the end; other work goes on meanwhile."""
        from onager.state_admin.checking import check_everything  # imports all that a scheduler is made of
        from onager.state_admin.contents import read_contents

        yield pb.StateCheck(begins=True)
        store = await read_contents(self._backend)
        found = await asyncio.to_thread(lambda: list(check_everything(store)))
        for start in range(0, len(found), _FINDINGS_PER_MESSAGE):
            some = found[start : start + _FINDINGS_PER_MESSAGE]
            yield pb.StateCheck(findings=[finding.to_message() for finding in some])
        warnings = sum(finding.is_warning for finding in found)
        yield pb.StateCheck(
            summary=pb.StateCheckSummary(
                revision=store.revision,
                records=store.count(),
                errors=len(found) - warnings,
                warnings=warnings,
            )
        )

    def backup(self, request: pb.BackupStateRequest) -> AsyncGenerator[pb.StateBackup, None]:
        """Yield all records at one revision, after a header; `VersionMismatchError` for a client of another release."""
        from onager.state_admin.backing_up import backup_records

        if request.format != BACKUP_FORMAT:
            raise VersionMismatchError(
                f"the client writes backups of format {request.format or 1}, and this scheduler's are of format "
                f"{BACKUP_FORMAT}: use the onager of release {__version__}"
            )
        return backup_records(self._backend, self._clock, self._source)


def without_credentials(url: str) -> str:
    """Return a backend's URL without user, password and options."""
    scheme, colon, rest = url.partition(":")
    where, _, _ = rest.partition("?")
    return f"{scheme}{colon}//{where.rpartition('@')[2].lstrip('/')}" if "@" in where else f"{scheme}{colon}{where}"
