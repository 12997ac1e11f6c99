"""Stragglers: running tasks that take much longer than others of their stage, and their second attempts.

Both attempts are in the graph, and the log decides which of them wins: the first success that it accepts. The other one
is then no longer wanted, hence cancelled, and whatever it still reports is stale. While both run, a failure of one is
not counted, because the partition continues with the other.

Decisions rest on the graph's own times alone, so that every scheduler decides alike.

Source: Spark's `TaskSetManager.checkSpeculatableTasks`: the median of successful tasks, and second attempts only where
nothing else of the job waits.
"""

from collections.abc import Collection
from statistics import median

from msgspec.structs import replace

from onager.execution_graph.attempts import running_stage
from onager.execution_graph.events import StragglersFound, TasksSpeculated
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.settling import with_stage
from onager.execution_graph.stages import ExecutorSlot, RunningStage, RunningTask, StageWork


def find_stragglers(graph: ExecutionGraph, executors: Collection[str], at_ms: int) -> tuple[StragglersFound, ...]:
    """Return the tasks that shall get a second attempt, given the *executors* that take work.

    None for a job that does not want second attempts, or in which each task reads from one particular attempt of
    another, and no task that only its own executor could run again.
    """
    if graph.speculation is None or not graph.is_active or graph.is_streaming:
        return ()
    found = []
    for stage in graph.stages:
        tasks = _stragglers_of(graph, stage, executors, at_ms) if isinstance(stage, RunningStage) else ()
        if tasks:
            found.append(
                StragglersFound(stage_id=stage.spec.stage_id, stage_attempt=stage.attempt, tasks=tasks, at_ms=at_ms)
            )
    return tuple(found)


def pop_speculative(graph: ExecutionGraph, slot: ExecutorSlot, limit: int, at_ms: int) -> TasksSpeculated | None:
    """Return the launch of up to *limit* second attempts that the slot's executor may run, or None."""
    for stage in graph.stages:
        if not isinstance(stage, RunningStage):
            continue
        fit = [p for p in stage.speculatable if _may_run_second(stage, p, slot.executor_id)]
        if fit:
            second = tuple((p, stage.running[p].attempt + 1) for p in fit[:limit])
            return TasksSpeculated.to(slot, stage, second, at_ms)
    return None


def may_be_speculated(stage: RunningStage, partition: int) -> bool:
    """Return whether a second attempt may run beside the first: at most one, of work without side effects.

    A stage that was fused with planning can be run only by planning.
    """
    task = stage.running.get(partition)
    return (
        task is not None
        and stage.spec.work is StageWork.QUERY
        and stage.spec.plan_digest is not None
        and partition not in stage.speculative
        and stage.ledger.speculated.get(partition, -1) <= task.attempt
    )


def on_stragglers_found(graph: ExecutionGraph, event: StragglersFound) -> ExecutionGraph:
    """Queue second attempts."""
    stage = running_stage(graph, event.stage_id, event.stage_attempt)
    if stage is None or graph.speculation is None or graph.is_streaming:
        return graph
    found = {
        p
        for p, attempt in event.tasks
        if may_be_speculated(stage, p) and stage.running[p].attempt == attempt and p not in stage.speculatable
    }
    if not found:
        return graph
    return with_stage(graph, replace(stage, speculatable=tuple(sorted({*stage.speculatable, *found}))))


def on_tasks_speculated(graph: ExecutionGraph, event: TasksSpeculated) -> ExecutionGraph:
    """Assign second attempts to the executor."""
    stage = running_stage(graph, event.stage_id, event.stage_attempt)
    if stage is None:
        return graph
    launched: dict[int, RunningTask] = {}
    for partition, attempt in event.tasks:
        if partition not in stage.speculatable:
            continue
        first = stage.running[partition]
        if first.executor_id != event.executor_id and attempt == first.attempt + 1:
            launched[partition] = event.running_task(attempt)
    if not launched:
        return graph
    numbers = {p: task.attempt for p, task in launched.items()}
    ledger = replace(stage.ledger, speculated=stage.ledger.speculated.update(numbers))
    return with_stage(
        graph,
        replace(
            stage,
            speculatable=tuple(p for p in stage.speculatable if p not in launched),
            speculative=stage.speculative.update(launched),
            ledger=ledger,
        ),
    )


def _may_run_second(stage: RunningStage, partition: int, executor_id: str) -> bool:
    """Return whether the executor may run a second attempt: it neither runs the first nor has failed the task."""
    is_first = stage.running[partition].executor_id == executor_id
    return not is_first and executor_id not in stage.ledger.failed_on.get(partition, ())


def _stragglers_of(
    graph: ExecutionGraph, stage: RunningStage, executors: Collection[str], at_ms: int
) -> tuple[tuple[int, int], ...]:
    policy, durations_ms = graph.speculation, stage.ledger.durations_ms
    if policy is None or not durations_ms:
        return ()
    if len(stage.ledger.outputs) < max(1, int(policy.quantile * stage.spec.partitions)):
        return ()
    slow = [
        (p, t)
        for p, t in sorted(stage.running.items())
        if at_ms - t.launched_ms > policy.min_task_runtime_ms
        and p not in stage.speculatable
        and not stage.ledger.runs_alone(p)
        and may_be_speculated(stage, p)
        and any(_may_run_second(stage, p, executor_id) for executor_id in executors)
    ]
    if not slow:
        return ()
    threshold_ms = policy.multiplier * median(durations_ms.values())
    return tuple((p, t.attempt) for p, t in slow if at_ms - t.launched_ms > threshold_ms)
