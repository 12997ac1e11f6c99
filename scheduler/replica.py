"""One scheduler replica, put together: its parts and its loops."""

import asyncio

from execution_graph import ExecutionGraph
from onager.clock import Clock
from onager.ids import JobId
from onager.protocol.security import ClientAccess, Role
from onager.supervision import run_loops
from scheduler.api.gateway import ExecutorGateway
from scheduler.api.replica_service import ReplicaService
from scheduler.api.service import SchedulerService
from scheduler.executors.executor_manager import ExecutorManager
from scheduler.executors.setting_aside import SettingAside
from scheduler.executors.slots import SlotPool
from scheduler.jobs.blobs import BlobStore
from scheduler.jobs.housekeeping import Housekeeping
from scheduler.jobs.job_heads import JobHead, JobHeads
from scheduler.jobs.job_log import StoredJob
from scheduler.jobs.job_store import JobStore
from scheduler.jobs.job_writers import JobWriters
from scheduler.jobs.progress import ProgressTeller
from scheduler.jobs.reports import ReportReader
from scheduler.jobs.results import ResultStore
from scheduler.jobs.retention import Retention
from scheduler.jobs.watchers import JobWatchers
from scheduler.loops import every, whenever
from scheduler.replicas.acting import Acting
from scheduler.replicas.attendance import Attendance
from scheduler.replicas.other_replicas import OtherReplicas
from scheduler.replicas.peer_calls import PeerCalls
from scheduler.replicas.peers import Peers
from scheduler.replicas.turns import Turns
from scheduler.settings import SchedulerSettings
from scheduler.state_admin.admin import StateAdmin, without_credentials
from scheduler.state_admin.restoring import check_no_restore_pending
from scheduler.tasks.adoption import Adoption
from scheduler.tasks.dispatcher import Dispatcher
from scheduler.tasks.fair_queue import FairQueue
from scheduler.tasks.fitness import Fitness
from scheduler.tasks.job_actor import LocalActor
from scheduler.tasks.job_loads import JobLoads
from scheduler.tasks.launcher import Launcher
from scheduler.tasks.list_comparison import ListComparison
from scheduler.tasks.pipelines import Pipelines
from scheduler.tasks.push_scheduler import PushScheduler
from scheduler.tasks.slot_keeper import SlotKeeper
from scheduler.tasks.slot_ledger import SlotLedger
from scheduler.tasks.speculation import Speculation
from scheduler.tasks.stage_inputs import StageInputs
from scheduler.tasks.streams import Streams
from scheduler.tasks.task_manager import TaskManager
from state_backend import StateBackendClient


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
        self.loads = JobLoads(self.queue, self.heads, self.acting, clock)
        streams = Streams(
            lambda *life: self.executors.stream_address(*life),  # noqa: PLW0108 - made below
            lambda: self.executors.refresh(),  # noqa: PLW0108
        )
        self.local = LocalActor(
            self.jobs,
            self.writers,
            ReportReader(
                self.blobs,
                self.results,
                clock,
                lambda *seen: self.set_aside.heard(*seen),  # noqa: PLW0108 - made below
                taking_work=lambda: self.executors.taking_work(),  # noqa: PLW0108 - made below
                private=settings.private,
            ),
            self.queue,
            self.acting,
            clock,
            max_launches=settings.max_launches_per_append,
            cluster_slots=lambda: self.executors.total_slots,
            executors=lambda: self.executors.taking_work(),  # noqa: PLW0108 - made below
            reply_to=self._reply_to,
            streams=streams,
            inputs=StageInputs(self.blobs, lambda name: self.executors.fetches_inputs(name)),  # noqa: PLW0108
            on_room=self._wake_for_tasks,
        )
        self.others = OtherReplicas(
            self.peers,
            self.acting,
            self.loads,
            PeerCalls(
                self.peers,
                ClientAccess(settings.peer_security, (), [Role.SCHEDULER]),
                clock,
                timeout_s=settings.forward_timeout_ms / 1000,
            ),
        )
        self.attendance = Attendance(
            self.peers,
            ClientAccess(settings.peer_security, (), [Role.SCHEDULER]),
            timeout_s=settings.forward_timeout_ms / 1000,
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
        fitness = Fitness(
            self.jobs, self.acting, self.loads, clock, self.executors.taking_work, self.executors.streaming
        )
        self.tasks = TaskManager(
            self.local,
            self.queue,
            self.loads,
            fitness,
            actor_of=lambda job_id: self.others.actor_of(job_id) or self.local,
            max_launches=settings.max_launches_per_append,
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
        self.pipelines = Pipelines(
            self.jobs,
            self.local,
            self.acting,
            clock,
            interval_s=settings.speculation_interval_ms / 1000,
            executors=self.executors.taking_work,
            streaming=self.executors.streaming,
            on_abandoned=self._stop_unwanted,
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
            fitness=fitness,
        )
        self.push.launcher = Launcher(
            self.blobs,
            ClientAccess(settings.peer_security, (), [Role.SCHEDULER]),
            self.push,
            clock,
            holder=self.slots.holder,
            reply_to=lambda: self.peers.record.address,
            live_holders=lambda: self.peers.live_incarnations,
            is_alive=self.executors.is_alive,
        )
        self.keeper = SlotKeeper(self.push, self.jobs, self.executors, self.peers, self.turns, clock, streams)
        self.lists = ListComparison(
            self.local,
            self.others.actors,
            self.acting,
            self.heads,
            lambda: self.executors.sessions,
            lambda session: self.dispatcher.nudge(lambda other: other is session),
            clock,
        )
        self.housekeeping = Housekeeping(settings, backend, self.jobs, self.heads, self.blobs, self.turns, clock)
        self.retention = Retention(settings, backend, self.jobs, self.heads, self.blobs, self.turns, clock)
        teller = ProgressTeller(self.executors, self.queue, clock, self.jobs.sizes)
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
        )
        self.for_replicas = ReplicaService(self.local, self.loads, self.others, self.jobs, self.acting, self.peers)
        self.for_replicas.teller = teller
        self.adoption = Adoption(
            self.jobs, self.heads, self.writers, self.local, self.acting, self.executors.recent_losses
        )
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
        await self.adoption.adopt_all()

    async def run(self) -> None:
        """Run the loops until cancelled; `LoopEndedError` when one has ended, since none can be done without."""
        await run_loops(
            peers=self.peers.run(),
            heads=self.heads.run(),
            executors=self.executors.run(),
            dispatcher=self.dispatcher.run(),
            others=self.others.run(),
            attendance=self.attendance.run(),
            lists=self.lists.run(),
            speculation=self.speculation.run(),
            pipelines=self.pipelines.run(),
            slots=self.slots.run(),
            push=self.push.run(),
            keeper=self.keeper.run(),
            set_aside=self.set_aside.run(),
            adoption=self.adoption.run(),
            cleaning=whenever(self._clean_wake, self._clean),
            sweep=every(self.settings.sweep_interval_ms / 1000, self.sweep),
        )

    def release_polls(self) -> None:
        """Answer the calls that wait, so that executors turn to another replica, and all others know."""
        self.dispatcher.nudge(lambda _: True)
        self.for_replicas.release()

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
            self._stop_tasks_of(job_id)
        self.loads.on_commit(job, head)
        self.watchers.changed(job_id)

    def _reply_to(self, job_id: JobId) -> str:
        """Return where executors are to report tasks of the job; empty where one replica is as good as another."""
        is_better = bool(self.acting.others) and self.acting.is_mine(job_id)
        return self.peers.record.address if is_better else ""

    def _on_load(self, job_id: JobId) -> None:
        self.watchers.changed(job_id)
        self._wake_for_tasks()

    def _wake_for_tasks(self) -> None:
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
        else:
            self.adoption.look_at(job_id, head)
        self.loads.on_head(job_id, head)
        if head is not None and head.clean_up != "none":
            self._clean_wake.set()

    def _stop_unwanted(self, job_id: JobId, graph: ExecutionGraph) -> None:
        self.push.job_ended(job_id, graph)
        self._stop_tasks_of(job_id)

    def _stop_tasks_of(self, job_id: JobId) -> None:
        self.dispatcher.nudge(lambda session: session.runs(job_id))

    def _on_acting(self) -> None:
        """Begin to act on what was another replica's."""
        self.adoption.look_again()
        self.dispatcher.wake()

    # ---------------------------------------------------------------- loops

    async def _clean(self) -> None:
        if await self.housekeeping.prepare():
            self.dispatcher.nudge(lambda session: not (session.is_draining or session.is_gone), at_most=1)

    async def sweep(self) -> None:
        """Look for what nobody was woken for.

        Strays, jobs left alone, clean-ups to ask for again, what is past retention.
        """
        await self.jobs.mend_heads()
        await self.adoption.adopt_all()
        if not self.turns.is_alone:
            await self.local.catch_up()  # somebody may have acted for this scheduler, and nothing have happened since
        if strays := self.local.strays(self.executors.is_alive):
            await self.executors.refresh()  # jobs may have been read since that name executors which came later
            for executor_id, incarnation in strays:
                if not self.executors.is_alive(executor_id, incarnation):
                    await self.executors.declare_lost(executor_id, incarnation, "it is not registered any more")
        await self.retention.sweep()
        await self.retention.collect_orphans()
        self._clean_wake.set()
        if self.housekeeping.has_clean_ups:
            self.dispatcher.nudge(lambda session: not session.is_draining)
        self.dispatcher.wake()
