"""Operations that run: found by the labels of their jobs, also of those that another scheduler has just submitted."""

import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from onager.errors import JobNotFoundError
from onager.execution_graph import JobState
from onager.ids import PROGRAM_LABEL, JobId
from onager.protocol.security import caller, principal
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.jobs.audit_notes import INTERRUPT, AuditNotes
from onager.scheduler.jobs.job_heads import JobHead, JobHeads
from onager.state_backend import Keyspace, StateBackendClient, each_page

USER, SESSION, OPERATION = "connect.user", "connect.session", "connect.op"
"""Labels of an operation's job."""
TAG: Final = "connect.tag."
CALL: Final = "connect.call"
"""Of a program's: the path of the record of its call."""
LABEL_CHARS: Final = 256
_NAMESPACE: Final = uuid.UUID("5f0a4d1c-7a2e-5b58-9d0c-0b6a6e9f1c55")
_PREFIX: Final = "connect-"
_PAGE: Final = 100
"""Keys of a read; a transaction takes 128."""


def job_id_of(key: SessionKey, operation_id: str) -> JobId:
    """Return the id of an operation's job."""
    return JobId(f"{_PREFIX}{uuid.uuid5(_NAMESPACE, f'{key.path}/{operation_id}').hex}")


async def _no_program(job_id: JobId, why: str) -> None:
    raise AssertionError(f"{job_id} is closed ({why}) before there are programs")


@dataclass(eq=False, repr=False)
class RunningOperations:
    """The operations of sessions that run, and their ends."""

    backend: StateBackendClient
    heads: JobHeads
    local: LocalDriver
    notes: AuditNotes
    close_program: Callable[[JobId, str], Awaitable[object]] = _no_program
    """Ends the program that a job is, for a reason."""

    def as_last_seen(self, key: SessionKey) -> Iterator[JobHead]:
        """Yield the heads of the session's jobs that have not ended, as this scheduler's watch has reported them."""
        user = key.user[:LABEL_CHARS]
        for head in self.heads.active():
            if head.labels.get(SESSION) == key.session_id and head.labels.get(USER) == user:
                yield head

    async def interrupt(self, key: SessionKey, *, tag: str = "", operation_id: str = "") -> list[str]:
        """Cancel the operations of a session that run: all, those with a tag, or one; return their ids."""
        return await self.cancel(key, await self.found(key, tag=tag, operation_id=operation_id))

    async def found(self, key: SessionKey, *, tag: str = "", operation_id: str = "") -> list[str]:
        """Return the ids of the operations of a session that run: of all, of those with a tag, or of one."""
        await (self._read([job_id_of(key, operation_id)]) if operation_id else self._read_active())
        found: list[str] = []
        for head in sorted(self.as_last_seen(key), key=lambda head: not head.is_program):  # none outlives its calls
            if operation_id and head.labels.get(OPERATION) != operation_id:
                continue
            if tag and tag not in (value for name, value in head.labels.items() if name.startswith(TAG)):
                continue
            found.append(head.labels[OPERATION])
        return found

    async def cancel(self, key: SessionKey, operation_ids: Iterable[str]) -> list[str]:
        """Cancel operations of a session; return the ids of those that have ended so, now or earlier."""
        interrupted = []
        for operation_id in operation_ids:
            job_id = job_id_of(key, operation_id)
            with suppress(JobNotFoundError):
                head = await self.heads.known(job_id)
                if head is not None and head.is_program:  # first, so that no call of it has an effect any more
                    await self.close_program(job_id, "interrupted by its client")
                graph = await self.local.coordinator(job_id).cancel_job("interrupted by its client", principal())
                if graph.state is JobState.CANCELLED:
                    self.notes.note(caller(), INTERRUPT, job_id, f"session {key.session_id}")
                    interrupted.append(operation_id)
        return interrupted

    async def interrupt_program(self, path: str) -> None:
        """Cancel all operations of a program that run."""
        await self._read_active()
        for head in list(self.heads.active()):
            if head.labels.get(PROGRAM_LABEL) == path:
                await self.local.coordinator(JobId(head.job_id)).cancel_job("its program has ended", principal())

    async def states(self, key: SessionKey, operation_ids: Iterable[str]) -> dict[str, JobState | None]:
        """Return the states of operations: of those that are named, or of all that run; None for unknown ones."""
        wanted = list(operation_ids)
        if wanted:
            await self._read([job_id_of(key, operation_id) for operation_id in wanted])
        else:
            await self._read_active()
            wanted = [head.labels[OPERATION] for head in self.as_last_seen(key)]
        found: dict[str, JobState | None] = {}
        for operation_id in wanted:
            head = self.heads.get(job_id_of(key, operation_id))
            found[operation_id] = None if head is None else head.state
        return found

    async def _read_active(self) -> None:
        """Read the heads of all operations that run, as far as the watch has not reported them."""
        after = _PREFIX  # keys come in order, and a prefix of a scan ends with a slash
        async for page in each_page(self.backend.scan_keys, Keyspace.ActiveJobs, limit=_PAGE, start_after=after):
            ours = [JobId(key) for key in page if key.startswith(_PREFIX)]
            await self._read(ours)
            if len(ours) < len(page.items):
                return

    async def _read(self, job_ids: Iterable[JobId]) -> None:
        unknown = [job_id for job_id in job_ids if self.heads.get(job_id) is None]
        for start in range(0, len(unknown), _PAGE):
            places = [(Keyspace.JobHeads, str(job_id)) for job_id in unknown[start : start + _PAGE]]
            self.heads.learn((await self.backend.read_txn(places)).values)
