"""The calls of programs that outlive their processes, and what came of them.

A call is named by its program, by the task of the program that makes it, and by a number; never by session, user, token
or plan. A recorded call is answered from its record, ``ProgramCalls/OWNER/ID/TASK/NUMBER``, which is written in one
transaction with the call's effect. Where there are too many responses for the store, it names a file with them.
"""

import base64
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from onager.clock import Clock
from onager.errors import NotFoundError, StateUnavailableError
from onager.program_errors import NotDeterministicError
from onager.scheduler.connect.call_names import TASK, CallName
from onager.scheduler.connect.failures import OF_CALL, ConnectError, decoded, encoded
from onager.scheduler.connect.program_targets import effect_of, kind_of, statement_of, target_of
from onager.scheduler.connect.records import OperationRecord
from onager.scheduler.outcome_files import OutcomeFiles
from onager.scheduler.program_limits import ProgramUsages, Usage
from onager.scheduler.program_records import (
    Fence,
    ProgramKey,
    ProgramRecord,
    calls_path,
    knows,
    superseded,
    unknown,
)
from onager.scheduler.records import Extra
from onager.state_backend import (
    ABSENT,
    Committed,
    Keyspace,
    KeyValue,
    Put,
    StateBackendClient,
    commit_settled,
)

_PATH: Final = re.compile(
    rf"(?P<program>[^/\s]{{1,1024}}/[a-z0-9-]{{1,63}})(/v(?P<text>[0-9]{{1,6}}))?/(?P<task>{TASK.pattern})"
    r"/(?P<number>[0-9]{6})"
)
"""The key of a record."""
_GOES_ON: Final = "ReattachExecute"
"""The method that goes on with the responses to a call, under its name."""
_TRIES: Final = 20

Outcome = dict[str, Any]
"""Fields of a call's record."""


class CallAnsweredError(Exception):
    """The call has been answered meanwhile, by another scheduler: its record says how."""


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
    effect: str = ""
    """What it does, as an `Effect`; empty if it was recorded by a version that did not say."""
    plan: str = ""
    """A digest of what it asks for, without what PySpark draws or counts; empty if its kind says all."""
    statement: str = ""
    """The beginning of a statement of SQL that writes."""
    position: int = 0
    """In a mended program: the number of the last call of the same task, as it was before, that was matched by then."""
    of: str = ""
    """In a mended program: the path of the record that has its outcome; empty: it ran."""
    attempt: int = 0
    """The attempt that made it."""
    operation_id: str = ""
    """Of an operation that is a job."""
    error: str = ""
    """The error, as `failures.encoded` has it, in Base64."""
    observed: str = ""
    """What the job of a command has observed, in Base64."""
    file: str = ""
    """The file that has the responses, in the program's folder; empty: they are here."""
    file_bytes: int = 0
    interrupts: tuple[str, ...] = ()
    """Of an Interrupt: the operations that it is to cancel, once it has begun; whoever finds it so goes on with it."""
    is_done: bool = False
    is_stopped: bool = False
    """Whether its job was cancelled since the program had ended: a retry makes the call again."""


@dataclass(frozen=True, slots=True)
class ProgramStore:
    """Where calls are recorded, and how much of it programs have used."""

    backend: StateBackendClient
    clock: Clock
    files: OutcomeFiles
    usages: ProgramUsages


@dataclass(eq=False, slots=True)
class ProgramCall:
    """A call of a program that is being served."""

    store: ProgramStore
    program: ProgramRecord
    fence: Fence
    name: CallName
    record: CallRecord = field(default_factory=lambda: CallRecord(at_ms=0))
    """The call as it is recorded, or is to be."""
    revision: int = ABSENT
    """That of the record."""
    size_bytes: int = 0
    """That of the record, as stored."""
    marks: tuple[Put, ...] = ()
    """What is written with its record."""
    stands: CallRecord | None = None
    """Of a setting of a mended program: how it is recorded, which stands if it cannot be made again."""

    @property
    def place(self) -> tuple[Keyspace, str]:
        """Return where its record is."""
        return place_of(self.program, self.name.task, self.name.number)

    @property
    def _error_id(self) -> str:
        """Return the id by which the details of its error are asked for."""
        return f"{OF_CALL}{self.name.task}/{self.name.number}"

    @property
    def is_at_hand(self) -> bool:
        """Return whether what came of it is known, and need not be read."""
        return self.record.is_done and not self.record.file and not self.record.of

    @property
    def usage(self) -> Usage:
        """Return what the program has recorded."""
        return self.store.usages.of_attempt(self.fence.key.path, self.fence.revision, self.program.usage_before)

    # ---------------------------------------------------------------- writing

    def extra(self, **outcome: Any) -> Extra:
        """Return what records the call, to be written in one transaction with its effect; *outcome*: further fields.

        `took` is to be called once that is written.
        """
        record = self.record.model_copy(update=outcome)
        ops = [Put(*self.place, record.encoded()), *self.marks]
        return ops, {self.place: self.revision, **self.fence.expected}

    def took(self, extra: Extra, revision: int) -> None:
        """Take in that *extra* was written, by the commit *revision*."""
        put = extra[0][0]
        assert isinstance(put, Put)
        self._count(KeyValue(put.key, put.value, revision))

    async def check(self) -> None:
        """Raise `AttemptSupersededError` if this attempt does not count any more."""
        _check_counts(await self.store.backend.get(*self.fence.key.place), self.fence, self.name)

    async def look(self) -> bool:
        """Read the record of the call again; return whether it is another one than is known here.

        `AttemptSupersededError` if this attempt does not count any more.
        """
        snapshot = await self.store.backend.read_txn([self.fence.key.place, self.place])
        _check_counts(snapshot.values[self.fence.key.place], self.fence, self.name)
        found = snapshot.values[self.place]
        if (ABSENT if found is None else found.mod_revision) == self.revision:
            return False
        self._count(found)
        return True

    def note(self, found: KeyValue | None) -> None:
        """Take in the call's record as it was *found*."""
        self.revision = ABSENT if found is None else found.mod_revision
        self.size_bytes = 0 if found is None else len(found.key) + len(found.value)
        if found is not None:
            self.record = CallRecord.decoded(found.value, f"ProgramCalls/{found.key}")

    def _count(self, found: KeyValue | None) -> None:
        """Take in the call's record, which was written meanwhile, and how much more the program has recorded."""
        is_new, size_bytes, file_bytes = self.revision == ABSENT, self.size_bytes, self.record.file_bytes
        self.note(found)
        self.store.usages.add(
            self.usage,
            calls=int(is_new),
            store_bytes=self.size_bytes - size_bytes,
            file_bytes=self.record.file_bytes - file_bytes,
        )

    async def look_unless_answered(self) -> None:
        """Read the record again; `CallAnsweredError` if the call is answered by now."""
        await self.look()
        if self.record.is_done:
            raise CallAnsweredError

    async def outcome_of(self, responses: Sequence[bytes]) -> Outcome:
        """Return what records *responses*: in the store, or in a file, which is written; `ProgramLimitError`."""
        packed = tuple(base64.b64encode(response).decode() for response in responses)
        size = sum(map(len, packed))
        self.usage.check_bytes(self.name.program_id, self.name.shown, size)
        if self.usage.has_room(size):
            return {"responses": packed}
        file = await self.store.files.writer(self.program.folder)
        for response in responses:
            await file.add(response)
        await file.finish()
        return {"responses": (), "file": file.name, "file_bytes": file.size_bytes}

    async def settle(self, responses: Sequence[bytes]) -> None:
        """Record the answer; another outcome that was recorded before stands, and takes its place here."""
        if not self.record.is_done:
            await self.settle_as(await self.outcome_of(responses))

    def outcome_of_error(self, error: ConnectError) -> Outcome:
        """Return what records *error*."""
        error.error_id = self._error_id
        return {"error": base64.b64encode(encoded(error)).decode()}

    async def let_stand(self) -> bool:
        """Record that what was recorded before is the outcome; return false if nothing was."""
        if self.stands is None:
            return False
        self.record = self.stands.model_copy(update={"is_done": False})
        await self.settle_as({})
        return True

    async def settle_error(self, error: ConnectError) -> None:
        """Record *error* as the outcome, unless another one was recorded before."""
        error.is_recorded = await self.settle_as(self.outcome_of_error(error))

    async def intend(self, find: Callable[[], Awaitable[Sequence[str]]]) -> Sequence[str]:
        """Return the operations that an Interrupt is to cancel, which are recorded: those that it *finds* first."""
        for _ in range(_TRIES):
            if self.record.is_begun:
                return self.record.interrupts
            extra = self.extra(is_begun=True, interrupts=tuple(await find()))
            written = await commit_settled(self.store.backend, *extra)
            if isinstance(written, Committed):
                self.took(extra, written.revision)
            else:
                await self.look_unless_answered()
        raise StateUnavailableError(f"{self.name} could not be begun in {_TRIES} tries: try again")

    async def settle_command(self, observed: bytes) -> None:
        """Note that the job of a command has succeeded, whose responses were recorded when it began."""
        await self.settle_as({"work": "", "observed": base64.b64encode(observed).decode()})

    async def settle_as(self, outcome: Outcome) -> bool:
        """Record an outcome; return whether it was, and no other one before."""
        for _ in range(_TRIES):
            if self.record.is_done:
                return False
            extra = self.extra(**outcome, is_done=True, session="")
            written = await commit_settled(self.store.backend, *extra)
            if isinstance(written, Committed):
                self.took(extra, written.revision)
                return True
            await self.look()
        raise StateUnavailableError(f"{self.name} could not be recorded in {_TRIES} tries: try again")

    # ---------------------------------------------------------------- reading

    def raise_error(self) -> None:
        """Raise the error that was recorded, if one was."""
        if self.record.error:
            error = decoded(base64.b64decode(self.record.error))
            error.is_recorded = True
            error.error_id = self._error_id  # of a mended program, it was recorded of a call with another number
            raise error

    async def responses(self) -> AsyncGenerator[bytes, None]:
        """Yield the responses that were recorded; raises the error that was."""
        self.raise_error()
        record = self.record
        if not record.file:
            for packed in record.responses or await self._responses_of(record.of):
                yield base64.b64decode(packed)
            return
        async with aclosing(self.store.files.read(self.program.folder, record.file, record.file_bytes)) as responses:
            async for response in responses:
                yield response

    async def _responses_of(self, path: str) -> tuple[str, ...]:
        """Return the responses in the record at *path*; none if that is empty."""
        found = await self.store.backend.get(Keyspace.ProgramCalls, path) if path else None
        return () if found is None else CallRecord.decoded(found.value, f"ProgramCalls/{path}").responses

    async def error_of(self, error_id: str) -> ConnectError | None:
        """Return the error that was recorded of a call of the program; None if none was."""
        task, _, number = error_id.removeprefix(OF_CALL).partition("/")
        if not (TASK.fullmatch(task) and number.isdecimal()):
            return None
        found = await self.store.backend.get(*place_of(self.program, task, int(number)))
        record = None if found is None else CallRecord.decoded(found.value, f"ProgramCalls/{found.key}")
        return None if record is None or not record.error else decoded(base64.b64decode(record.error))


async def _never(call: ProgramCall) -> None:
    raise AssertionError(f"{call.name} comes before calls are served")


@dataclass(frozen=True, slots=True)
class ProgramCalls:
    """Finds the calls of programs, as they name themselves."""

    store: ProgramStore
    match: Callable[[ProgramCall], Awaitable[None]] = _never
    """Matches a new call of a mended program with what is recorded of the program before."""

    async def find(self, owner: str, name: CallName, method: str, request: Any) -> ProgramCall:
        """Return the call that names itself so, with its record, if it was made before.

        `AttemptSupersededError` if its attempt does not count any more; `NotDeterministicError` if what was recorded
        under its name is another call; for a new one, `ProgramLimitError` if the program has reached a limit, and
        `StateFullError` if all together have.
        """
        key = ProgramKey(owner, name.program_id)
        stored, found = await self._read(key, name)
        if stored is None:
            raise unknown(key)
        program = ProgramRecord.decoded(stored.value, f"Programs/{stored.key}")
        fence = Fence(key, stored.mod_revision)
        if not knows(program, name.secret) or program.ended_ms:
            raise superseded(program, name.attempt)
        call = ProgramCall(self.store, program, fence, name)
        call.record = fresh = CallRecord(
            at_ms=self.store.clock.now_ms(),
            kind=kind_of(method, request),
            target=target_of(request),
            session_id=request.session_id.lower(),
            line=name.line,
            effect=effect_of(method, request),
            plan=name.plan,
            statement=statement_of(request),
            attempt=name.attempt,
            operation_id=getattr(request, "operation_id", "").lower(),
        )
        call.note(found)
        if method == _GOES_ON and found is None:
            raise NotFoundError(f"{name} has not begun: begin it")
        if method != _GOES_ON and found is not None:
            _check_same(name, fresh, call.record)
        if name.is_recorded and found is None:
            call.usage.check(name.program_id, name.shown)
            self.store.usages.check_room()
            if program.mending is not None:
                await self.match(call)
        return call

    async def _read(self, key: ProgramKey, name: CallName) -> tuple[KeyValue | None, KeyValue | None]:
        """Return the record of a program, and that of its call, as they are together."""
        text = 0
        while True:
            place = _place(key, text, name.task, name.number)
            snapshot = await self.store.backend.read_txn([key.place, place] if name.is_recorded else [key.place])
            stored = snapshot.values[key.place]
            is_now = 0 if stored is None else ProgramRecord.decoded(stored.value, f"Programs/{stored.key}").text
            if is_now == text or not name.is_recorded:
                return stored, snapshot.values.get(place)
            text = is_now

    async def as_recorded(self, path: str) -> ProgramCall | None:
        """Return the call whose record is at *path*, ``OWNER/ID/TASK/NUMBER``; None if there is none."""
        if (parts := _PATH.fullmatch(path)) is None:
            return None
        of_program, of_call = (Keyspace.Programs, parts["program"]), (Keyspace.ProgramCalls, path)
        snapshot = await self.store.backend.read_txn([of_program, of_call])
        stored, found = snapshot.values[of_program], snapshot.values[of_call]
        if stored is None or found is None:
            return None
        program = ProgramRecord.decoded(stored.value, f"Programs/{stored.key}")
        if program.text != int(parts["text"] or 0):
            return None  # another text goes on: nothing asks for it
        name = CallName(program.program_id, program.attempt, "", parts["task"], int(parts["number"]))
        call = ProgramCall(self.store, program, Fence(program.key, stored.mod_revision), name)
        call.note(found)
        return call


def place_of(program: ProgramRecord, task: str, number: int) -> tuple[Keyspace, str]:
    """Return where the record of a call is."""
    return _place(program.key, program.text, task, number)


def _place(key: ProgramKey, text: int, task: str, number: int) -> tuple[Keyspace, str]:
    return Keyspace.ProgramCalls, f"{calls_path(key, text)}/{task}/{number:06d}"


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
