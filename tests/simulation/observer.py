"""Checks every commit, every execution and every answer, and reports a violation at once."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from onager.execution_graph import (
    Event,
    ExecutionGraph,
    ExecutorLost,
    FailureKind,
    OutputsTaken,
    RunningStage,
    StageReplanned,
    StageWork,
    SuccessfulStage,
    TaskFailed,
    apply,
    apply_all,
    decode_graph,
    running_count,
    violations,
)
from onager.execution_graph.events import ReplanBegun, ReplanGivenUp, StageLaidOut, StragglersFound
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.scheduler.executors.records import ExecutorRecord
from onager.scheduler.jobs.history import read_part
from onager.scheduler.jobs.job_log import HEADER_KEYSPACES, JobHeader, log_key, read_batch, snapshot_prefix
from onager.scheduler.records import unpack
from onager.state_backend import EventKind, Keyspace, KeyValue
from onager.state_backend.local import Group
from onager.state_backend.model import WatchEvent
from tests.simulation import given, intervals, reuse, scripts
from tests.simulation.catalogs import CONFLICT, Catalog
from tests.simulation.data import Exchange, JobPlan
from tests.simulation.executions import Executions, SeenJob
from tests.simulation.loop import Process
from tests.simulation.network import OF_PROGRAM
from tests.simulation.versions import needs_feature
from tests.simulation.views import WATCHED

QUARANTINE_S = 8
"""For how long executors that fail everything get no work."""


class Violation(AssertionError):  # noqa: N818
    """An oracle says that something went wrong."""


class Observer(Executions):
    """Observes the store, and sees each commit before any client does."""

    def __init__(self, exchange: Exchange, trace: Callable[[str], None], world: Process) -> None:
        super().__init__(exchange, trace)
        self._world = world
        self.succeeded: Counter[TaskKey] = Counter()
        self.tasks_done = 0
        """How many have an output that counts; one that is done again is no further one."""
        self.steps: dict[tuple[str, int], str] = {}
        """The job of each step of a script."""
        self.plans: dict[str, JobPlan] = {}
        """New plans of jobs, by the digest of the plan of the stage with the result."""
        self.losses: Counter[str] = Counter()
        """How often each executor was lost, or began another life: a snapshot does not show the events of its batch."""
        self._hearts: dict[str, bytes] = {}
        self.executors: dict[str, ExecutorRecord] = {}
        self._chunks: dict[str, bytes] = {}
        self._history: dict[str, bytes] = {}
        self._log: set[str] = set()
        self._plans: set[str] = set()
        self.stored: dict[Keyspace, dict[str, int]] = {keyspace: {} for keyspace in WATCHED}
        """Revisions of the records that schedulers watch."""
        self.is_older_there: Callable[[], bool] = lambda: False
        """Tells whether a scheduler of the older release is registered, as far as those who write can know."""
        self.on_registered: Callable[[str], None] = lambda _: None
        """Called with the name of each scheduler that registers."""
        self.is_limit_exact = False
        """Whether sessions keep to their limits at every moment, since one scheduler counts, and nothing befalls it."""
        self.catalog = Catalog(self.fail)
        self.removed_by_hand: set[str] = set()
        self.on_commit: Callable[[Group, str], None] = lambda *_: None
        """Called with each commit, and the attempt of a program whose call makes it."""

    def replanned(self, result_digest: str, plan: JobPlan) -> None:
        self.plans[result_digest] = plan

    def given(self, life: str, task_set: pb.TaskSet) -> None:
        given.check(self, life, task_set)

    def check(self) -> None:
        if self.found:
            raise Violation(self.found[0])

    # ---------------------------------------------------------------- commits

    def deliver(self, group: Group) -> None:
        """See a commit, not as the process that makes it: that may be of a version that cannot read all of it."""
        caller = OF_PROGRAM.get()
        self._world.context.copy().run(self._deliver, group, caller)

    def _deliver(self, group: Group, caller: str) -> None:
        self.on_commit(group, caller)
        touched: dict[str, None] = {}
        for event in group.events:
            key, is_put = event.key, event.kind is EventKind.PUT
            self._trace(f"store r{event.mod_revision} {'put' if is_put else 'del'} {event.keyspace}/{key}")
            if event.keyspace in (Keyspace.GraphChunks, Keyspace.History):
                kept = self._chunks if event.keyspace is Keyspace.GraphChunks else self._history
                kept[key] = event.value
                if not is_put:
                    del kept[key]
            elif event.keyspace is Keyspace.JobLog:
                if is_put and key in self._log:
                    self.fail(f"the log entry {key} was written over")
                self._log ^= {key}  # put or deleted
            elif event.keyspace in WATCHED:
                known = self.stored[event.keyspace].pop(key, None)
                if is_put and known is None and event.keyspace is Keyspace.Schedulers:
                    self.on_registered(key)
                if is_put:
                    self.stored[event.keyspace][key] = event.mod_revision
        for event in group.events:
            if event.key.partition("/")[0] not in self.removed_by_hand:
                self._look_at(event, touched, group)
        for job_id in touched:
            if job_id in self.jobs:
                self._headers_of(self.jobs[job_id])
        self._blobs(group)
        self.catalog.deliver(group, [(j, found.final) for j in touched if (found := self.jobs[j]).final is not None])

    def _registered(self, record: ExecutorRecord, group: Group) -> None:
        """A life of an executor comes whole, with its heart."""
        puts = {e.keyspace: e.value for e in group.events if e.key == record.executor_id and e.kind is EventKind.PUT}
        if puts.get(Keyspace.Heartbeats) != record.incarnation.encode():
            self.fail(f"{record.incarnation} is registered without a heart")

    def _look_at(self, event: WatchEvent, touched: dict[str, None], group: Group) -> None:
        is_put = event.kind is EventKind.PUT
        if event.keyspace is Keyspace.Heartbeats:
            self._heart(event.key, event.value)
        elif event.keyspace is Keyspace.Executors:
            self._executor(event.key, event.value, group)
        if event.keyspace is Keyspace.JobLog and is_put:
            self._batch(KeyValue(event.key, event.value, event.mod_revision))
        elif event.keyspace in HEADER_KEYSPACES:
            touched[event.key] = None
            self._header(event.keyspace, event.key, event.value if is_put else None)
        elif event.keyspace is Keyspace.GraphChunks:
            touched[event.key.partition("/")[0]] = None

    def _executor(self, executor_id: str, value: bytes, group: Group) -> None:
        """An executor may be quarantined only while another one takes work."""
        before = self.executors.pop(executor_id, None)
        if not value:
            return
        record = self.executors[executor_id] = ExecutorRecord.decoded(value, executor_id)
        is_begun = before is None or before.state == "lost" or before.incarnation != record.incarnation
        if is_begun and record.state != "lost":
            self._registered(record, group)
        if not record.quarantined_until_ms or (before and before.quarantined_until_ms == record.quarantined_until_ms):
            return
        self.counts["quarantined"] += 1
        now_ms = record.quarantined_until_ms - QUARANTINE_S * 1000
        if not any(r.takes_work(now_ms) for e, r in self.executors.items() if e != executor_id):
            self.fail(f"{executor_id} is quarantined, and nobody else takes work")

    def _heart(self, executor_id: str, life: bytes) -> None:
        known = self._hearts.get(executor_id)
        if known and known != life:
            self.losses[executor_id] += 1
        self._hearts[executor_id] = life

    def _blobs(self, group: Group) -> None:
        """A blob is deleted only when no reference names it, and a new reference finds its blob."""
        for event in group.events:
            if event.keyspace is Keyspace.Plans:
                (self._plans.add if event.kind is EventKind.PUT else self._plans.discard)(event.key)
        for event in group.events:
            digest, _, job_id = event.key.partition("/ref/")
            if job_id and event.kind is EventKind.PUT and not {f"{digest}/0", f"{digest}/meta"} <= self._plans:
                self.fail(f"{job_id} names blob {digest}, which is not there")
        gone = [e.key for e in group.events if e.keyspace is Keyspace.Plans and e.kind is EventKind.DELETE]
        if not any(key.endswith("/meta") for key in gone):
            return
        for key in gone:
            _, _, job_id = key.partition("/ref/")
            if job_id in self.jobs and self.jobs[job_id].keyspace is not None:
                self.fail(f"a blob went with {key}, which names it")

    def _batch(self, entry: KeyValue) -> None:
        job = self.jobs.get(entry.key.partition("/")[0])
        if job is None or job.header is None or job.graph is None:
            self.fail(f"{entry.key} belongs to no active job")
            return
        if entry.key != log_key(job.job_id, job.header.generation, job.seq + 1):
            self.fail(f"{entry.key} was written where {job.header.generation}/{job.seq + 1} comes next")
            return
        events = read_batch(entry).events
        self.counts["batches"] += 1
        self.counts["events"] += len(events)
        job.seq += 1
        self._moved(job, self._followed(job, events))

    def _followed(self, job: SeenJob, events: tuple[Event, ...]) -> ExecutionGraph:
        assert job.graph is not None
        graph = job.graph
        for event in events:
            before, graph = graph, apply(graph, event)
            self._only_the_last_attempt_counts(job, event, before, graph)
            self._trace(f"  {job.job_id} {event.type} {_short(event)}")
            self.counts[event.type] += 1
            if isinstance(event, TaskFailed):
                self.counts["tasks without a slot"] += "has no slot for the task" in event.failure.message
                if CONFLICT in event.failure.message:
                    # A scheduler says so, when it refuses the changes of a task that was successful.
                    self.counts["catalog conflicts"] += 1
                    job.failures[event.failure.kind.value] += 1
            if isinstance(event, ExecutorLost):
                life = (event.executor_id, event.incarnation)
                for stage in before.stages:
                    outputs = stage.ledger.outputs.values()
                    job.dead |= {o.nonce for o in outputs if not o.is_durable and tuple(o.life) == life}
        return graph

    def _only_the_last_attempt_counts(
        self, job: SeenJob, event: Event, before: ExecutionGraph, after: ExecutionGraph
    ) -> None:
        if isinstance(event, StageLaidOut):
            self._laid_out(job, event, before)
        if isinstance(event, OutputsTaken):
            reuse.on_taken(self, job, event, after)
        if isinstance(event, ReplanBegun | StageReplanned | ReplanGivenUp):
            self._replanned(job, event, before, after)
        if isinstance(event, StragglersFound) and not needs_feature(before) and self.is_older_there():
            self.fail(f"{job.job_id}: {event.type} is written, and a scheduler of the older release cannot read it")
        if not after.is_active or len(before.stages) != len(after.stages):
            return
        if not isinstance(event, TaskFailed):
            return
        stage = before.stages[event.stage_id]
        is_one_of_two = isinstance(stage, RunningStage) and event.partition in stage.speculative
        failures = after.stages[event.stage_id].ledger.failures.get(event.partition, 0)
        if is_one_of_two and failures != stage.ledger.failures.get(event.partition, 0):
            self.fail(f"{job.job_id}: a failure of {event.partition} counts while another attempt of it runs")

    def _laid_out(self, job: SeenJob, event: StageLaidOut, before: ExecutionGraph) -> None:
        """A stage is laid out before any of its tasks is launched."""
        self.counts["stages fused"] += len(event.fused)
        self.counts["stages with other reads"] += bool(event.reads)
        self.counts["buckets split"] += any(read.split_stage_id for read in event.reads)
        for stage_id in (event.stage_id, *event.fused):
            stage = before.stages[stage_id]
            was_launched = stage.ledger.attempts or stage.ledger.outputs or getattr(stage, "running", None)
            if was_launched or any(key[0] == stage_id for key in job.handed_out):
                self.fail(f"{job.job_id}: stage {stage_id} is laid out, and tasks of it were launched")
            if stage.spec.layout is not None:
                self.fail(f"{job.job_id}: stage {stage_id} is laid out twice")

    def _replanned(
        self, job: SeenJob, event: ReplanBegun | StageReplanned | ReplanGivenUp, before: Any, after: Any
    ) -> None:
        """A new plan is taken only while all that it is based on is as it was."""
        if not isinstance(event, StageReplanned) or not after.replans or not after.replans[-1].is_taken:
            return
        self.counts["plans replaced"] += 1
        self.counts["stages superseded while they ran"] += sum(
            isinstance(before.stages[i], RunningStage) and bool(before.stages[i].running) for i in event.dropped
        )
        for stage_id, attempt in before.replans[-1].basis:
            if before.stages[stage_id].attempt != attempt:
                self.fail(f"{job.job_id} is planned by attempt {attempt} of stage {stage_id}, which is gone")

    def _header(self, keyspace: Keyspace, job_id: str, value: bytes | None) -> None:
        job = self.jobs.setdefault(job_id, SeenJob(job_id))
        if value is None:
            if job.keyspace is keyspace:
                job.keyspace = None
            return
        if job.keyspace is not None and job.keyspace is not keyspace and job.keyspace is not Keyspace.ActiveJobs:
            self.fail(f"job {job_id} is in {job.keyspace} and in {keyspace}")
        header = JobHeader.decoded(value, job_id)
        job.keyspace = keyspace
        if header.seq != job.seq + 1:
            self.fail(f"the snapshot of {job_id} covers {header.seq} where {job.seq + 1} comes next")
        prefix = snapshot_prefix(job_id, header.snapshot)
        chunks = [self._chunks[k] for k in sorted(self._chunks) if k.startswith(prefix)]
        if len(chunks) != header.chunks:
            self.fail(f"the header of {job_id} names {header.chunks} chunks, and there are {len(chunks)}")
            return
        graph = decode_graph(unpack(b"".join(chunks), job_id))
        job.header, job.seq = header, header.seq
        if header.seq == 0:
            job.submitted = graph
            scripts.submitted(self, job_id)
        self.counts["snapshots"] += 1
        self._history_leads_to(job, graph)
        self._moved(job, graph)

    def _history_leads_to(self, job: SeenJob, graph: ExecutionGraph) -> None:
        """All that led to a snapshot is in the history, and nothing else, unless the log is damaged."""
        if job.job_id in self.damaged:
            return
        found = sorted(self._history.items())
        parts = [KeyValue(key, part, 0) for key, part in found if key.startswith(f"{job.job_id}/")]
        entries = [entry for part in parts for entry in read_part(part)]
        if [entry.position for entry in entries] != list(range(1, job.seq + 1)):
            self.fail(f"the history of {job.job_id} has {[e.position for e in entries]} of {job.seq} batches")
            return
        assert job.submitted is not None
        events = [event for entry in entries if entry.batch is not None for event in entry.batch.events]
        if apply_all(job.submitted, events) != graph:
            self.fail(f"the history of {job.job_id} does not lead to its graph")
        intervals.check(self, job, entries, graph)

    def _headers_of(self, job: SeenJob) -> None:
        if job.keyspace is None and not job.is_removed:
            if job.final is None:
                self.fail(f"job {job.job_id} has vanished before its end")
            job.is_removed = True
        if job.keyspace is not None and job.is_removed:
            self.fail(f"job {job.job_id} is there again after it was removed")
        if job.keyspace is not None and job.header is not None:
            prefix = snapshot_prefix(job.job_id, job.header.snapshot)
            if not any(key.startswith(prefix) for key in self._chunks):
                self.fail(f"the snapshot of {job.job_id} is gone")

    # ---------------------------------------------------------------- graphs

    def _moved(self, job: SeenJob, after: ExecutionGraph) -> None:
        before, job.graph, launches = job.graph, after, job.launches
        for broken in violations(after):
            self.fail(f"job {job.job_id}: {broken}")
        if before is not None and not before.is_active:
            self.fail(f"job {job.job_id} changed after its end")
        if before is not None and before.streaming != after.streaming and after.streaming is not None:
            self._given_up(job, before, after)
        for stage in after.stages:
            old = before.stages[stage.spec.stage_id] if before and stage.spec.stage_id < len(before.stages) else None
            stage_id = stage.spec.stage_id
            if isinstance(stage, RunningStage):
                known = {(p, t.attempt) for p, t in old.in_hand()} if isinstance(old, RunningStage) else set()
                for partition, task in stage.in_hand():
                    if (partition, task.attempt) not in known:
                        self._launched(job, (stage_id, stage.attempt, partition, task.attempt))
                        self.counts["second attempts"] += stage.ledger.speculated.get(partition) == task.attempt
                        job.launched_at[task.executor_id] += 1
            for partition, output in () if stage.spec.taken else stage.ledger.outputs.items():
                had = None if old is None else old.ledger.outputs.get(partition)
                if had is not None and had.nonce != output.nonce and old.attempt == stage.attempt:
                    self.fail(f"{job.job_id}/{stage_id}/{partition} was won by {had.nonce}, and then by {output.nonce}")
                if had is None or had.nonce != output.nonce:
                    second = stage.ledger.speculated.get(partition)
                    self.counts["won by second attempts"] += output.task_attempt == second
                    self.tasks_done += (stage_id, partition) not in job.finished
                    job.finished.add((stage_id, partition))
                    self._won(job, stage_id, partition, output)
        if job.launches > launches and self._is_limited_alike(job) and (over := self.over_limit(job)) > 0:
            self.fail(f"{job.job_id} was given tasks, and its session has {over} more than it may")
        self._nothing_needed_is_dead(job, after)
        if not after.is_active:
            job.final = after
            self._trace(f"  {job.job_id} ended: {after.state}")

    def _given_up(self, job: SeenJob, before: ExecutionGraph, after: ExecutionGraph) -> None:
        """A job gives streaming up once, and nothing that was streamed is kept."""
        assert after.streaming is not None
        self._trace(f"  {job.job_id} streams no more: {after.streaming.reason}")
        self.counts["streaming abandoned"] += 1
        self.counts["streams without a slot"] += "has no slot for the task" in after.streaming.reason
        self.counts["streams that nobody could run"] += "address for streams" in after.streaming.reason
        if not before.may_stream:
            self.fail(f"{job.job_id} gives streaming up a second time: {after.streaming.reason}")
        job.finished.clear()
        kept = {o.nonce for s in before.stages for o in s.ledger.outputs.values() if self._was_streamed(o.nonce)}
        found = {o.nonce for s in after.stages for o in s.ledger.outputs.values()}
        if after.is_active and kept & found:
            self.fail(f"{job.job_id} streams no more, and keeps {kept & found}")

    def _was_streamed(self, nonce: str) -> bool:
        return nonce in self.exchange.written and self.exchange.written[nonce].is_streamed

    def _launched(self, job: SeenJob, task: tuple[int, int, int, int]) -> None:
        stage_id, _, partition, _ = task
        if task in job.handed_out:
            self.fail(f"task {task} of {job.job_id} was handed out twice")
        job.handed_out.add(task)
        job.launches += 1
        if (stage_id, partition) in job.finished and not self.is_excused(job):
            self.fail(f"task {task} of {job.job_id} had finished, nothing was lost, and it is run again")

    def _is_limited_alike(self, job: SeenJob) -> bool:
        """Return whether the session cannot get more tasks than *job* lets it have while *job* is given one."""
        terms = job.header
        of_session = (j.header for j in self.jobs.values() if j.header is not None and terms is not None)
        mine = [other for other in of_session if other.session == terms.session]  # type: ignore[union-attr]
        return self.is_limit_exact and len({other.session_max_tasks for other in mine}) == 1

    def over_limit(self, job: SeenJob, *, counts_damaged: bool = False) -> int:
        """Return how many more tasks run in the session than it may have for the job; below 0 there is room.

        Of tasks of a job whose record has rotted a scheduler may know, from before, or not.
        """
        terms = job.header
        if terms is None or not terms.session_max_tasks:
            return -1_000_000
        of_session = [j for j in self.jobs.values() if j.header is not None and j.header.session == terms.session]
        counted = [j for j in of_session if counts_damaged or j.job_id not in self.damaged]
        graphs = [j.graph for j in counted if j.graph and j.graph.is_active]
        return sum(map(running_count, graphs)) - terms.session_max_tasks

    def is_excused(self, job: SeenJob) -> bool:
        """Return whether something that the job had finished was lost, so that it may do some of it again."""
        mine = [n for n, w in self.exchange.written.items() if w.job_id == job.job_id or n in job.taken]
        bound = {w.executor.partition("_")[0] for n in mine if not (w := self.exchange.written[n]).is_shared}
        return any(n in self.exchange.lost for n in mine) or any(self.losses[executor_id] for executor_id in bound)

    def _won(self, job: SeenJob, stage_id: int, partition: int, output: Any) -> None:
        if job.graph is not None and job.graph.stages[stage_id].spec.work is StageWork.STEP:
            scripts.done(self, job.job_id, stage_id, output.nonce)
        if job.graph is None or job.graph.stages[stage_id].spec.work is not StageWork.QUERY:
            return
        found = self.exchange.written.get(output.nonce)
        if found is None:
            self.fail(f"{job.job_id}/{stage_id}/{partition} is won by {output.nonce}, which nobody wrote")
            return
        claimed = (output.executor_id, stage_id, partition, output.task_attempt)
        real = (found.executor.partition("_")[0], found.stage_id, found.partition, found.task_attempt)
        if claimed != real:
            self.fail(f"{job.job_id}: output {output.nonce} was written by {real} and is taken for one of {claimed}")

    def _nothing_needed_is_dead(self, job: SeenJob, graph: ExecutionGraph) -> None:
        if not graph.is_active or any(
            s.spec.work is StageWork.PUBLISH and isinstance(s, RunningStage | SuccessfulStage) for s in graph.stages
        ):
            return
        needed = {i.stage_id for s in graph.stages if not isinstance(s, SuccessfulStage) for i in s.spec.inputs}
        for stage in graph.stages[1:]:
            if stage.spec.stage_id in needed:
                for partition, output in stage.ledger.outputs.items():
                    if output.nonce in job.dead:
                        self.fail(f"{job.job_id}/{stage.spec.stage_id}/{partition} counts on a lost executor's output")


def _short(event: Event) -> str:
    plain = {
        name: getattr(event, name)
        for name in ("stage_id", "stage_attempt", "partition", "task_attempt", "tasks", "executor_id", "reason")
        if hasattr(event, name)
    }
    failure = getattr(event, "failure", None)
    if failure is not None:
        plain["kind"] = FailureKind(failure.kind).value
    return " ".join(f"{name}={value}" for name, value in plain.items())
