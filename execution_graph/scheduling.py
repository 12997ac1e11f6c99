"""The graph as the scheduler sees it: a stream of runnable tasks.

Decisions come out as events; nothing here changes a graph.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from onager.execution_graph.attempts import held, running_stage
from onager.execution_graph.events import (
    LaunchesRepeated,
    LaunchEvent,
    StagesStarted,
    TasksLaunched,
    TasksLost,
    TasksSpeculated,
)
from onager.execution_graph.failures import FailureKind
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.replan_rules import held_stages, held_until_ms
from onager.execution_graph.speculation import pop_speculative
from onager.execution_graph.stages import (
    ExecutorLife,
    ExecutorSlot,
    FusedStage,
    ResolvedStage,
    RunningStage,
    RunningTask,
    StageWork,
    SupersededStage,
)


class TaskRef(Protocol):
    """Any object that names a task attempt within a job."""

    @property
    def stage_id(self) -> int: ...  # noqa: D102 - as in `HeldTask`
    @property
    def stage_attempt(self) -> int: ...  # noqa: D102
    @property
    def partition(self) -> int: ...  # noqa: D102
    @property
    def task_attempt(self) -> int: ...  # noqa: D102


T = TypeVar("T", bound=TaskRef)


class HeldTask(NamedTuple):
    """A task attempt that an executor reports to hold, within one job."""

    stage_id: int
    stage_attempt: int
    partition: int
    task_attempt: int


@dataclass(frozen=True, slots=True, order=True)
class PausedTask:
    """A partition that failed and waits for its retry."""

    until_ms: int
    stage_id: int
    partition: int
    failures: int
    """Counted failures so far."""
    message: str
    """What failed, shortened."""


def available_tasks(graph: ExecutionGraph) -> int:
    """Return how many tasks of running stages are pending, including second attempts of stragglers.

    0 once the job has ended.
    """
    if not graph.is_active:
        return 0
    return sum(s.pending_count + len(s.speculatable) for s in graph.stages if isinstance(s, RunningStage))


def has_runnable_work(graph: ExecutionGraph) -> bool:
    """Return whether a free slot could be filled, perhaps only after `revive` or the pauses before retries."""
    return graph.is_active and any(
        isinstance(s, ResolvedStage) or (isinstance(s, RunningStage) and (s.pending_count > 0 or s.speculatable))
        for s in graph.stages
    )


def paused_tasks(graph: ExecutionGraph, at_ms: int) -> tuple[PausedTask, ...]:
    """Return the pending tasks that pause before a retry, the next one first."""
    if not graph.is_active:
        return ()
    found = [
        PausedTask(pause.until_ms, s.spec.stage_id, p, s.ledger.failures.get(p, 0), pause.message)
        for s in graph.stages
        if isinstance(s, RunningStage) and s.paused
        for p, pause in s.paused.items()
        if pause.holds(at_ms)
    ]
    return tuple(sorted(found))


def held_tasks(graph: ExecutionGraph, at_ms: int) -> tuple[int, int]:
    """Return how many pending tasks, also of stages to start, wait as `held_stages` says, and until when at most."""
    if not graph.is_active or not (held := held_stages(graph, at_ms)):
        return 0, 0
    stages = [graph.stages[i] for i in sorted(held)]
    started = sum(s.pending_count for s in stages if isinstance(s, RunningStage))
    resolved = sum(s.spec.partitions - len(s.ledger.outputs) for s in stages if isinstance(s, ResolvedStage))
    return started + resolved, held_until_ms(graph)


def running_count(graph: ExecutionGraph) -> int:
    """Return how many tasks executors hold."""
    if not graph.is_active:
        return 0
    return sum(s.running_count for s in graph.stages if isinstance(s, RunningStage))


def revive(graph: ExecutionGraph, at_ms: int) -> StagesStarted | None:
    """Return the event that starts every resolved stage that waits for no re-plan, or None when there is none."""
    if not graph.is_active:
        return None
    held = held_stages(graph, at_ms)
    resolved = tuple(
        s.spec.stage_id for s in graph.stages if isinstance(s, ResolvedStage) and s.spec.stage_id not in held
    )
    return StagesStarted(stage_ids=resolved, at_ms=at_ms) if resolved else None


def pop_next_tasks(
    graph: ExecutionGraph, slot: ExecutorSlot, limit: int, at_ms: int, executors: Collection[str] = ()
) -> TasksLaunched | TasksSpeculated | None:
    """Return the launch of up to *limit* tasks of the first running stage that has some for the slot, or None.

    A re-plan comes first; stages that wait for it are left out. Others come in the order of their ids; partitions that
    were launched before come ahead of fresh ones; those that failed come only when their pause is over. A task that
    failed on the slot's executor is left to those of *executors*, which take work, on which it did not fail, if there
    are any; as in Spark (`spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor`, 1). Tasks of a streaming job's query
    go to executors that can stream. A task that shall run alone is launched by itself: at once by an empty executor,
    where it comes first, and by any other only if there is nothing else for it, because that one takes no more work
    until the task is done. If there is no task for the slot, it gets second attempts of stragglers, on another executor
    than the first.
    """
    if not graph.is_active or limit <= 0:
        return None
    lone: tuple[RunningStage, int] | None = None
    for stage in _launchable(graph, slot, at_ms):
        pending = _pending(stage, at_ms)
        if stage.ledger.failed_on:
            pending = _not_left_to_others(stage, pending, slot.executor_id, executors)
        if stage.ledger.suspicions:
            waiting = list(pending)
            first = next((p for p in waiting if stage.ledger.runs_alone(p)), None)
            lone = lone if lone is not None or first is None else (stage, first)
            if lone is not None and slot.is_empty:
                break
            pending = (p for p in waiting if not stage.ledger.runs_alone(p))
        tasks = tuple(sorted((p, stage.ledger.next_attempt(p)) for p in islice(pending, limit)))
        if tasks:
            return TasksLaunched.to(slot, stage, tasks, at_ms)
    if lone is not None:
        stage, partition = lone
        return TasksLaunched.to(slot, stage, ((partition, stage.ledger.next_attempt(partition)),), at_ms)
    return pop_speculative(graph, slot, limit, at_ms)


def _launchable(graph: ExecutionGraph, slot: ExecutorSlot, at_ms: int) -> Iterator[RunningStage]:
    """Yield the stages with pending tasks that the slot's executor can run, in launch order."""
    is_unfit = graph.is_streaming and not slot.can_stream
    replan, held = graph.replan, held_stages(graph, at_ms)
    for stage in graph.stages if replan is None else (graph.stages[replan.replan_id], *graph.stages):
        if not isinstance(stage, RunningStage) or stage.pending_count <= 0 or stage.spec.stage_id in held:
            continue
        if not (is_unfit and stage.spec.work is StageWork.QUERY):
            yield stage


def is_alone(graph: ExecutionGraph, launch: LaunchEvent) -> bool:
    """Return whether *launch* is of a task that shall run alone."""
    ledger = graph.stages[launch.stage_id].ledger
    return any(ledger.runs_alone(partition) for partition, _ in launch.tasks)


def has_task_for(graph: ExecutionGraph, slot: ExecutorSlot, at_ms: int, executors: Collection[str] = ()) -> bool:
    """Return whether the slot could be filled, perhaps only after `revive`; *executors* as above."""
    if graph.is_active:
        held = held_stages(graph, at_ms)
        if any(isinstance(s, ResolvedStage) and s.spec.stage_id not in held for s in graph.stages):
            return True
    return pop_next_tasks(graph, slot, 1, at_ms, executors) is not None


def is_held(graph: ExecutionGraph, task: TaskRef, executor_id: str, incarnation: str | None = None) -> bool:
    """Return whether the graph assigns this very attempt to the executor, in this life of it if given.

    A report of any other attempt is stale.
    """
    stage = running_stage(graph, task.stage_id, task.stage_attempt) if graph.is_active else None
    found = None if stage is None else held(stage, task.partition, task.task_attempt, executor_id)
    return found is not None and incarnation in (None, found.incarnation)


def not_held(graph: ExecutionGraph, tasks: Iterable[T], executor_id: str, incarnation: str) -> list[T]:
    """Return those of *tasks* for which `is_held` is false; called with each report for all tasks of an executor."""
    if not graph.is_active:
        return list(tasks)
    found: list[T] = []
    running: Mapping[int, RunningTask] = {}
    seen = (-1, -1)
    for task in tasks:
        if (task.stage_id, task.stage_attempt) != seen:
            seen = (task.stage_id, task.stage_attempt)
            stage = running_stage(graph, *seen)
            running = {} if stage is None else stage.running
        first = running.get(task.partition)
        if (
            first is None
            or first.attempt != task.task_attempt
            or first.executor_id != executor_id
            or first.incarnation != incarnation
        ) and not is_held(graph, task, executor_id, incarnation):
            found.append(task)  # nor is it the second attempt of a straggler
    return found


def lives_at_work(graph: ExecutionGraph) -> frozenset[ExecutorLife]:
    """Return the lives of executors to which the graph assigns tasks."""
    return frozenset(
        ExecutorLife(t.executor_id, t.incarnation)
        for s in graph.stages
        if isinstance(s, RunningStage)
        for _, t in s.in_hand()
    )


def can_judge(graph: ExecutionGraph, task: TaskRef) -> bool:
    """Return whether *graph* knows *task*: it runs, has ended, or was given up.

    Otherwise the graph is too old: a later one launched the task, and only that one can decide about it.
    """
    if not graph.is_active:
        return True
    if not 0 <= task.stage_id < len(graph.stages):
        return False
    stage = graph.stages[task.stage_id]
    if isinstance(stage, FusedStage | SupersededStage) or task.stage_attempt != stage.attempt:
        return isinstance(stage, FusedStage | SupersededStage) or task.stage_attempt < stage.attempt
    running = stage.running.get(task.partition) if isinstance(stage, RunningStage) else None
    if running is not None:
        return task.task_attempt <= stage.ledger.last_known_attempt(task.partition, running.attempt)
    output = stage.ledger.outputs.get(task.partition)
    if output is not None:
        return task.task_attempt <= stage.ledger.last_known_attempt(task.partition, output.task_attempt)
    return task.task_attempt < stage.ledger.next_attempt(task.partition)


def lost_launches(
    graph: ExecutionGraph, slot: ExecutorSlot, held: frozenset[HeldTask], at_ms: int
) -> tuple[LaunchesRepeated | TasksLost, ...]:
    """Return what follows from a list of running work: launches that it disproves are repeated once, then taken back.

    Only a list with a number above the one recorded at the launch says anything about it.
    """
    events: list[LaunchesRepeated | TasksLost] = []
    if not graph.is_active:
        return ()
    for stage in graph.stages:
        if not isinstance(stage, RunningStage):
            continue
        missing = [
            (p, t)
            for p, t in stage.in_hand()
            if t.executor_id == slot.executor_id
            and t.incarnation == slot.incarnation
            and t.list_number < slot.list_number
            and HeldTask(stage.spec.stage_id, stage.attempt, p, t.attempt) not in held
        ]
        missing.sort(key=_by_partition)
        again = tuple((p, t.attempt) for p, t in missing if t.lost_launches == 0)
        gone = tuple((p, t.attempt) for p, t in missing if t.lost_launches > 0)
        stage_id = stage.spec.stage_id
        if again:
            events.append(
                LaunchesRepeated(
                    stage_id=stage_id,
                    stage_attempt=stage.attempt,
                    executor_id=slot.executor_id,
                    list_number=slot.list_number,
                    tasks=again,
                    at_ms=at_ms,
                )
            )
        if gone:
            events.append(
                TasksLost(
                    stage_id=stage_id,
                    stage_attempt=stage.attempt,
                    executor_id=slot.executor_id,
                    tasks=gone,
                    reason=FailureKind.LAUNCH_LOST,
                    at_ms=at_ms,
                )
            )
    return tuple(events)


def _by_partition(found: tuple[int, RunningTask]) -> int:
    return found[0]  # an executor never has two attempts of one partition


def has_failed_somewhere(graph: ExecutionGraph) -> bool:
    """Return whether some pending or running task has failed on some executor before."""
    return any(isinstance(s, RunningStage) and s.ledger.failed_on for s in graph.stages)


def _not_left_to_others(
    stage: RunningStage, partitions: Iterable[int], executor_id: str, executors: Collection[str]
) -> Iterator[int]:
    for partition in partitions:
        failed_on = stage.ledger.failed_on.get(partition, ())
        if executor_id not in failed_on or all(e in failed_on for e in executors):
            yield partition


def _pending(stage: RunningStage, at_ms: int) -> Iterator[int]:
    """Yield the pending partitions that may be launched, in launch order."""
    if stage.paused:
        for partition in stage.returned:
            pause = stage.paused.get(partition)
            if pause is None or not pause.holds(at_ms):
                yield partition
    else:
        yield from stage.returned
    for partition in range(stage.next_fresh, stage.spec.partitions):
        if partition not in stage.ledger.outputs:
            yield partition
