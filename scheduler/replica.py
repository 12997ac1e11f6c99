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
    add_OnagerReplicaServicer_to_server,
    add_OnagerSchedulerServicer_to_server,
)
from onager.protocol.security import ClientAccess, ServerAccess
from scheduler.api.gateway import ExecutorGateway
from scheduler.api.replica_service import ReplicaService
from scheduler.api.service import SchedulerService
from scheduler.executors.executor_manager import ExecutorManager
from scheduler.executors.setting_aside import SettingAside
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
from scheduler.replicas.acting import Acting
from scheduler.replicas.other_replicas import OtherReplicas
from scheduler.replicas.peer_calls import PeerCalls
from scheduler.replicas.peers import Peers
from scheduler.replicas.turns import Turns
from scheduler.settings import SchedulerSettings
from scheduler.state_admin.admin import StateAdmin, without_credentials
from scheduler.state_admin.restoring import check_no_restore_pending
from scheduler.tasks.dispatcher import Dispatcher
from scheduler.tasks.fair_queue import FairQueue
from scheduler.tasks.job_actor import LocalActor
from scheduler.tasks.job_loads import JobLoads
from scheduler.tasks.launcher import Launcher
from scheduler.tasks.list_comparison import ListComparison
from scheduler.tasks.push_scheduler import PushScheduler
from scheduler.tasks.slot_keeper import SlotKeeper
from scheduler.tasks.slot_ledger import SlotLedger
from scheduler.tasks.speculation import Speculation
from scheduler.tasks.task_manager import TaskManager
from state_backend import StateBackendClient

log = structlog.get_logger(__name__)

_ADOPT_AT_ONCE: Final = 16
_MOMENT_S: Final = 0.01
"""How long a new job is left to the scheduler that took it in: about the time that an append takes."""


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
        self.acting = Acting(self.peers)
        self.heads = JobHeads(backend, clock, interval_ms=settings.heads_interval_ms)
        self.jobs = JobStore(backend, self.heads, clock)
        self.writers = JobWriters(self.jobs, clock, self.acting.follows)
        self.blobs = BlobStore(backend)
        self.results = ResultStore(backend)
        self.queue = FairQueue()
        self.watchers = JobWatchers()
        self.loads = JobLoads(self.queue, self.heads, self.acting)
        self.local = LocalActor(
            self.jobs,
            self.writers,
            ReportReader(self.blobs, self.results, clock, lambda *seen: self.set_aside.heard(*seen)),  # noqa: PLW0108 - made below
            self.queue,
            self.acting,
            clock,
            max_launches=settings.max_launches_per_append,
            cluster_slots=lambda: self.executors.total_slots,
            executors=lambda: self.executors.taking_work(),  # noqa: PLW0108 - made below
        )
        self.others = OtherReplicas(
            self.peers,
            self.acting,
            self.loads,
            PeerCalls(
                self.peers,
                ClientAccess(settings.peer_security, ()),
                clock,
                timeout_s=settings.forward_timeout_ms / 1000,
            ),
        )
        self.tasks = TaskManager(
            self.local,
            self.queue,
            self.loads,
            actor_of=lambda job_id: self.others.actor_of(job_id) or self.local,
            max_launches=settings.max_launches_per_append,
        )
        self.executors = ExecutorManager(
            backend,
            clock,
            lease_ttl_s=settings.executor_lease_ttl_s,
            connection_grace_s=settings.connection_grace_ms / 1000,
            lost_retention_s=settings.lost_executor_retention_s,
            on_lost=self.local.lose_executor,
            on_take_over=self.local.catch_up,
            turns=self.turns,
        )
        self.set_aside = SettingAside(
            backend,
            self.executors,
            self.jobs,
            clock,
            failures=settings.set_aside_failures,
            window_s=settings.set_aside_window_s,
            for_s=settings.set_aside_s,
        )
        self.speculation = Speculation(
            self.jobs,
            self.local,
            self.acting,
            clock,
            interval_s=settings.speculation_interval_ms / 1000,
            executors=self.executors.taking_work,
            writes_major=lambda: self.peers.writes_major,
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
            clock,
            holder=self.slots.holder,
            reply_to=lambda: self.peers.record.address,
            live_holders=lambda: self.peers.live_incarnations,
            is_alive=self.executors.is_alive,
        )
        self.keeper = SlotKeeper(self.push, self.jobs, self.executors, self.peers, self.turns, clock)
        self.lists = ListComparison(
            self.local,
            self.others.actors,
            self.acting,
            self.heads,
            lambda: self.executors.sessions,
            lambda session: self.dispatcher.nudge(lambda other: other is session),
            clock,
        )
        self.housekeeping = Housekeeping(
            settings, backend, self.jobs, self.heads, self.blobs, self.results, self.turns, clock
        )
        teller = ProgressTeller(self.executors, self.queue)
        self.service = SchedulerService(
            settings,
            self.jobs,
            self.heads,
            self.local,
            self.acting,
            self.others,
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
            self.lists,
            self.dispatcher,
            self.push,
            self.keeper,
            self.housekeeping,
            self.blobs,
            catch_up=self.local.catch_up,
        )
        self.for_replicas = ReplicaService(self.local, self.loads, self.others, self.jobs, self.acting)
        self.for_replicas.teller = teller
        self._to_adopt: dict[JobId, None] = {}
        self._to_adopt_later: set[JobId] = set()
        self._adopt_wake = asyncio.Event()
        self._clean_wake = asyncio.Event()
        self.jobs.listen(self._on_commit)
        self.heads.listen(self._on_head)
        self.loads.listen(self._on_load)
        self.acting.listen(self._on_acting)

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
            group.create_task(self.others.run())
            group.create_task(self.lists.run())
            group.create_task(self.speculation.run())
            group.create_task(self.slots.run())
            group.create_task(self.push.run())
            group.create_task(self.keeper.run())
            group.create_task(self.set_aside.run())
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
        await self.others.close()

    # ---------------------------------------------------------------- what follows from changes

    def _on_commit(self, job: StoredJob, head: JobHead) -> None:
        job_id = JobId(head.job_id)
        if job.graph.is_active:
            self.acting.read(job_id)
        else:
            self.acting.ended(job_id)
            self.push.job_ended(job_id)
            log.info("job_ended", job_id=job_id, state=head.state.value, seq=job.seq)
            self._stop_tasks_of(job_id)
        self.loads.on_commit(job, head)
        self.watchers.changed(job_id)

    def _on_load(self, job_id: JobId) -> None:
        self.watchers.changed(job_id)
        if self.queue.has_runnable:
            self.dispatcher.wake()
            self.push.wake()

    def _on_head(self, job_id: JobId, head: JobHead | None) -> None:
        self.watchers.changed(job_id)
        cached = self.jobs.cached(job_id)
        if head is None or not head.is_active:
            self.acting.ended(job_id)
            self.local.forget(job_id)
            self.push.job_ended(job_id)
            if head is None or (cached is not None and cached.graph.is_active):
                self.jobs.forget(job_id)  # another replica ended it
            self._stop_tasks_of(job_id)
        elif self.acting.is_mine(job_id) and (cached is None or not shows(head, cached.graph)):
            self._adopt_in_turn(job_id, head, is_new=cached is None)  # or another replica moved it on
        self.loads.on_head(job_id, head)
        if head is not None and head.clean_up != "none":
            self._clean_wake.set()

    def _stop_tasks_of(self, job_id: JobId) -> None:
        self.dispatcher.nudge(lambda session: any(key.job_id == job_id for key in session.held))

    def _on_acting(self) -> None:
        """Begin to act on what was another replica's."""
        self._to_adopt |= dict.fromkeys(self._not_followed())
        self._adopt_wake.set()
        self.dispatcher.wake()

    def _not_followed(self) -> list[JobId]:
        active = (JobId(head.job_id) for head in self.heads if head.is_active)
        return [job_id for job_id in active if self.acting.is_mine(job_id) and not self.acting.follows(job_id)]

    def _adopt_in_turn(self, job_id: JobId, head: JobHead, *, is_new: bool) -> None:
        """Begin to act on the job; with a new one give whoever took it in a moment to hand its planning out.

        The head of a write of our own may be seen before the store has answered that: then there is nothing to read.
        """
        if not (is_new and head.state is JobState.QUEUED) and not self.writers.is_writing(job_id):
            self._adopt_now(job_id)
        elif job_id not in self._to_adopt_later:
            self._to_adopt_later.add(job_id)
            asyncio.get_running_loop().call_later(_MOMENT_S, self._adopt_if_behind, job_id)

    def _adopt_if_behind(self, job_id: JobId) -> None:
        self._to_adopt_later.discard(job_id)
        head, cached = self.heads.get(job_id), self.jobs.cached(job_id)
        is_known = head is not None and cached is not None and shows(head, cached.graph)
        if not (is_known and self.acting.follows(job_id)):
            self._adopt_now(job_id)

    def _adopt_now(self, job_id: JobId) -> None:
        head = self.heads.get(job_id)
        if head is not None and head.is_active:
            self._to_adopt[job_id] = None
            self._adopt_wake.set()

    # ---------------------------------------------------------------- loops

    async def _adopt_all(self) -> None:
        self._to_adopt |= dict.fromkeys(self._not_followed())
        await self._adopt()

    async def _adopt(self) -> None:
        while self._to_adopt:
            some = list(self._to_adopt)[:_ADOPT_AT_ONCE]
            for job_id in some:
                del self._to_adopt[job_id]
            await asyncio.gather(*(self.local.adopt(job_id) for job_id in some))
            for lost in self.executors.recent_losses():
                await self.local.lose_executor(lost, jobs=some)

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
        await self.jobs.mend_heads()
        await self._adopt_all()
        if not self.turns.is_alone:
            await self.local.catch_up()  # somebody may have acted for this scheduler, and nothing have happened since
        for executor_id, incarnation in self.local.strays(self.executors.is_alive):
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
    add_OnagerReplicaServicer_to_server(replica.for_replicas, server)
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
