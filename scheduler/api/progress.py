"""Progress and details of jobs for people, and why nothing runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from onager.clock import Clock
from onager.execution_graph import (
    Cancelled,
    ExecutionGraph,
    ExecutorSlot,
    Failed,
    FailedStage,
    FailureKind,
    JobState,
    RunningStage,
    child_of,
    has_failed_somewhere,
    paused_tasks,
    pop_next_tasks,
    running_count,
    running_steps,
)
from onager.ids import JobId, script_of, step_job_id
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_TASKS_A_PAGE
from onager.redaction import without_logins
from onager.scheduler import wire
from onager.scheduler.api.explained import Explained
from onager.scheduler.api.stage_lines import stage_info, task_info
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.jobs.exchange_sizes import ExchangeSizes
from onager.scheduler.jobs.job_heads import JobHead, JobTerms
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.live_progress import LiveProgress
from onager.scheduler.policy.fair_queue import FairQueue

_BUSY_JOBS = 3
_MAX_NAMED = 8
_STAGE_TEXTS_CHARS = 4 * 1024 * 1024
_NO_TERMS = JobTerms()


_STOPPED = "stopped"
"""The state of stages and tasks that still ran when their job ended."""


@dataclass(eq=False, repr=False)
class ProgressView:
    """Describes jobs, given the state of the whole cluster."""

    executors: ExecutorManager
    queue: FairQueue
    clock: Clock
    sizes: ExchangeSizes
    live: LiveProgress
    head_of: Callable[[JobId], JobHead | None]
    """Returns the head of a job; the progress of a script needs those of its steps."""

    def progress(
        self, graph: ExecutionGraph, terms: JobTerms = _NO_TERMS, *, is_detailed: bool = False
    ) -> pb.JobProgress:
        """Return the progress of a job that was submitted with *terms*; *is_detailed*: with latencies of its stages."""
        is_detailed = is_detailed or not graph.is_active
        progress = pb.JobProgress(
            job_id=graph.job_id,
            name=graph.name,
            state=wire.STATE[graph.state],
            submitted_ms=graph.submitted_ms,
            started_ms=graph.started_ms or 0,
            ended_ms=graph.ended_ms or 0,
            stages=[stage_info(stage, graph.replans, has_latencies=is_detailed) for stage in graph.stages],
            waiting_for=self._waiting_for(graph),
            retry=self._retry(graph),
            exchange_bytes=self.sizes.of(graph),
            exchange="streaming" if graph.may_stream else "durable",
            durable_because="" if graph.streaming is None else graph.streaming.reason,
            parent=script_of(graph.job_id) or "",
            **_terms(terms),
        )
        steps = self._add_steps(graph, progress)
        if graph.is_active:
            self._add_estimate(graph, progress, steps)
        match graph.outcome:
            case Failed(failure=failure):
                progress.failure.CopyFrom(wire.failure_message(failure))
            case Cancelled(text=text):
                progress.failure.CopyFrom(pb.Failure(kind=FailureKind.TASK_KILLED.value, message=text))
            case _:
                pass
        if isinstance(graph.outcome, Failed | Cancelled):
            for info in progress.stages:
                if info.state == "running":
                    info.pending += info.running
                    info.state, info.running, info.ended_ms = _STOPPED, 0, graph.ended_ms or 0
        result = graph.result_stage
        if result is not None and graph.state is JobState.SUCCESSFUL:
            progress.result_rows = sum(o.rows for o in result.ledger.outputs.values())
        if graph.plan is not None and graph.plan.sink is not None:
            progress.sink_path = without_logins(graph.plan.sink.path)
        return progress

    def _add_steps(self, graph: ExecutionGraph, progress: pb.JobProgress) -> dict[int, float]:
        """Add the jobs of steps that run or failed, and where the last one wrote; return how far each of them is."""
        found: dict[int, float] = {}
        for stage in graph.stages[1:] if graph.is_script else ():
            if child_of(stage) or not isinstance(stage, RunningStage | FailedStage):
                continue
            info = progress.stages[stage.spec.stage_id]
            child_id = step_job_id(graph.job_id, info.stage_id)
            head = self.head_of(child_id)
            if head is not None:
                info.child_job_id, info.step_state = child_id, head.state.value
                # Before it is planned nobody knows how many stages there will be.
                found[info.stage_id] = head.stages_done / head.stages if head.stages > 1 else 0.0
        result = graph.result_stage if graph.is_script and graph.state is JobState.SUCCESSFUL else None
        if result is not None and (head := self.head_of(JobId(child_of(result)))) is not None:
            progress.sink_path = without_logins(head.sink_path or "")
        return found

    def _add_estimate(self, graph: ExecutionGraph, progress: pb.JobProgress, steps: Mapping[int, float]) -> None:
        estimate = self.live.estimate(graph, self.clock.now_ms(), steps)
        if estimate is None:
            return
        progress.fraction, progress.fraction_fell = estimate.fraction, estimate.fell
        if estimate.eta_ms is not None:
            progress.eta_low_ms, progress.eta_high_ms = estimate.eta_ms
        for info, part in zip(progress.stages, estimate.stages, strict=False):
            info.fraction, info.rows_read, info.bytes_read = part

    def detail(self, job: StoredJob, spec: pb.JobSpec, explained: Explained, page: pb.GetJobRequest) -> pb.JobDetail:
        """Return a job's details, as far as they fit one message; *spec* is what may be shown of its specification.

        *page* says which tasks. Only the first page has the schema.
        """
        graph = job.graph
        progress = self.progress(graph, job.header, is_detailed=True)
        left = page.limit or MAX_TASKS_A_PAGE
        answer = pb.JobDetail(
            spec=spec,
            plan=explained.plan,
            schema_json=graph.plan.schema_json if graph.plan is not None and not is_later_page(page) else "",
            log_seq=job.seq,
        )
        left_chars = _STAGE_TEXTS_CHARS
        for info, stage in zip(progress.stages, graph.stages, strict=True):
            text = explained.stages.get(str(info.stage_id), "")
            info.plan = text[:left_chars]
            left_chars -= len(info.plan)
            if info.stage_id < page.stage_id or answer.HasField("next"):
                continue
            first = page.partition if info.stage_id == page.stage_id else 0
            some = range(first, min(first + left, stage.spec.partitions))
            info.tasks.extend(task_info(stage, partition) for partition in some)
            for task in info.tasks:
                if info.state == _STOPPED and task.state == "running":
                    task.state = _STOPPED
            left -= len(some)
            if some.stop < stage.spec.partitions and some.stop >= first:
                answer.next.CopyFrom(pb.TaskPage(stage_id=info.stage_id, partition=some.stop))
        answer.progress.CopyFrom(progress)
        return answer

    def _retry(self, graph: ExecutionGraph) -> pb.TaskRetry | None:
        paused = paused_tasks(graph, self.clock.now_ms())
        if not paused:
            return None
        first = paused[0]
        return pb.TaskRetry(
            stage_id=first.stage_id,
            partition=first.partition,
            next_try=first.failures + 1,
            max_tries=graph.limits.task_max_failures if first.failures else 0,
            message=first.message,
            not_before_ms=first.until_ms,
            tasks=len(paused),
        )

    def _waiting_for(self, graph: ExecutionGraph) -> str:
        if not graph.is_active or running_count(graph) or any(running_steps(graph)):
            return ""
        if graph.is_program:
            takers = self.executors.taking_work(programs=True)
            return "" if takers else "no executor runs programs: start one with --program-slots above 0"
        if not self.executors.total_slots:
            return why_nobody_works(self.executors.infos())
        free = [
            session.slot
            for session in self.executors.sessions
            if self.executors.takes_work(session)
            and len(session.held) < session.record.slots
            and not session.record.runs_programs
        ]
        busy = [(job_id, n) for job_id, n in self.queue.busiest(_BUSY_JOBS) if job_id != graph.job_id]
        if sum(n for _, n in busy) and not free:
            others = ", ".join(f"{job_id} ({n})" for job_id, n in busy)
            return f"all slots are busy with {others}"
        return self._left_to_others(graph, free)

    def _left_to_others(self, graph: ExecutionGraph, free: Sequence[ExecutorSlot]) -> str:
        """Return why free slots are of no use to a job whose tasks have failed there."""
        if not free or not has_failed_somewhere(graph):
            return ""
        executors = self.executors.taking_work()
        if any(pop_next_tasks(graph, slot, 1, 0, executors) is not None for slot in free):
            return ""
        names = ", ".join(sorted({slot.executor_id for slot in free}))
        return f"its tasks have failed on {names}, and wait for a slot of another executor"


def is_later_page(page: pb.GetJobRequest) -> bool:
    """Return whether *page* is not the first one."""
    return bool(page.stage_id or page.partition)


def why_nobody_works(executors: Iterable[pb.ExecutorInfo]) -> str:
    """Return why none of *executors* takes work, as text for people."""
    by_state: dict[str, list[pb.ExecutorInfo]] = {}
    for executor in executors:
        by_state.setdefault(executor.state, []).append(executor)
    full, quarantined, unseen, leaving = (
        by_state.get(state, []) for state in ("no_space", "quarantined", "no_place", "draining")
    )
    those = [(e, "has no space") for e in full] + [(e, "is quarantined") for e in quarantined]
    those += [(e, "does not see the exchange directory") for e in unseen]
    if not those:
        return "every executor is leaving: start another one" if leaving else _why_all_are_gone(by_state)
    named = _named([*those, *((e, "is leaving") for e in leaving)])
    if full:
        return f"no executor takes work: {named}; {full[0].reason}"
    if unseen:
        return f"no executor takes work: {named}; {unseen[0].reason}"
    first = min(quarantined, key=lambda e: e.quarantined_until_ms)
    until = datetime.fromtimestamp(first.quarantined_until_ms / 1000, UTC)
    return (
        f"no executor takes work: {named}; {first.executor_id} until {until:%H:%M:%S} UTC, because {first.reason}: "
        "mend it and start it again, or start another one"
    )


def _why_all_are_gone(by_state: Mapping[str, Sequence[pb.ExecutorInfo]]) -> str:
    gone = [(e, f"is lost ({e.reason or 'it is gone'})") for e in by_state.get("lost", ())]
    gone += [(e, "has left") for e in by_state.get("left", ())]
    gone.sort(key=lambda each: -each[0].last_seen_ms)
    return f"no executor is there any more: {_named(gone)}; start one" if gone else "no executor is registered"


def _named(executors: Sequence[tuple[pb.ExecutorInfo, str]]) -> str:
    """Return the names of the first *executors*, each with its remark, and how many more there are."""
    more = len(executors) - _MAX_NAMED
    named = [f"{executor.executor_id} {what}" for executor, what in executors[:_MAX_NAMED]]
    return ", ".join([*named, *([f"and {more} more"] if more > 0 else [])])


def progress_of_head(head: JobHead) -> pb.JobProgress:
    """Return a job's line in a listing."""
    progress = pb.JobProgress(
        job_id=head.job_id,
        name=head.name,
        state=wire.STATE[head.state],
        submitted_ms=head.submitted_ms,
        started_ms=head.started_ms or 0,
        ended_ms=head.ended_ms or 0,
        result_rows=head.result_rows,
        sink_path=without_logins(head.sink_path or ""),
        parent=script_of(head.job_id) or "",
        **_terms(head),
        stages_total=head.stages,
        stages_done=head.stages_done,
    )
    if head.broken is not None:
        progress.state = pb.FAILED
        progress.failure.CopyFrom(broken_failure(head.broken))
    elif head.error is not None:
        progress.failure.CopyFrom(pb.Failure(message=head.error))
    return progress


def _terms(terms: JobTerms) -> dict[str, Any]:
    """Return what progress says of the terms of a job."""
    return {name: getattr(terms, name) for name in ("principal", "retry_of", "session", "labels", "deadline_ms")}


def broken_failure(why: str) -> pb.Failure:
    """Return the failure to show for a job whose record cannot be read."""
    return pb.Failure(
        kind=FailureKind.USER_ERROR.value,
        message=f"the job was stopped, because its record cannot be read: {why}. Submit the query again",
        error_class="ONAGER_RECORD_DAMAGED",
    )
