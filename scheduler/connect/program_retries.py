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
from onager.scheduler.connect.call_lists import calls_below
from onager.scheduler.connect.ended_calls import EndedCalls
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.mended_sessions import made_anew
from onager.scheduler.connect.program_calls import CallRecord
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.running import RunningOperations, job_id_of
from onager.scheduler.program_records import Mended, Mending, ProgramKey, ProgramRecord, unknown
from onager.scheduler.programs import Programs
from onager.scheduler.records import Extra
from onager.state_backend import (
    Committed,
    Delete,
    Keyspace,
    Put,
    StateBackendClient,
)

_AT_ONCE: Final = 64
"""Calls that are dropped in the transaction of the new job; more of them go before, the last ones first."""
_MATCHED: Final = "before it writes, its calls are matched with those"
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

    async def go_on(self, key: ProgramKey, job_id: JobId, mended: Mended | None = None) -> Extra:
        """Return what has the job *job_id* go on with a program, to be written in one transaction with that job.

        *mended*: the program that does so, if it is another one. `ProgramGoesOnError` if the program has not ended,
        `InvalidRequestError` if it has succeeded, `BusyError` while what it has left running ends.
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
        calls = [call async for call in self._calls(record)]
        dropped = await self._dropped(key, record, calls)
        again = {call.path for call in dropped}
        standing = [call for call in calls if call.path not in again]
        if mended is not None:
            _check_known(record, standing)
        while len(dropped) > _AT_ONCE:
            dropped, last = dropped[:-_AT_ONCE], dropped[-_AT_ONCE:]
            early = [Delete(Keyspace.ProgramCalls, f"{record.calls_path}/{call.path}") for call in last]
            if not isinstance(await self.backend.put_txn(early, expect={key.place: revision}), Committed):
                raise BusyError(f"program {key.program_id} has changed: try again")
        says = _says(record, calls, dropped)
        gone = [Delete(Keyspace.ProgramCalls, f"{record.calls_path}/{call.path}") for call in dropped]
        if mended is None:
            reopened = self.programs.reopened(record, job_id, says)
            return [Put(*key.place, reopened.encoded()), *gone], {key.place: revision}
        mending, (ops, expected) = await self._mending(record, standing, mended, len(dropped))
        reopened = self.programs.reopened(record, job_id, f"{says}; {_MATCHED}", (mended.digest, mending))
        return [Put(*key.place, reopened.encoded()), *gone, *ops], {key.place: revision, **expected}

    async def _mending(
        self, record: ProgramRecord, calls: list[_Call], mended: Mended, dropped: int
    ) -> tuple[Mending, Extra]:
        """Return what the program is now, whose *calls* stand, and what has its sessions be made anew.

        *dropped*: how many calls go with that.
        """
        keys = {SessionKey(record.user, call.record.session_id) for call in calls}
        sessions, extra = await made_anew(self.backend, keys)
        mending = Mending(
            text=record.text,
            digest=record.digest,
            job_id=record.job_id,
            ended_ms=record.ended_ms,
            exit_code=record.exit_code,
            why_ended=record.why_ended,
            failed=record.failed,
            calls=len(calls),
            earlier=(await self.programs.usages.count(record.key.path)).calls - dropped,
            keeps=mended.keeps,
            sessions=sessions,
            before=record.mending,
        )
        return mending, extra

    async def _calls(self, record: ProgramRecord) -> AsyncIterator[_Call]:
        prefix = f"{record.calls_path}/"
        async for item in calls_below(self.backend, prefix):
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
            await self.ended.settle_call(f"{program.calls_path}/{call.path}", job_id)
        except ConnectError:
            return True  # one that passes is no outcome
        return False


def _check_known(record: ProgramRecord, calls: list[_Call]) -> None:
    """Raise `InvalidRequestError` unless all calls can be matched."""
    if any(not call.record.effect for call in calls):
        raise InvalidRequestError(
            f"program {record.program_id} was recorded by a version of Onager that did not say what its calls ask for: "
            "a mended program cannot go on with it. Submit it as a new one (onager run), which does all its writes"
        )


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
