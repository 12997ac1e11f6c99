"""The calls of clients: submit, look, watch, cancel, fetch; and the raw records for an admin."""

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

import structlog

from onager.clock import Clock
from onager.errors import (
    InvalidRequestError,
    JobConflictError,
    JobNotFoundError,
    NotFoundError,
    SchemaVersionError,
    StateCorruptError,
    StateUnavailableError,
)
from onager.execution_graph import JobState, RetryLimits, submit
from onager.ids import BlobDigest, JobId, is_job_id
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.protocol.onager_pb2_grpc import OnagerSchedulerServicer
from onager.protocol.security import caller_of, principal
from onager.protocol.serving import translated, translated_stream
from onager.scheduler import timing, wire
from onager.scheduler.api.events import told
from onager.scheduler.api.progress import Explained, Page, ProgressView, broken_failure, progress_of_head
from onager.scheduler.cluster.forwarding import Forwarding
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.cluster.members import Members
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.jobs.audit import Audit
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.history import Entry, JobHistory
from onager.scheduler.jobs.job_exchange import pipeline_of
from onager.scheduler.jobs.job_heads import JobHead, JobHeads
from onager.scheduler.jobs.job_specs import checked, decode_spec_shown
from onager.scheduler.jobs.job_speculation import speculation_of
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.places import check_place_apart
from onager.scheduler.jobs.results import ResultStore, check_fetchable, stream_result
from onager.scheduler.jobs.watchers import JobWatchers
from onager.scheduler.settings import SchedulerSettings
from onager.state_admin.admin import StateAdmin, without_credentials

log = structlog.get_logger(__name__)

_LIST_DEFAULT: Final = 100
_EVENTS_A_PAGE: Final = 1_000
_EVENT_BYTES: Final = 300
_SPECS_AT_ONCE: Final = 2
"""Jobs whose specification and plan are read at the same time: each may be as large as a message."""

Context = Any


class SchedulerService(OnagerSchedulerServicer):  # type: ignore[misc]
    """The service for clients."""

    def __init__(
        self,
        settings: SchedulerSettings,
        jobs: JobStore,
        heads: JobHeads,
        local: LocalDriver,
        ownership: Ownership,
        forwarding: Forwarding,
        executors: ExecutorManager,
        members: Members,
        progress: ProgressView,
        watchers: JobWatchers,
        history: JobHistory,
        blobs: BlobStore,
        results: ResultStore,
        state: StateAdmin,
        audit: Audit,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._private = settings.private
        self._jobs = jobs
        self._heads = heads
        self._local = local
        self._ownership = ownership
        self._forwarding = forwarding
        self._executors = executors
        self._members = members
        self._view = progress
        self._watchers = watchers
        self._history = history
        self._blobs = blobs
        self._results = results
        self._state = state
        self._audit = audit
        self._clock = clock
        self._reading_blobs = asyncio.Semaphore(_SPECS_AT_ONCE)

    @translated
    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:  # noqa: ARG002, N802
        """Store a job; it is durable when this returns."""
        terms, content, digest = await apart(request.ByteSize(), checked, request, self._settings.session_max_tasks)
        if request.spec.HasField("sink"):
            await check_place_apart(request.spec.sink.path, self._private)
        job_id = JobId(request.job_id)
        blob = self._blobs.writes(job_id, content)
        if blob is None:
            await self._blobs.put(job_id, [content])
        graph = submit(
            job_id=job_id,
            name=request.spec.name,
            client_id=request.client_id,
            spec_digest=digest,
            at_ms=self._clock.now_ms(),
            limits=RetryLimits(
                task_max_failures=self._settings.task_max_failures,
                stage_max_failures=self._settings.stage_max_failures,
                retry_pauses_ms=self._settings.retry_pauses_ms,
            ),
            speculation=speculation_of(request.spec),
            pipeline=pipeline_of(request.spec, self._members.writes_major, self._clock.now_ms()),
        )
        try:
            submitted = terms.model_copy(update={"principal": principal()})
            _, existed = await self._jobs.submit(graph, submitted, blob)
        except JobConflictError:
            await self._blobs.release(job_id, [digest])
            raise
        except (StateCorruptError, SchemaVersionError):
            existed = True  # it is stored, and GetJob says what is wrong with its record
        if not existed:
            log.info(
                "job_submitted",
                job_id=job_id,
                client_id=request.client_id,
                principal=principal(),
                bytes=len(content),
            )
        return pb.SubmitJobResponse(job_id=job_id, existed=existed)

    @translated
    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.JobDetail:  # noqa: ARG002, N802
        """Return a job's details."""
        job_id = _job_id(request.job_id)
        try:
            with self._left_to_others():
                job = await self._jobs.fresh(job_id)
        except StateCorruptError as error:
            return pb.JobDetail(progress=self._broken(job_id, str(error)))
        page = Page.of(request)
        if page.is_later:
            return self._view.detail(job, pb.JobSpec(), None, page)
        spec = pb.JobSpec()
        explained: Explained | None = None
        async with self._reading_blobs:
            try:
                content = await self._blobs.get(BlobDigest(job.graph.spec_digest))
                spec = await apart(len(content), decode_spec_shown, content)
                if job.graph.plan is not None and job.graph.plan.explain_digest:
                    content = await self._blobs.get(BlobDigest(job.graph.plan.explain_digest))
                    explained = await apart(len(content), Explained.read, content)
            except (NotFoundError, StateCorruptError) as error:
                log.warning("job_blob_missing", job_id=job_id, error=str(error))
            return self._view.detail(job, spec, explained, page)

    @translated
    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:  # noqa: ARG002, N802
        """Return the newest jobs."""
        wanted = request.state.lower()
        if wanted and wanted not in {state.value for state in wire.STATE}:
            raise InvalidRequestError(
                f"{request.state!r} is not a job state; use {', '.join(state.value for state in wire.STATE)}"
            )
        heads: list[JobHead] = [h for h in self._heads if not wanted or h.state.value == wanted]
        newest = heapq.nlargest(request.limit or _LIST_DEFAULT, heads, key=lambda h: (h.submitted_ms, h.job_id))
        return pb.ListJobsResponse(jobs=[progress_of_head(h) for h in newest])

    @translated_stream
    async def WatchJob(self, request: pb.WatchJobRequest, context: Context) -> AsyncIterator[pb.JobProgress]:  # noqa: ARG002, N802
        """Yield a job's progress, now and at every change, until the job has ended."""
        job_id = _job_id(request.job_id)
        told: pb.JobProgress | None = None
        seq = 0
        is_fresh = True  # a client that switches from another scheduler must not see an older state
        with self._watchers.following(job_id) as changed:
            while True:
                changed.clear()
                seq, progress = await self._progress(job_id, seq, is_fresh=is_fresh)
                if progress != told:
                    yield progress
                    told = progress
                if progress.state in (pb.SUCCESSFUL, pb.FAILED, pb.CANCELLED):
                    return
                is_fresh = not await self._next_look(job_id, changed)

    @translated_stream
    async def WatchEvents(self, request: pb.WatchEventsRequest, context: Context) -> AsyncIterator[pb.EventBatch]:  # noqa: ARG002, N802
        """Yield what happened to a job after a position of its log, batch by batch."""
        job_id = _job_id(request.job_id)
        position = request.after
        with self._watchers.following(job_id) as changed:
            while True:
                changed.clear()
                with self._left_to_others():
                    is_over = not (await self._jobs.fresh(job_id)).graph.is_active
                    entries = await self._history.after(job_id, position, _EVENTS_A_PAGE)
                for message in await apart(_size(entries), lambda page: list(told(page)), entries):
                    yield message
                if entries:
                    position = entries[-1].position
                elif is_over or not request.follow:
                    return
                else:
                    await self._next_look(job_id, changed)

    @translated
    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> pb.CancelJobResponse:  # noqa: N802
        """End a job; one that has ended stays as it is."""
        job_id = _job_id(request.job_id)
        with self._left_to_others():
            before = await self._jobs.fresh(job_id)
            if not before.graph.is_active:
                return pb.CancelJobResponse(cancelled=False, state=wire.STATE[before.graph.state])
            async with self._audit.act(caller_of(context), "cancel", job_id, request.reason) as act:
                reason = request.reason or "cancelled on request"
                graph = await self._local.coordinator(job_id).cancel(reason, principal())
                is_cancelled = graph.state is JobState.CANCELLED
                if not is_cancelled:
                    act.outcome = f"too late: the job is {graph.state}"
        log.info("job_cancelled", job_id=job_id, reason=request.reason, principal=principal())
        return pb.CancelJobResponse(cancelled=is_cancelled, state=wire.STATE[graph.state])

    @translated_stream
    async def FetchResult(self, request: pb.FetchResultRequest, context: Context) -> AsyncIterator[pb.ResultChunk]:  # noqa: ARG002, N802
        """Send a job's result from (partition, batch) on."""
        job_id = _job_id(request.job_id)
        with self._left_to_others():
            job = await self._jobs.fresh(job_id)
        head = self._heads.get(job_id)
        check_fetchable(job.graph, has_result=head is None or head.has_result)
        chunks = stream_result(
            job.graph, self._results, self._settings.exchange_dir, partition=request.partition, batch=request.batch
        )
        async for chunk in chunks:
            yield chunk

    @translated
    async def ListExecutors(self, request: pb.ListExecutorsRequest, context: Context) -> pb.ListExecutorsResponse:  # noqa: ARG002, N802
        """Return all executors, including those lost lately."""
        return pb.ListExecutorsResponse(executors=self._executors.infos())

    @translated
    async def ListSchedulers(self, request: pb.ListSchedulersRequest, context: Context) -> pb.ListSchedulersResponse:  # noqa: ARG002, N802
        """Return all live schedulers, as far as this one knows."""
        return pb.ListSchedulersResponse(schedulers=self._members.infos())

    @translated
    async def ListState(self, request: pb.ListStateRequest, context: Context) -> pb.ListStateResponse:  # noqa: ARG002, N802
        """Return keys of the store."""
        return await self._state.list(request)

    @translated
    async def GetState(self, request: pb.GetStateRequest, context: Context) -> pb.GetStateResponse:  # noqa: ARG002, N802
        """Return one record, decoded."""
        return await self._state.get(request)

    @translated_stream
    async def WatchState(self, request: pb.WatchStateRequest, context: Context) -> AsyncIterator[pb.StateChange]:  # noqa: ARG002, N802
        """Yield every change of a record."""
        async with contextlib.aclosing(self._state.watch(request)) as changes:
            async for change in changes:
                yield change

    @translated
    async def RemoveState(self, request: pb.RemoveStateRequest, context: Context) -> pb.RemoveStateResponse:  # noqa: N802
        """Remove records by hand."""
        response = await self._state.remove(request, caller_of(context))
        if response.removed:
            log.warning("state_removed", path=request.path, keys=response.keys, dangers=list(response.dangers))
        return response

    @translated_stream
    async def CheckState(self, request: pb.CheckStateRequest, context: Context) -> AsyncIterator[pb.StateCheck]:  # noqa: ARG002, N802
        """Check the whole store for damage."""
        async for part in self._state.check(request):
            yield part

    @translated_stream
    async def BackupState(self, request: pb.BackupStateRequest, context: Context) -> AsyncIterator[pb.StateBackup]:  # noqa: N802
        """Send all records as of one revision."""
        async with self._audit.act(caller_of(context), "backup", without_credentials(self._settings.backend)):
            async for part in self._state.backup(request):
                yield part

    @translated
    async def ListAudit(self, request: pb.ListAuditRequest, context: Context) -> pb.ListAuditResponse:  # noqa: ARG002, N802
        """Return who changed what."""
        return await self._state.audit(request)

    async def _next_look(self, job_id: JobId, changed: asyncio.Event) -> bool:
        """Wait for a change, and for `WATCH_EVERY_S` at least: only the job's end is reported at once.

        Return false when there was no change for a while: another scheduler may have changed the job.
        """
        earliest_s = self._clock.monotonic_s() + timing.WATCH_EVERY_S
        try:
            async with asyncio.timeout(timing.WATCH_LOOK_S):
                while True:
                    await changed.wait()
                    changed.clear()
                    job = self._jobs.cached(job_id)
                    left_s = earliest_s - self._clock.monotonic_s()
                    if left_s <= 0 or job is None or not job.graph.is_active:
                        return True
                    try:
                        async with asyncio.timeout(left_s):
                            await changed.wait()
                    except TimeoutError:
                        return True
        except TimeoutError:
            return False  # the reason why the job waits may have changed without an event

    async def _progress(self, job_id: JobId, seq: int, *, is_fresh: bool) -> tuple[int, pb.JobProgress]:
        """Return the log position of the job's progress, at least *seq*, and the progress.

        It is asked of the job's driver, or else read from the store; with *is_fresh* always from the store.
        """
        driver = None if is_fresh or self._ownership.follows(job_id) else self._forwarding.driver_of(job_id)
        if driver is not None:
            with contextlib.suppress(NotDrivingError):
                told = await driver.progress(job_id)
                if told.log_seq >= seq:
                    return told.log_seq, told.progress
        try:
            is_current = self._ownership.follows(job_id) and not is_fresh
            with self._left_to_others():
                job = await (self._jobs.get(job_id) if is_current else self._jobs.fresh(job_id))
            return job.seq, self._view.told(job)
        except StateCorruptError as error:
            return seq, self._broken(job_id, str(error))

    @contextlib.contextmanager
    def _left_to_others(self) -> Iterator[None]:
        """Send callers to other schedulers, by a `StateUnavailableError`, for what only a newer version can read.

        Such a job is not damaged. Without other schedulers the `SchemaVersionError` stays.
        """
        try:
            yield
        except SchemaVersionError as error:
            if self._ownership.others:
                raise StateUnavailableError(f"{error}; another scheduler may read it") from error
            raise

    def _broken(self, job_id: JobId, why: str) -> pb.JobProgress:
        head = self._heads.get(job_id)
        if head is None:
            return pb.JobProgress(job_id=job_id, state=pb.FAILED, failure=broken_failure(why))
        return progress_of_head(head.model_copy(update={"broken": why}))


def _size(entries: Sequence[Entry]) -> int:
    return _EVENT_BYTES * sum(len(entry.batch.events) for entry in entries if entry.batch is not None)


def _job_id(text: str) -> JobId:
    if not is_job_id(text):
        raise JobNotFoundError(text[:80])
    return JobId(text)
