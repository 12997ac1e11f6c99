"""Programs that are jobs: their attempts, and what becomes of their calls when the job ends."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from onager.errors import NotFoundError, OnagerError
from onager.execution_graph import is_held
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key
from onager.scheduler.api.job_queries import JobQueries
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.jobs.job_heads import JobHead, JobHeads
from onager.scheduler.programs import ProgramKey, Programs

log = structlog.get_logger(__name__)


@dataclass(eq=False, repr=False)
class HostedPrograms:
    """The programs of jobs; the id of such a program is that of its job."""

    programs: Programs
    queries: JobQueries
    heads: JobHeads
    ownership: Ownership
    interrupt: Callable[[str], Awaitable[None]]
    """Cancels the operations of a program that run, by the path of its record."""
    is_there: Callable[[str], bool]
    """Returns whether an executor is there in this life, and does not leave."""
    _ended: set[JobId] = field(default_factory=set)
    """Programs whose jobs have ended by another's word than their own, to be closed."""

    async def begin(self, request: pb.BeginAttemptRequest) -> pb.BeginAttemptResponse:
        """Begin an attempt for an executor; `NotFoundError` if the job does not want it there."""
        task = task_key(request.task)
        job = await self.queries.fresh(task.job_id)
        if not job.graph.is_program:
            raise NotFoundError(f"job {task.job_id} is no program")
        if not is_held(job.graph, task, request.executor_id, request.incarnation):
            raise NotFoundError(f"executor {request.executor_id} does not hold {task}: the program goes on elsewhere")
        owner = await self._owner(task.job_id)
        begun = await self.programs.begin(
            owner,
            pb.BeginProgramRequest(
                program_id=task.job_id, secret=request.secret, user=request.user, digest=job.graph.spec_digest
            ),
            host=request.incarnation,
            is_there=self.is_there,
        )
        folder = await self.programs.folder(ProgramKey(owner, task.job_id))
        return pb.BeginAttemptResponse(begun=begun, owner=owner, user=owner or request.user, folder=folder)

    async def end(self, request: pb.EndAttemptRequest) -> None:
        """Note that a program has ended by itself; what it has left running is cancelled."""
        key = ProgramKey(await self._owner(JobId(request.task.job_id)), request.end.program_id)
        await self.programs.end(key.owner, request.end)
        await self.interrupt(key.path)

    async def _owner(self, job_id: JobId) -> str:
        head = await self.heads.known(job_id)
        if head is None:
            raise NotFoundError(f"there is no job {job_id}")
        return head.principal

    async def close(self, job_id: JobId, why: str) -> None:
        """End a program whose job ends: from now on no call of it has an effect, and what it runs is cancelled."""
        key = ProgramKey(await self._owner(job_id), job_id)
        if await self.programs.close(key, why):
            await self.interrupt(key.path)

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
