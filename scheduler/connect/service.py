"""The twelve calls of Spark Connect."""

import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from onager.execution_graph import JobState
from onager.protocol import onager_pb2 as pb
from onager.protocol import spark_connect as sc
from onager.protocol.security import principal
from onager.scheduler.cluster.rounds import Rounds
from onager.scheduler.connect.artifacts import Artifacts
from onager.scheduler.connect.call_names import call_name
from onager.scheduler.connect.checkpoints import Checkpoints
from onager.scheduler.connect.failures import OF_CALL, OF_OPERATION, ConnectError, invalid
from onager.scheduler.connect.operation import Operation
from onager.scheduler.connect.operations import Operations
from onager.scheduler.connect.plans import checked
from onager.scheduler.connect.program_calls import ProgramCall, ProgramCalls
from onager.scheduler.connect.program_targets import once_of
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.running import RunningOperations
from onager.scheduler.connect.sessions import Session, Sessions
from onager.scheduler.connect.settings import Defaults, check_settings
from onager.scheduler.engine.caches import Caches
from onager.scheduler.programs import Programs

Metadata = Iterable[tuple[str, Any]] | None
SWEEP_S: Final = 600.0
"""How often what is past its retention is looked for."""
_KEPT_ERRORS: Final = 500
_USER_CHARS: Final = 256
_BY_TAG, _BY_OPERATION = 2, 3
_STATES: Final = {
    None: 1,
    JobState.SUCCESSFUL: 4,
    JobState.FAILED: 5,
    JobState.CANCELLED: 6,
}
"""Spark's numbers for the states of operations; any other is running (2)."""


@dataclass(eq=False, repr=False)
class SparkConnectService:
    """Answers requests, decoded and within their limits; errors are raised."""

    sessions: Sessions
    operations: Operations
    running: RunningOperations
    artifacts: Artifacts
    checkpoints: Checkpoints
    programs: Programs
    calls: ProgramCalls
    caches: Caches

    def __post_init__(self) -> None:
        self._defaults = Defaults(self.operations.describe)
        self._errors: OrderedDict[str, tuple[SessionKey, ConnectError]] = OrderedDict()

    async def of_program(self, method: str, request: Any, metadata: Metadata) -> ProgramCall | None:
        """Return the call of a program that a request of *method* is, by its *metadata*; None if it is none."""
        name = call_name(metadata or ())
        return None if name is None else await self.calls.find(principal(), name, method, request)

    # ---------------------------------------------------------------- plans

    async def ExecutePlan(self, request: Any, _: bytes, call: ProgramCall | None = None) -> AsyncIterator[bytes]:  # noqa: N802
        """Begin an operation, or find it again, and yield its responses."""
        if call is not None and call.record.is_done:
            async for response in self.operations.again(await self._recorded(request, call), ""):
                yield response
            return
        kind = checked(request)
        if not request.operation_id:
            request.operation_id = str(uuid.uuid4())
        _take_operation_id(request, call)
        session = await self._open(request, call)
        operation = _operation(session, request.operation_id)
        async for response in self.operations.execute(session, operation, request, kind):
            yield response

    async def ReattachExecute(self, request: Any, _: bytes, call: ProgramCall | None = None) -> AsyncIterator[bytes]:  # noqa: N802
        """Yield the responses of an operation from where its client has got to."""
        if call is not None and call.record.is_done:
            async for response in self.operations.again(await self._recorded(request, call), request.last_response_id):
                yield response
            return
        _take_operation_id(request, call)
        session = await self._open(request, call)
        operation = _operation(session, request.operation_id)
        async for response in self.operations.reattach(operation, request.last_response_id):
            yield response

    async def ReleaseExecute(self, request: Any, _: bytes, call: ProgramCall | None = None) -> Any:  # noqa: N802
        """Cancel an operation that its client gives up; what has ended is kept for as long as any job's result."""
        is_all = request.WhichOneof("release") == "release_all" and call is None  # a later attempt may wait for it
        session = None if is_all else self.sessions.at_hand(self._key(request, call))
        session = session or await self._open(request, call)
        if is_all:
            await self.running.interrupt(session.key, operation_id=request.operation_id.lower())
        return self._answer(session, sc.ReleaseExecuteResponse(operation_id=request.operation_id))

    async def AnalyzePlan(self, request: Any, content: bytes, call: ProgramCall | None = None) -> Any:  # noqa: N802
        """Have Spark analyse a plan."""
        session = await self._open(request, call)
        answer = sc.AnalyzePlanResponse()
        if request.WhichOneof("analyze") == "spark_version":
            answer.spark_version.version = (await self._defaults.get()).spark_version
            return self._answer(session, answer)
        if (asked := request.WhichOneof("analyze")) in ("persist", "unpersist"):
            getattr(answer, asked).SetInParent()
            return await self.operations.change(session, pb.ConnectCall(persist=content), answer)
        reply = await self.operations.ask(session, pb.ConnectCall(analyze=content))
        # Two encoded messages in a row are one: what Spark answers need not be decoded, however deep it is.
        return reply.analyzed + self._answer(session, answer).SerializeToString()

    async def Interrupt(self, request: Any, _: bytes, call: ProgramCall | None = None) -> Any:  # noqa: N802
        """Cancel operations of a session."""
        session = await self._open(request, call)
        wanted: dict[str, str] = {}
        if request.interrupt_type == _BY_TAG:
            wanted["tag"] = request.operation_tag
        elif request.interrupt_type == _BY_OPERATION:
            wanted["operation_id"] = request.operation_id.lower()
        interrupted: list[str] = []
        if "" not in wanted.values():
            find = partial(self.running.found, session.key, **wanted)
            is_recorded = call is not None and call.name.is_recorded
            found = await (call.intend(find) if call is not None and is_recorded else find())
            interrupted = await self.running.cancel(session.key, found)
        return self._answer(session, sc.InterruptResponse(interrupted_ids=interrupted))

    async def GetStatus(self, request: Any, _: bytes, call: ProgramCall | None = None) -> Any:  # noqa: N802
        """Tell the states of operations."""
        session = await self._open(request, call)
        answer = sc.GetStatusResponse()
        if request.HasField("operation_status"):
            asked = {given.lower(): given for given in request.operation_status.operation_ids}
            states = await self.running.states(session.key, asked)
            for operation_id, state in states.items():
                answer.operation_statuses.add(
                    operation_id=asked.get(operation_id, operation_id), state=_STATES.get(state, 2)
                )
        return self._answer(session, answer)

    # ---------------------------------------------------------------- sessions

    async def Config(self, request: Any, content: bytes, call: ProgramCall | None = None) -> Any:  # noqa: N802
        """Read or change settings; or take in the outcome of a function of a program, to be recorded."""
        if call is not None and call.name.is_recorded and once_of(request):
            return sc.ConfigResponse(pairs=request.operation.set.pairs)
        session = await self._open(request, call)
        if request.operation.WhichOneof("op_type") in ("set", "unset"):
            check_settings({pair.key: pair.value for pair in request.operation.set.pairs})
            return await self.operations.change(session, pb.ConnectCall(configure=content), sc.ConfigResponse())
        return self._answer(session, await self._defaults.read(session, request.operation))

    async def ReleaseSession(self, request: Any, _: bytes, call: ProgramCall | None = None) -> Any:  # noqa: N802
        """End a session, and what it runs; sessions of a program end with the program."""
        key = self._key(request, call)
        if call is not None:
            return self._answer(await self._open(request, call), sc.ReleaseSessionResponse())
        session = await self.sessions.close(key)
        await self.running.interrupt(key)  # from now on, none begins
        answer = sc.ReleaseSessionResponse(session_id=key.session_id)
        if session is not None:
            answer.server_side_session_id = session.record.server_side_session_id
        return answer

    async def CloneSession(self, request: Any, _: bytes, call: ProgramCall | None = None) -> Any:  # noqa: N802
        """Make a session like another one."""
        session = await self._open(request, call)
        new = SessionKey(session.key.user, request.new_session_id.lower() or str(uuid.uuid4()))

        def answered(made: Session) -> bytes:
            answer = sc.CloneSessionResponse(
                new_session_id=new.session_id, new_server_side_session_id=made.record.server_side_session_id
            )
            return bytes(self._answer(session, answer).SerializeToString())

        return answered(await self.sessions.clone(session, new, answered))

    async def AddArtifacts(  # noqa: N802
        self, first: Any, requests: AsyncIterator[Any], call: ProgramCall | None = None
    ) -> Any:
        """Take files into a session: those of *first*, the first message of the call, and of *requests*."""
        session = await self._open(first, call)
        return self._answer(session, await self.artifacts.add(session, first, requests))

    async def ArtifactStatus(self, request: Any, _: bytes, call: ProgramCall | None = None) -> Any:  # noqa: N802
        """Tell which files are there."""
        session = await self._open(request, call)
        names = {artifact.name for artifact in session.record.artifacts}
        answer = sc.ArtifactStatusesResponse()
        for name in request.names:
            answer.statuses[name].exists = name in names
        return self._answer(session, answer)

    # ---------------------------------------------------------------- errors

    async def FetchErrorDetails(self, request: Any, _: bytes, call: ProgramCall | None = None) -> Any:  # noqa: N802
        """Tell all that is known of an error; nothing of one that only another scheduler knows."""
        session = await self._open(request, call)
        answer = sc.FetchErrorDetailsResponse()
        error: ConnectError | None = None
        if request.error_id.startswith(OF_CALL):
            error = None if call is None else await call.error_of(request.error_id)
        elif request.error_id.startswith(OF_OPERATION):
            error = await self.operations.failure(session.key, request.error_id.removeprefix(OF_OPERATION))
        else:
            key, found = self._errors.get(request.error_id, (None, None))
            error = found if key == session.key else None
        if error is not None:
            answer.CopyFrom(error.details)
        return self._answer(session, answer)

    def note(self, request: Any, call: ProgramCall | None, error: ConnectError) -> None:
        """Cache the error for FetchErrorDetails."""
        if not error.error_id:
            error.error_id = str(uuid.uuid4())
            self._errors[error.error_id] = (self._key(request, call), error)
            if len(self._errors) > _KEPT_ERRORS:
                self._errors.popitem(last=False)

    # ---------------------------------------------------------------- parts

    async def _recorded(self, request: Any, call: ProgramCall) -> Operation:
        """Return the operation whose outcome is recorded; its session is needed for an id that it always has."""
        call.raise_error()
        session = self.sessions.at_hand(self._key(request, call)) or await self._open(request, call)
        return Operation(session.key, session.record.server_side_session_id, call.record.operation_id, call)

    async def _open(self, request: Any, call: ProgramCall | None = None) -> Session:
        observed = getattr(request, "client_observed_server_side_session_id", "")
        return await self.sessions.open(self._key(request, call), observed, call)

    @staticmethod
    def _key(request: Any, call: ProgramCall | None = None) -> SessionKey:
        """Return whose session is meant: a token says whose, and without names of tokens the client does.

        A program's are those of who began it.
        """
        user = principal() or request.user_context.user_id
        user = user if call is None else call.program.user
        if len(user) > _USER_CHARS:
            raise invalid("FORMAT", user[:80], f"A user's name has at most {_USER_CHARS} characters.")
        return SessionKey(user, request.session_id.lower())

    @staticmethod
    def _answer(session: Session, answer: Any) -> Any:
        answer.session_id = session.key.session_id
        answer.server_side_session_id = session.record.server_side_session_id
        return answer

    async def sweep_in_turn(self, rounds: Rounds) -> None:
        """Make room for programs, and sweep if that is due; one scheduler at a time removes files."""
        await self.programs.make_room()
        if rounds.has_begun("connect", SWEEP_S):
            await self.sweep(with_files=await rounds.claim("connect", SWEEP_S))

    async def sweep(self, *, with_files: bool) -> None:
        """Forget what is past its retention; *with_files*: and remove the files that no session has any more."""
        looked_ms = self.operations.clock.now_ms()
        programs = await self.programs.sweep()
        kept = await self.sessions.sweep(programs.going_on, programs.resting)
        await self.caches.keep(kept, looked_ms)
        self.checkpoints.note(kept)
        if programs.folders is not None:
            await self.programs.files.sweep(programs.folders)
        if with_files:
            try:
                await self.artifacts.sweep(kept)
            finally:
                await self.checkpoints.sweep(kept)


def _operation(session: Session, operation_id: str) -> Operation:
    call = session.call if session.call is not None and session.call.name.is_recorded else None
    return Operation(session.key, session.record.server_side_session_id, operation_id.lower(), call)


def _take_operation_id(request: Any, call: ProgramCall | None) -> None:
    """Have the operation of a program's call keep the id that it began with; `ConnectError` for what is no id."""
    if call is not None and call.record.operation_id:
        request.operation_id = call.record.operation_id
    operation_id = request.operation_id
    try:
        uuid.UUID(operation_id)
    except ValueError:
        why = "Handle must be an UUID string of the format '00112233-4455-…'."
        raise invalid("FORMAT", operation_id[:80], why) from None
