"""The back edges of the stage state machine: what follows when outputs that are still needed are lost."""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from onager.execution_graph.stages import (
    ExecutorLife,
    FailedStage,
    FusedStage,
    ResolvedStage,
    RunningStage,
    Stage,
    StageWork,
    SuccessfulStage,
    SupersededStage,
    TaskLedger,
    UnresolvedStage,
)

Stages = tuple[Stage, ...]
Lost = Mapping[int, frozenset[int]]
"""Stage id → partitions whose outputs are gone; each of them had one. A stage without partitions has nothing to lose,
and is here with an empty set when it is to run again."""


def all_lost(
    stages: Stages, last: Stage, lost: Lost, dead: Collection[ExecutorLife], others: Collection[int] = ()
) -> dict[int, frozenset[int]]:
    """Return *lost* and all that goes with it, when outputs bound to the lives in *dead* are gone, too.

    Those count only where they are needed: by the job itself, if they are of its *last* stage, or by a consumer that is
    not successful, or that is no longer successful because of this loss. A successful stage whose output is not
    deterministic is lost as a whole, together with everything derived from it, because a second run may differ from
    what readers have already taken from the first. So is what is derived from *others*: stages whose outputs another
    job gave, and that are computed after all. Each rule can trigger the other, hence the repetition until nothing
    changes.
    """
    found = dict(lost)
    while True:
        before = dict(found)
        _add_dead(stages, last, found, frozenset(dead))
        _add_derived(stages, found, others)
        if found == before:
            return found


def lose_outputs(stages: Stages, lost: Lost, at_ms: int) -> Stages:
    """Return *stages* after exactly the outputs in *lost* are gone: producers run again, readers roll back."""
    after: list[Stage] = []
    for stage in stages:
        gone = lost.get(stage.spec.stage_id)
        ledger = stage.ledger.without_outputs(gone) if gone else stage.ledger
        has_inputs = all(isinstance(after[i.stage_id], SuccessfulStage) for i in stage.spec.inputs)
        after.append(_after_loss(stage, ledger, is_lost=gone is not None, has_inputs=has_inputs, at_ms=at_ms))
    return tuple(after)


def outputs_of(stage: Stage, lives: Collection[ExecutorLife]) -> frozenset[int]:
    """Return the partitions of *stage* whose outputs die with one of *lives*."""
    return frozenset(p for p, o in stage.ledger.outputs.items() if not o.is_durable and o.life in lives)


def lives_with_outputs(stages: Stages) -> set[ExecutorLife]:
    """Return the lives to which some recorded output is bound."""
    return {o.life for stage in stages for o in stage.ledger.outputs.values() if not o.is_durable}


def without_running(stage: RunningStage, ledger: TaskLedger) -> TaskLedger:
    """Return *ledger* with the attempt numbers of the running tasks used up."""
    ledger = ledger.after_attempts({p: t.attempt for p, t in stage.running.items()})
    return replace(ledger, tasks_lost=ledger.tasks_lost + stage.running_count)


def is_past_return(stage: Stage) -> bool:
    """Return whether *stage* has begun to change the target of a sink: then nothing upstream of it is made again."""
    return stage.spec.work is StageWork.PUBLISH and not isinstance(stage, UnresolvedStage | ResolvedStage)


def is_being_published(stages: Stages) -> bool:
    """Return whether the target of a sink is being changed: it would be left half-way."""
    return any(
        isinstance(stage, RunningStage) and is_past_return(stage) and (stage.running or stage.ledger.attempts)
        for stage in stages
    )


def _add_dead(stages: Stages, last: Stage, found: dict[int, frozenset[int]], dead: Collection[ExecutorLife]) -> None:
    needing: set[int] = set()
    """Producers of stages that are not successful, or will no longer be."""
    for stage in reversed(stages):  # consumers come last, so one pass reaches everything upstream
        stage_id = stage.spec.stage_id
        if stage is last or stage_id in needing or not isinstance(stage, SuccessfulStage):
            gone = outputs_of(stage, dead) if dead else frozenset()
            if gone:
                found[stage_id] = found.get(stage_id, frozenset()) | gone
        has_to_run = stage_id in found or not isinstance(stage, SuccessfulStage)
        if has_to_run and not is_past_return(stage):
            needing.update(i.stage_id for i in stage.spec.inputs)


def _add_derived(stages: Stages, found: dict[int, frozenset[int]], others: Collection[int]) -> None:
    whole = set(others)
    for stage in stages:  # producers come first, so one pass reaches everything downstream
        stage_id = stage.spec.stage_id
        is_source = stage_id in found and isinstance(stage, SuccessfulStage) and not stage.spec.is_deterministic
        if is_source or any(i.stage_id in whole for i in stage.spec.inputs):
            whole.add(stage_id)
            is_done_empty = isinstance(stage, SuccessfulStage) and not stage.spec.partitions
            if stage.ledger.outputs or is_done_empty:  # else nothing would read what is made again for it
                found[stage_id] = frozenset(stage.ledger.outputs.keys())


def _after_loss(stage: Stage, ledger: TaskLedger, *, is_lost: bool, has_inputs: bool, at_ms: int) -> Stage:
    spec, attempt = stage.spec, stage.attempt
    after: Stage = stage
    match stage:
        case SuccessfulStage() if is_lost and has_inputs:
            after = RunningStage(spec=spec, attempt=attempt + 1, ledger=ledger, started_ms=at_ms)
        case SuccessfulStage() if is_lost:
            after = UnresolvedStage(spec=spec, attempt=attempt + 1, ledger=ledger)
        case RunningStage() if not has_inputs:
            after = UnresolvedStage(spec=spec, attempt=attempt + 1, ledger=without_running(stage, ledger))
        case RunningStage() if is_lost:
            after = _with_pending(stage, ledger)
        case ResolvedStage() if not has_inputs:
            after = UnresolvedStage(spec=spec, attempt=attempt, ledger=ledger)
        case ResolvedStage() | UnresolvedStage() if is_lost:
            after = replace(stage, ledger=ledger)
        case SuccessfulStage() | RunningStage() | ResolvedStage() | UnresolvedStage():
            pass  # a successful stage keeps its outputs, whatever became of its inputs
        case FailedStage() | FusedStage() | SupersededStage():
            pass
    return after


def _with_pending(stage: RunningStage, ledger: TaskLedger) -> RunningStage:
    gone = (p for p in stage.ledger.outputs if p not in ledger.outputs and p < stage.next_fresh)
    return replace(stage, ledger=ledger, returned=tuple(sorted((*stage.returned, *gone))))
