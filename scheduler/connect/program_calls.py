"""The calls of programs that outlive their processes, and what came of them.

A call is named by its program, by the task of the program that makes it, and by a number; never by session, user, token
or plan. A recorded call is answered from its record, ``ProgramCalls/OWNER/ID/TASK/NUMBER``, which is written in one
transaction with the call's effect.
"""

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from onager.clock import Clock
from onager.errors import InvalidRequestError, NotFoundError, StateUnavailableError
from onager.ids import may_be_drawn
from onager.program_errors import NotDeterministicError
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MIB
from onager.protocol.security import PROGRAM_HEADER
from onager.scheduler.connect.failures import OF_CALL, ConnectError, decoded, encoded, too_large
from onager.scheduler.connect.program_targets import kind_of, target_of
from onager.scheduler.connect.records import OperationRecord, SessionKey
from onager.scheduler.connect.running import job_id_of
from onager.scheduler.programs import Fence, ProgramKey, ProgramRecord, is_secret, knows, superseded, unknown
from onager.scheduler.records import Extra
from onager.state_backend import ABSENT, Committed, Keyspace, KeyValue, Put, StateBackendClient, commit_settled

MAX_CALLS: Final = 100_000
"""Calls of one task of a program."""
MAX_OUTCOME_BYTES: Final = MIB
"""The outcome of one call, in Base64."""
CALL_HEADER: Final = "onager-call"
"""Metadata of a call that is recorded: ``TASK/NUMBER``."""
LINE_HEADER: Final = "onager-line-bin"
"""Metadata of a call: the file and the line of the program that makes it."""
_TASK: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,20}")
_GOES_ON: Final = "ReattachExecute"
"""The method that goes on with the responses to a call, under its name."""
_LINE_CHARS: Final = 256
_ERROR_CHARS: Final = 1000
_TRIES: Final = 20


class CallRecord(OperationRecord):
    """A call of a program, and what came of it: responses, or an error, or nothing yet (`is_done`)."""

    digest: str = ""
    kind: str = ""
    """The call, and what kind of plan, question or change it is; another one under its name is an error."""
    target: str = ""
    """What a write writes to."""
    session_id: str = ""
    line: str = ""
    """Where in the program it stands: file and line."""
    attempt: int = 0
    """The attempt that made it."""
    operation_id: str = ""
    """Of an operation that is a job."""
    error: str = ""
    """The error, as `failures.encoded` has it, in Base64."""
    observed: str = ""
    """What the job of a command has observed, in Base64."""
    is_done: bool = False

    def answers(self) -> list[bytes]:
        """Return the responses."""
        return [base64.b64decode(response) for response in self.responses]


class CallName(NamedTuple):
    """How a call names itself: its program and attempt, and its place in the program."""

    program_id: str
    attempt: int
    secret: str
    task: str = ""
    """Which of the program's threads makes it, as a path; empty with *number* 0: a call that is not recorded."""
    number: int = 0
    line: str = ""

    @property
    def is_recorded(self) -> bool:
        """Return whether the outcome is recorded."""
        return self.number > 0

    def __str__(self) -> str:
        return f"call {self.number} of task {self.task}"


def call_name(metadata: Iterable[tuple[str, Any]]) -> CallName | None:
    """Return how a call names itself by its metadata; None for one that is not of a program."""
    found = {key: value for key, value in metadata if key in (PROGRAM_HEADER, CALL_HEADER, LINE_HEADER)}
    if PROGRAM_HEADER not in found:
        return None
    program_id, _, rest = str(found[PROGRAM_HEADER]).partition("/")
    attempt, _, secret = rest.partition("/")
    if not (may_be_drawn(program_id) and re.fullmatch(r"[1-9][0-9]{0,5}", attempt) and is_secret(secret)):
        raise InvalidRequestError(f"the metadata {PROGRAM_HEADER} is no ID/ATTEMPT/SECRET of a program")
    named = CallName(program_id, int(attempt), secret)
    if CALL_HEADER not in found:
        return named
    task, _, number = str(found[CALL_HEADER]).partition("/")
    if not (_TASK.fullmatch(task) and re.fullmatch(r"[1-9][0-9]{0,5}", number)):
        raise InvalidRequestError(f"the metadata {CALL_HEADER} is no TASK/NUMBER of a call")
    if int(number) > MAX_CALLS:
        raise InvalidRequestError(f"a program makes at most {MAX_CALLS:,} calls: call {number} is refused")
    line = bytes(found.get(LINE_HEADER, b"")).decode(errors="replace")[:_LINE_CHARS]
    return named._replace(task=task, number=int(number), line=line)


@dataclass(eq=False, slots=True)
class ProgramCall:
    """A call of a program that is being served."""

    backend: StateBackendClient
    clock: Clock
    program: ProgramRecord
    fence: Fence
    name: CallName
    record: CallRecord = field(default_factory=lambda: CallRecord(at_ms=0))
    """The call as it is recorded, or is to be."""
    revision: int = ABSENT
    """That of the record."""

    @property
    def place(self) -> tuple[Keyspace, str]:
        """Return where its record is."""
        return _place(self.fence.key, self.name.task, self.name.number)

    def extra(self, **outcome: Any) -> Extra:
        """Return what records the call, to be written in one transaction with its effect; *outcome*: further fields."""
        record = self.record.model_copy(update=outcome)
        return [Put(*self.place, record.encoded())], {self.place: self.revision, **self.fence.expected}

    async def check(self) -> None:
        """Raise `AttemptSupersededError` if this attempt does not count any more."""
        _check_counts(await self.backend.get(*self.fence.key.place), self.fence, self.name)

    async def look(self) -> bool:
        """Read the record of the call again; return whether it is another one than is known here.

        `AttemptSupersededError` if this attempt does not count any more.
        """
        snapshot = await self.backend.read_txn([self.fence.key.place, self.place])
        _check_counts(snapshot.values[self.fence.key.place], self.fence, self.name)
        found = snapshot.values[self.place]
        revision = ABSENT if found is None else found.mod_revision
        if revision == self.revision:
            return False
        self.revision = revision
        if found is not None:
            self.record = CallRecord.decoded(found.value, f"ProgramCalls/{found.key}")
        return True

    async def settle(self, responses: Iterable[bytes] = (), error: ConnectError | None = None) -> None:
        """Record the outcome of the call; another one that was recorded before stands, and takes its place here."""
        packed = tuple(base64.b64encode(response).decode() for response in responses)
        if (size := sum(map(len, packed))) > MAX_OUTCOME_BYTES:
            await self.settle(error=too_large("the answer to a call of a program", size, MAX_OUTCOME_BYTES))
            return
        outcome = {"responses": packed, "error": _packed(error) if error else "", "is_done": True, "session": ""}
        for _ in range(_TRIES):
            if self.record.is_done:
                return
            ops, expected = self.extra(**outcome)
            written = await commit_settled(self.backend, ops, expected)
            if isinstance(written, Committed):
                self.record, self.revision = self.record.model_copy(update=outcome), written.revision
                if error is not None:
                    error.is_recorded = True
                return
            await self.look()
        raise StateUnavailableError(f"{self.name} could not be recorded in {_TRIES} tries: try again")

    async def error_of(self, error_id: str) -> ConnectError | None:
        """Return the error that was recorded of a call of the program; None if none was."""
        task, _, number = error_id.removeprefix(OF_CALL).partition("/")
        if not (_TASK.fullmatch(task) and number.isdecimal()):
            return None
        found = await self.backend.get(*_place(self.fence.key, task, int(number)))
        record = None if found is None else CallRecord.decoded(found.value, f"ProgramCalls/{found.key}")
        return None if record is None or not record.error else decoded(base64.b64decode(record.error))

    async def settle_command(self, observed: bytes) -> None:
        """Note that the job of a command has succeeded, whose responses were recorded when it began."""
        outcome = {"work": "", "session": "", "observed": base64.b64encode(observed).decode(), "is_done": True}
        while not self.record.is_done:
            ops, expected = self.extra(**outcome)
            written = await commit_settled(self.backend, ops, expected)
            if isinstance(written, Committed):
                self.record, self.revision = self.record.model_copy(update=outcome), written.revision
            else:
                await self.look()

    def outcome(self) -> list[bytes]:
        """Return the responses that were recorded; raises the error that was."""
        if self.record.error:
            error = decoded(base64.b64decode(self.record.error))
            error.is_recorded = True
            raise error
        return self.record.answers()


@dataclass(frozen=True, slots=True)
class ProgramCalls:
    """Finds the calls of programs, as they name themselves."""

    backend: StateBackendClient
    clock: Clock

    async def find(self, owner: str, name: CallName, method: str, request: Any) -> ProgramCall:
        """Return the call that names itself so, with its record, if it was made before.

        `AttemptSupersededError` if its attempt does not count any more; `NotDeterministicError` if what was recorded
        under its name is another call.
        """
        key = ProgramKey(owner, name.program_id)
        place = _place(key, name.task, name.number)
        places = [key.place, place] if name.is_recorded else [key.place]
        snapshot = await self.backend.read_txn(places)
        stored = snapshot.values[key.place]
        if stored is None:
            raise unknown(key)
        program = ProgramRecord.decoded(stored.value, f"Programs/{stored.key}")
        fence = Fence(key, stored.mod_revision)
        if not knows(program, name.secret) or program.ended_ms:
            raise superseded(program, name.attempt)
        call = ProgramCall(self.backend, self.clock, program, fence, name)
        fresh = CallRecord(
            at_ms=self.clock.now_ms(),
            kind=kind_of(method, request),
            target=target_of(request),
            session_id=request.session_id.lower(),
            line=name.line,
            attempt=name.attempt,
            operation_id=getattr(request, "operation_id", "").lower(),
        )
        found = snapshot.values.get(place)
        call.record = fresh
        if found is not None:
            call.record = CallRecord.decoded(found.value, f"ProgramCalls/{found.key}")
            call.revision = found.mod_revision
        if method == _GOES_ON and found is None:
            raise NotFoundError(f"{name} has not begun: begin it")
        if method != _GOES_ON and found is not None:
            _check_same(name, fresh, call.record)
        return call


async def list_calls(
    backend: StateBackendClient, key: ProgramKey, request: pb.ListProgramCallsRequest
) -> pb.ListProgramCallsResponse:
    """Return up to *limit* calls of a program, those after the one that the last page named."""
    prefix = f"{key.path}/"
    after = f"{prefix}{request.after}" if request.after else None
    program = await backend.get(*key.place)
    if program is None:
        raise unknown(key)
    user = ProgramRecord.decoded(program.value, f"Programs/{program.key}").user
    page = await backend.scan(Keyspace.ProgramCalls, prefix, limit=request.limit, start_after=after)
    answer = pb.ListProgramCallsResponse()
    for item in page.items:
        record = CallRecord.decoded(item.value, f"ProgramCalls/{item.key}")
        task, _, number = item.key.removeprefix(prefix).partition("/")
        error = None if not record.error else decoded(base64.b64decode(record.error))
        answer.calls.add(
            task=task,
            number=int(number),
            kind=record.kind,
            target=record.target,
            line=record.line,
            at_ms=record.at_ms,
            attempt=record.attempt,
            done=record.is_done,
            error="" if error is None else f"{error.error_class}: {error}"[:_ERROR_CHARS],
            job_id=job_id_of(SessionKey(user, record.session_id), record.operation_id) if record.operation_id else "",
            session_id=record.session_id,
        )
    if len(page.items) == request.limit:
        answer.next = page.items[-1].key.removeprefix(prefix)
    return answer


def _place(key: ProgramKey, task: str, number: int) -> tuple[Keyspace, str]:
    """Return where the record of a call is."""
    return Keyspace.ProgramCalls, f"{key.path}/{task}/{number:06d}"


def _packed(error: ConnectError) -> str:
    return base64.b64encode(encoded(error)).decode()


def _check_counts(stored: KeyValue | None, fence: Fence, name: CallName) -> None:
    if stored is None:
        raise unknown(fence.key)
    if stored.mod_revision != fence.revision:
        raise superseded(ProgramRecord.decoded(stored.value, f"Programs/{stored.key}"), name.attempt)


def _check_same(name: CallName, now: CallRecord, before: CallRecord) -> None:
    if (now.kind, now.target, now.session_id) != (before.kind, before.target, before.session_id):
        raise NotDeterministicError(str(name), _shown(before), _shown(now))


def _shown(record: CallRecord) -> str:
    where = f" at {record.line}" if record.line else ""
    target = f" to {record.target}" if record.target else ""
    return f"{record.kind}{target}{where} in session {record.session_id}"
