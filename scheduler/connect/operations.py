"""Operations: a relation is a job; a command changes its session, or is a job as well.

A job's id follows from user, session and operation, so whoever asks again, at whichever scheduler, finds the same one.
A command's answer is stored in one transaction with its effect.
"""

import base64
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from onager.clock import Clock
from onager.errors import BusyError, DiskError, JobConflictError, JobNotFoundError
from onager.execution_graph import JobState
from onager.ids import PROGRAM_LABEL
from onager.job_settings import PREFIX
from onager.protocol import onager_pb2 as pb
from onager.protocol.call_limits import STREAM_LIMITS
from onager.protocol.security import caller
from onager.protocol.serving import counted
from onager.protocol.spark_connect import SCRIPT
from onager.scheduler.api.job_queries import JobQueries
from onager.scheduler.api.service import SchedulerService
from onager.scheduler.api.submitting import Submissions
from onager.scheduler.connect.checkpoints import begun
from onager.scheduler.connect.failures import ConnectError, failed, from_job, from_reply, invalid, too_large
from onager.scheduler.connect.kept_responses import KeptResponses
from onager.scheduler.connect.operation import Operation, tags_of, takes_pieces
from onager.scheduler.connect.plans import MAX_PLAN_BYTES, digest_of_plan
from onager.scheduler.connect.program_calls import CallAnsweredError
from onager.scheduler.connect.records import MAX_OPERATIONS, MAX_RESPONSES_BYTES, OperationRecord, SessionKey
from onager.scheduler.connect.responses import (
    START,
    Cursor,
    after,
    count_of,
    cursor_after,
    numbered,
    progress,
    rows,
)
from onager.scheduler.connect.running import (
    CALL,
    LABEL_CHARS,
    OPERATION,
    SESSION,
    USER,
    RunningOperations,
    job_id_of,
)
from onager.scheduler.connect.scripts import ConnectScripts
from onager.scheduler.connect.sessions import Session, Sessions, end_of
from onager.scheduler.connect.settings import check_settings
from onager.scheduler.executors.connect_calls import ConnectCalls
from onager.scheduler.jobs.audit_notes import FETCH
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.results import ResultStore, check_fetchable, result_batches, result_schema
from onager.scheduler.records import NOTHING_MORE, Expected, Extra
from onager.state_backend import ABSENT, Committed, Put, StateBackendClient, commit_settled

SPARK_S: Final = 120.0
"""How long Spark may take to analyse a plan or to carry a command out."""
CANCELLED: Final = "OPERATION_CANCELED"
_PLAN, _PIECES = "connect.plan", "connect.pieces"


class _Recorded(NamedTuple):
    record: OperationRecord
    mod_revision: int


@dataclass(eq=False, repr=False)
class Operations:
    """Begins operations, finds them again, and ends them."""

    backend: StateBackendClient
    clock: Clock
    sessions: Sessions
    calls: ConnectCalls
    submissions: Submissions
    queries: JobQueries
    running: RunningOperations
    heads: JobHeads
    results: ResultStore
    scripts: ConnectScripts
    exchange_dir: str
    readers: SchedulerService
    """The service whose readers of results count together with these."""

    # ---------------------------------------------------------------- asking Spark

    async def ask(self, session: Session, call: pb.ConnectCall) -> pb.ConnectReply:
        """Return Spark's reply; `ConnectError` for an error of Spark's."""
        call.session.CopyFrom(session.message)
        return await self._reply(call, session.key.path)

    async def describe(self) -> pb.ConnectDefaults:
        """Return what every session has by default."""
        return (await self._reply(pb.ConnectCall(describe=True), "")).defaults

    async def _reply(self, call: pb.ConnectCall, session_path: str) -> pb.ConnectReply:
        reply = await self.calls.call(call, session_path, SPARK_S)
        if reply.HasField("failure"):
            raise from_reply(reply.failure)
        return reply

    async def change(self, session: Session, call: pb.ConnectCall, answer: Any) -> bytes:
        """Have Spark say what becomes of the session by a call that sets, persists or unpersists; return its answer.

        *answer*: what is in it besides what Spark and the session add.
        """

        async def tried(session: Session) -> bytes | None:
            applied = (await self.ask(session, call)).applied
            responses = bytes(applied.responses[0]) if applied.responses else b""
            # Encoded messages in a row are one.
            whole: bytes = answer.SerializeToString() + responses + session.of_answer(type(answer))
            if applied.changes and await self.sessions.apply(session, applied, answer=whole) is None:
                return None
            return whole

        return await self.sessions.until_done(session, tried)

    # ---------------------------------------------------------------- beginning

    async def execute(
        self, session: Session, operation: Operation, request: Any, kind: str
    ) -> AsyncGenerator[bytes, None]:
        """Yield the responses of an operation, which begins unless it has begun before."""
        digest = digest_of_plan(request)
        if kind == "relation":
            await self._submit_query(session, operation, request, digest)
            async for response in self._of_query(operation, ""):
                yield response
            return
        found = await self._find(operation)
        if found is not None and operation.is_taken(digest, found.record.digest):
            raise _taken(operation)
        done = found or await self._apply(session, operation, request, digest)
        if isinstance(done, _Recorded):
            if done.record.work and not done.record.is_begun:
                await self._begin(operation, request, done)
            async for response in self._of_record(operation, done.record, 0):
                yield response
            return
        for response in numbered(operation.ids, done, "!"):
            yield response
        yield operation.ids.complete()

    async def _submit_query(self, session: Session, operation: Operation, request: Any, digest: str) -> None:
        extra = NOTHING_MORE
        if operation.call is not None:
            if operation.call.revision != ABSENT:
                return  # it was submitted, once and for all
            extra = operation.call.extra(is_begun=True)
        try:
            await self._submit(session.message, operation, request, digest, "", extra)
        except BusyError:
            if operation.call is None or not await operation.call.look():
                raise
        else:
            if operation.call is not None:
                await operation.call.look()

    async def _apply(
        self, session: Session, operation: Operation, request: Any, digest: str
    ) -> _Recorded | list[bytes]:
        """Have Spark carry out a command; return what was recorded, or the only response, where that is all."""
        content = b"" if request.plan.command.HasField("checkpoint_command") else request.SerializeToString()

        async def tried(session: Session) -> _Recorded | list[bytes] | None:
            carried = await self._carried_out(session, operation, content)
            if carried is None:
                return await self._find(operation)
            work, responses, applied = carried
            if (size := sum(map(len, responses))) > MAX_RESPONSES_BYTES:
                raise too_large("the answer to the command", size, MAX_RESPONSES_BYTES)
            if not work and not applied.changes and len(responses) <= 1 and operation.call is None:
                return list(responses)
            record = operation.recorded(
                **await operation.outcome_of(responses),
                digest=digest,
                at_ms=self.clock.now_ms(),
                work=work,
                session=base64.b64encode(session.message.SerializeToString()).decode() if work else "",
            )
            if revision := await self._recorded(session, operation, record, applied):
                return _Recorded(record, revision)
            if (found := await self._find(operation)) is not None:
                if operation.is_taken(digest, found.record.digest):
                    raise _taken(operation)
                return found
            return None

        try:
            return await self.sessions.until_done(session, tried)
        except CallAnsweredError:
            assert operation.call is not None
            return _Recorded(operation.call.record, operation.call.revision)

    async def _carried_out(
        self, session: Session, operation: Operation, content: bytes
    ) -> tuple[str, Sequence[bytes], pb.ConnectApplied] | None:
        """Return the work of a command's job, if there is one, what its client gets, and what it changes.

        None if it cannot be carried out again, and what was recorded stands. *content*: the request for Spark; empty
        for a checkpoint.
        """
        if not content:
            job, applied = begun(session, operation.job_id)
            return job.work, job.responses, applied
        try:
            reply = await self.ask(session, pb.ConnectCall(apply=content))
        except ConnectError as error:
            if error.is_passing or operation.call is None or not await operation.call.let_stand():
                raise
            return None
        job, applied = reply.job, reply.applied
        check_settings(applied.conf)
        if job.work != SCRIPT:
            return job.work, job.responses if job.work else applied.responses, applied
        if operation.call is not None:
            return "", job.responses, applied  # the program walks the script by itself
        self.scripts.check_hosts()
        return SCRIPT, (), applied

    async def _recorded(
        self, session: Session, operation: Operation, record: OperationRecord, applied: pb.ConnectApplied
    ) -> int:
        """Write the record of a command, and what it changes; return the revision, 0 if something is not as it was."""
        marks = () if operation.call is None else operation.call.marks
        ops = [Put(*operation.place, record.encoded()), *marks]
        extra: Extra = (ops, {operation.place: ABSENT, **operation.fenced})
        revision = 0
        if applied.changes:
            if (changed := await self.sessions.apply(session, applied, extra)) is not None:
                revision = changed.mod_revision
        elif isinstance(written := await commit_settled(self.backend, *extra), Committed):
            revision = written.revision
        if revision and operation.call is not None:
            operation.call.took(extra, revision)
        return revision

    async def _find(self, operation: Operation) -> _Recorded | None:
        if (call := operation.call) is not None:
            await call.look()
            return None if call.revision == ABSENT else _Recorded(call.record, call.revision)
        found = await self.backend.get(*operation.place)
        if found is None:
            return None
        record = OperationRecord.decoded(found.value, f"ConnectOperations/{found.key}")
        return _Recorded(record, found.mod_revision)

    async def _begin(self, operation: Operation, request: Any, recorded: _Recorded) -> None:
        """Submit the job that carries a command out, and note that in the same transaction: it is done only once."""
        record = recorded.record
        begun = Put(*operation.place, record.model_copy(update={"is_begun": True}).encoded())
        as_it_was = pb.ConnectSession.FromString(base64.b64decode(record.session))
        extra: Extra = ([begun], {operation.place: recorded.mod_revision, **operation.fenced})
        await self._submit(as_it_was, operation, request, record.digest, record.work, extra)
        if operation.call is not None:
            await operation.call.look()

    async def _submit(
        self, session: pb.ConnectSession, operation: Operation, request: Any, digest: str, work: str, extra: Extra
    ) -> None:
        if (head := self.heads.get(operation.job_id)) is not None:
            if operation.is_taken(digest, head.labels.get(_PLAN)):
                raise _taken(operation)
            return
        program = None if operation.call is None else operation.call.fence.key.path
        beside = (head.labels.get(PROGRAM_LABEL) for head in self.running.as_last_seen(operation.key))
        if (running := sum(each == program for each in beside)) >= MAX_OPERATIONS:  # a script needs one more for each
            unit = "operations that run at a time"
            raise too_large("the session", running + 1, MAX_OPERATIONS, unit, is_passing=True)
        content = request.SerializeToString()
        plan = pb.ConnectPlan(request=content, session=session, work=work)
        if (size := plan.ByteSize()) > MAX_PLAN_BYTES:
            raise too_large("the plan, with what the session's views are made of,", size, MAX_PLAN_BYTES)
        is_script = work == SCRIPT
        spec = pb.JobSpec(
            connect=None if is_script else plan,
            program=self.scripts.program(request, session) if is_script else None,
            name=f"spark connect {work or 'query'}",
            conf={k: v for k, v in session.conf.items() if k.startswith(PREFIX)},  # Spark's come with the session
            labels={
                USER: operation.key.user[:LABEL_CHARS],
                **({} if program is None else {PROGRAM_LABEL: program}),
                SESSION: operation.key.session_id,
                OPERATION: operation.operation_id,
                _PLAN: digest,
                **tags_of(request),
                **({_PIECES: "yes"} if takes_pieces(request) else {}),
                **({} if operation.call is None else {CALL: operation.call.place[1]}),
            },
        )
        submission = pb.SubmitJobRequest(
            job_id=operation.job_id, spec=spec, client_id=f"spark-connect-{operation.key.session_id}"
        )
        ops, expected = extra
        is_open: Expected = {end_of(operation.key): ABSENT}
        try:
            await self.submissions.submit(submission, extra=(ops, {**expected, **is_open}))
        except JobConflictError:
            # The session may have changed since the operation began. What counts is its plan.
            job = await self.queries.fresh(operation.job_id)
            if operation.is_taken(digest, job.header.labels.get(_PLAN)):
                raise _taken(operation) from None

    # ---------------------------------------------------------------- answering

    async def reattach(self, operation: Operation, last_response_id: str) -> AsyncGenerator[bytes, None]:
        """Yield the responses after the one that the client had last; `ConnectError` if the operation has not begun."""
        if last_response_id.endswith("!"):
            yield operation.ids.complete()
            return
        found = await self._find(operation)
        if found is None or (operation.call is not None and not found.record.digest):
            async for response in self._of_query(operation, last_response_id):
                yield response
            return
        async for response in self._of_record(operation, found.record, count_of(last_response_id)):
            yield response

    async def again(self, operation: Operation, last_response_id: str) -> AsyncGenerator[bytes, None]:
        """Yield the recorded responses of a program's call after the one that the client had last."""
        call = operation.call
        assert call is not None
        if call.record.digest:
            responses = self._of_record(operation, call.record, count_of(last_response_id))
        else:
            responses = after(call.responses(), last_response_id)
        async with aclosing(responses):
            async for response in responses:
                yield response

    async def _of_record(
        self, operation: Operation, record: OperationRecord, after: int
    ) -> AsyncGenerator[bytes, None]:
        observed = b""
        if record.work:
            async for response in self._until_ended(operation, is_begun=record.is_begun):
                yield response
            job = await self._succeeded(operation)
            observed = _observed(job)
            if operation.call is not None:
                await operation.call.settle_command(observed)
        elif operation.call is not None:
            observed = base64.b64decode(operation.call.record.observed)
        is_script = record.work == SCRIPT
        responses = await (self.scripts.responses(job) if is_script else operation.responses(record))
        for response in list(numbered(operation.ids, responses, ""))[after:]:
            yield response
        yield operation.ids.complete() + observed

    async def _of_query(self, operation: Operation, last_response_id: str) -> AsyncGenerator[bytes, None]:
        """Yield how far a query is, and its rows after the response that the client had last.

        Few rows of a program's query are kept with its call.
        """
        call = operation.call
        if call is None:
            async for response in self._of_job(operation, cursor_after(last_response_id)):
                yield response
            return
        if call.record.is_done:
            async for response in self.again(operation, last_response_id):
                yield response
            return
        kept = KeptResponses(call, is_whole=last_response_id in ("", START))
        last = b""
        try:
            async with aclosing(self._of_job(operation, cursor_after(last_response_id))) as responses:
                async for response in responses:
                    if last:
                        yield last
                    await kept.add(last := response)
            await kept.settle()  # before its client has all, and goes
        finally:
            kept.close()
        yield last

    async def settle(self, operation: Operation) -> None:
        """Record what came of a program's call, whose job has ended.

        `ConnectError` for an error that passes, `DiskError` if the rows cannot be kept.
        """
        call = operation.call
        assert call is not None
        try:
            job = await self._succeeded(operation)
            if call.record.digest:
                await call.settle_command(_observed(job))
                return
            kept = KeptResponses(call, is_whole=True)
            try:
                async with aclosing(self._rows(operation, job, Cursor())) as responses:
                    async for response in responses:
                        await kept.add(response)
                await kept.settle()
            finally:
                kept.close()
            if not call.record.is_done:
                raise DiskError(f"the rows of {call.name} cannot be kept in the exchange directory")
        except ConnectError as error:
            if error.is_passing:
                raise
            is_stopped = error.error_class == CANCELLED and bool(call.program.ended_ms)
            await call.settle_as({**call.outcome_of_error(error), "is_stopped": is_stopped})

    async def _until_ended(self, operation: Operation, *, is_begun: bool = False) -> AsyncGenerator[bytes, None]:
        """Yield how far the job is, until it has ended; *is_begun*: it was submitted, if its record is gone by now."""
        try:
            async for now in self.queries.progress(operation.job_id):
                if now.state in (pb.SUCCESSFUL, pb.FAILED, pb.CANCELLED):
                    break
                yield progress(operation.ids, now)
        except JobNotFoundError:
            if is_begun:
                raise _forgotten(operation) from None
            raise invalid("OPERATION_NOT_FOUND", operation.operation_id, "Operation not found.") from None

    async def _succeeded(self, operation: Operation) -> StoredJob:
        """Return the operation's job, which has ended; `ConnectError` unless it has succeeded."""
        job = await self.queries.fresh(operation.job_id)
        if job.graph.state is JobState.CANCELLED:
            raise failed(CANCELLED, "HY008", "Operation has been canceled.")
        if job.graph.state is JobState.FAILED:
            raise await self._error(job, operation.operation_id)
        return job

    async def _error(self, job: StoredJob, operation_id: str) -> ConnectError:
        if job.graph.is_program:
            return await self.scripts.error(job, operation_id)
        return from_job(job.graph.outcome.failure, operation_id)  # type: ignore[union-attr]

    async def _of_job(self, operation: Operation, cursor: Cursor) -> AsyncGenerator[bytes, None]:
        """Yield how far the job is, and then its rows."""
        async for response in self._until_ended(operation, is_begun=operation.call is not None):
            yield response
        job = await self._succeeded(operation)
        if cursor.is_done:
            yield operation.ids.complete() + _observed(job)
            return
        with counted(self.readers, "FetchResult", STREAM_LIMITS["FetchResult"]):
            self.readers.notes.note(caller(), FETCH, operation.job_id)
            async with aclosing(self._rows(operation, job, cursor)) as responses:
                async for response in responses:
                    yield response

    async def _rows(self, operation: Operation, job: StoredJob, cursor: Cursor) -> AsyncGenerator[bytes, None]:
        """Yield the rows of a job that has succeeded, and what ends them."""
        graph = job.graph
        if graph.plan is None:
            yield operation.ids.complete() + _observed(job)
            return
        head = self.heads.get(operation.job_id)
        check_fetchable(graph, has_result=head is None or head.has_result)
        batches = result_batches(graph, self.results, self.exchange_dir, partition=cursor.partition, batch=cursor.batch)
        answers = rows(
            operation.ids,
            cursor,
            graph.plan.schema_json,
            result_schema(graph),
            batches,
            in_pieces=job.header.labels.get(_PIECES) == "yes",
            observed=_observed(job),
        )
        async with aclosing(answers):
            async for response in answers:
                yield response

    async def failure(self, key: SessionKey, operation_id: str) -> ConnectError | None:
        """Return the error with which an operation's job failed; None if it did not, or is gone."""
        try:
            job = await self.queries.fresh(job_id_of(key, operation_id))
        except JobNotFoundError:
            return None
        return await self._error(job, operation_id) if job.graph.state is JobState.FAILED else None


def _forgotten(operation: Operation) -> ConnectError:
    why = "It was carried out, or has failed, and how it ended is not known any more: look at what it should write."
    return invalid("OPERATION_ABANDONED", operation.operation_id, why)


def _taken(operation: Operation) -> ConnectError:
    return invalid("OPERATION_ALREADY_EXISTS", operation.operation_id, "Operation already exists, with another plan.")


def _observed(job: StoredJob) -> bytes:
    """Return what a job's query has observed, as what the last response has besides."""
    plan = job.graph.plan
    return b"" if plan is None else base64.b64decode(plan.observed)
