"""The loss of executors and outputs, and its consequences.

Which task ended a JVM is found out, not guessed. A loss says nothing about tasks unless the JVM ended by itself while
its agent lived. Of several tasks in such a JVM none is blamed, and each runs alone the next time. So does an only task
if there is evidence that memory ran out, and otherwise after the second such end. A task that ends the JVM in which it
runs alone fails its job: with that evidence at once, without it after the fourth time (`find_culprit`).
"""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from onager.execution_graph import rollback
from onager.execution_graph.attempts import has_another, in_hands_of, returned
from onager.execution_graph.events import ExecutorLost, JvmDeath, SuspectTask, TaskFailed
from onager.execution_graph.failures import Failure, FailureKind
from onager.execution_graph.graph import PLAN_STAGE_ID, ExecutionGraph
from onager.execution_graph.reuse import taken_in, taken_of, with_taken_lost
from onager.execution_graph.settling import plan_kept, settled, with_stage
from onager.execution_graph.stages import (
    ExecutorLife,
    ResolvedStage,
    RunningStage,
    Stage,
    StageWork,
    Suspicion,
    TaskLedger,
)
from onager.execution_graph.streaming import abandoned, is_streaming

DEATHS_BEFORE_ALONE = 2
"""So many JVMs end without evidence of memory before their only task runs alone."""
DEATHS_ALONE = 4
"""So many JVMs end without evidence of memory before the task that ran alone in them fails its job."""


def on_executor_lost(graph: ExecutionGraph, event: ExecutorLost) -> ExecutionGraph:
    """Take back the tasks of a life that is over, and its outputs that are still needed."""
    life = ExecutorLife(event.executor_id, event.incarnation)
    after = graph
    for stage in graph.stages:
        lost = in_hands_of(life, stage) if isinstance(stage, RunningStage) else {}
        if not isinstance(stage, RunningStage) or not lost:
            continue
        if stage.spec.work is StageWork.REPLAN:
            after = plan_kept(after, f"its executor was lost: {event.reason}", event.at_ms)
            continue
        if is_streaming(graph, stage):
            return abandoned(graph, event.reason, event.at_ms)
        ledger = replace(stage.ledger, tasks_lost=stage.ledger.tasks_lost + len(lost))
        if event.death is not None:
            ledger = _suspecting(ledger, event.death, _suspects_of(graph, stage, lost, event.death))
        after = with_stage(after, returned(replace(stage, ledger=ledger), lost))
    dead = {*graph.lost_lives, life}
    gone = rollback.all_lost(after.stages, after.last_stage, {}, dead)
    if gone:
        after = with_losses(after, gone, event.reason, event.at_ms)
    lost_lives = tuple(sorted(dead & rollback.lives_with_outputs(after.stages)))
    return after if lost_lives == after.lost_lives else replace(after, lost_lives=lost_lives)


def find_culprit(graph: ExecutionGraph, event: ExecutorLost) -> TaskFailed | None:
    """Return the event that fails the job, to precede *event*, if a task that ran alone is the cause of the loss."""
    death = event.death
    if death is None or not death.was_alone or not graph.is_active:
        return None
    life = ExecutorLife(event.executor_id, event.incarnation)
    for stage in graph.stages:
        if not isinstance(stage, RunningStage) or is_streaming(graph, stage) or stage.spec.work is StageWork.REPLAN:
            continue
        lost = in_hands_of(life, stage)
        for partition in _suspects_of(graph, stage, lost, death):
            deaths = stage.ledger.suspicions.get(partition, Suspicion()).deaths + 1
            if not death.is_memory and deaths < DEATHS_ALONE:
                continue
            task = f"Task {partition} in stage {stage.spec.stage_id}"
            message = (
                f"{task} ran out of memory, though its executor ran nothing else ({event.reason}). Give executors more "
                "memory (--spark-conf spark.driver.memory=…), or let the query keep less of it at once"
                if death.is_memory
                else f"{task} ended the JVMs of {deaths} executors that ran nothing else (the last one, {event.reason})"
            )
            return TaskFailed(
                stage_id=stage.spec.stage_id,
                stage_attempt=stage.attempt,
                partition=partition,
                task_attempt=lost[partition],
                executor_id=event.executor_id,
                failure=Failure(
                    kind=FailureKind.USER_ERROR,
                    message=message,
                    error_class="java.lang.OutOfMemoryError" if death.is_memory else None,
                ),
                at_ms=event.at_ms,
            )
    return None


def _suspects_of(graph: ExecutionGraph, stage: RunningStage, lost: Mapping[int, int], death: JvmDeath) -> list[int]:
    """Return the partitions of *stage* that were running in the JVM, without those of which another attempt runs."""
    return sorted(
        p
        for p, attempt in lost.items()
        if SuspectTask(graph.job_id, stage.spec.stage_id, stage.attempt, p, attempt) in death.suspects
        and not has_another(stage, p)
    )


def _suspecting(ledger: TaskLedger, death: JvmDeath, suspects: Collection[int]) -> TaskLedger:
    found = {p: _suspected(ledger.suspicions.get(p, Suspicion()), death) for p in suspects}
    return replace(ledger, suspicions=ledger.suspicions.update(found)) if found else ledger


def _suspected(before: Suspicion, death: JvmDeath) -> Suspicion:
    """Return the suspicion of one task after the end of a JVM in which it was running."""
    is_unexplained = death.tasks == 1 and not death.is_memory
    if before.runs_alone:
        return replace(before, deaths=before.deaths + 1) if is_unexplained and death.was_alone else before
    if is_unexplained and before.deaths + 1 < DEATHS_BEFORE_ALONE:
        return replace(before, deaths=before.deaths + 1)
    return Suspicion(runs_alone=True)


def with_losses(graph: ExecutionGraph, lost: rollback.Lost, reason: str, at_ms: int) -> ExecutionGraph:
    """Return *graph* after the outputs in *lost*, and all that depends on them, are gone; *reason* is for people."""
    if graph.is_streaming:
        return abandoned(graph, reason, at_ms)
    others = taken_of(graph, taken_in(graph, lost))
    if others:
        after = with_taken_lost(graph, others)
        if after is None:
            return _planned_again(graph)
        graph, lost = after, {i: gone for i, gone in lost.items() if i not in others}
    gone = rollback.all_lost(graph.stages, graph.last_stage, lost, graph.lost_lives, others)
    if any(_was_fused(graph.stages[stage_id]) for stage_id in gone):
        return _planned_again(graph)
    stages = rollback.lose_outputs(graph.stages, gone, at_ms)
    bound = rollback.lives_with_outputs(stages) if graph.lost_lives else set()
    lost_lives = tuple(life for life in graph.lost_lives if life in bound)
    return settled(replace(graph, stages=stages, lost_lives=lost_lives), at_ms)


def _was_fused(stage: Stage) -> bool:
    """Return whether only the planning task can run *stage*."""
    return stage.spec.work is StageWork.QUERY and stage.spec.plan_digest is None


def _planned_again(graph: ExecutionGraph) -> ExecutionGraph:
    """Return *graph* before its plan: what cannot be computed under it was lost, and nothing of it was published."""
    planning = graph.stages[PLAN_STAGE_ID]
    again = ResolvedStage(
        spec=planning.spec,
        attempt=planning.attempt + 1,
        ledger=planning.ledger.without_outputs(frozenset(planning.ledger.outputs.keys())),
    )
    return replace(graph, stages=(again,), plan=None, replans=(), lost_lives=())
