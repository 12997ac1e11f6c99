"""The calls of executors: registration, heartbeats, polls for work, reports, blobs, farewell."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from msgspec.structs import replace

from onager.errors import UnknownExecutorError
from onager.ids import BlobDigest
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import BLOB_CHUNK_BYTES
from onager.protocol.onager_pb2_grpc import OnagerExecutorGatewayServicer
from onager.protocol.serving import translated, translated_stream
from onager.protocol.task_keys import by_key, task_key
from onager.scheduler import wire
from onager.scheduler.api.hosted_programs import HostedPrograms
from onager.scheduler.catalog.reading import read_catalog
from onager.scheduler.engine.clean_ups import CleanUps
from onager.scheduler.engine.dispatcher import Dispatcher
from onager.scheduler.engine.polls import Polls
from onager.scheduler.engine.reconciliation import Reconciler
from onager.scheduler.engine.task_manager import TaskManager
from onager.scheduler.executors.executor_calls import ExecutorCalls
from onager.scheduler.executors.executor_requests import ExecutorRequests
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.place_admission import PlaceAdmission
from onager.scheduler.executors.records import ExecutorSession
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import StateBackendClient

log = structlog.get_logger(__name__)

Context = Any
Call = pb.HeartbeatRequest | pb.PollWorkRequest | pb.ReportTasksRequest | pb.ReadCatalogRequest


@dataclass(eq=False, repr=False)
class ExecutorGateway(OnagerExecutorGatewayServicer):  # type: ignore[misc]
    """The service for executors; they call it through `onager.executor.agent.gateway.SchedulerGateway`."""

    settings: SchedulerSettings
    executors: ExecutorManager
    tasks: TaskManager
    reconciler: Reconciler
    dispatcher: Dispatcher
    polls: Polls
    calls: ExecutorCalls
    clean_ups: CleanUps
    blobs: BlobStore
    record_progress: Callable[[Sequence[pb.AttemptProgress]], None]
    requests: ExecutorRequests
    connect_at: Callable[[], Sequence[str]]
    backend: StateBackendClient
    places: PlaceAdmission
    programs: HostedPrograms

    @translated
    async def RegisterExecutor(  # noqa: N802
        self,
        request: pb.RegisterExecutorRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.RegisterExecutorResponse:
        """Take in a life of an executor."""
        self.calls.check(request)
        session = await self.executors.register(request)
        return pb.RegisterExecutorResponse(
            scheduler_id=self.settings.scheduler_id,
            lease_ttl_ms=self.settings.executor_lease_ttl_ms,
            places=await self.places.judge(session, request.places),
        )

    @translated
    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:  # noqa: ARG002, N802
        """Renew the executor's lease, and name the tasks that the executor need not continue."""
        session = await self._session(request, is_heartbeat=True)
        if request.draining:
            await self.executors.drain(session)
        elif await self.executors.note_space(session, request.no_space):
            self.dispatcher.wake()
        if request.exchange.looked_ms:
            session.exchange = request.exchange
        if request.HasField("load"):
            session.load = request.load
        if request.progress:
            self.record_progress(request.progress)
        answer = pb.HeartbeatResponse(
            clean_ups=await self.clean_ups.forgotten(request.kept_jobs),
            connect_at=[] if session.record.runs_programs else self.connect_at(),
        )
        if not session.is_draining:
            leftovers = await self.clean_ups.leftovers(request.exchange_files, self.executors.registry.lives)
            answer.clean_ups.extend(leftovers.clean_ups)
            answer.tell_again.extend(leftovers.tell_again)
        await self._look_at_places(session, request, answer)
        await self.clean_ups.cleaned_up(request.cleaned_up)
        if not (session.is_draining or session.record.runs_programs):
            answer.clean_ups.extend(self.clean_ups.clean_ups_for(session.executor_id))
        if request.running:
            self.reconciler.learn_running(session, {task_key(t) for t in request.running})
        answer.cancel.extend(await self.polls.unwanted(session))
        self.executors.add_quarantine(session, answer)
        return answer

    async def _look_at_places(
        self, session: ExecutorSession, request: pb.HeartbeatRequest, answer: pb.HeartbeatResponse
    ) -> None:
        """Compare what the executor sees, and take what it has found of others."""
        if not request.places:
            return
        took_work = self.executors.takes_work(session)
        answer.places.extend(await self.places.judge(session, request.places))
        another = await self.places.looked(session, request.looked_for)
        answer.look_for.extend(self.places.to_look_for(session))
        if another or (not took_work and self.executors.takes_work(session)):
            self.dispatcher.wake()

    @translated
    async def PollWork(self, request: pb.PollWorkRequest, context: Context) -> pb.PollWorkResponse:  # noqa: ARG002, N802
        """Answer with work as soon as there is some, and with nothing once the executor's wait is over."""
        session = await self._session(request)
        await self.clean_ups.cleaned_up(request.cleaned_up)
        return await self.polls.answer(session, request)

    @translated
    async def ReportTasks(self, request: pb.ReportTasksRequest, context: Context) -> pb.ReportTasksResponse:  # noqa: ARG002, N802
        """Apply reports, and fill the slots that they free; the executor may be polling another scheduler."""
        session = await self._session(request)
        freed = min(request.freed_slots, session.record.slots) if self.executors.takes_work(session) else 0
        reports = by_key(request.reports)
        reported = reports.keys()
        session.reporting |= reported
        # Another scheduler may have received the executor's latest list.
        slot = replace(session.slot, list_number=max(session.list_number, request.list_number))
        try:
            updated = await self.tasks.update_task_statuses(slot, reports, freed)
            if updated.disk_error is not None and not updated.acknowledged:
                raise updated.disk_error  # the executor turns to another scheduler
            for key in updated.acknowledged:
                session.held.pop(key, None)
        finally:
            session.reporting -= reported
        launches = list(updated.launches)
        credited = 0
        if updated.reservations and not session.is_gone:
            filled = await self.dispatcher.fill(session, updated.reservations)
            launches += filled.launches
            credited = self.dispatcher.credit(session, len(filled.unfilled))
        self.reconciler.note_launches(session, launches)
        answer = pb.ReportTasksResponse(
            acknowledged=[reports[key].task for key in updated.acknowledged],
            task_sets=[launch.task_set for launch in launches],
            cancel=await self.polls.unwanted(session, is_thrifty=True),
            credited_slots=credited,
        )
        self.polls.add_specs(answer)
        return answer

    @translated
    async def AwaitRequests(  # noqa: N802
        self,
        request: pb.AwaitRequestsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.AwaitRequestsResponse:
        """Answer once there is a request to the executor, or when its wait is over.

        It is no sign of life, and no reason to take the executor over: heartbeats and polls are.
        """
        return await self.requests.wait(request)

    @translated_stream
    async def FetchBlob(self, request: pb.FetchBlobRequest, context: Context) -> AsyncIterator[pb.BlobChunk]:  # noqa: ARG002, N802
        """Send a blob in chunks."""
        content = await self.blobs.get(BlobDigest(request.digest))
        for start in range(0, len(content) or 1, BLOB_CHUNK_BYTES):
            yield pb.BlobChunk(content=content[start : start + BLOB_CHUNK_BYTES])

    @translated
    async def ReadCatalog(self, request: pb.ReadCatalogRequest, context: Context) -> pb.ReadCatalogResponse:  # noqa: ARG002, N802
        """Return records of the catalog, all at one revision."""
        await self._session(request)
        return await read_catalog(self.backend, request)

    @translated
    async def BeginAttempt(  # noqa: N802
        self,
        request: pb.BeginAttemptRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.BeginAttemptResponse:
        """Begin an attempt of a program that is a job."""
        return await self.programs.begin(request)

    @translated
    async def EndAttempt(self, request: pb.EndAttemptRequest, context: Context) -> pb.EndAttemptResponse:  # noqa: ARG002, N802
        """Note that such a program has ended by itself."""
        await self.programs.end(request)
        return pb.EndAttemptResponse()

    @translated
    async def DeregisterExecutor(  # noqa: N802
        self,
        request: pb.DeregisterExecutorRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.DeregisterExecutorResponse:
        """Let an executor go."""
        death = wire.death_from(request.death) if request.HasField("death") else None
        await self.executors.deregister(request.executor_id, request.incarnation, request.reason, death)
        return pb.DeregisterExecutorResponse()

    async def _session(self, request: Call, *, is_heartbeat: bool = False) -> ExecutorSession:
        try:
            session = self.executors.require(request.executor_id, request.incarnation)
        except UnknownExecutorError:
            session = await self.executors.take_over(request.executor_id, request.incarnation)
        self.executors.note_call(session)
        await self.executors.leases.renew(session, is_heartbeat=is_heartbeat)
        return session
