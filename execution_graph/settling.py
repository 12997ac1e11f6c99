"""What several events have in common: outputs recorded, what follows once they are complete, the end of the job."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from execution_graph.failures import Failure
from execution_graph.graph import ExecutionGraph, Failed, Succeeded
from execution_graph.maps import without
from execution_graph.stages import (
    FailedStage,
    ResolvedStage,
    RunningStage,
    RunningTask,
    Stage,
    SuccessfulStage,
    TaskMetrics,
    TaskOutput,
    UnresolvedStage,
)


def with_stage(graph: ExecutionGraph, stage: Stage) -> ExecutionGraph:
    """Return *graph* with *stage* in the place of the one with its id."""
    i = stage.spec.stage_id
    return replace(graph, stages=(*graph.stages[:i], stage, *graph.stages[i + 1 :]))


def bound(output: TaskOutput, task: RunningTask) -> TaskOutput:
    """Return *output* as the graph records it: of the attempt that was held, bound to a life unless it is durable."""
    incarnation = "" if output.is_durable else task.incarnation
    if (output.task_attempt, output.executor_id, output.incarnation) == (task.attempt, task.executor_id, incarnation):
        return output
    return replace(output, task_attempt=task.attempt, executor_id=task.executor_id, incarnation=incarnation)


def with_successes(
    stage: RunningStage,
    outputs: Mapping[int, TaskOutput],
    metrics: Iterable[TaskMetrics],
    durations_ms: Mapping[int, int] | None = None,
) -> RunningStage:
    """Return *stage* after *outputs* were written; their tasks run no longer, and nobody wants a second attempt."""
    return replace(
        stage,
        running=without(stage.running, outputs),
        speculatable=stage.speculatable and tuple(p for p in stage.speculatable if p not in outputs),
        speculative=without(stage.speculative, outputs),
        ledger=stage.ledger.with_outputs(outputs, metrics, durations_ms),
    )


def failed(graph: ExecutionGraph, stage: RunningStage, failure: Failure, at_ms: int) -> ExecutionGraph:
    """Return *graph* after *stage* failed for good."""
    ended = FailedStage(
        spec=stage.spec,
        attempt=stage.attempt,
        ledger=stage.ledger,
        started_ms=stage.started_ms,
        ended_ms=at_ms,
        failure=failure,
    )
    outcome = Failed(ended_ms=at_ms, failure=failure, stage_id=stage.spec.stage_id)
    return replace(with_stage(graph, ended), outcome=outcome)


def settled(graph: ExecutionGraph, at_ms: int) -> ExecutionGraph:
    """Return *graph* with what follows from complete outputs: stages successful, consumers resolved, the job ended."""
    stages: list[Stage] = []
    for stage in graph.stages:
        after: Stage = stage
        if isinstance(after, UnresolvedStage) and all(
            isinstance(stages[i.stage_id], SuccessfulStage) for i in after.spec.inputs
        ):
            after = ResolvedStage(spec=after.spec, attempt=after.attempt, ledger=after.ledger)
        if isinstance(after, ResolvedStage | RunningStage) and len(after.ledger.outputs) == after.spec.partitions:
            after = SuccessfulStage(
                spec=after.spec,
                attempt=after.attempt,
                ledger=replace(after.ledger, failed_fetch_attempts=frozenset()),
                started_ms=after.started_ms if isinstance(after, RunningStage) else at_ms,
                ended_ms=at_ms,
            )
        stages.append(after)
    graph = replace(graph, stages=tuple(stages))
    if graph.plan is not None and isinstance(stages[-1], SuccessfulStage):
        return replace(graph, outcome=Succeeded(ended_ms=at_ms))
    return graph
