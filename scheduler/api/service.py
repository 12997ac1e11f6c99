"""The calls of clients: submit, look, watch, cancel, fetch; and the raw records for an admin."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import structlog

from onager.errors import JobNotFoundError, ResultExpiredError
from onager.execution_graph import JobState, child_of
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerSchedulerServicer
from onager.protocol.security import caller_of, principal
from onager.protocol.serving import SharedMessage, translated, translated_stream
from onager.scheduler import wire
from onager.scheduler.api.exports import JobExports
from onager.scheduler.api.hosted_programs import HostedPrograms
from onager.scheduler.api.job_list import listed
from onager.scheduler.api.job_logs import JobLogs
from onager.scheduler.api.job_queries import JobQueries, asked_job_id
from onager.scheduler.api.program_queries import ProgramQueries
from onager.scheduler.api.retrying import Retries
from onager.scheduler.api.submitting import Submissions
from onager.scheduler.catalog.reading import CatalogQueries
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.executors.draining import Draining
from onager.scheduler.executors.executor_list import list_executors
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.jobs.audit import Audit
from onager.scheduler.jobs.audit_notes import FETCH, AuditNotes
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.results import ResultStore, check_fetchable, stream_result
from onager.scheduler.programs import Programs
from onager.scheduler.settings import SchedulerSettings
from onager.state_admin.admin import StateAdmin, without_credentials

log = structlog.get_logger(__name__)

Context = Any


@dataclass(eq=False, repr=False)
class SchedulerService(OnagerSchedulerServicer):  # type: ignore[misc]
    """The service for clients."""

    settings: SchedulerSettings
    submissions: Submissions
    retries: Retries
    queries: JobQueries
    local: LocalDriver
    ownership: Ownership
    heads: JobHeads
    exports: JobExports
    logs: JobLogs
    results: ResultStore
    executors: ExecutorManager
    draining: Draining
    schedulers: LiveSchedulers
    state: StateAdmin
    audit: Audit
    notes: AuditNotes
    catalog: CatalogQueries
    programs: Programs
    hosted: HostedPrograms
    of_programs: ProgramQueries

    @property
    def stream_share_percent(self) -> int:
        """Return how large a share of the streams one client may have."""
        return self.settings.stream_share_percent

    @translated
    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:  # noqa: ARG002, N802
        """Store a job; it is durable when this returns."""
        existed = await self.submissions.submit(request)
        return pb.SubmitJobResponse(job_id=request.job_id, existed=existed)

    @translated
    async def RetryJob(self, request: pb.RetryJobRequest, context: Context) -> pb.RetryJobResponse:  # noqa: N802
        """Store a job with the specification of another one that has ended."""
        with self.ownership.left_to_others():
            return await self.retries.retry(request, caller_of(context))

    @translated
    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.JobDetail:  # noqa: ARG002, N802
        """Return a job's details."""
        return await self.queries.detail(asked_job_id(request.job_id), request)

    @translated
    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:  # noqa: ARG002, N802
        """Return the newest jobs that fit."""
        return await listed(list(self.heads), request)

    @translated_stream
    def WatchJob(self, request: pb.WatchJobRequest, context: Context) -> AsyncIterator[SharedMessage]:  # noqa: ARG002, N802
        """Yield a job's progress, now and at every change, until the job has ended."""
        return self.queries.shared_progress(asked_job_id(request.job_id))

    @translated_stream
    def WatchEvents(self, request: pb.WatchEventsRequest, context: Context) -> AsyncIterator[pb.EventBatch]:  # noqa: ARG002, N802
        """Yield what happened to a job after a position of its log, batch by batch."""
        return self.queries.events(asked_job_id(request.job_id), request.after, follow=request.follow)

    @translated_stream
    async def ExportJob(self, request: pb.ExportJobRequest, context: Context) -> AsyncIterator[pb.ExportChunk]:  # noqa: ARG002, N802
        """Send what is derived from a job's history."""
        job_id = asked_job_id(request.job_id)
        with self.ownership.left_to_others():
            async with contextlib.aclosing(self.exports.export(job_id, request)) as pieces:
                async for content in pieces:
                    yield pb.ExportChunk(content=content)

    @translated_stream
    async def FetchLogs(self, request: pb.FetchLogsRequest, context: Context) -> AsyncIterator[pb.AttemptLog]:  # noqa: ARG002, N802
        """Send what a job's tasks logged, as far as it is there."""
        asked_job_id(request.job_id)
        with self.ownership.left_to_others():
            async with contextlib.aclosing(self.logs.fetch(request)) as logs:
                async for each in logs:
                    yield each

    @translated
    async def GetFinalPlan(self, request: pb.GetFinalPlanRequest, context: Context) -> pb.FinalPlan:  # noqa: ARG002, N802
        """Return a page of a job's plan as it ran, or as it runs."""
        return await self.queries.final_plan(asked_job_id(request.job_id), request.stage_id)

    @translated
    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> pb.CancelJobResponse:  # noqa: N802
        """End a job; one that has ended stays as it is."""
        job_id = asked_job_id(request.job_id)
        with self.ownership.left_to_others():
            before = await self.queries.fresh(job_id)
            if not before.graph.is_active:
                return pb.CancelJobResponse(cancelled=False, state=wire.STATE[before.graph.state])
            async with self.audit.act(caller_of(context), "cancel", job_id, request.reason) as act:
                reason = request.reason or "cancelled on request"
                if before.graph.is_program:  # first, so that no call of it has an effect once this has answered
                    await self.hosted.close(job_id, reason)
                graph = await self.local.coordinator(job_id).cancel_job(reason, principal())
                is_cancelled = graph.state is JobState.CANCELLED
                if not is_cancelled:
                    act.outcome = f"too late: the job is {graph.state}"
        log.info("job_cancelled", job_id=job_id, reason=request.reason, principal=principal())
        return pb.CancelJobResponse(cancelled=is_cancelled, state=wire.STATE[graph.state])

    @translated_stream
    async def FetchResult(self, request: pb.FetchResultRequest, context: Context) -> AsyncIterator[pb.ResultChunk]:  # noqa: N802
        """Send a job's result from (partition, batch) on."""
        job_id = asked_job_id(request.job_id)
        job = await self.queries.fresh(job_id)
        head = self.heads.get(job_id)
        check_fetchable(job.graph, has_result=head is None or head.has_result)
        if job.graph.is_script:
            stage = job.graph.result_stage
            assert stage is not None
            job = await self._result_job(JobId(child_of(stage)), job_id)
        elif job.graph.is_program:
            job = await self._result_job(await self.of_programs.result_job(job_id), job_id)
        self.notes.note(caller_of(context), FETCH, job_id)
        chunks = stream_result(
            job.graph, self.results, self.settings.exchange_dir, partition=request.partition, batch=request.batch
        )
        async for chunk in chunks:
            yield chunk

    async def _result_job(self, child_id: JobId, job_id: JobId) -> StoredJob:
        """Return the job whose result is that of the script *job_id*; `ResultExpiredError` when it is gone."""
        try:
            child = await self.queries.fresh(child_id)
        except JobNotFoundError:
            raise ResultExpiredError(job_id) from None
        head = self.heads.get(child_id)
        if head is not None and not head.has_result:
            raise ResultExpiredError(job_id)
        check_fetchable(child.graph, has_result=True)
        return child

    @translated
    async def ListExecutors(self, request: pb.ListExecutorsRequest, context: Context) -> pb.ListExecutorsResponse:  # noqa: ARG002, N802
        """Return executors, including those lost lately, and how many there are of each state."""
        return list_executors(self.executors, request, self.schedulers.clock.now_ms())

    @translated
    async def BeginProgram(self, request: pb.BeginProgramRequest, context: Context) -> pb.BeginProgramResponse:  # noqa: ARG002, N802
        """Begin an attempt of a program."""
        return await self.programs.begin(principal(), request)

    @translated
    async def EndProgram(self, request: pb.EndProgramRequest, context: Context) -> pb.EndProgramResponse:  # noqa: ARG002, N802
        """Note that a program has ended by itself."""
        await self.programs.end(principal(), request)
        return pb.EndProgramResponse()

    @translated
    async def GetProgram(self, request: pb.GetProgramRequest, context: Context) -> pb.ProgramInfo:  # noqa: ARG002, N802
        """Return how a program stands."""
        return await self.of_programs.get(request)

    @translated
    async def ListProgramCalls(  # noqa: N802
        self,
        request: pb.ListProgramCallsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ListProgramCallsResponse:
        """Return calls of a program."""
        return await self.of_programs.calls(request)

    @translated_stream
    def WatchOutput(self, request: pb.WatchOutputRequest, context: Context) -> AsyncIterator[pb.ProgramOutput]:  # noqa: ARG002, N802
        """Yield what a program printed, and prints."""
        return self.of_programs.output(request)

    @translated
    async def DrainExecutor(self, request: pb.DrainExecutorRequest, context: Context) -> pb.DrainExecutorResponse:  # noqa: N802
        """Have an executor leave when it has finished what it runs."""
        programs = self.draining.programs(request.executor_id)
        async with self.audit.act(caller_of(context), "drain", request.executor_id, request.reason) as act:
            drained = await self.draining.drain(request.executor_id, request.reason)
            if drained.was_leaving:
                act.outcome = "it was leaving before"
        running = self.draining.running(request.executor_id)
        return pb.DrainExecutorResponse(
            was_leaving=drained.was_leaving, running=running, others=drained.others, programs=programs
        )

    @translated
    async def GetCatalog(self, request: pb.GetCatalogRequest, context: Context) -> pb.GetCatalogResponse:  # noqa: ARG002, N802
        """Return databases, what is in one of them, or one table, view or function."""
        return await self.catalog.get(request)

    @translated
    async def ListSchedulers(self, request: pb.ListSchedulersRequest, context: Context) -> pb.ListSchedulersResponse:  # noqa: ARG002, N802
        """Return all live schedulers, as far as this one knows."""
        return pb.ListSchedulersResponse(schedulers=self.schedulers.infos(), now_ms=self.schedulers.clock.now_ms())

    @translated
    async def ListState(self, request: pb.ListStateRequest, context: Context) -> pb.ListStateResponse:  # noqa: ARG002, N802
        """Return keys of the store."""
        return await self.state.list(request)

    @translated
    async def GetState(self, request: pb.GetStateRequest, context: Context) -> pb.GetStateResponse:  # noqa: ARG002, N802
        """Return one record, decoded."""
        return await self.state.get(request)

    @translated_stream
    def WatchState(self, request: pb.WatchStateRequest, context: Context) -> AsyncIterator[pb.StateChange]:  # noqa: ARG002, N802
        """Yield every change of a record."""
        return self.state.watch(request)

    @translated
    async def RemoveState(self, request: pb.RemoveStateRequest, context: Context) -> pb.RemoveStateResponse:  # noqa: N802
        """Remove records by hand."""
        response = await self.state.remove(request, caller_of(context))
        if response.removed:
            log.warning("state_removed", path=request.path, keys=response.keys, dangers=list(response.dangers))
        return response

    @translated_stream
    def CheckState(self, request: pb.CheckStateRequest, context: Context) -> AsyncIterator[pb.StateCheck]:  # noqa: ARG002, N802
        """Check the whole store for damage."""
        return self.state.check(request)

    @translated_stream
    async def BackupState(self, request: pb.BackupStateRequest, context: Context) -> AsyncIterator[pb.StateBackup]:  # noqa: N802
        """Send all records as of one revision."""
        async with self.audit.act(caller_of(context), "backup", without_credentials(self.settings.backend)):
            async for part in self.state.backup(request):
                yield part

    @translated
    async def ListAudit(self, request: pb.ListAuditRequest, context: Context) -> pb.ListAuditResponse:  # noqa: ARG002, N802
        """Return who changed what."""
        return await self.state.audit(request)
