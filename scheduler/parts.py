"""The parts of a scheduler, wired together."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import groupby

from onager.clock import Clock
from onager.ids import ExecutorId, JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import Caller, ClientAccess, Role
from onager.scheduler.api.exports import JobExports
from onager.scheduler.api.gateway import ExecutorGateway
from onager.scheduler.api.hosted_programs import HostedPrograms
from onager.scheduler.api.job_logs import JobLogs
from onager.scheduler.api.job_queries import JobQueries
from onager.scheduler.api.program_queries import ProgramQueries
from onager.scheduler.api.progress import ProgressView
from onager.scheduler.api.retrying import Retries
from onager.scheduler.api.scheduler_gateway import SchedulerGatewayService
from onager.scheduler.api.service import SchedulerService
from onager.scheduler.api.submitting import Submissions
from onager.scheduler.api.timeline.wall_times import WallTimes
from onager.scheduler.api.tracing import Tracing
from onager.scheduler.catalog.reading import CatalogQueries
from onager.scheduler.cluster.cluster_clock import ClusterClock
from onager.scheduler.cluster.forwarding import Forwarding
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.cluster.rounds import Rounds
from onager.scheduler.cluster.scheduler_calls import SchedulerCalls
from onager.scheduler.cluster.scheduler_watch import SchedulerWatch
from onager.scheduler.connect.assembly import spark_connect
from onager.scheduler.connect.call_lists import list_calls
from onager.scheduler.connect.running import RunningOperations
from onager.scheduler.engine.adoption import Adoption
from onager.scheduler.engine.bundles import ClusterView, Env, Store
from onager.scheduler.engine.caches import Caches
from onager.scheduler.engine.clean_ups import CleanUps
from onager.scheduler.engine.dispatcher import Dispatcher, Lane
from onager.scheduler.engine.feasibility import Feasibility
from onager.scheduler.engine.job_checks import JobChecks
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.engine.new_jobs import NewJobs
from onager.scheduler.engine.polls import Polls
from onager.scheduler.engine.query_coordinator import Cluster
from onager.scheduler.engine.reconciliation import Reconciler
from onager.scheduler.engine.reports import ReportReader
from onager.scheduler.engine.retention import Retention
from onager.scheduler.engine.reuse import Reuse
from onager.scheduler.engine.stage_inputs import StageInputs
from onager.scheduler.engine.steps import Steps
from onager.scheduler.engine.streams import Streams
from onager.scheduler.engine.task_manager import TaskManager
from onager.scheduler.engine.webhooks import Webhooks
from onager.scheduler.executors.draining import Draining
from onager.scheduler.executors.executor_calls import ExecutorCalls
from onager.scheduler.executors.executor_requests import ExecutorRequests
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.place_admission import PlaceAdmission
from onager.scheduler.executors.quarantine import Quarantine
from onager.scheduler.jobs.audit import Audit
from onager.scheduler.jobs.audit_notes import CHANGE_TABLES, AuditNotes
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.history import JobHistory
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.job_writers import JobWriters
from onager.scheduler.jobs.live_progress import LiveProgress
from onager.scheduler.jobs.results import ResultStore
from onager.scheduler.jobs.watchers import JobWatchers
from onager.scheduler.outcome_files import OutcomeFiles
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.input_locality import InputLocality
from onager.scheduler.program_limits import ProgramUsages
from onager.scheduler.programs import Programs
from onager.scheduler.settings import SchedulerSettings
from onager.state_admin.admin import StateAdmin, without_credentials
from onager.state_backend import StateBackendClient


class SchedulerParts:
    """All parts of a scheduler over one state backend."""

    def __init__(self, settings: SchedulerSettings, backend: StateBackendClient, clock: Clock) -> None:
        self.settings = settings
        self._backend = backend
        self.clock = self._clock = clock = ClusterClock(clock)
        self.env = Env(settings, clock)
        self.schedulers = LiveSchedulers(
            backend,
            clock,
            scheduler_id=settings.scheduler_id,
            address=settings.advertise or settings.listen,
            lease_ttl_s=settings.scheduler_lease_ttl_ms / 1000,
        )
        self.precedence = Precedence(self.schedulers)
        self.ownership = Ownership(self.schedulers)
        self.heads = JobHeads(backend, clock, interval_ms=settings.heads_interval_ms)
        self.webhooks = Webhooks(settings, self.heads, self.precedence, clock)
        self.blobs = BlobStore(backend)
        self.tracing = Tracing(settings, self.heads, self.precedence, self.blobs, clock)
        self._deliveries = [each for each in (self.webhooks.deliveries, self.tracing.deliveries) if each.is_on]
        self.jobs = JobStore(
            backend,
            self.heads,
            clock,
            settings.scheduler_id,
            due_flags=[each.flag for each in self._deliveries],
            blobs=self.blobs,
        )
        self.writers = JobWriters(self.jobs, clock, self.ownership.follows)
        self.stopping = asyncio.Event()
        """Set when the scheduler begins to leave: it takes no more calls."""
        self.http_requests: Counter[str] = Counter({"2xx": 0, "4xx": 0, "5xx": 0})
        """Requests over HTTP that were answered, by the kind of their codes."""
        self.history = JobHistory(backend, self.jobs.recent)
        self.results = ResultStore(backend)
        self.queue, self.program_queue = FairQueue(), FairQueue()
        self.watchers = JobWatchers()
        self.live = LiveProgress()
        self.loads = JobLoads(self.queue, self.program_queue, self.heads, self.ownership, clock)
        self.executors = ExecutorManager(
            backend,
            clock,
            lease_ttl_s=settings.executor_lease_ttl_s,
            connection_grace_s=settings.connection_grace_ms / 1000,
            lost_retention_s=settings.lost_executor_retention_s,
            precedence=self.precedence,
            machine=settings.machine,
        )
        self.store = Store(backend, self.jobs, self.writers, self.blobs)
        self.view = ClusterView(self.schedulers, self.ownership, self.precedence, self.executors)
        self._build_engine()
        self._build_upkeep()
        self._build_services()

    def _build_engine(self) -> None:
        """Build what drives jobs, and what talks with executors and other schedulers."""
        env, store, view, settings, clock = self.env, self.store, self.view, self.settings, self._clock
        self.quarantine = Quarantine(
            self._backend,
            self.executors,
            self.jobs,
            clock,
            failures=settings.quarantine_failures,
            window_s=settings.quarantine_window_s,
            for_s=settings.quarantine_s,
        )
        self.caches = Caches(self.heads)
        self.reuse = Reuse(self.jobs, has_users=settings.auth_token_file is not None)
        cluster = Cluster(
            slots=lambda: self.executors.total_slots,
            executors=lambda graph: self.executors.taking_work(programs=graph.is_program),
            streams=Streams(self.executors.stream_address, self.executors.refresh),
            inputs=StageInputs(self.blobs),
            is_offered=self.reuse.is_offered,
        )
        reader = ReportReader(
            self.blobs, self.results, clock, self.executors, self.quarantine.record_events, private=settings.private
        )
        self.local = LocalDriver(
            env, store, view, cluster, reader, self.queue, self.loads, self.reuse, on_room=self._wake_for_tasks
        )
        self.executors.serve(on_lost=self.local.lose_executor, on_take_over=self.local.catch_up)
        outgoing = ClientAccess(settings.outgoing_security, (), [Role.SCHEDULER])
        self.forwarding = Forwarding(
            self.schedulers,
            self.ownership,
            self.loads,
            SchedulerCalls(self.schedulers, outgoing, clock, timeout_s=settings.forward_timeout_ms / 1000),
        )
        self.scheduler_watch = SchedulerWatch(
            self.schedulers,
            outgoing,
            timeout_s=settings.forward_timeout_ms / 1000,
        )
        feasibility = Feasibility(env, store, view, self.loads)
        self.tasks = TaskManager(env, self.local, self.forwarding, self.queue, self.loads, feasibility)
        self.checks = JobChecks(env, store, view, self.local, on_abandoned=self._stop_tasks_of)
        self._locality = InputLocality()
        programs = TaskManager(env, self.local, self.forwarding, self.program_queue, self.loads, feasibility)
        lanes = [
            Lane(self.tasks, self.queue, is_of_programs=False),
            Lane(programs, self.program_queue, is_of_programs=True),
        ]
        self.dispatcher = Dispatcher(lanes, clock, policy=settings.task_distribution, affinity=self._affinity)
        self.reconciler = Reconciler(env, store, view, self.local, self.forwarding, self.dispatcher)
        self.clean_ups = CleanUps(env, store, view)
        self.calls = ExecutorCalls(outgoing, clock)
        self.polls = Polls(env, store, view, self.reconciler, self.dispatcher, self.clean_ups, self.calls)
        self.requests = ExecutorRequests(self.executors, share_percent=settings.stream_share_percent)
        self.adoption = Adoption(store, view, self.local)

    def _build_upkeep(self) -> None:
        """Build what removes what nobody needs any more, and what notes for the audit who did what."""
        is_on = self.settings.audit_max_notes > 0
        self.notes = AuditNotes(self._backend, self._clock, self.settings.scheduler_id, is_on=is_on)
        self.jobs.on_tables_changed = self._note_tables
        self.rounds = Rounds(self._backend, self._clock)
        self.retention = Retention(self.env, self.store, self.view)

    def _build_services(self) -> None:
        """Build what takes jobs in, and what answers calls: of clients, of executors, and of other schedulers."""
        settings, clock = self.settings, self._clock
        self.exports = JobExports(self.jobs, self.history, self.blobs, clock)
        self.wall_times = WallTimes(self.exports.timelines, clock)
        progress = ProgressView(self.executors, self.queue, clock, self.jobs.sizes, self.live, self.heads.get)
        new_jobs = NewJobs(settings, self.jobs, self.blobs, clock)
        self.steps = Steps(self.env, self.store, self.view, new_jobs, self.local)
        submissions = Submissions(settings, new_jobs, self.notes)
        usages = ProgramUsages(self._backend, limit_bytes=settings.program_store_bytes)
        files = OutcomeFiles(settings.exchange_dir)
        self.programs = Programs(self._backend, clock, usages, files, retention_s=settings.program_retention_s)
        running = RunningOperations(self._backend, self.heads, self.local, self.notes)
        queries = JobQueries(
            self.jobs,
            self.ownership,
            self.forwarding,
            progress,
            self.watchers,
            self.history,
            self.wall_times,
            self.blobs,
            clock,
        )
        self.hosted = HostedPrograms(
            self.programs, queries, self.heads, self.ownership, running.interrupt_program, self.executors.registry.stays
        )
        self.service = self._make_service(submissions, queries)
        self.places = PlaceAdmission(self._backend, self.executors, self.schedulers)
        self.results.check_exchange = files.check_exchange = self.places.check_exchange
        self.spark_connect = spark_connect(
            self.env,
            self.store,
            self.service,
            submissions,
            running,
            self.requests,
            self.places,
            self.retention,
            self.caches,
        )
        self.gateway = self._make_gateway()
        self.for_schedulers = SchedulerGatewayService(
            self.local,
            self.loads,
            self.forwarding,
            self.jobs,
            self.ownership,
            self.schedulers,
            progress,
            self.live,
            self.requests,
        )

    def _make_gateway(self) -> ExecutorGateway:
        return ExecutorGateway(
            self.settings,
            self.executors,
            self.tasks,
            self.reconciler,
            self.dispatcher,
            self.polls,
            self.calls,
            self.clean_ups,
            self.blobs,
            self._record_progress,
            self.requests,
            lambda: [info.address for info in self.schedulers.infos()],
            self._backend,
            self.places,
            self.hosted,
        )

    def _make_service(self, submissions: Submissions, queries: JobQueries) -> SchedulerService:
        settings, backend, clock = self.settings, self._backend, self._clock
        audit = Audit(backend, clock, settings.scheduler_id)
        return SchedulerService(
            settings,
            submissions,
            Retries(self.jobs, self.blobs, audit, submissions, self.hosted),
            queries,
            self.local,
            self.ownership,
            self.heads,
            self.exports,
            JobLogs(self.jobs, self.history, self.executors, self.requests, self.schedulers, self.forwarding.calls),
            self.results,
            self.executors,
            Draining(backend, self.executors, clock),
            self.schedulers,
            StateAdmin(backend, clock, without_credentials(settings.backend), audit),
            audit,
            self.notes,
            CatalogQueries(backend),
            self.programs,
            self.hosted,
            ProgramQueries(self.programs, self.heads, settings.exchange_dir, partial(list_calls, self._backend)),
        )

    # ---------------------------------------------------------------- what parts ask of others

    def _record_progress(self, reported: Sequence[pb.AttemptProgress]) -> None:
        """Keep how far attempts are, or leave it to the drivers of their jobs."""
        for job_id, some in groupby(reported, lambda each: JobId(each.task.job_id)):
            head = self.heads.get(job_id)
            if head is None or not head.is_active:
                continue  # its tasks go on until their executor learns that nobody wants them
            driver = self.forwarding.driver_of(job_id)
            (self.live.record if driver is None else driver.note_progress)(some)

    def _note_tables(self, job_id: JobId, keys: Sequence[str]) -> None:
        """Note in the audit that a job has changed the catalog."""
        head = self.heads.get(job_id)
        by = Caller("" if head is None else head.principal)
        self.notes.note(by, CHANGE_TABLES, str(job_id), ", ".join(keys))

    def _affinity(self, job_id: JobId, executor_id: ExecutorId) -> float:
        job = self.jobs.cached(job_id)
        return 0.0 if job is None else self._locality.affinity(job.graph, executor_id)

    def _wake_for_tasks(self) -> None:
        if self.queue.has_runnable or self.program_queue.has_runnable:
            self.dispatcher.wake()

    def _stop_tasks_of(self, job_id: JobId) -> None:
        self.dispatcher.nudge(lambda session: session.runs(job_id))
