"""What a committed graph still owes the world: derived from state, idempotent, repeated by whoever notices."""

from dataclasses import dataclass

from execution_graph.graph import ExecutionGraph, JobState
from execution_graph.stages import ResolvedStage, RunningStage


@dataclass(frozen=True, slots=True)
class StartStages:
    """Resolved stages wait for `revive`."""

    stage_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LaunchTask:
    """The task has to be in this executor's hands; launching one that is there already changes nothing."""

    executor_id: str
    incarnation: str
    stage_id: int
    stage_attempt: int
    partition: int
    task_attempt: int


@dataclass(frozen=True, slots=True)
class EndJob:
    """The record moves to its terminal keyspace, and what no result needs is cleaned up."""

    state: JobState


Effect = StartStages | LaunchTask | EndJob


def pending_effects(graph: ExecutionGraph) -> tuple[Effect, ...]:
    """Return every effect that *graph*, once committed, still owes, in a stable order."""
    if not graph.is_active:
        return (EndJob(graph.state),)
    effects: list[Effect] = []
    resolved = tuple(s.spec.stage_id for s in graph.stages if isinstance(s, ResolvedStage))
    if resolved:
        effects.append(StartStages(resolved))
    effects += [
        LaunchTask(t.executor_id, t.incarnation, s.spec.stage_id, s.attempt, p, t.attempt)
        for s in graph.stages
        if isinstance(s, RunningStage)
        for p, t in sorted(s.in_hand(), key=lambda held: (held[0], held[1].attempt))
    ]
    return tuple(effects)
