"""Programs that are jobs: their attempts, what becomes of their calls when the job ends, and their retries."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from onager.errors import InvalidRequestError, NotFoundError, OnagerError
from onager.execution_graph import ExecutionGraph, is_held
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import principal
from onager.protocol.task_keys import task_key
from onager.scheduler.api.job_queries import JobQueries
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.jobs.job_heads import JobHead, JobHeads
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.program_records import Mended, ProgramKey, ProgramRecord
from onager.scheduler.programs import Programs
from onager.scheduler.records import NOTHING_MORE, Extra

log = structlog.get_logger(__name__)


async def _never(key: ProgramKey, job_id: JobId, _: Mended | None) -> Extra:
    raise AssertionError(f"{job_id} goes on with {key} before calls are served")


async def _is_checked(key: ProgramKey) -> None:
    raise AssertionError(f"{key} ends before calls are served")


@dataclass(eq=False, repr=False)
class HostedPrograms:
    """The programs of jobs; the id of such a program is that of its job, or, of a retry, of the first one."""

    programs: Programs
    queries: JobQueries
    heads: JobHeads
    ownership: Ownership
    interrupt: Callable[[str], Awaitable[None]]
    """Cancels the operations of a program that run, by the path of its record."""
    is_there: Callable[[str], bool]
    """Returns whether an executor is there in this life, and does not leave."""
    go_on: Callable[[ProgramKey, JobId, Mended | None], Awaitable[Extra]] = _never
    """Returns what goes on with a program that has ended, once it is written with the new job."""
    check_end: Callable[[ProgramKey], Awaitable[None]] = _is_checked
    """Raises `ProgramDiffersError` if a mended program lacks a write that is done."""
    _ended: set[JobId] = field(default_factory=set)
    """Programs whose jobs have ended by another's word than their own, to be closed."""

    async def begin(self, request: pb.BeginAttemptRequest) -> pb.BeginAttemptResponse:
        """Begin an attempt for an executor; `NotFoundError` if the job does not want it there."""
        job = await self._held(request)
        job_id = JobId(job.graph.job_id)
        key = await self._key(job_id)
        begun = await self.programs.begin(
            key.owner,
            pb.BeginProgramRequest(
                program_id=key.program_id, secret=request.secret, user=request.user, digest=job.graph.spec_digest
            ),
            job_id=job_id,
            host=request.incarnation,
            is_there=self.is_there,
            check=partial(self._held, request),  # else one that has lost the task could supersede its successor
        )
        record, _ = await self.programs.read(key)
        return pb.BeginAttemptResponse(
            begun=begun,
            owner=key.owner,
            user=key.owner or request.user,
            folder="" if record is None else record.folder,
            program_id=key.program_id,
            retried=[] if record is None else [each.message for each in record.retried],
        )

    async def _held(self, request: pb.BeginAttemptRequest) -> StoredJob:
        """Return the job of an attempt; `NotFoundError` if its executor does not hold the task, or not any more."""
        task = task_key(request.task)
        job = await self.queries.fresh(task.job_id)
        if not job.graph.is_program:
            raise NotFoundError(f"job {task.job_id} is no program")
        if not is_held(job.graph, task, request.executor_id, request.incarnation):
            raise NotFoundError(f"executor {request.executor_id} does not hold {task}: the program goes on elsewhere")
        return job

    async def end(self, request: pb.EndAttemptRequest) -> None:
        """Note that a program has ended by itself; what it has left running is cancelled."""
        key = await self._key(JobId(request.task.job_id))
        if not request.end.exit_code:
            await self.check_end(key)
        await self.programs.end(key.owner, request.end)
        await self.interrupt(key.path)

    async def _key(self, job_id: JobId) -> ProgramKey:
        """Return the key of the program that a job is, or goes on with."""
        head = await self.heads.known(job_id)
        if head is None:
            raise NotFoundError(f"there is no job {job_id}")
        return ProgramKey(head.principal, head.program_id or job_id)

    async def close(self, job_id: JobId, why: str) -> None:
        """End a program whose job ends: from now on no call of it has an effect, and what it runs is cancelled."""
        key = await self._key(job_id)
        if await self.programs.close(key, job_id, why):
            await self.interrupt(key.path)

    async def retried(self, job: StoredJob, new: JobId, mended: Mended | None = None) -> tuple[str, Extra]:
        """Return the id of the program that the job *new* goes on with, which repeats *job*, and what it writes.

        *mended*: the program that goes on, if it is another one. No id if the program never began.
        `InvalidRequestError` if it has succeeded or is another's, `NotFoundError` if its record is gone,
        `ProgramGoesOnError` if another job goes on with it.
        """
        key, record = await self.ended(job)
        return ("", NOTHING_MORE) if record is None else (key.program_id, await self.go_on(key, new, mended))

    async def ended(self, job: StoredJob) -> tuple[ProgramKey, ProgramRecord | None]:
        """Return the program that a job, which has ended, was the last to go on with; None if it never began.

        Errors as in `retried`.
        """
        job_id = JobId(job.graph.job_id)
        key = ProgramKey(job.header.principal, job.header.program_id or job_id)
        if key.owner != principal():
            raise InvalidRequestError(
                f"program {key.program_id} was submitted with the token {key.owner or 'without a name'}: only that one "
                "can go on with it, since its calls are in that name"
            )
        await self.close(job_id, "its job has ended")
        record, _ = await self.programs.read(key)
        if record is None and (job.header.program_id or _was_handed_out(job.graph)):
            raise NotFoundError(
                f"program {key.program_id} has no record: it did not begin before its end, or its record was removed; "
                "submit it as a new one (onager run), which does all its writes"
            )
        return key, record

    def on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """Note a program whose job has ended, whoever drove it: that scheduler may be gone before it closes it."""
        if head is None:
            self._ended.discard(job_id)
        elif head.is_program and not head.is_active:
            self._ended.add(job_id)

    async def close_ended(self) -> None:
        """Close the programs whose jobs have ended, unless they have ended by themselves; others close theirs."""
        for job_id in [each for each in self._ended if self.ownership.is_mine(each)]:
            try:
                await self.close(job_id, "its job has ended")
            except OnagerError as error:
                log.warning("program_not_closed", job_id=job_id, error=str(error))
            else:
                self._ended.discard(job_id)


def _was_handed_out(program: ExecutionGraph) -> bool:
    """Return whether an executor ever got the task of a program that has ended."""
    stage = program.stages[1]
    return bool(stage.ledger.outputs or stage.ledger.attempts or getattr(stage, "running", None))
