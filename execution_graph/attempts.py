"""Task attempts in executors' hands: launched, launched once more, taken back."""

from collections.abc import Iterable
from dataclasses import replace

from execution_graph.events import LaunchesRepeated, TasksLaunched, TasksLost
from execution_graph.graph import ExecutionGraph
from execution_graph.maps import without
from execution_graph.settling import with_stage
from execution_graph.stages import ExecutorLife, RunningStage, RunningTask


def on_tasks_launched(graph: ExecutionGraph, event: TasksLaunched) -> ExecutionGraph:
    """Put tasks into the executor's hands; those that do not wait under this very attempt number are skipped."""
    stage = running_stage(graph, event.stage_id, event.stage_attempt)
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
    return with_stage(graph, replace(stage, running=running, returned=returned, next_fresh=next_fresh))


def on_launches_repeated(graph: ExecutionGraph, event: LaunchesRepeated) -> ExecutionGraph:
    """Note that tasks were sent once more."""
    stage = running_stage(graph, event.stage_id, event.stage_attempt)
    if stage is None:
        return graph
    running = stage.running
    for partition, attempt in event.tasks:
        task = held(stage, partition, attempt, event.executor_id)
        if task is not None and task.list_number < event.list_number:
            again = replace(
                task,
                list_number=event.list_number,
                lost_launches=task.lost_launches + 1,
                launched_ms=event.at_ms,
            )
            running = running.set(partition, again)
    return graph if running is stage.running else with_stage(graph, replace(stage, running=running))


def on_tasks_lost(graph: ExecutionGraph, event: TasksLost) -> ExecutionGraph:
    """Take tasks back, uncounted."""
    stage = running_stage(graph, event.stage_id, event.stage_attempt)
    if stage is None:
        return graph
    lost = {p for p, attempt in event.tasks if held(stage, p, attempt, event.executor_id) is not None}
    if not lost:
        return graph
    ledger = replace(stage.ledger, tasks_lost=stage.ledger.tasks_lost + len(lost))
    return with_stage(graph, returned(replace(stage, ledger=ledger), lost))


def running_stage(graph: ExecutionGraph, stage_id: int, attempt: int | None) -> RunningStage | None:
    """Return stage *stage_id* if it is running in *attempt* (None: in any)."""
    if not 0 <= stage_id < len(graph.stages):
        return None
    stage = graph.stages[stage_id]
    if not isinstance(stage, RunningStage) or attempt not in (None, stage.attempt):
        return None
    return stage


def held(stage: RunningStage, partition: int, attempt: int, executor_id: str) -> RunningTask | None:
    """Return the running task if this very attempt is in this executor's hands."""
    task = stage.running.get(partition)
    if task is None or task.attempt != attempt or task.executor_id != executor_id:
        return None
    return task


def in_hands_of(life: ExecutorLife, stage: RunningStage) -> list[int]:
    """Return the partitions that *stage* runs in this life of an executor."""
    return sorted(p for p, t in stage.running.items() if (t.executor_id, t.incarnation) == life)


def returned(stage: RunningStage, partitions: Iterable[int]) -> RunningStage:
    """Return the stage with the running *partitions* pending again; their attempt numbers are used up."""
    back = sorted(partitions)
    return replace(
        stage,
        running=without(stage.running, back),
        returned=tuple(sorted((*stage.returned, *back))),
        ledger=stage.ledger.after_attempts({p: stage.running[p].attempt for p in back}),
    )
