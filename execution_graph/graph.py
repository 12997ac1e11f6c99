"""The `ExecutionGraph` of a job and `apply`, the only way in which it changes: pure, total, deterministic."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Literal, assert_never

from immutables import Map
from pydantic import Field

from execution_graph import rollback
from execution_graph.events import (
    Event,
    ExecutorLost,
    JobCancelled,
    JobPlanned,
    LaunchesRepeated,
    PlanSummary,
    StagesStarted,
    TaskFailed,
    TasksLaunched,
    TasksLost,
    TaskSucceeded,
)
from execution_graph.failures import Failure, FailureKind, RetryLimits
from execution_graph.stages import (
    FailedStage,
    OutputLayout,
    ResolvedStage,
    RunningStage,
    RunningTask,
    Stage,
    StageSpec,
    StageWork,
    SuccessfulStage,
    TaskLedger,
    TaskMetrics,
    TaskOutput,
    UnresolvedStage,
)

PLAN_STAGE_ID = 0
"""Every job begins with this stage of one task: its success brings all the others."""


class JobState(StrEnum):
    """What a person is told of a job; derived from the graph, never stored."""

    QUEUED = "queued"
    PLANNING = "planning"
    RUNNING = "running"
    PUBLISHING = "publishing"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Return whether nothing can change the job any more."""
        return self in (JobState.SUCCESSFUL, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Active:
    """The job has not ended."""

    type: Literal["active"] = "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The last stage is successful."""

    ended_ms: int
    type: Literal["succeeded"] = "succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The job will not be tried again."""

    ended_ms: int
    failure: Failure
    stage_id: int
    type: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Somebody asked for the end."""

    ended_ms: int
    reason: str
    type: Literal["cancelled"] = "cancelled"


Outcome = Annotated[Active | Succeeded | Failed | Cancelled, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionGraph:
    """A job: its stages by id, what was planned, and how it ended.

    Runnable work comes out as tasks (`execution_graph.scheduling`); where outputs lie is asked of the producers, never copied
    into consumers, so that no output can be counted twice.
    """

    job_id: str
    name: str
    client_id: str
    spec_digest: str
    submitted_ms: int
    stages: tuple[Stage, ...]
    """By id: `stages[i].spec.stage_id == i`; producers before consumers; the last one ends the job."""
    limits: RetryLimits = field(default_factory=RetryLimits)
    plan: PlanSummary | None = None
    outcome: Outcome = field(default_factory=Active)

    @property
    def state(self) -> JobState:
        """Return the state that a person is told."""
        match self.outcome:
            case Succeeded():
                return JobState.SUCCESSFUL
            case Failed():
                return JobState.FAILED
            case Cancelled():
                return JobState.CANCELLED
            case Active():
                return self._active_state()
            case _:
                assert_never(self.outcome)

    def _active_state(self) -> JobState:
        planning = self.stages[PLAN_STAGE_ID]
        if not isinstance(planning, SuccessfulStage):
            has_begun = isinstance(planning, RunningStage) and (planning.running or planning.ledger.attempts)
            return JobState.PLANNING if has_begun else JobState.QUEUED
        publishing = any(
            isinstance(s, RunningStage | SuccessfulStage) and s.spec.work is StageWork.PUBLISH_PLAN
            for s in self.stages
        )
        return JobState.PUBLISHING if publishing else JobState.RUNNING

    @property
    def is_active(self) -> bool:
        """Return whether the job has not ended."""
        return isinstance(self.outcome, Active)

    @property
    def ended_ms(self) -> int | None:
        """Return when the job ended, if it has."""
        return None if isinstance(self.outcome, Active) else self.outcome.ended_ms

    @property
    def started_ms(self) -> int | None:
        """Return when the job's planning was first set running, if it was."""
        planning = self.stages[PLAN_STAGE_ID]
        return None if isinstance(planning, UnresolvedStage | ResolvedStage) else planning.started_ms

    @property
    def result_stage(self) -> Stage | None:
        """Return the stage whose outputs are the result (or the staged files of a sink), once planned."""
        return None if self.plan is None else self.stages[self.plan.result_stage_id]


def submit(
    *, job_id: str, name: str, client_id: str, spec_digest: str, at_ms: int, limits: RetryLimits | None = None
) -> ExecutionGraph:
    """Return the graph of a job that was just accepted: one PLAN stage, resolved."""
    planning = StageSpec(
        stage_id=PLAN_STAGE_ID,
        name="plan",
        work=StageWork.PLAN,
        plan_digest=None,
        partitions=1,
        inputs=(),
        output=OutputLayout("control"),
    )
    return ExecutionGraph(
        job_id=job_id,
        name=name,
        client_id=client_id,
        spec_digest=spec_digest,
        submitted_ms=at_ms,
        stages=(ResolvedStage(spec=planning),),
        limits=limits or RetryLimits(),
    )


def apply(graph: ExecutionGraph, event: Event) -> ExecutionGraph:
    """Return the successor of *graph* under *event*: total, deterministic, no I/O.

    A stale or repeated event, and every event of an ended job, returns *graph* itself, because executors resend.
    """
    if not graph.is_active:
        return graph
    match event:
        case StagesStarted():
            return _on_stages_started(graph, event)
        case TasksLaunched():
            return _on_tasks_launched(graph, event)
        case LaunchesRepeated():
            return _on_launches_repeated(graph, event)
        case TaskSucceeded():
            return _on_task_succeeded(graph, event)
        case JobPlanned():
            return _on_job_planned(graph, event)
        case TaskFailed():
            return _on_task_failed(graph, event)
        case TasksLost():
            return _on_tasks_lost(graph, event)
        case ExecutorLost():
            return _on_executor_lost(graph, event)
        case JobCancelled():
            return replace(graph, outcome=Cancelled(ended_ms=event.at_ms, reason=event.reason))
        case _:
            assert_never(event)


def check_stages(stages: tuple[StageSpec, ...]) -> str | None:
    """Return why *stages* cannot be a plan (ids not dense from 1, an input that is not an earlier stage, …), or None."""
    if not stages:
        return "a plan needs at least one stage"
    for expected, spec in enumerate(stages, start=1):
        if spec.stage_id != expected:
            return f"stage {spec.stage_id} stands where stage {expected} was expected"
        if spec.partitions < 0:
            return f"stage {spec.stage_id} has {spec.partitions} partitions"
        for source in spec.inputs:
            if not 1 <= source.stage_id < spec.stage_id:
                return f"stage {spec.stage_id} reads stage {source.stage_id}, which is not an earlier one"
            layout = stages[source.stage_id - 1].output
            if source.read == "bucket" and layout.buckets != spec.partitions:
                return (
                    f"stage {spec.stage_id} of {spec.partitions} partitions reads stage {source.stage_id} "
                    f"of {layout.buckets} buckets by bucket"
                )
    return None


# ---------------------------------------------------------------- one function an event


def _on_stages_started(graph: ExecutionGraph, event: StagesStarted) -> ExecutionGraph:
    stages = list(graph.stages)
    has_changed = False
    for stage_id in event.stage_ids:
        stage = stages[stage_id] if 0 <= stage_id < len(stages) else None
        if isinstance(stage, ResolvedStage):
            stages[stage_id] = RunningStage(
                spec=stage.spec, attempt=stage.attempt, ledger=stage.ledger, started_ms=event.at_ms
            )
            has_changed = True
    return _settled(replace(graph, stages=tuple(stages)), event.at_ms) if has_changed else graph


def _on_tasks_launched(graph: ExecutionGraph, event: TasksLaunched) -> ExecutionGraph:
    stage = _running(graph, event.stage_id, event.stage_attempt)
    if stage is None:
        return graph
    running, returned, next_fresh = stage.running, stage.returned, stage.next_fresh
    for partition, attempt in event.tasks:
        if (
            not 0 <= partition < stage.spec.partitions
            or partition in running
            or partition in stage.ledger.outputs
            or attempt != stage.ledger.next_attempt(partition)
        ):
            continue
        if partition < next_fresh:
            returned = tuple(p for p in returned if p != partition)
        else:
            skipped = (
                p for p in range(next_fresh, partition) if p not in running and p not in stage.ledger.outputs
            )
            returned = (*returned, *skipped)
            next_fresh = partition + 1
        running = running.set(
            partition,
            RunningTask(
                attempt=attempt,
                executor_id=event.executor_id,
                incarnation=event.incarnation,
                launched_ms=event.at_ms,
                list_number=event.list_number,
            ),
        )
    if running is stage.running:
        return graph
    return _with_stage(graph, replace(stage, running=running, returned=returned, next_fresh=next_fresh))


def _on_launches_repeated(graph: ExecutionGraph, event: LaunchesRepeated) -> ExecutionGraph:
    stage = _running(graph, event.stage_id, event.stage_attempt)
    if stage is None:
        return graph
    running = stage.running
    for partition, attempt in event.tasks:
        task = _held(stage, partition, attempt, event.executor_id)
        if task is not None and task.list_number < event.list_number:
            again = replace(
                task,
                list_number=event.list_number,
                lost_launches=task.lost_launches + 1,
                launched_ms=event.at_ms,
            )
            running = running.set(partition, again)
    return graph if running is stage.running else _with_stage(graph, replace(stage, running=running))


def _on_task_succeeded(graph: ExecutionGraph, event: TaskSucceeded) -> ExecutionGraph:
    stage = _running(graph, event.stage_id, event.stage_attempt)
    if stage is None or _held(stage, event.partition, event.task_attempt, event.executor_id) is None:
        return graph
    if stage.spec.work is StageWork.PLAN:
        return graph  # planning succeeds by JobPlanned alone
    return _settled(
        _with_stage(graph, _with_success(stage, event.partition, event.output, event.metrics)), event.at_ms
    )


def _on_job_planned(graph: ExecutionGraph, event: JobPlanned) -> ExecutionGraph:
    planning = _running(graph, PLAN_STAGE_ID, None)
    if planning is None or _held(planning, 0, event.task_attempt, event.executor_id) is None:
        return graph
    if check_stages(event.stages) is not None:
        return graph
    marker = TaskOutput(
        nonce="plan",
        task_attempt=event.task_attempt,
        executor_id=event.executor_id,
        is_shared=True,
        rows=0,
        bytes=0,
    )
    planned: list[Stage] = [_with_success(planning, 0, marker, TaskMetrics())]
    planned += [UnresolvedStage(spec=spec) for spec in event.stages]
    if event.fused_output is not None:
        spec = event.stages[0]
        ledger = TaskLedger().with_output(0, event.fused_output, event.metrics)
        planned[1] = RunningStage(
            spec=spec, attempt=0, ledger=ledger, started_ms=planning.running[0].launched_ms, next_fresh=1
        )
    return _settled(replace(graph, stages=tuple(planned), plan=event.summary), event.at_ms)


def _on_task_failed(graph: ExecutionGraph, event: TaskFailed) -> ExecutionGraph:
    stage = _running(graph, event.stage_id, event.stage_attempt)
    if stage is None or _held(stage, event.partition, event.task_attempt, event.executor_id) is None:
        return graph
    failure = event.failure
    if failure.kind is FailureKind.FETCH_FAILED:
        return _on_fetch_failed(graph, stage, event)
    ledger = stage.ledger
    if not failure.kind.is_retryable:
        ledger = replace(ledger, tasks_failed=ledger.tasks_failed + 1)
        return _failed(graph, replace(stage, ledger=ledger), failure, event.at_ms)
    if not failure.kind.is_counted:
        ledger = replace(ledger, tasks_lost=ledger.tasks_lost + 1)
        return _with_stage(graph, _returned(replace(stage, ledger=ledger), event.partition))
    count = ledger.failures.get(event.partition, 0) + 1
    ledger = replace(
        ledger, failures=ledger.failures.set(event.partition, count), tasks_failed=ledger.tasks_failed + 1
    )
    stage = replace(stage, ledger=ledger)
    if count >= graph.limits.task_max_failures:
        text = (
            f"Task {event.partition} in stage {event.stage_id} failed {count} times; "
            f"the most recent failure: {failure.message}"
        )
        return _failed(graph, stage, replace(failure, message=text), event.at_ms)
    return _with_stage(graph, _returned(stage, event.partition))


def _on_fetch_failed(graph: ExecutionGraph, stage: RunningStage, event: TaskFailed) -> ExecutionGraph:
    attempts = stage.ledger.failed_fetch_attempts | {stage.attempt}
    ledger = replace(stage.ledger, failed_fetch_attempts=attempts, tasks_failed=stage.ledger.tasks_failed + 1)
    stage = _returned(replace(stage, ledger=ledger), event.partition)
    graph = _with_stage(graph, stage)
    if len(attempts) >= graph.limits.stage_max_failures:
        text = (
            f"Stage {event.stage_id} could not fetch its input in {len(attempts)} attempts; "
            f"the most recent failure: {event.failure.message}"
        )
        return _failed(graph, stage, replace(event.failure, message=text), event.at_ms)
    fetch = event.failure.fetch
    if fetch is None or fetch.stage_id not in {i.stage_id for i in stage.spec.inputs}:
        return graph
    producer = graph.stages[fetch.stage_id]
    found = producer.ledger.outputs.get(fetch.partition)
    if found is None or found.nonce != fetch.nonce:
        return graph  # made again meanwhile: reading it again is all there is to do
    gone = {fetch.partition}
    if not found.is_shared:  # what else lay on that executor is gone, too
        gone |= {
            p
            for p, o in producer.ledger.outputs.items()
            if not o.is_shared and o.executor_id == found.executor_id
        }
    stages = rollback.lose_outputs(graph.stages, {fetch.stage_id: frozenset(gone)}, event.at_ms)
    return _settled(replace(graph, stages=stages), event.at_ms)


def _on_tasks_lost(graph: ExecutionGraph, event: TasksLost) -> ExecutionGraph:
    stage = _running(graph, event.stage_id, event.stage_attempt)
    if stage is None:
        return graph
    lost = [p for p, attempt in event.tasks if _held(stage, p, attempt, event.executor_id) is not None]
    if not lost:
        return graph
    for partition in lost:
        stage = _returned(stage, partition)
    ledger = replace(stage.ledger, tasks_lost=stage.ledger.tasks_lost + len(lost))
    return _with_stage(graph, replace(stage, ledger=ledger))


def _on_executor_lost(graph: ExecutionGraph, event: ExecutorLost) -> ExecutionGraph:
    stages: list[Stage] = []
    for stage in graph.stages:
        if not isinstance(stage, RunningStage):
            stages.append(stage)
            continue
        lost = sorted(
            p
            for p, t in stage.running.items()
            if t.executor_id == event.executor_id and t.incarnation == event.incarnation
        )
        survivor = stage
        for partition in lost:
            survivor = _returned(survivor, partition)
        if lost:
            survivor = replace(
                survivor, ledger=_with_losses(survivor.ledger, lost, is_counted=not event.is_drained)
            )
            worst = max(lost, key=lambda p: survivor.ledger.executor_losses.get(p, 0))
            count = survivor.ledger.executor_losses.get(worst, 0)
            if count >= graph.limits.task_max_executor_losses:
                failure = Failure(
                    kind=FailureKind.EXECUTOR_LOST,
                    message=(
                        f"Task {worst} in stage {stage.spec.stage_id} was running on {count} executors when they were "
                        f"lost, and is taken for the cause; the most recent loss: {event.reason}"
                    ),
                )
                return _failed(graph, survivor, failure, event.at_ms)
        stages.append(survivor)
    gone = rollback.outputs_lost_with(tuple(stages), event.executor_id)
    after = rollback.lose_outputs(tuple(stages), gone, event.at_ms) if gone else tuple(stages)
    if all(a is b for a, b in zip(after, graph.stages, strict=True)):
        return graph
    return _settled(replace(graph, stages=after), event.at_ms)


# ---------------------------------------------------------------- shared steps


def _running(graph: ExecutionGraph, stage_id: int, attempt: int | None) -> RunningStage | None:
    """Return stage *stage_id* if it is running in *attempt* (None: in any)."""
    if not 0 <= stage_id < len(graph.stages):
        return None
    stage = graph.stages[stage_id]
    if not isinstance(stage, RunningStage) or attempt not in (None, stage.attempt):
        return None
    return stage


def _held(stage: RunningStage, partition: int, attempt: int, executor_id: str) -> RunningTask | None:
    """Return the running task if this very attempt is in this executor's hands."""
    task = stage.running.get(partition)
    if task is None or task.attempt != attempt or task.executor_id != executor_id:
        return None
    return task


def _with_stage(graph: ExecutionGraph, stage: Stage) -> ExecutionGraph:
    i = stage.spec.stage_id
    return replace(graph, stages=(*graph.stages[:i], stage, *graph.stages[i + 1 :]))


def _with_success(
    stage: RunningStage, partition: int, output: TaskOutput, metrics: TaskMetrics
) -> RunningStage:
    return replace(
        stage,
        running=stage.running.delete(partition),
        ledger=stage.ledger.with_output(partition, output, metrics),
    )


def _returned(stage: RunningStage, partition: int) -> RunningStage:
    """Return the stage with a running *partition* pending again; its attempt number is used up."""
    task = stage.running[partition]
    return replace(
        stage,
        running=stage.running.delete(partition),
        returned=tuple(sorted((*stage.returned, partition))),
        ledger=stage.ledger.after_attempt(partition, task.attempt),
    )


def _with_losses(ledger: TaskLedger, partitions: list[int], *, is_counted: bool) -> TaskLedger:
    losses: Map[int, int] = ledger.executor_losses
    if is_counted:
        for partition in partitions:
            losses = losses.set(partition, losses.get(partition, 0) + 1)
    return replace(ledger, executor_losses=losses, tasks_lost=ledger.tasks_lost + len(partitions))


def _failed(graph: ExecutionGraph, stage: RunningStage, failure: Failure, at_ms: int) -> ExecutionGraph:
    ended = FailedStage(
        spec=stage.spec,
        attempt=stage.attempt,
        ledger=stage.ledger,
        started_ms=stage.started_ms,
        ended_ms=at_ms,
        failure=failure,
    )
    outcome = Failed(ended_ms=at_ms, failure=failure, stage_id=stage.spec.stage_id)
    return replace(_with_stage(graph, ended), outcome=outcome)


def _settled(graph: ExecutionGraph, at_ms: int) -> ExecutionGraph:
    """Return *graph* with everything that follows from complete outputs: stages successful, consumers resolved, the job ended."""
    stages: list[Stage] = []
    for stage in graph.stages:
        settled: Stage = stage
        if isinstance(settled, UnresolvedStage) and all(
            isinstance(stages[i.stage_id], SuccessfulStage) for i in settled.spec.inputs
        ):
            settled = ResolvedStage(spec=settled.spec, attempt=settled.attempt, ledger=settled.ledger)
        if isinstance(settled, RunningStage) and len(settled.ledger.outputs) == settled.spec.partitions:
            settled = SuccessfulStage(
                spec=settled.spec,
                attempt=settled.attempt,
                ledger=replace(settled.ledger, failed_fetch_attempts=frozenset()),
                started_ms=settled.started_ms,
                ended_ms=at_ms,
            )
        stages.append(settled)
    graph = replace(graph, stages=tuple(stages))
    if graph.plan is not None and isinstance(stages[-1], SuccessfulStage):
        return replace(graph, outcome=Succeeded(ended_ms=at_ms))
    return graph
