"""Retries of programs that have ended: what of their calls stands, and what is made again.

A retry goes on with the program's record. The call whose error ended the program is dropped, with all that its task did
behind it, and so are calls whose jobs were stopped with the program. Everything else stands, and is answered from its
record. That is written in one transaction with the new job: of two retries, one goes on.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from onager.errors import BusyError, InvalidRequestError, JobNotFoundError
from onager.execution_graph import JobState
from onager.ids import JobId
from onager.program_errors import ProgramGoesOnError
from onager.scheduler.connect.ended_calls import EndedCalls
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.program_calls import CallRecord
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.running import RunningOperations, job_id_of
from onager.scheduler.program_records import ProgramKey, ProgramRecord, unknown
from onager.scheduler.programs import Programs
from onager.scheduler.records import Extra
from onager.state_backend import (
    Committed,
    Delete,
    Keyspace,
    Put,
    StateBackendClient,
    each_page,
)

_AT_ONCE: Final = 64
"""Calls that are dropped in the transaction of the new job; more of them go before, the last ones first."""
_PAGE: Final = 500
_RELEASE: Final = "ReleaseSession"
"""A call that changes nothing in a program, but that one which goes on behind it does not make."""


class _Call(NamedTuple):
    task: str
    number: int
    record: CallRecord

    @property
    def path(self) -> str:
        """Return its place below that of its program."""
        return f"{self.task}/{self.number:06d}"


@dataclass(frozen=True, slots=True)
class ProgramRetries:
    """Goes on with programs that have ended."""

    backend: StateBackendClient
    programs: Programs
    running: RunningOperations
    ended: EndedCalls

    async def go_on(self, key: ProgramKey, job_id: JobId) -> Extra:
        """Return what has the job *job_id* go on with a program, to be written in one transaction with that job.

        `ProgramGoesOnError` if the program has not ended, `InvalidRequestError` if it has succeeded, `BusyError` while
        what it has left running ends.
        """
        record, revision = await self.programs.read(key)
        if record is None:
            raise unknown(key)
        if not record.ended_ms:
            raise ProgramGoesOnError(key.program_id, record.job_id)
        if not record.has_failed:
            raise InvalidRequestError(
                f"program {key.program_id} has succeeded: there is nothing to go on with. Submit it as a new one "
                "(onager run), which does all its writes again"
            )
        await self.running.interrupt_program(key.path)
        calls = [call async for call in self._calls(key)]
        dropped = await self._dropped(key, record, calls)
        while len(dropped) > _AT_ONCE:
            dropped, last = dropped[:-_AT_ONCE], dropped[-_AT_ONCE:]
            ops = [Delete(Keyspace.ProgramCalls, f"{key.path}/{call.path}") for call in last]
            if not isinstance(await self.backend.put_txn(ops, expect={key.place: revision}), Committed):
                raise BusyError(f"program {key.program_id} has changed: try again")
        says = _says(record, calls, dropped)
        reopened = Put(*key.place, self.programs.reopened(record, job_id, says).encoded())
        gone = [Delete(Keyspace.ProgramCalls, f"{key.path}/{call.path}") for call in dropped]
        return [reopened, *gone], {key.place: revision}

    async def _calls(self, key: ProgramKey) -> AsyncIterator[_Call]:
        prefix = f"{key.path}/"
        async for page in each_page(self.backend.scan, Keyspace.ProgramCalls, prefix, limit=_PAGE):
            for item in page:
                task, _, number = item.key.removeprefix(prefix).partition("/")
                yield _Call(task, int(number), CallRecord.decoded(item.value, f"ProgramCalls/{item.key}"))

    async def _dropped(self, key: ProgramKey, program: ProgramRecord, calls: list[_Call]) -> list[_Call]:
        """Return the calls that are made again, by task and number."""
        failed, found = program.failed, []
        last = {call.task: call for call in calls}
        for call in calls:
            is_behind = failed is not None and failed.is_before(call.task, call.number)
            is_release = call.record.kind == _RELEASE and last[call.task] is call
            if is_behind or is_release or await self._was_stopped(key, program, call):
                found.append(call)
        return found

    async def _was_stopped(self, key: ProgramKey, program: ProgramRecord, call: _Call) -> bool:
        """Return whether the job of a call was stopped with the program; an outcome that it has is recorded."""
        record = call.record
        if record.is_done or not record.is_begun or not record.operation_id:
            return record.is_stopped
        job_id = job_id_of(SessionKey(program.user, record.session_id), record.operation_id)
        try:
            job = await self.ended.operations.queries.fresh(job_id)
        except JobNotFoundError:
            return False  # it is an error: perhaps it has had its effect
        if job.graph.is_active:
            raise BusyError(
                f"job {job_id} of program {key.program_id} (call {call.number} at {record.line}) still ends"
            )
        if job.graph.state is JobState.CANCELLED:
            return True
        try:
            await self.ended.settle_call(f"{key.path}/{call.path}", job_id)
        except ConnectError:
            return True  # one that passes is no outcome
        return False


def _says(record: ProgramRecord, calls: list[_Call], dropped: list[_Call]) -> str:
    """Return what of the program stands, and what is made again, for people."""
    stand = len(calls) - len(dropped)
    kept = f"{stand:,} recorded call{'s' * (stand != 1)} of program {record.program_id} stand{'s' * (stand == 1)}"
    again = [call for call in dropped if call.record.kind != _RELEASE]
    if not again:
        return (
            f"{kept}; no call has failed, so the program ends as before unless what it meets outside of Spark differs"
        )
    failed = record.failed and (record.failed.task, record.failed.number)
    first = next((call for call in again if (call.task, call.number) == failed), again[0])
    what = "failed" if (first.task, first.number) == failed else "was stopped"
    target = f" to {first.record.target}" if first.record.target else ""
    line = f" at {first.record.line}" if first.record.line else ""
    return f"{kept}; it goes on with the call that {what}: {first.record.kind}{target}{line}"
