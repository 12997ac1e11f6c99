"""Task attempts held by executors: launched, launched again, taken back."""

from collections.abc import Mapping

from msgspec.structs import replace

from onager.execution_graph.events import LaunchesRepeated, TasksLaunched, TasksLost
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.record import without
from onager.execution_graph.settling import plan_kept, settled, with_stage
from onager.execution_graph.stages import ExecutorLife, RunningStage, RunningTask, StageWork
from onager.execution_graph.streaming import abandoned, has_readers_at_work, is_streaming


def on_tasks_launched(graph: ExecutionGraph, event: TasksLaunched) -> ExecutionGraph:
    """Assign tasks to the executor; tasks that are not pending under this very attempt number are skipped."""
    stage = running_stage(graph, event.stage_id, event.stage_attempt)
    if stage is None or stage.spec.work is StageWork.STEP:
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
        launched[partition] = event.running_task(attempt)
    if not launched:
        return graph
    running = stage.running.update(launched)
    returned = tuple(p for p in (*stage.returned, *skipped) if p not in launched)
    paused = without(stage.paused, launched)
    stage = replace(stage, running=running, returned=returned, next_fresh=next_fresh, paused=paused)
    graph = with_stage(graph, stage)
    return settled(graph, event.at_ms) if not stage.pending_count and graph.is_streaming else graph


def on_launches_repeated(graph: ExecutionGraph, event: LaunchesRepeated) -> ExecutionGraph:
    """Note that tasks were sent again."""
    stage = running_stage(graph, event.stage_id, event.stage_attempt)
    if stage is None:
        return graph
    running, speculative = stage.running, stage.speculative
    for partition, attempt in event.tasks:
        task = held(stage, partition, attempt, event.executor_id)
        if task is not None and task.list_number < event.list_number:
            again = replace(
                task,
                list_number=event.list_number,
                lost_launches=task.lost_launches + 1,
                launched_ms=event.at_ms,
            )
            if task is stage.running.get(partition):
                running = running.set(partition, again)
            else:
                speculative = speculative.set(partition, again)
    if running is stage.running and speculative is stage.speculative:
        return graph
    return with_stage(graph, replace(stage, running=running, speculative=speculative))


def on_tasks_lost(graph: ExecutionGraph, event: TasksLost) -> ExecutionGraph:
    """Take tasks back, uncounted; streaming ends if others may have been asked to read a task's output."""
    stage = running_stage(graph, event.stage_id, event.stage_attempt)
    if stage is None:
        return graph
    lost = {p: attempt for p, attempt in event.tasks if held(stage, p, attempt, event.executor_id) is not None}
    if not lost:
        return graph
    if stage.spec.work is StageWork.REPLAN:
        return plan_kept(graph, f"its task did not arrive ({event.reason.value})", event.at_ms)
    if is_streaming(graph, stage) and has_readers_at_work(graph, event.stage_id):
        where = f"task {min(lost)} of stage {event.stage_id} and executor {event.executor_id}"
        return abandoned(graph, f"{where} did not come together ({event.reason.value})", event.at_ms)
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
    """Return the running task if this executor holds this very attempt."""
    task = stage.running.get(partition)
    if task is None or task.attempt != attempt:
        task = stage.speculative.get(partition)
    if task is None or task.attempt != attempt or task.executor_id != executor_id:
        return None
    return task


def in_hands_of(life: ExecutorLife, stage: RunningStage) -> dict[int, int]:
    """Return the attempts of *stage* that run in this life of an executor, by partition: at most one of each."""
    return {p: t.attempt for p, t in stage.in_hand() if (t.executor_id, t.incarnation) == life}


def has_another(stage: RunningStage, partition: int) -> bool:
    """Return whether two attempts of *partition* run: if only one of them ends without success, that is no failure."""
    return partition in stage.speculative


def returned(stage: RunningStage, tasks: Mapping[int, int]) -> RunningStage:
    """Return *stage* after running attempts, one of each partition in *tasks*, ended without success.

    If another attempt of the partition runs, the partition continues with that one; else it is pending again. Attempt
    numbers are used up.
    """
    first = sorted(p for p, attempt in tasks.items() if stage.running[p].attempt == attempt)
    going_on = {p: stage.speculative[p] for p in first if p in stage.speculative}
    back = [p for p in first if p not in going_on]
    ledger = stage.ledger.after_attempts({p: stage.running[p].attempt for p in back})
    if going_on:
        ledger = replace(ledger, attempts=ledger.attempts.update({p: t.attempt for p, t in going_on.items()}))
    return replace(
        stage,
        running=without(stage.running, back).update(going_on),
        returned=tuple(sorted((*stage.returned, *back))),
        speculatable=tuple(p for p in stage.speculatable if p not in tasks),
        speculative=without(stage.speculative, tasks),
        ledger=ledger,
    )
