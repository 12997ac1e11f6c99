"""What executors report of task attempts: success, failure, an input that is missing."""

from collections.abc import Sequence

from msgspec.structs import replace

from onager.execution_graph import rollback
from onager.execution_graph.attempts import has_another, held, returned, running_stage
from onager.execution_graph.events import TaskFailed, TaskSucceeded
from onager.execution_graph.failures import LEFT_TO_OTHERS, UNCOUNTED_PAUSE_MS, Failure, FailureCause, FailureKind
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.losses import with_losses
from onager.execution_graph.operators import OperatorReport
from onager.execution_graph.reuse import taken_in
from onager.execution_graph.settling import bound, failed, plan_kept, settled, with_stage, with_successes
from onager.execution_graph.stages import RetryPause, RunningStage, Stage, StageWork, SuccessfulStage, TaskOutput
from onager.execution_graph.streaming import abandoned, is_streaming, streamed
from onager.execution_graph.task_latencies import TaskTimes
from onager.execution_graph.task_metrics import TaskMetrics

_BY_OWN_EVENTS = (StageWork.PLAN, StageWork.REPLAN, StageWork.FEED, StageWork.STEP)
"""These succeed by events of their own."""
_MESSAGE_CHARS = 300
"""How much of a failure's message is kept for each partition that waits for its retry."""


def on_tasks_succeeded(graph: ExecutionGraph, events: Sequence[TaskSucceeded]) -> ExecutionGraph:
    """Apply consecutive successes of one attempt of one stage."""
    stage = running_stage(graph, events[0].stage_id, events[0].stage_attempt)
    if stage is None or stage.spec.work in _BY_OWN_EVENTS:
        return graph
    outputs: dict[int, TaskOutput] = {}
    metrics: dict[int, TaskMetrics] = {}
    stopped: list[TaskMetrics] = []
    operators: list[OperatorReport] = []
    durations_ms: dict[int, int] | None = None if graph.speculation is None else {}
    times: dict[int, TaskTimes] | None = {} if stage.spec.partitions > 1 or stage.spec.feed is not None else None
    at_ms = 0
    lies_nowhere = stage.spec.output.kind == "exchange" and is_streaming(graph, stage)
    for event in events:
        task = held(stage, event.partition, event.task_attempt, event.executor_id)
        if task is not None and event.partition not in outputs:
            outputs[event.partition] = bound(streamed(event.output) if lies_nowhere else event.output, task)
            metrics[event.partition] = cost = event.metrics
            if event.op_metrics and event.partition not in stage.ledger.successes:  # its rows count once
                operators.append(OperatorReport(event.bound_plan, event.op_metrics))
            at_ms = event.at_ms
            if stage.speculative and has_another(stage, event.partition):
                stopped.append(_cost_of_other(stage, event))
            if times is not None:
                rest_ms = max(0, at_ms - task.launched_ms - cost.queued_ms - cost.run_ms)
                times[event.partition] = TaskTimes(cost.queued_ms, cost.run_ms, cost.fetch_ms, rest_ms)
            if durations_ms is not None:
                durations_ms[event.partition] = max(0, at_ms - task.launched_ms)
    if not outputs:
        return graph
    stage = with_successes(stage, outputs, metrics, durations_ms, operators, times)
    if stopped:
        stage = replace(stage, ledger=stage.ledger.after_waste(*stopped))
    graph = with_stage(graph, stage)
    return settled(graph, at_ms) if len(stage.ledger.outputs) == stage.spec.partitions else graph


def _cost_of_other(stage: RunningStage, event: TaskSucceeded) -> TaskMetrics:
    """Return what is known of the attempt that *event* has made superfluous: how long ago it was launched."""
    both = (stage.running[event.partition], stage.speculative[event.partition])
    other = next(task for task in both if task.attempt != event.task_attempt)
    return TaskMetrics(run_ms=max(0, event.at_ms - other.launched_ms))


def on_task_failed(  # noqa: PLR0911 - one for each consequence
    graph: ExecutionGraph, event: TaskFailed
) -> ExecutionGraph:
    """Apply a failure: the task is retried, the stage rolled back, streaming given up, or the job fails."""
    stage = running_stage(graph, event.stage_id, event.stage_attempt)
    if stage is None or held(stage, event.partition, event.task_attempt, event.executor_id) is None:
        return _on_late_fetch_failure(graph, event)
    failure = event.failure
    if stage.spec.work is StageWork.REPLAN:
        return plan_kept(graph, f"it failed: {failure.message[:_MESSAGE_CHARS]}", event.at_ms)
    if event.metrics:
        stage = replace(stage, ledger=stage.ledger.after_waste(event.metrics))
        graph = with_stage(graph, stage)
    if is_streaming(graph, stage) and failure.kind is not FailureKind.USER_ERROR:
        where = f"task {event.partition} of stage {event.stage_id} on {event.executor_id}"
        return abandoned(graph, f"{where}: {failure.message} ({failure.shown_kind})", event.at_ms)
    if failure.kind is FailureKind.FETCH_FAILED and not rollback.is_past_return(stage):
        lost = _unreadable(graph, stage, failure)
        if lost:
            return _on_fetch_failed(graph, stage, event, lost)
    if not failure.kind.is_retryable and failure.kind is not FailureKind.FETCH_FAILED:
        ledger = replace(stage.ledger, tasks_failed=stage.ledger.tasks_failed + 1)
        return failed(graph, replace(stage, ledger=ledger), failure, event.at_ms)
    if failure.kind.is_counted or failure.kind is FailureKind.FETCH_FAILED:
        # A fetch failure that names nothing to make again would recur for ever: it counts like any I/O error.
        return _on_counted_failure(graph, stage, event)
    return with_stage(graph, _after_uncounted_failure(stage, event))


def _after_uncounted_failure(stage: RunningStage, event: TaskFailed) -> RunningStage:
    ledger, cause = stage.ledger, event.failure.cause
    waits = cause is FailureCause.NO_SPACE
    if cause in LEFT_TO_OTHERS:
        waits = event.executor_id in ledger.failed_on.get(event.partition, ())
        ledger = ledger.after_failure_there(event.partition, event.executor_id)
    stage = replace(stage, ledger=replace(ledger, tasks_lost=ledger.tasks_lost + 1))
    waits = waits and not has_another(stage, event.partition)
    stage = returned(stage, {event.partition: event.task_attempt})
    return _paused(stage, event, UNCOUNTED_PAUSE_MS) if waits else stage


def _paused(stage: RunningStage, event: TaskFailed, pause_ms: int) -> RunningStage:
    pause = RetryPause(failed_ms=event.at_ms, pause_ms=pause_ms, message=event.failure.message[:_MESSAGE_CHARS])
    return replace(stage, paused=stage.paused.set(event.partition, pause))


def _on_counted_failure(graph: ExecutionGraph, stage: RunningStage, event: TaskFailed) -> ExecutionGraph:
    ledger, failure = stage.ledger, event.failure
    if has_another(stage, event.partition):
        stage = replace(stage, ledger=replace(ledger, tasks_failed=ledger.tasks_failed + 1))
        return with_stage(graph, returned(stage, {event.partition: event.task_attempt}))
    where = None if failure.cause is FailureCause.CATALOG_CHANGED else event.executor_id
    stage = replace(stage, ledger=ledger.after_failure(event.partition, where))
    count = stage.ledger.failures[event.partition]
    if count >= graph.limits.task_max_failures:
        text = (
            f"Task {event.partition} in stage {event.stage_id} failed {count} times; "
            f"the most recent failure: {failure.message}"
        )
        return failed(graph, stage, replace(failure, message=text), event.at_ms)
    stage = returned(stage, {event.partition: event.task_attempt})
    pause_ms = graph.limits.pause_after(count)
    return with_stage(graph, _paused(stage, event, pause_ms) if pause_ms else stage)


def _on_fetch_failed(
    graph: ExecutionGraph, stage: RunningStage, event: TaskFailed, lost: rollback.Lost
) -> ExecutionGraph:
    attempts = stage.ledger.failed_fetch_attempts
    if not taken_in(graph, lost):  # each job whose output was taken can be missing, and then its output is made here
        attempts |= {stage.attempt}
    ledger = replace(stage.ledger, failed_fetch_attempts=attempts, tasks_failed=stage.ledger.tasks_failed + 1)
    stage = replace(stage, ledger=ledger)
    if len(attempts) >= graph.limits.stage_max_failures:
        text = (
            f"Stage {event.stage_id} could not fetch its input in {len(attempts)} attempts; "
            f"the most recent failure: {event.failure.message}"
        )
        return failed(graph, stage, replace(event.failure, message=text), event.at_ms)
    graph = with_stage(graph, returned(stage, {event.partition: event.task_attempt}))
    return with_losses(graph, lost, event.failure.message, event.at_ms)


def _on_late_fetch_failure(graph: ExecutionGraph, event: TaskFailed) -> ExecutionGraph:
    """Apply the only thing that can be new in a failure of an earlier stage attempt: an output that is missing.

    The stage was rolled back already, and does not count it again. The nonce tells whether the output was made again.
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
    return with_losses(graph, lost, event.failure.message, event.at_ms) if lost else graph


def _unreadable(graph: ExecutionGraph, reader: Stage, failure: Failure) -> rollback.Lost:
    """Return the outputs lost by a fetch failure of *reader*, if they are still current.

    Empty if the output was made again meanwhile or was never an input. If it died with an executor, this producer's
    other outputs there are lost, too; on shared storage, only the missing one.
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
