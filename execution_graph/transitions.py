"""`apply`, the only way in which an `ExecutionGraph` changes: pure, total, deterministic."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import assert_never

from execution_graph import rollback
from execution_graph.events import (
    Event,
    ExecutorLost,
    JobCancelled,
    JobPlanned,
    LaunchesRepeated,
    StagesStarted,
    TaskFailed,
    TasksLaunched,
    TasksLost,
    TaskSucceeded,
)
from execution_graph.failures import Failure, FailureKind
from execution_graph.graph import PLAN_STAGE_ID, Cancelled, ExecutionGraph, Failed, Succeeded
from execution_graph.maps import without
from execution_graph.planning import check_plan
from execution_graph.stages import (
    ExecutorLife,
    FailedStage,
    ResolvedStage,
    RunningStage,
    RunningTask,
    Stage,
    StageWork,
    SuccessfulStage,
    TaskLedger,
    TaskMetrics,
    TaskOutput,
    UnresolvedStage,
)


def apply(graph: ExecutionGraph, event: Event) -> ExecutionGraph:  # noqa: C901, PLR0911 - one line an event
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
            return _on_tasks_succeeded(graph, (event,))
        case JobPlanned():
            return _on_job_planned(graph, event)
        case TaskFailed():
            return _on_task_failed(graph, event)
        case TasksLost():
            return _on_tasks_lost(graph, event)
        case ExecutorLost():
            return _on_executor_lost(graph, event)
        case JobCancelled():
            return _on_job_cancelled(graph, event)
        case _:
            assert_never(event)


def apply_all(graph: ExecutionGraph, events: Iterable[Event]) -> ExecutionGraph:
    """Return the successor of *graph* under *events*, one after the other: `apply` for many, at a fraction of the cost.

    Successes that follow each other within one stage, as they do in a batch of reports or a log, become one change.
    """
    for successes, found in groupby(events, _successes_together):
        if successes is None:
            for event in found:
                graph = apply(graph, event)
        elif graph.is_active:
            graph = _on_tasks_succeeded(graph, [e for e in found if isinstance(e, TaskSucceeded)])
    return graph


def _successes_together(event: Event) -> tuple[int, int] | None:
    return (event.stage_id, event.stage_attempt) if isinstance(event, TaskSucceeded) else None


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
    return replace(graph, stages=tuple(stages)) if has_changed else graph


def _on_tasks_launched(graph: ExecutionGraph, event: TasksLaunched) -> ExecutionGraph:
    stage = _running(graph, event.stage_id, event.stage_attempt)
    if stage is None:
        return graph
    next_fresh = stage.next_fresh
    launched: dict[int, RunningTask] = {}
    skipped: list[int] = []
    for partition, attempt in event.tasks:
        if (
            not 0 <= partition < stage.spec.partitions
            or partition in launched
            or partition in stage.running
            or partition in stage.ledger.outputs
            or attempt != stage.ledger.next_attempt(partition)
        ):
            continue
        if partition >= next_fresh:
            skipped += [p for p in range(next_fresh, partition) if p not in stage.ledger.outputs]
            next_fresh = partition + 1
        launched[partition] = RunningTask(
            attempt=attempt,
            executor_id=event.executor_id,
            incarnation=event.incarnation,
            launched_ms=event.at_ms,
            list_number=event.list_number,
        )
    if not launched:
        return graph
    running = stage.running.update(launched)
    returned = tuple(p for p in (*stage.returned, *skipped) if p not in launched)
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


def _on_tasks_succeeded(graph: ExecutionGraph, events: Sequence[TaskSucceeded]) -> ExecutionGraph:
    """Apply successes that are all of one attempt of one stage, and come one after the other."""
    stage = _running(graph, events[0].stage_id, events[0].stage_attempt)
    if stage is None or stage.spec.work is StageWork.PLAN:  # planning succeeds by JobPlanned alone
        return graph
    outputs: dict[int, TaskOutput] = {}
    metrics: list[TaskMetrics] = []
    at_ms = 0
    for event in events:
        task = _held(stage, event.partition, event.task_attempt, event.executor_id)
        if task is not None and event.partition not in outputs:
            outputs[event.partition] = _bound(event.output, task)
            metrics.append(event.metrics)
            at_ms = event.at_ms
    if not outputs:
        return graph
    stage = _with_successes(stage, outputs, metrics)
    graph = _with_stage(graph, stage)
    return _settled(graph, at_ms) if len(stage.ledger.outputs) == stage.spec.partitions else graph


def _on_job_planned(graph: ExecutionGraph, event: JobPlanned) -> ExecutionGraph:
    planning = _running(graph, PLAN_STAGE_ID, None)
    task = None if planning is None else _held(planning, 0, event.task_attempt, event.executor_id)
    if planning is None or task is None:
        return graph
    why = check_plan(event)
    if why is not None:
        failure = Failure(kind=FailureKind.USER_ERROR, message=f"The plan of the job cannot be run: {why}")
        return _failed(graph, planning, failure, event.at_ms)
    marker = TaskOutput(
        nonce="plan",
        task_attempt=event.task_attempt,
        executor_id=event.executor_id,
        is_shared=True,
        rows=0,
        bytes=0,
    )
    is_fused = event.fused_output is not None
    planned: list[Stage] = [_with_successes(planning, {0: marker}, () if is_fused else (event.metrics,))]
    # After a fused plan was lost there is a next plan: its stages go on from another attempt number, so that no task of
    # theirs can be mistaken for one of the earlier plan.
    planned += [UnresolvedStage(spec=spec, attempt=planning.attempt) for spec in event.stages]
    if event.fused_output is not None:
        ledger = TaskLedger().with_outputs({0: _bound(event.fused_output, replace(task, attempt=0))}, (event.metrics,))
        planned[1] = RunningStage(
            spec=event.stages[0],
            attempt=planning.attempt,
            ledger=ledger,
            started_ms=task.launched_ms,
            next_fresh=1,
        )
    return _settled(replace(graph, stages=tuple(planned), plan=event.summary), event.at_ms)


def _on_task_failed(graph: ExecutionGraph, event: TaskFailed) -> ExecutionGraph:
    stage = _running(graph, event.stage_id, event.stage_attempt)
    if stage is None or _held(stage, event.partition, event.task_attempt, event.executor_id) is None:
        return _on_late_fetch_failure(graph, event)
    failure = event.failure
    if failure.kind is FailureKind.FETCH_FAILED and not rollback.is_past_return(stage):
        lost = _unreadable(graph, stage, failure)
        if lost:
            return _on_fetch_failed(graph, stage, event, lost)
    if not failure.kind.is_retryable and failure.kind is not FailureKind.FETCH_FAILED:
        ledger = replace(stage.ledger, tasks_failed=stage.ledger.tasks_failed + 1)
        return _failed(graph, replace(stage, ledger=ledger), failure, event.at_ms)
    if failure.kind.is_counted or failure.kind is FailureKind.FETCH_FAILED:
        # A fetch failure that names nothing which could be made again would come back for ever: it counts like any I/O.
        return _on_counted_failure(graph, stage, event)
    ledger = replace(stage.ledger, tasks_lost=stage.ledger.tasks_lost + 1)
    return _with_stage(graph, _returned(replace(stage, ledger=ledger), (event.partition,)))


def _on_counted_failure(graph: ExecutionGraph, stage: RunningStage, event: TaskFailed) -> ExecutionGraph:
    ledger, failure = stage.ledger, event.failure
    count = ledger.failures.get(event.partition, 0) + 1
    failures = ledger.failures.set(event.partition, count)
    stage = replace(stage, ledger=replace(ledger, failures=failures, tasks_failed=ledger.tasks_failed + 1))
    if count >= graph.limits.task_max_failures:
        text = (
            f"Task {event.partition} in stage {event.stage_id} failed {count} times; "
            f"the most recent failure: {failure.message}"
        )
        return _failed(graph, stage, replace(failure, message=text), event.at_ms)
    return _with_stage(graph, _returned(stage, (event.partition,)))


def _on_fetch_failed(
    graph: ExecutionGraph, stage: RunningStage, event: TaskFailed, lost: rollback.Lost
) -> ExecutionGraph:
    attempts = stage.ledger.failed_fetch_attempts | {stage.attempt}
    ledger = replace(stage.ledger, failed_fetch_attempts=attempts, tasks_failed=stage.ledger.tasks_failed + 1)
    stage = replace(stage, ledger=ledger)
    if len(attempts) >= graph.limits.stage_max_failures:
        text = (
            f"Stage {event.stage_id} could not fetch its input in {len(attempts)} attempts; "
            f"the most recent failure: {event.failure.message}"
        )
        return _failed(graph, stage, replace(event.failure, message=text), event.at_ms)
    return _with_losses(_with_stage(graph, _returned(stage, (event.partition,))), lost, event.at_ms)


def _on_late_fetch_failure(graph: ExecutionGraph, event: TaskFailed) -> ExecutionGraph:
    """Take from a task of an earlier stage attempt the one thing that can still be news: an output that is missing.

    The stage was rolled back already, and does not count it again. The nonce tells whether the output was made anew.
    """
    stage = graph.stages[event.stage_id] if 0 <= event.stage_id < len(graph.stages) else None
    if (
        event.failure.kind is not FailureKind.FETCH_FAILED
        or stage is None
        or isinstance(stage, SuccessfulStage)
        or rollback.is_past_return(stage)
        or event.stage_attempt >= stage.attempt
        or event.task_attempt >= stage.ledger.next_attempt(event.partition)
    ):
        return graph
    lost = _unreadable(graph, stage, event.failure)
    return _with_losses(graph, lost, event.at_ms) if lost else graph


def _on_tasks_lost(graph: ExecutionGraph, event: TasksLost) -> ExecutionGraph:
    stage = _running(graph, event.stage_id, event.stage_attempt)
    if stage is None:
        return graph
    lost = {p for p, attempt in event.tasks if _held(stage, p, attempt, event.executor_id) is not None}
    if not lost:
        return graph
    ledger = replace(stage.ledger, tasks_lost=stage.ledger.tasks_lost + len(lost))
    return _with_stage(graph, _returned(replace(stage, ledger=ledger), lost))


def _on_executor_lost(graph: ExecutionGraph, event: ExecutorLost) -> ExecutionGraph:
    life = ExecutorLife(event.executor_id, event.incarnation)
    after = graph
    for stage in graph.stages:
        lost = _in_hands_of(life, stage) if isinstance(stage, RunningStage) else []
        if not isinstance(stage, RunningStage) or not lost:
            continue
        survivor = replace(stage, ledger=stage.ledger.after_executor_loss(lost, is_counted=not event.is_drained))
        failure = _killer(graph, survivor, lost, event)
        if failure is not None:
            return _failed(graph, survivor, failure, event.at_ms)
        after = _with_stage(after, _returned(survivor, lost))
    dead = {*graph.lost_lives, life}
    gone = rollback.all_lost(after.stages, {}, dead)
    if gone:
        after = _with_losses(after, gone, event.at_ms)
    lost_lives = tuple(sorted(dead & rollback.lives_with_outputs(after.stages)))
    return after if lost_lives == after.lost_lives else replace(after, lost_lives=lost_lives)


def _on_job_cancelled(graph: ExecutionGraph, event: JobCancelled) -> ExecutionGraph:
    for stage in graph.stages:
        if (
            isinstance(stage, RunningStage)
            and rollback.is_past_return(stage)
            and (stage.running or stage.ledger.attempts)
        ):
            return graph  # too late: the target is being changed, and would be left half-way
    return replace(graph, outcome=Cancelled(ended_ms=event.at_ms, reason=event.reason))


# ---------------------------------------------------------------- what an event speaks of


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


def _in_hands_of(life: ExecutorLife, stage: RunningStage) -> list[int]:
    return sorted(p for p, t in stage.running.items() if (t.executor_id, t.incarnation) == life)


def _unreadable(graph: ExecutionGraph, reader: Stage, failure: Failure) -> rollback.Lost:
    """Return what a fetch failure of *reader* says to be lost, if it still is what there is to read.

    Nothing, where the output was made again meanwhile or was never an input. Where it died with an executor, what else
    this producer had there is gone, too; from shared storage only what was found missing.
    """
    fetch = failure.fetch
    if fetch is None or all(fetch.stage_id != i.stage_id for i in reader.spec.inputs):
        return {}
    producer = graph.stages[fetch.stage_id]
    found = producer.ledger.outputs.get(fetch.partition)
    if found is None or found.nonce != fetch.nonce:
        return {}
    gone = frozenset({fetch.partition})
    return {fetch.stage_id: gone if found.is_durable else gone | rollback.outputs_of(producer, (found.life,))}


def _killer(graph: ExecutionGraph, stage: RunningStage, lost: list[int], event: ExecutorLost) -> Failure | None:
    """Return why the job ends when a task of *lost* was running on too many executors that died."""
    losses = stage.ledger.executor_losses
    worst = max(lost, key=lambda p: losses.get(p, 0))
    count = losses.get(worst, 0)
    if count < graph.limits.task_max_executor_losses:
        return None
    return Failure(
        kind=FailureKind.EXECUTOR_LOST,
        message=(
            f"Task {worst} in stage {stage.spec.stage_id} was running on {count} executors when they were lost, and is "
            f"taken for the cause; the most recent loss: {event.reason}"
        ),
    )


# ---------------------------------------------------------------- what follows


def _with_stage(graph: ExecutionGraph, stage: Stage) -> ExecutionGraph:
    i = stage.spec.stage_id
    return replace(graph, stages=(*graph.stages[:i], stage, *graph.stages[i + 1 :]))


def _bound(output: TaskOutput, task: RunningTask) -> TaskOutput:
    """Return *output* as the graph records it: of the attempt that was held, bound to a life unless it is durable."""
    incarnation = "" if output.is_durable else task.incarnation
    if (output.task_attempt, output.executor_id, output.incarnation) == (task.attempt, task.executor_id, incarnation):
        return output
    return replace(output, task_attempt=task.attempt, executor_id=task.executor_id, incarnation=incarnation)


def _with_successes(
    stage: RunningStage, outputs: Mapping[int, TaskOutput], metrics: Iterable[TaskMetrics]
) -> RunningStage:
    return replace(stage, running=without(stage.running, outputs), ledger=stage.ledger.with_outputs(outputs, metrics))


def _returned(stage: RunningStage, partitions: Iterable[int]) -> RunningStage:
    """Return the stage with the running *partitions* pending again; their attempt numbers are used up."""
    back = sorted(partitions)
    return replace(
        stage,
        running=without(stage.running, back),
        returned=tuple(sorted((*stage.returned, *back))),
        ledger=stage.ledger.after_attempts({p: stage.running[p].attempt for p in back}),
    )


def _with_losses(graph: ExecutionGraph, lost: rollback.Lost, at_ms: int) -> ExecutionGraph:
    """Return *graph* after the outputs in *lost*, and all that goes with them, are gone."""
    gone = rollback.all_lost(graph.stages, lost, graph.lost_lives)
    if any(_was_fused(graph.stages[stage_id]) for stage_id in gone):
        return _planned_again(graph)
    stages = rollback.lose_outputs(graph.stages, gone, at_ms)
    bound = rollback.lives_with_outputs(stages) if graph.lost_lives else set()
    lost_lives = tuple(life for life in graph.lost_lives if life in bound)
    return _settled(replace(graph, stages=stages, lost_lives=lost_lives), at_ms)


def _was_fused(stage: Stage) -> bool:
    """Return whether only the planning task can run *stage*."""
    return stage.spec.work is StageWork.QUERY and stage.spec.plan_digest is None


def _planned_again(graph: ExecutionGraph) -> ExecutionGraph:
    """Return *graph* before its plan: what planning had already run was lost, and nothing of it was published."""
    planning = graph.stages[PLAN_STAGE_ID]
    again = ResolvedStage(
        spec=planning.spec,
        attempt=planning.attempt + 1,
        ledger=planning.ledger.without_outputs(frozenset(planning.ledger.outputs.keys())),
    )
    return replace(graph, stages=(again,), plan=None, lost_lives=())


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
    """Return *graph* with what follows from complete outputs: stages successful, consumers resolved, the job ended."""
    stages: list[Stage] = []
    for stage in graph.stages:
        settled: Stage = stage
        if isinstance(settled, UnresolvedStage) and all(
            isinstance(stages[i.stage_id], SuccessfulStage) for i in settled.spec.inputs
        ):
            settled = ResolvedStage(spec=settled.spec, attempt=settled.attempt, ledger=settled.ledger)
        if isinstance(settled, ResolvedStage | RunningStage) and len(settled.ledger.outputs) == settled.spec.partitions:
            settled = SuccessfulStage(
                spec=settled.spec,
                attempt=settled.attempt,
                ledger=replace(settled.ledger, failed_fetch_attempts=frozenset()),
                started_ms=settled.started_ms if isinstance(settled, RunningStage) else at_ms,
                ended_ms=at_ms,
            )
        stages.append(settled)
    graph = replace(graph, stages=tuple(stages))
    if graph.plan is not None and isinstance(stages[-1], SuccessfulStage):
        return replace(graph, outcome=Succeeded(ended_ms=at_ms))
    return graph
