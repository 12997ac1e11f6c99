"""One scheduler replica, put together: its parts, its loops, and its gRPC server."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer as AsyncHealthServicer
from grpc_reflection.v1alpha import reflection

from execution_graph import JobState
from onager.clock import Clock
from onager.errors import OnagerError
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import SERVER_OPTIONS
from onager.protocol.onager_pb2_grpc import (
    add_OnagerExecutorGatewayServicer_to_server,
    add_OnagerSchedulerServicer_to_server,
)
from onager.protocol.security import ClientAccess, ServerAccess
from scheduler.api.gateway import ExecutorGateway
from scheduler.api.service import SchedulerService
from scheduler.executors.executor_manager import ExecutorManager
from scheduler.executors.slots import SlotPool
from scheduler.jobs.blobs import BlobStore
from scheduler.jobs.housekeeping import Housekeeping
from scheduler.jobs.job_heads import JobHead, JobHeads, shows
from scheduler.jobs.job_log import StoredJob
from scheduler.jobs.job_store import JobStore
from scheduler.jobs.job_writers import JobWriters
from scheduler.jobs.progress import ProgressTeller
from scheduler.jobs.reports import ReportReader
from scheduler.jobs.results import ResultStore
from scheduler.jobs.watchers import JobWatchers
from scheduler.replicas.peers import Peers
from scheduler.replicas.turns import Turns
from scheduler.settings import SchedulerSettings
from scheduler.state_admin.admin import StateAdmin, without_credentials
from scheduler.state_admin.restoring import check_no_restore_pending
from scheduler.tasks.dispatcher import Dispatcher
from scheduler.tasks.fair_queue import FairQueue
from scheduler.tasks.launcher import Launcher
from scheduler.tasks.push_scheduler import PushScheduler
from scheduler.tasks.slot_keeper import SlotKeeper
from scheduler.tasks.slot_ledger import SlotLedger
from scheduler.tasks.speculation import Speculation
from scheduler.tasks.task_manager import TaskManager
from state_backend import StateBackendClient

log = structlog.get_logger(__name__)

_ADOPT_AT_ONCE: Final = 16
_MOMENT_S: Final = 0.01
"""How much later than the one before it each scheduler turns to a job: about the time that an append takes."""


class Replica:
    """All parts of a scheduler over one state backend."""

    def __init__(self, settings: SchedulerSettings, backend: StateBackendClient, clock: Clock) -> None:
        self.settings = settings
        self._backend = backend
        self._clock = clock
        self.peers = Peers(
            backend,
            clock,
            scheduler_id=settings.scheduler_id,
            address=settings.advertise or settings.listen,
            lease_ttl_s=settings.scheduler_lease_ttl_ms / 1000,
        )
        self.turns = Turns(self.peers)
        self.heads = JobHeads(backend, clock, interval_ms=settings.heads_interval_ms)
        self.jobs = JobStore(backend, self.heads, clock)
        self.writers = JobWriters(self.jobs, clock)
        self.blobs = BlobStore(backend)
        self.results = ResultStore(backend)
        self.queue = FairQueue()
        self.watchers = JobWatchers()
        self.tasks = TaskManager(
            self.jobs,
            self.writers,
            ReportReader(self.blobs, self.results, clock),
            self.queue,
            clock,
            max_launches=settings.max_launches_per_append,
            cluster_slots=lambda: self.executors.total_slots,
        )
        self.executors = ExecutorManager(
            backend,
            clock,
            lease_ttl_s=settings.executor_lease_ttl_s,
            connection_grace_s=settings.connection_grace_ms / 1000,
            lost_retention_s=settings.lost_executor_retention_s,
            on_lost=self.tasks.lose_executor,
            on_take_over=self.tasks.catch_up,
            turns=self.turns,
        )
        self.speculation = Speculation(
            self.jobs,
            self.queue,
            self.tasks,
            self.turns,
            clock,
            interval_s=settings.speculation_interval_ms / 1000,
            executors=self.executors.taking_work,
        )
        self.dispatcher = Dispatcher(self.tasks, self.queue, clock)
        ledger = SlotLedger()
        self.slots = SlotPool(backend, self.peers.record.incarnation, ledger.held)
        ledger.listen(self.slots.settle)
        self.push = PushScheduler(
            self.slots,
            ledger,
            self.tasks,
            self.queue,
            self.jobs,
            self.writers,
            self.executors,
            self.peers,
            self.turns,
            clock,
            policy=settings.task_distribution,
        )
        self.push.launcher = Launcher(
            self.blobs,
            ClientAccess(settings.peer_security, ()),
            self.push,
            holder=self.slots.holder,
            reply_to=lambda: self.peers.record.address,
            live_holders=lambda: self.peers.live_incarnations,
            is_alive=self.executors.is_alive,
        )
        self.keeper = SlotKeeper(self.push, self.jobs, self.executors, self.peers, self.turns, clock)
        self.housekeeping = Housekeeping(
            settings, backend, self.jobs, self.heads, self.blobs, self.results, self.turns, clock
        )
        teller = ProgressTeller(self.executors, self.queue)
        self.service = SchedulerService(
            settings,
            self.jobs,
            self.heads,
            self.tasks,
            self.executors,
            self.peers,
            teller,
            self.watchers,
            self.blobs,
            self.results,
            StateAdmin(backend, clock, without_credentials(settings.backend)),
            clock,
        )
        self.gateway = ExecutorGateway(
            settings,
            self.executors,
            self.tasks,
            self.dispatcher,
            self.push,
            self.keeper,
            self.housekeeping,
            self.blobs,
            clock,
        )
        self._to_adopt: dict[JobId, None] = {}
        self._to_adopt_later: set[JobId] = set()
        self._adopt_wake = asyncio.Event()
        self._clean_wake = asyncio.Event()
        self.jobs.listen(self._on_commit)
        self.heads.listen(self._on_head)

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Read what is there: heads, executors, and the jobs to go on with.

        `SchemaVersionError` for a newer store; `StateCorruptError` for one into which a restore was not finished.
        """
        await check_no_restore_pending(self._backend)
        await self.heads.refresh(is_strict=True)
        await self.peers.refresh()
        await self.executors.start()
        await self.slots.refresh()
        await self._adopt_all()

    async def run(self) -> None:
        """Run the loops until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.peers.run())
            group.create_task(self.heads.run())
            group.create_task(self.executors.run())
            group.create_task(self.dispatcher.run())
            group.create_task(self.speculation.run())
            group.create_task(self.slots.run())
            group.create_task(self.push.run())
            group.create_task(self.keeper.run())
            group.create_task(self._adopting())
            group.create_task(self._cleaning())
            group.create_task(self._sweeping())

    def release_polls(self) -> None:
        """Answer the polls that wait, so that their executors turn to another replica."""
        self.dispatcher.nudge(lambda _: True)

    async def close(self) -> None:
        """Finish what is being written."""
        await self.writers.close()
        await self.push.close()

    # ---------------------------------------------------------------- what follows from changes

    def _on_commit(self, job: StoredJob, head: JobHead) -> None:
        self.watchers.changed(JobId(head.job_id))
        if not job.graph.is_active:
            log.info("job_ended", job_id=head.job_id, state=head.state.value, seq=job.seq)
            self.dispatcher.nudge(lambda session: any(key.job_id == head.job_id for key in session.held))
            self.push.job_ended(JobId(head.job_id))
        if self.queue.has_runnable:
            self.dispatcher.wake()
            self.push.wake()

    def _on_head(self, job_id: JobId, head: JobHead | None) -> None:
        self.watchers.changed(job_id)
        cached = self.jobs.cached(job_id)
        if head is None or not head.is_active:
            self.queue.remove(job_id)
            self.push.job_ended(job_id)
            if head is None or (cached is not None and cached.graph.is_active):
                self.jobs.forget(job_id)  # another replica ended it
        elif cached is None or not shows(head, cached.graph):
            self._adopt_in_turn(job_id, head, is_new=cached is None)  # or another replica moved it on
        if head is not None and head.clean_up != "none":
            self._clean_wake.set()

    def _adopt_in_turn(self, job_id: JobId, head: JobHead, *, is_new: bool) -> None:
        """Adopt the job once those have had their moment who come before: for a new one who took it in, as well."""
        places = self.turns.place(job_id)
        if is_new and head.state is JobState.QUEUED and not self.turns.is_alone:
            places += 1
        if not places:
            self._adopt_now(job_id)
        elif job_id not in self._to_adopt_later:
            self._to_adopt_later.add(job_id)
            asyncio.get_running_loop().call_later(places * _MOMENT_S, self._adopt_now, job_id)

    def _adopt_now(self, job_id: JobId) -> None:
        self._to_adopt_later.discard(job_id)
        head = self.heads.get(job_id)
        if head is not None and head.is_active:
            self._to_adopt[job_id] = None
            self._adopt_wake.set()

    # ---------------------------------------------------------------- loops

    async def _adopt_all(self) -> None:
        unknown = [JobId(h.job_id) for h in self.heads if h.is_active and not self.queue.knows(JobId(h.job_id))]
        self._to_adopt |= dict.fromkeys(unknown)
        await self._adopt()

    async def _adopt(self) -> None:
        while self._to_adopt:
            some = list(self._to_adopt)[:_ADOPT_AT_ONCE]
            for job_id in some:
                del self._to_adopt[job_id]
            await asyncio.gather(*(self.tasks.adopt(job_id) for job_id in some))

    async def _adopting(self) -> None:
        await self._forever(self._adopt, self._adopt_wake)

    async def _cleaning(self) -> None:
        async def clean() -> None:
            if await self.housekeeping.prepare():
                self.dispatcher.nudge(lambda session: not session.is_draining)

        await self._forever(clean, self._clean_wake)

    async def _forever(self, act: Callable[[], Coroutine[Any, Any, None]], wake: asyncio.Event) -> None:
        while True:
            await wake.wait()
            wake.clear()
            try:
                await act()
            except OnagerError as error:
                log.warning("step_failed", step=act.__qualname__, error=str(error))
                await asyncio.sleep(1.0)
                wake.set()

    async def _sweeping(self) -> None:
        """Look for what nobody was woken for.

        Strays, jobs left alone, clean-ups to ask for again, what is past retention.
        """
        while True:
            await asyncio.sleep(self.settings.sweep_interval_ms / 1000)
            try:
                await self.sweep()
            except OnagerError as error:
                log.warning("sweep_failed", error=str(error))

    async def sweep(self) -> None:
        """Do one round of what is done regularly."""
        await self._adopt_all()
        for executor_id, incarnation in self.tasks.strays(self.executors.is_alive):
            await self.executors.declare_lost(executor_id, incarnation, "it is not registered any more")
        await self.housekeeping.sweep()
        await self.housekeeping.collect_orphans()
        self._clean_wake.set()
        if self.housekeeping.has_clean_ups:
            self.dispatcher.nudge(lambda session: not session.is_draining)
        self.dispatcher.wake()


async def serve(
    replica: Replica, listen: str, access: ServerAccess | None = None, checks: AsyncHealthServicer | None = None
) -> tuple[grpc.aio.Server, int]:
    """Start the gRPC server of *replica* on *listen*; return it and its port. `OSError` when the port is taken.

    *access* says who may call, by default what the settings of *replica* say; *checks* is told that it serves.
    """
    access = access or ServerAccess(replica.settings.security, listen)
    server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=access.interceptors)
    add_OnagerSchedulerServicer_to_server(replica.service, server)
    add_OnagerExecutorGatewayServicer_to_server(replica.gateway, server)
    checks = checks or AsyncHealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    services = [s.full_name for s in pb.DESCRIPTOR.services_by_name.values() if s.name != "OnagerExecutor"]
    reflection.enable_server_reflection([*services, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    try:
        port = access.add_port(server, listen)
    except RuntimeError as error:
        raise OSError(str(error)) from error
    if not port:
        raise OSError(f"cannot listen on {listen}")
    replica.peers.advertise(replica.settings.advertised(port))
    await server.start()
    for name in ("", *services):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    return server, port
