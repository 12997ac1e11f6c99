"""What several events share: recording outputs, the consequences of complete outputs, the end of the job."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from onager.execution_graph.failures import Failure
from onager.execution_graph.graph import ExecutionGraph, Failed, Replan, Succeeded
from onager.execution_graph.operators import OperatorReport
from onager.execution_graph.record import without
from onager.execution_graph.stages import (
    FailedStage,
    ResolvedStage,
    RunningStage,
    RunningTask,
    Stage,
    StageSpec,
    StageWork,
    SuccessfulStage,
    SupersededStage,
    TaskLedger,
    TaskOutput,
    UnresolvedStage,
)
from onager.execution_graph.task_latencies import TaskTimes
from onager.execution_graph.task_metrics import TaskMetrics


def with_stage(graph: ExecutionGraph, stage: Stage) -> ExecutionGraph:
    """Return *graph* with *stage* in place of the one with its id."""
    i = stage.spec.stage_id
    return replace(graph, stages=(*graph.stages[:i], stage, *graph.stages[i + 1 :]))


def bound(output: TaskOutput, task: RunningTask) -> TaskOutput:
    """Return *output* as the graph records it: of the attempt that was held, bound to a life unless durable."""
    incarnation = "" if output.is_durable else task.incarnation
    if (output.task_attempt, output.executor_id, output.incarnation) == (task.attempt, task.executor_id, incarnation):
        return output
    return replace(output, task_attempt=task.attempt, executor_id=task.executor_id, incarnation=incarnation)


def with_successes(
    stage: RunningStage,
    outputs: Mapping[int, TaskOutput],
    metrics: Mapping[int, TaskMetrics],
    durations_ms: Mapping[int, int] | None = None,
    operators: Sequence[OperatorReport] = (),
    times: Mapping[int, TaskTimes] | None = None,
) -> RunningStage:
    """Return *stage* after *outputs* were written; their tasks no longer run, and need no second attempt."""
    return replace(
        stage,
        running=without(stage.running, outputs),
        speculatable=stage.speculatable and tuple(p for p in stage.speculatable if p not in outputs),
        speculative=without(stage.speculative, outputs),
        ledger=stage.ledger.with_outputs(outputs, metrics, durations_ms, operators, times),
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
    if graph.replan is not None and graph.replan.replan_id == stage.spec.stage_id:
        # Its new plan would have ended the job, and what the job changes in the catalog was refused.
        graph = with_replan(graph, replace(graph.replan, ended_ms=at_ms, decisions=("the job failed",)))
    outcome = Failed(ended_ms=at_ms, failure=failure, stage_id=stage.spec.stage_id)
    return replace(with_stage(graph, ended), outcome=outcome)


def superseded(stage: Stage, at_ms: int) -> SupersededStage:
    """Return *stage* after nobody wants it any more; what it has done was in vain."""
    ledger = stage.ledger
    return SupersededStage(
        spec=replace(stage.spec, partitions=0, inputs=(), feed=None),
        attempt=stage.attempt,
        ended_ms=at_ms,
        ledger=TaskLedger(
            tasks_failed=ledger.tasks_failed,
            tasks_lost=ledger.tasks_lost,
            wasted=ledger.wasted.merge(ledger.metrics),
        ),
    )


def plan_kept(graph: ExecutionGraph, why: str, at_ms: int) -> ExecutionGraph:
    """Return *graph* after the re-plan that is under way came to nothing."""
    replan = graph.replan
    assert replan is not None
    graph = with_stage(graph, superseded(graph.stages[replan.replan_id], at_ms))
    return with_replan(graph, replace(replan, ended_ms=at_ms, decisions=(why,)))


def with_replan(graph: ExecutionGraph, replan: Replan) -> ExecutionGraph:
    """Return *graph* with *replan* in place of the last one."""
    return replace(graph, replans=(*graph.replans[:-1], replan))


def is_complete(stage: Stage) -> bool:
    """Return whether every partition of *stage* has an output, and no more of them can come."""
    return len(stage.ledger.outputs) == stage.spec.partitions and not stage.spec.is_growing


def has_inputs(spec: StageSpec, stages: Sequence[Stage], *, is_streaming: bool) -> bool:
    """Return whether a stage can run: its producers, all in *stages*, are successful.

    In a streaming job a query's stage can also read producers whose tasks are all assigned to executors or done.
    """
    may_read_early = is_streaming and spec.work is StageWork.QUERY
    return all(_can_be_read(stages[i.stage_id], may_read_early=may_read_early) for i in spec.inputs)


def _can_be_read(producer: Stage, *, may_read_early: bool) -> bool:
    if isinstance(producer, RunningStage):
        return may_read_early and not producer.pending_count and not producer.spec.is_growing
    return isinstance(producer, SuccessfulStage)


def settled(graph: ExecutionGraph, at_ms: int) -> ExecutionGraph:
    """Return *graph* with what follows from complete outputs: stages successful, consumers resolved, the job ended.

    In a streaming job also with what follows from launched tasks, and from readers that need no more.
    """
    is_streaming = graph.is_streaming
    stages: list[Stage] = []
    for stage in graph.stages:
        after: Stage = stage
        if isinstance(after, UnresolvedStage) and has_inputs(after.spec, stages, is_streaming=is_streaming):
            after = ResolvedStage(spec=after.spec, attempt=after.attempt, ledger=after.ledger)
        if isinstance(after, ResolvedStage | RunningStage) and is_complete(after):
            after = SuccessfulStage(
                spec=after.spec,
                attempt=after.attempt,
                ledger=replace(
                    after.ledger,
                    failed_fetch_attempts=frozenset(),
                    latencies=after.ledger.latencies.with_times((), are_last=True),
                ),
                started_ms=after.started_ms if isinstance(after, RunningStage) else at_ms,
                ended_ms=at_ms,
            )
        stages.append(after)
    if is_streaming:
        _end_what_nobody_reads(stages, at_ms)
    graph = replace(graph, stages=tuple(stages))
    if graph.is_done:
        return replace(graph, outcome=Succeeded(ended_ms=at_ms))
    return graph


def _end_what_nobody_reads(stages: list[Stage], at_ms: int) -> None:
    """End those of *stages*, of a streaming job, whose readers are all done; their running tasks were in vain."""
    is_read, needed = set[int](), set[int]()
    for stage in reversed(stages):  # readers come last, so one pass reaches everything upstream
        stage_id = stage.spec.stage_id
        after = stage
        if isinstance(stage, RunningStage) and stage_id in is_read and stage_id not in needed:
            ledger = stage.ledger.after_attempts({p: t.attempt for p, t in stage.running.items()})
            after = stages[stage_id] = SuccessfulStage(
                spec=stage.spec, attempt=stage.attempt, ledger=ledger, started_ms=stage.started_ms, ended_ms=at_ms
            )
        inputs = {i.stage_id for i in stage.spec.inputs}
        is_read |= inputs
        if not isinstance(after, SuccessfulStage):
            needed |= inputs
