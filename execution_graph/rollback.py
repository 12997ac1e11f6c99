"""The back edges of the stage state machine: what follows when outputs that somebody still needs are lost."""

from collections.abc import Mapping
from dataclasses import replace

from execution_graph.stages import (
    FailedStage,
    ResolvedStage,
    RunningStage,
    Stage,
    SuccessfulStage,
    TaskLedger,
    UnresolvedStage,
)

Stages = tuple[Stage, ...]
Lost = Mapping[int, frozenset[int]]
"""Stage id → partitions whose outputs are gone; each of them has one."""


def outputs_lost_with(stages: Stages, executor_id: str) -> dict[int, frozenset[int]]:
    """Return the outputs that die with *executor_id* and that are still needed, by stage.

    An output is needed while some consumer of its stage is not successful, or becomes so by this very loss: hence from the
    last stage to the first. What nobody needs any more stays recorded.
    """
    lost: dict[int, frozenset[int]] = {}
    for stage in reversed(stages):
        consumers = _consumers(stages, stage.spec.stage_id)
        is_needed = not consumers or any(
            not isinstance(c, SuccessfulStage) or c.spec.stage_id in lost for c in consumers
        )
        gone = frozenset(
            p for p, o in stage.ledger.outputs.items() if not o.is_shared and o.executor_id == executor_id
        )
        if gone and (is_needed or not isinstance(stage, SuccessfulStage)):
            lost[stage.spec.stage_id] = gone
    return lost


def lose_outputs(stages: Stages, lost: Lost, at_ms: int) -> Stages:
    """Return *stages* after the outputs in *lost* are gone: producers run again, readers roll back.

    A successful stage whose output is not deterministic is made again whole, and so is everything that is derived from it,
    because a second run need not fit what readers have already taken from the first.
    """
    remade = _remade_whole(stages, lost)
    after: list[Stage] = []
    for stage in stages:
        stage_id = stage.spec.stage_id
        gone = (
            frozenset(stage.ledger.outputs.keys()) if stage_id in remade else lost.get(stage_id, frozenset())
        )
        ledger = stage.ledger.without_outputs(gone) if gone else stage.ledger
        has_inputs = all(isinstance(after[i.stage_id], SuccessfulStage) for i in stage.spec.inputs)
        after.append(_after_loss(stage, ledger, has_inputs=has_inputs, at_ms=at_ms))
    return tuple(after)


def _after_loss(stage: Stage, ledger: TaskLedger, *, has_inputs: bool, at_ms: int) -> Stage:
    has_lost = ledger is not stage.ledger
    spec, attempt = stage.spec, stage.attempt
    match stage:
        case SuccessfulStage():
            if not has_lost:
                return stage  # it keeps what it has, whatever became of its inputs
            if has_inputs:
                return RunningStage(spec=spec, attempt=attempt + 1, ledger=ledger, started_ms=at_ms)
            return UnresolvedStage(spec=spec, attempt=attempt + 1, ledger=ledger)
        case RunningStage():
            if not has_inputs:
                return UnresolvedStage(spec=spec, attempt=attempt + 1, ledger=_abandoned(stage, ledger))
            return _with_pending(stage, ledger) if has_lost else stage
        case ResolvedStage() | UnresolvedStage():
            if has_inputs and isinstance(stage, ResolvedStage):
                return replace(stage, ledger=ledger)
            return UnresolvedStage(spec=spec, attempt=attempt, ledger=ledger)
        case FailedStage():
            return stage


def _abandoned(stage: RunningStage, ledger: TaskLedger) -> TaskLedger:
    """Return *ledger* with the attempt numbers of the tasks that were running used up."""
    for partition, task in sorted(stage.running.items()):
        ledger = ledger.after_attempt(partition, task.attempt)
    return replace(ledger, tasks_lost=ledger.tasks_lost + len(stage.running))


def _with_pending(stage: RunningStage, ledger: TaskLedger) -> RunningStage:
    gone = (p for p in stage.ledger.outputs if p not in ledger.outputs and p < stage.next_fresh)
    return replace(stage, ledger=ledger, returned=tuple(sorted((*stage.returned, *gone))))


def _remade_whole(stages: Stages, lost: Lost) -> set[int]:
    remade = {
        stage_id
        for stage_id in lost
        if isinstance(stages[stage_id], SuccessfulStage) and not stages[stage_id].spec.is_deterministic
    }
    for stage in stages:  # producers come first, so one pass reaches everything downstream
        if any(i.stage_id in remade for i in stage.spec.inputs):
            remade.add(stage.spec.stage_id)
    return remade


def _consumers(stages: Stages, stage_id: int) -> list[Stage]:
    return [s for s in stages if any(i.stage_id == stage_id for i in s.spec.inputs)]
