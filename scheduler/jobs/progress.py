"""Jobs as people are told of them: progress, details, and why nothing runs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from execution_graph import (
    Cancelled,
    ExecutionGraph,
    ExecutorSlot,
    Failed,
    FailureKind,
    JobState,
    StageWork,
    has_failed_somewhere,
    paused_tasks,
    pop_next_tasks,
    running_count,
)
from onager.clock import Clock
from onager.protocol import onager_pb2 as pb
from scheduler import wire
from scheduler.executors.executor_manager import ExecutorManager
from scheduler.jobs.job_heads import JobHead
from scheduler.jobs.job_log import StoredJob
from scheduler.tasks.fair_queue import FairQueue
from scheduler.tasks.stage_coordinator import stage_info, task_infos

_BUSY_JOBS = 3


class ProgressTeller:
    """Tells of jobs in the light of the whole cluster."""

    def __init__(self, executors: ExecutorManager, queue: FairQueue, clock: Clock) -> None:
        self._executors = executors
        self._queue = queue
        self._clock = clock

    def progress(self, graph: ExecutionGraph) -> pb.JobProgress:
        """Return how far a job is."""
        progress = pb.JobProgress(
            job_id=graph.job_id,
            name=graph.name,
            state=wire.STATE[graph.state],
            submitted_ms=graph.submitted_ms,
            started_ms=graph.started_ms or 0,
            ended_ms=graph.ended_ms or 0,
            stages=[stage_info(stage) for stage in graph.stages],
            waiting_for=self._waiting_for(graph),
            retry=self._retry(graph),
            exchange_bytes=exchange_bytes(graph),
            exchange="streaming" if graph.may_stream else "durable",
            durable_because="" if graph.pipeline is None else graph.pipeline.reason,
        )
        match graph.outcome:
            case Failed(failure=failure):
                progress.failure.CopyFrom(wire.failure_message(failure))
            case Cancelled(reason=reason):
                progress.failure.CopyFrom(pb.Failure(kind=FailureKind.TASK_KILLED.value, message=reason))
            case _:
                pass
        result = graph.result_stage
        if result is not None and graph.state is JobState.SUCCESSFUL:
            progress.result_rows = sum(o.rows for o in result.ledger.outputs.values())
        if graph.plan is not None and graph.plan.sink is not None:
            progress.sink_path = graph.plan.sink.path
        return progress

    def detail(self, job: StoredJob, spec: pb.JobSpec, explanation: bytes | None) -> pb.JobDetail:
        """Return all that is to be known of a job; code and files of *spec* are left out."""
        graph = job.graph
        progress = self.progress(graph)
        texts: Mapping[str, str] = {}
        plan = ""
        if explanation is not None:
            explained = json.loads(explanation)
            plan, texts = explained["plan"], explained["stages"]
        for info, stage in zip(progress.stages, graph.stages, strict=True):
            info.plan = texts.get(str(info.stage_id), "")
            info.tasks.extend(task_infos(stage))
        return pb.JobDetail(
            progress=progress,
            spec=without_code(spec),
            plan=plan,
            schema_json=graph.plan.schema_json if graph.plan is not None else "",
            log_seq=job.seq,
        )

    def _retry(self, graph: ExecutionGraph) -> pb.TaskRetry | None:
        paused = paused_tasks(graph, self._clock.now_ms())
        if not paused:
            return None
        first = paused[0]
        return pb.TaskRetry(
            stage_id=first.stage_id,
            partition=first.partition,
            next_try=first.failures + 1,
            max_tries=graph.limits.task_max_failures,
            message=first.message,
            not_before_ms=first.until_ms,
            tasks=len(paused),
        )

    def _waiting_for(self, graph: ExecutionGraph) -> str:
        if not graph.is_active or running_count(graph):
            return ""
        if not self._executors.total_slots:
            return why_nobody_works(self._executors.infos())
        free = self._free_slots()
        busy = [(job_id, n) for job_id, n in self._queue.busiest(_BUSY_JOBS) if job_id != graph.job_id]
        if sum(n for _, n in busy) and not free:
            others = ", ".join(f"{job_id} ({n})" for job_id, n in busy)
            return f"all slots are busy with {others}"
        return self._left_to_others(graph, free)

    def _left_to_others(self, graph: ExecutionGraph, free: Sequence[ExecutorSlot]) -> str:
        """Return why free slots are of no use to a job whose tasks have failed there."""
        if not free or not has_failed_somewhere(graph):
            return ""
        executors = self._executors.taking_work()
        if any(pop_next_tasks(graph, slot, 1, 0, executors) is not None for slot in free):
            return ""
        names = ", ".join(sorted({slot.executor_id for slot in free}))
        return f"its tasks have failed on {names}, and wait for a slot of another executor"

    def _free_slots(self) -> list[ExecutorSlot]:
        return [
            session.slot
            for session in self._executors.sessions
            if self._executors.takes_work(session) and len(session.held) < session.record.slots
        ]


def exchange_bytes(graph: ExecutionGraph) -> int:
    """Return how much of a job lies in the exchange directory, as reported: all that is named, or its result alone."""
    if graph.is_active:
        stages = [s for s in graph.stages if s.spec.output.kind != "exchange" or not graph.is_pipelined]
    elif graph.state is JobState.SUCCESSFUL and graph.result_stage is not None:
        stages = [graph.result_stage]
    else:
        return 0
    outputs = [o for stage in stages if stage.spec.work is StageWork.QUERY for o in stage.ledger.outputs.values()]
    return sum(o.bytes for o in outputs if not o.is_inline and not o.files)


def why_nobody_works(executors: Iterable[pb.ExecutorInfo]) -> str:
    """Return for people why none of *executors* takes work."""
    known = list(executors)
    aside = [e for e in known if e.state == "set_aside"]
    leaving = [e.executor_id for e in known if e.state == "draining"]
    if not aside:
        return "every executor is leaving: start another one" if leaving else "no executor is registered"
    first = min(aside, key=lambda e: e.set_aside_until_ms)
    until = datetime.fromtimestamp(first.set_aside_until_ms / 1000, UTC)
    those = ", ".join([f"{e.executor_id} is set aside" for e in aside] + [f"{name} is leaving" for name in leaving])
    return (
        f"no executor takes work: {those}; {first.executor_id} until {until:%H:%M:%S} UTC, because {first.reason}: "
        "mend it and start it again, or start another one"
    )


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
        sink_path=head.sink_path or "",
    )
    if head.broken is not None:
        progress.state = pb.FAILED
        progress.failure.CopyFrom(broken_failure(head.broken))
    elif head.error is not None:
        progress.failure.CopyFrom(pb.Failure(message=head.error))
    return progress


def broken_failure(why: str) -> pb.Failure:
    """Return what is told of a job whose record cannot be read."""
    return pb.Failure(
        kind=FailureKind.USER_ERROR.value,
        message=f"the job was stopped, because its record cannot be read: {why}. Submit the query again",
        error_class="ONAGER_RECORD_DAMAGED",
    )


def without_code(spec: pb.JobSpec) -> pb.JobSpec:
    """Return a copy of *spec* without what only executors need."""
    copy = pb.JobSpec()
    copy.CopyFrom(spec)
    if copy.HasField("python"):
        copy.python.ClearField("code")
    for py_file in copy.py_files:
        py_file.content = b""
    return copy
