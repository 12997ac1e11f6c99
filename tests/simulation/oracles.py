"""What must hold when faults have ended: for every job, and for the store after retention."""

import re
from typing import TYPE_CHECKING, Any

from onager.execution_graph import (
    Cancelled,
    ExecutionGraph,
    Failed,
    FailureKind,
    JobState,
    StageWork,
    Succeeded,
    SupersededStage,
)
from onager.execution_graph.losses import DEATHS_ALONE
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.scheduler.jobs.audit import AuditRecord
from onager.scheduler.jobs.blobs import blobs_of
from onager.scheduler.jobs.job_heads import JobHead
from onager.state_backend import KeyRange, Keyspace
from tests.simulation import scripts
from tests.simulation.catalogs import CONFLICT
from tests.simulation.client import SimulatedClient
from tests.simulation.data import JobPlan, rows_of, value_in
from tests.simulation.executions import SeenJob
from tests.simulation.observer import Violation
from tests.simulation.worker import part_of

if TYPE_CHECKING:
    from tests.simulation.world import World

_REPORTED = {JobState.SUCCESSFUL: pb.SUCCESSFUL, JobState.FAILED: pb.FAILED, JobState.CANCELLED: pb.CANCELLED}
_OF_JOBS = (
    "JobHeads/", "ActiveJobs/", "CompletedJobs/", "FailedJobs/", "JobLog/", "GraphChunks/", "Results/", "History/"
)  # fmt: skip


_CULPRIT = re.compile(r"Task (?P<partition>\d+) in stage (?P<stage>\d+) (?P<what>ran out of memory|ended the JVMs)")


class Oracles:
    """Judges a world; raises `Violation`."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def check_jobs(self) -> None:
        for client in self._world.clients:
            for task in client.tasks:
                if not task.cancelled() and task.exception() is not None:
                    raise Violation(f"{client.name} broke: {task.exception()!r}") from task.exception()
            for job_id, plan in client.jobs.items():
                self._check_job(client, self._world.observer.jobs[job_id], plan)
            self._check_scripts(client)
        self._check_records()

    def _check_scripts(self, client: SimulatedClient) -> None:
        if (why := scripts.check(self._world, client)) is not None:
            raise Violation(why)
        for job_id, plan in client.jobs_of_steps.items():
            job = self._world.observer.jobs[job_id]
            assert job.final is not None
            self._check_result(client, job, job.final, plan)

    def _check_job(self, client: SimulatedClient, job: SeenJob, plan: JobPlan) -> None:
        graph = job.final
        reported = client.reported.get(job.job_id)
        if self._world.damage.is_of(job.job_id) and reported == pb.FAILED:
            # Even of an ended job: a scheduler that had it in memory may have written it again since.
            self._world.observer.counts["jobs damaged"] += 1
            return
        if graph is None:
            raise Violation(f"{job.job_id} has not ended")
        if reported != _REPORTED[graph.state]:
            raise Violation(f"{job.job_id} ended {graph.state}, and its client got {reported}")
        self._world.observer.counts[f"jobs {graph.state}"] += 1
        match graph.outcome:
            case Succeeded():
                self._check_result(client, job, graph, plan)
            case Cancelled() if job.job_id not in client.cancelled:
                raise Violation(f"{job.job_id} was cancelled by nobody")
            case Cancelled() if job.job_id not in self._audited_cancels():
                raise Violation(f"{job.job_id} was cancelled, and the audit does not tell")
            case Failed(failure=failure):
                self._check_failure(job, failure.kind, failure.message)
            case _:
                pass

    def _audited_cancels(self) -> set[str]:
        keys = self._keys()
        found = [AuditRecord.decoded(keys[key], key) for key in keys if key.startswith("Audit/")]
        return {record.target for record in found if record.action == "cancel"}

    def _check_failure(self, job: SeenJob, kind: FailureKind, message: str) -> None:
        if CONFLICT in message:
            if self._world.observer.catalog.changes == 0:
                raise Violation(f"{job.job_id} failed, and nobody has changed the catalog: {message}")
            self._world.observer.counts["jobs that found the catalog changed"] += 1
            return
        if kind is FailureKind.USER_ERROR and (why := _CULPRIT.match(message)) is not None:
            is_memory = why["what"] == "ran out of memory"
            task = (job.job_id, int(why["stage"]), int(why["partition"]))
            if self._world.observer.lone_deaths[*task, is_memory] < (1 if is_memory else DEATHS_ALONE):
                raise Violation(f"{job.job_id} failed without cause: {message}")
            self._world.observer.counts["jobs that ended JVMs"] += 1
            return
        seen = job.failures[kind.value]
        enough = {
            FailureKind.USER_ERROR: 1,
            FailureKind.IO_ERROR: job.graph.limits.task_max_failures if job.graph else 4,
            FailureKind.FETCH_FAILED: 4,
        }
        if seen < enough.get(kind, 1_000_000):
            raise Violation(f"{job.job_id} failed without cause: {kind}: {message}")

    def _check_result(self, client: SimulatedClient, job: SeenJob, graph: ExecutionGraph, plan: JobPlan) -> None:
        if any(stage.spec.work is StageWork.FEED for stage in graph.stages):
            plan = plan.growing()
            self._world.observer.counts["jobs that grew"] += 1
        values: dict[int, list[Any]] = {}
        result = graph.result_stage
        plan = self._world.observer.plans.get((result and result.spec.plan_digest) or "", plan)
        for number in range(1, len(plan.stages) + 1):
            stage, spec = plan.stages[number - 1], graph.stages[number].spec
            grew = (stage.fed_by or stage.is_feed) and not isinstance(graph.stages[number], SupersededStage)
            if grew and spec.partitions != stage.partitions:
                raise Violation(f"{job.job_id}/{number} has {spec.partitions} partitions")
            if spec.work is not StageWork.QUERY:
                continue
            layout = spec.layout
            fused = () if layout is None else layout.fused
            reads = () if layout is None else layout.reads
            made = [self._made(job.job_id, graph, number, p) for p in range(spec.partitions)]
            values[number] = [value for value, _ in made]
            if spec.taken is not None:
                continue
            for p, (value, nonce) in enumerate(made):
                part = part_of(reads[p]) if reads else None
                if value is not None and value != value_in(plan, (job.job_id, number, p), values, nonce, fused, part):
                    raise Violation(f"{job.job_id}/{number}/{p} was made from inputs that do not count")
        rows = [rows_of(value) for value in values[len(plan.stages)]]
        is_as_planned = all(stage.spec.layout is None and stage.spec.taken is None for stage in graph.stages)
        if plan.is_deterministic and is_as_planned and rows != plan.expected(job.job_id):
            raise Violation(f"{job.job_id} has the result {rows} instead of {plan.expected(job.job_id)}")
        if plan.has_sink:
            winners = [graph.stages[len(plan.stages)].ledger.outputs[p].nonce for p in range(len(rows))]
            if self._world.exchange.published.get(job.job_id) != winners:
                raise Violation(
                    f"{job.job_id} published {self._world.exchange.published.get(job.job_id)}, not {winners}"
                )
        elif [r for r in client.fetched[job.job_id] if r] != [r for r in rows if r]:
            raise Violation(f"{job.job_id}: {client.name} fetched {client.fetched[job.job_id]} of {rows}")
        nonces = [o.nonce for s in graph.stages[1:] for o in s.ledger.outputs.values()]
        if len(set(nonces)) != len(nonces):
            raise Violation(f"an execution counts twice in {job.job_id}")

    def _made(self, job_id: str, graph: ExecutionGraph, number: int, partition: int) -> tuple[int | None, str]:
        """Return the value that counts of a task, and the nonce of its execution.

        Of a job that streams a task need not have ended that gave its readers all that they needed, or that has none.
        """
        stage = graph.stages[number]
        output = stage.ledger.outputs.get(partition)
        if output is not None:
            return self._world.exchange.written[output.nonce].value, output.nonce
        attempt = stage.ledger.next_attempt(partition) - 1
        stream = self._world.exchange.streams.get(TaskKey(job_id, number, stage.attempt, partition, attempt))  # type: ignore[arg-type]
        if not graph.is_streaming or stage.spec.output.kind != "exchange":
            raise Violation(f"{job_id}/{number} has no output of {partition}")
        return (None, "") if stream is None else (stream.value, stream.nonce)

    def check_nothing_was_in_vain(self) -> None:
        """Check that each task ran only once if no executor failed."""
        counts = self._world.observer.counts
        if counts["catalog conflicts"] or counts["jobs that found the catalog changed"]:
            return  # these are planned anew, or fail
        # A scheduler that dies between launching into a slot and answering the report that has freed it leaves two that
        # fill it, who takes that launch over and who gets the report again: the executor refuses one of the tasks.
        refused = counts["refused"] if self._world.weather.blow else 0
        # So does one that polls a scheduler while another is silent which has filled a slot of it: a task that is to
        # stream and finds none ends the streaming, and each task of its launch fails.
        without_slot = counts["streams without a slot"] if self._world.weather.blow else 0
        failed = counts["tasks without a slot"] if self._world.weather.blow else 0
        excused = {"tasks_lost": refused, "task_failed": failed}
        for event in ("executor_lost", "tasks_lost", "task_failed", "jobs failed"):
            if counts[event] > excused.get(event, 0) and self._world.damage.job_id is None:
                raise Violation(f"{counts[event]} times {event}, and nothing had happened to any executor")
        if counts["streaming abandoned"] > refused + without_slot + counts["streams that nobody could run"]:
            raise Violation("a job streams no more, and nothing had happened to any executor")
        twice = [key for key, lives in self._world.observer.began_at.items() if len(lives) > 1]
        if twice:
            raise Violation(f"{twice[:3]} ran more than once")
        ran = {(key.job_id, key.stage_id, key.partition) for key in self._world.observer.began_at}
        if counts["streaming abandoned"] or self._world.damage.job_id is not None:
            return  # a scheduler that reads a damaged record cancels tasks of a job that its driver continues
        if len(self._world.observer.began_at) - len(ran) > counts["second attempts"]:
            raise Violation("some partition was run by more attempts than there had to be")

    def _check_records(self) -> None:
        """Hold heads and blobs of ended jobs against their graphs."""
        keys = self._keys()
        for job in self._world.observer.jobs.values():
            if job.final is None:
                continue
            for digest in sorted(blobs_of(job.final)):
                if f"Plans/{digest}/meta" not in keys:
                    raise Violation(f"{job.job_id} names blob {digest}, which is gone")
            if self._world.damage.is_of(job.job_id):
                continue
            head = JobHead.decoded(keys[f"JobHeads/{job.job_id}"], job.job_id)
            if head.state is not job.final.state or head.broken:
                raise Violation(f"the head of {job.job_id} says {head.state}, broken={head.broken}")
        stray = [k for k in keys if k.startswith(("JobLog/", "ActiveJobs/")) and not self._is_damaged(k)]
        if stray:
            raise Violation(f"all jobs have ended, and there are still {stray[:5]}")

    def are_registered(self) -> bool:
        """Return whether the store lists every scheduler that serves."""
        keys = self._keys()
        return all(f"Schedulers/{r.name}" in keys for r in self._world.schedulers if r.process is not None)

    def in_hand(self) -> list[str]:
        """Return what processes still hold: tasks, slots, jobs to work on."""
        found = []
        for executor in self._world.executors:
            if executor.process is not None and executor.agent is not None and executor.worker is not None:
                found += [f"{executor.life} has {key}" for key in executor.agent._attempts.held()]
                found += [f"{executor.life} runs {key}" for key in executor.worker._running]
                found += [f"{executor.life} keeps {job_id}" for job_id in executor.worker.kept_jobs()]
        for host in self._world.hosts:
            if host.process is not None and host.agent is not None:
                found += [f"{host.life} has {key}" for key in host.agent._attempts.held()]
        for place in self._world.schedulers:
            if place.process is not None and place.scheduler is not None:
                scheduler = place.scheduler
                found += [f"{place.name} queues {job_id}" for job_id in scheduler.queue._shares]
                found += [f"{place.name} writes {job_id}" for job_id in scheduler.writers._queues]
                found += [f"{place.name} drives {job_id}" for job_id in scheduler.local._coordinators]
        return found

    def are_results_gone(self) -> bool:
        """Return whether no ended job has a result, or files that have to go."""
        heads = {k: v for k, v in self._keys().items() if k.startswith("JobHeads/") and not self._is_damaged(k)}
        found = [JobHead.decoded(value, key) for key, value in heads.items()]
        return not any(head.has_result or head.clean_up != "none" for head in found)

    def are_records_gone(self) -> bool:
        """Return whether the store knows of no job any more, nor of who cancelled one."""
        of_jobs = (
            "JobHeads/",
            "ActiveJobs/",
            "CompletedJobs/",
            "FailedJobs/",
            "JobLog/",
            "GraphChunks/",
            "Results/",
            "History/",
            "Audit/",
        )
        return not any(key.startswith(of_jobs) for key in self._keys())

    def is_only_scheduler_left(self) -> bool:
        """Return whether schedulers are all that the store lists."""
        is_tidy = self._world.observer.catalog.is_tidy()
        return is_tidy and all(key.startswith(("Schedulers/", "Catalog/")) for key in self._keys())

    def _is_damaged(self, key: str) -> bool:
        return self._world.damage.is_of(key.split("/")[1])

    def check_empty(self) -> None:
        left = sorted(key for key in self._keys() if not key.startswith("Catalog/"))
        raw = [
            repr(key)
            for key in self._world.store._table._sorted
            if not key.startswith(b"m") and not key.startswith(b"d")
        ]
        if left or raw:
            raise Violation(f"{len(left) + len(raw)} keys are left in the store: {[*left, *raw][:8]}")

    def _keys(self) -> dict[str, bytes]:
        found = {}
        for keyspace in Keyspace:
            snapshot = self._world.store._engine.read((), [KeyRange(keyspace)])
            for item in snapshot.ranges[0]:
                found[f"{keyspace}/{item.key}"] = item.value
        return found
