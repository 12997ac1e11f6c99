"""`apply`, the only way in which an `ExecutionGraph` changes: pure, total, deterministic."""

from collections.abc import Iterable
from itertools import groupby
from typing import assert_never

from msgspec.structs import replace

from onager.execution_graph import rollback
from onager.execution_graph.attempts import held, on_launches_repeated, on_tasks_launched, on_tasks_lost, running_stage
from onager.execution_graph.events import (
    Event,
    ExecutorLost,
    FeedEnded,
    JobCancelled,
    JobFailed,
    JobPlanned,
    LaunchesRepeated,
    OutputsTaken,
    PartitionsAdded,
    ReplanBegun,
    ReplanGivenUp,
    StageLaidOut,
    StageReplanned,
    StagesStarted,
    StepEnded,
    StragglersFound,
    StreamingAbandoned,
    TaskFailed,
    TasksLaunched,
    TasksLost,
    TasksSpeculated,
    TaskSucceeded,
)
from onager.execution_graph.failures import Failure, FailureKind
from onager.execution_graph.feed_changes import on_fed
from onager.execution_graph.graph import PLAN_STAGE_ID, Cancelled, ExecutionGraph
from onager.execution_graph.layout_changes import on_stage_laid_out
from onager.execution_graph.losses import on_executor_lost
from onager.execution_graph.operators import OperatorReport
from onager.execution_graph.outcomes import on_task_failed, on_tasks_succeeded
from onager.execution_graph.plan_checks import check_plan
from onager.execution_graph.replan_changes import on_replan_begun, on_replan_given_up, on_stage_replanned
from onager.execution_graph.reuse import on_outputs_taken
from onager.execution_graph.scripts import on_job_failed, on_step_ended
from onager.execution_graph.settling import bound, failed, settled, with_successes
from onager.execution_graph.speculation import on_stragglers_found, on_tasks_speculated
from onager.execution_graph.stages import ResolvedStage, RunningStage, Stage, TaskLedger, TaskOutput, UnresolvedStage
from onager.execution_graph.streaming import on_streaming_abandoned


def apply(graph: ExecutionGraph, event: Event) -> ExecutionGraph:  # noqa: C901, PLR0911, PLR0912 - one line an event
    """Return the successor of *graph* under *event*: total, deterministic, no I/O.

    A stale or repeated event, and every event of an ended job, returns *graph* itself, because executors resend.
    """
    if not graph.is_active:
        return graph
    match event:
        case StagesStarted():
            return _on_stages_started(graph, event)
        case StageLaidOut():
            return on_stage_laid_out(graph, event)
        case TasksLaunched():
            return on_tasks_launched(graph, event)
        case StragglersFound():
            return on_stragglers_found(graph, event)
        case TasksSpeculated():
            return on_tasks_speculated(graph, event)
        case LaunchesRepeated():
            return on_launches_repeated(graph, event)
        case TaskSucceeded():
            return on_tasks_succeeded(graph, (event,))
        case JobPlanned():
            return _on_job_planned(graph, event)
        case OutputsTaken():
            return on_outputs_taken(graph, event)
        case ReplanBegun():
            return on_replan_begun(graph, event)
        case StageReplanned():
            return on_stage_replanned(graph, event)
        case ReplanGivenUp():
            return on_replan_given_up(graph, event)
        case PartitionsAdded() | FeedEnded():
            return on_fed(graph, event)
        case TaskFailed():
            return on_task_failed(graph, event)
        case TasksLost():
            return on_tasks_lost(graph, event)
        case ExecutorLost():
            return on_executor_lost(graph, event)
        case StreamingAbandoned():
            return on_streaming_abandoned(graph, event)
        case StepEnded():
            return on_step_ended(graph, event)
        case JobFailed():
            return on_job_failed(graph, event)
        case JobCancelled():
            return _on_job_cancelled(graph, event)
        case _:
            assert_never(event)


def apply_all(graph: ExecutionGraph, events: Iterable[Event]) -> ExecutionGraph:
    """Return the successor of *graph* under *events*, in order: like `apply` for each, at a fraction of the cost.

    Consecutive successes within one stage, as in a batch of reports or a log, become one change.
    """
    for successes, found in groupby(events, _successes_together):
        if successes is None:
            for event in found:
                graph = apply(graph, event)
        elif graph.is_active:
            graph = on_tasks_succeeded(graph, [e for e in found if isinstance(e, TaskSucceeded)])
    return graph


def _successes_together(event: Event) -> tuple[int, int] | None:
    return (event.stage_id, event.stage_attempt) if isinstance(event, TaskSucceeded) else None


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


def _on_job_planned(graph: ExecutionGraph, event: JobPlanned) -> ExecutionGraph:
    planning = running_stage(graph, PLAN_STAGE_ID, None)
    task = None if planning is None else held(planning, 0, event.task_attempt, event.executor_id)
    if planning is None or task is None:
        return graph
    why = check_plan(event, may_grow=graph.streaming is None)
    if why is not None:
        failure = Failure(kind=FailureKind.USER_ERROR, message=f"The plan of the job cannot be run: {why}")
        return failed(graph, planning, failure, event.at_ms)
    marker = TaskOutput(
        nonce="plan",
        task_attempt=event.task_attempt,
        executor_id=event.executor_id,
        is_shared=True,
        rows=0,
        bytes=0,
    )
    is_fused = event.fused_output is not None
    planned: list[Stage] = [with_successes(planning, {0: marker}, {} if is_fused else {0: event.metrics})]
    # After a fused plan was lost there is another plan. Its stages begin with another attempt number, so that none of
    # their tasks can be mistaken for one of the earlier plan.
    planned += [UnresolvedStage(spec=spec, attempt=planning.attempt) for spec in event.stages]
    if event.fused_output is not None:
        output = bound(event.fused_output, replace(task, attempt=0))
        operators = [OperatorReport(event.bound_plan, event.op_metrics)] if event.op_metrics else []
        ledger = TaskLedger().with_outputs({0: output}, {0: event.metrics}, operators=operators)
        planned[1] = RunningStage(
            spec=event.stages[0],
            attempt=planning.attempt,
            ledger=ledger,
            started_ms=task.launched_ms,
            next_fresh=1,
        )
    return settled(replace(graph, stages=tuple(planned), plan=event.summary), event.at_ms)


def _on_job_cancelled(graph: ExecutionGraph, event: JobCancelled) -> ExecutionGraph:
    if rollback.is_being_published(graph.stages):
        return graph  # too late: the target is being changed, and would be left half-way
    cancelled = Cancelled(ended_ms=event.at_ms, reason=event.reason, principal=event.principal)
    return replace(graph, outcome=cancelled)
