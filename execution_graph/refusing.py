"""What becomes of a job whose end cannot be committed, because of what it would change outside of the graph."""

from collections.abc import Sequence

from onager.execution_graph.events import (
    Event,
    FeedEnded,
    JobFailed,
    JobPlanned,
    TaskFailed,
    TaskSucceeded,
)
from onager.execution_graph.failures import Failure, FailureCause, FailureKind
from onager.execution_graph.graph import PLAN_STAGE_ID, ExecutionGraph
from onager.execution_graph.transitions import apply


def refusal(graph: ExecutionGraph, events: Sequence[Event], why: str, at_ms: int, *, is_conflict: bool) -> Event:
    """Return the event in place of *events*, which end the job with success: its changes of the catalog are refused.

    The task whose success was the end fails. If that was planning, a conflict has it planned anew; otherwise the job
    fails. Without such a task, as where a launch is the end because nobody reads what the last stages write, the job
    fails by itself.
    """
    ending = _ending(graph, events)
    failure = Failure(kind=FailureKind.USER_ERROR, message=f"{why}: submit it again" if is_conflict else why)
    if isinstance(ending, JobPlanned):
        if is_conflict:
            failure = Failure(kind=FailureKind.IO_ERROR, cause=FailureCause.CATALOG_CHANGED, message=why)
        task = (PLAN_STAGE_ID, graph.stages[PLAN_STAGE_ID].attempt, 0)
    elif isinstance(ending, TaskSucceeded | FeedEnded):
        task = (ending.stage_id, ending.stage_attempt, ending.partition)
    else:
        return JobFailed(failure=failure, at_ms=at_ms)
    return TaskFailed(
        stage_id=task[0],
        stage_attempt=task[1],
        partition=task[2],
        task_attempt=ending.task_attempt,
        executor_id=ending.executor_id,
        failure=failure,
        at_ms=at_ms,
    )


def _ending(graph: ExecutionGraph, events: Sequence[Event]) -> Event:
    """Return the one of *events* with which the job ends."""
    for event in events:
        graph = apply(graph, event)
        if not graph.is_active:
            return event
    raise ValueError("the events do not end the job")
