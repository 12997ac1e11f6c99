"""What re-plans change (`replan_rules` decides them): stages are appended, and what the new plan lacks is superseded.

A re-plan is advisory. Whatever happens to its task, the job goes on with the plan that it has: the task is tried once,
and its loss or failure ends the re-plan. No id changes, so no report can be mistaken for one of another stage.
"""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from onager.execution_graph.attempts import held, running_stage
from onager.execution_graph.events import ReplanBegun, ReplanGivenUp, StageReplanned
from onager.execution_graph.graph import ExecutionGraph, Replan
from onager.execution_graph.rollback import is_past_return
from onager.execution_graph.settling import plan_kept, settled, superseded, with_replan, with_successes
from onager.execution_graph.stages import (
    FailedStage,
    FusedStage,
    OutputLayout,
    ResolvedStage,
    RunningStage,
    Stage,
    StageSpec,
    StageWork,
    SuccessfulStage,
    SupersededStage,
    TaskLedger,
    TaskOutput,
    UnresolvedStage,
    reachable,
)
from onager.execution_graph.task_metrics import TaskMetrics

MAX_REPLANS = 8
"""Of one job."""
CHANGED = "what it was based on has changed meanwhile"


def has_begun(stage: Stage) -> bool:
    """Return whether a task of *stage* was ever launched, or the stage was laid out: then a new plan builds on it.

    A stage with a feed has begun from the start: what its feed finds is for this stage, and no plan could read it anew.
    """
    spec, ledger = stage.spec, stage.ledger
    is_in_hand = isinstance(stage, RunningStage) and bool(stage.running)
    is_over = isinstance(stage, SuccessfulStage | FailedStage)
    is_settled = spec.layout is not None or spec.feed is not None
    return is_over or is_in_hand or is_settled or bool(ledger.attempts or ledger.outputs)


def is_open(stage: Stage) -> bool:
    """Return whether *stage* is one of a query's that is not, and was not, part of another plan or stage."""
    return stage.spec.work is StageWork.QUERY and not isinstance(stage, FusedStage | SupersededStage)


def on_replan_begun(graph: ExecutionGraph, event: ReplanBegun) -> ExecutionGraph:
    """Append the stage of the task that plans again, if nothing has changed since that was decided."""
    is_next = event.replan_id == len(graph.stages) and graph.plan is not None and graph.replan is None
    if not is_next or len(graph.replans) >= MAX_REPLANS or not is_as_it_was(graph, event.basis):
        return graph
    if not all(0 <= i < len(graph.stages) and isinstance(graph.stages[i], SuccessfulStage) for i in event.finished):
        return graph
    spec = StageSpec(
        stage_id=event.replan_id,
        name="replan",
        work=StageWork.REPLAN,
        plan_digest=None,
        partitions=1,
        inputs=(),
        output=OutputLayout("control"),
    )
    stage = RunningStage(spec=spec, attempt=0, ledger=TaskLedger(), started_ms=event.at_ms)
    replan = Replan(
        replan_id=event.replan_id,
        basis=event.basis,
        finished=event.finished,
        held=event.held,
        why=event.why,
        begun_ms=event.at_ms,
    )
    return replace(graph, stages=(*graph.stages, stage), replans=(*graph.replans, replan))


def is_as_it_was(graph: ExecutionGraph, basis: Collection[tuple[int, int]]) -> bool:
    """Return whether every stage of *basis* is still part of the plan, in the same attempt."""
    return all(
        0 <= i < len(graph.stages) and is_open(graph.stages[i]) and graph.stages[i].attempt == attempt
        for i, attempt in basis
    )


def on_replan_given_up(graph: ExecutionGraph, event: ReplanGivenUp) -> ExecutionGraph:
    """Keep the plan."""
    replan = graph.replan
    return (
        graph if replan is None or replan.replan_id != event.replan_id else plan_kept(graph, event.reason, event.at_ms)
    )


def on_stage_replanned(graph: ExecutionGraph, event: StageReplanned) -> ExecutionGraph:
    """Take the new plan, unless something that it is based on has changed, or it does not fit."""
    replan, stage = graph.replan, running_stage(graph, event.replan_id, None)
    if (
        replan is None
        or replan.replan_id != event.replan_id
        or stage is None
        or held(stage, 0, event.task_attempt, event.executor_id) is None
    ):
        return graph
    if event.basis != replan.basis or not is_as_it_was(graph, replan.basis):
        return plan_kept(graph, CHANGED, event.at_ms)
    if event.stages and (why := why_not(graph, event)) is not None:
        return plan_kept(graph, f"the new plan does not fit: {why}", event.at_ms)
    stages: list[Stage] = list(graph.stages)
    stages[event.replan_id] = _done(stage, event)
    for i in event.dropped:
        stages[i] = superseded(stages[i], event.at_ms)
    stages += [UnresolvedStage(spec=spec) for spec in event.stages]
    ended = replace(
        replan,
        ended_ms=event.at_ms,
        is_taken=bool(event.stages),
        dropped=event.dropped,
        explain_digest=event.explain_digest,
        decisions=event.decisions,
    )
    plan = graph.plan
    if event.stages and plan is not None:
        plan = replace(plan, result_stage_id=event.result_stage_id, frame_digest=event.frame_digest)
    return settled(with_replan(replace(graph, stages=tuple(stages), plan=plan), ended), event.at_ms)


def _done(stage: RunningStage, event: StageReplanned) -> Stage:
    """Return the stage of a task that has planned; it leaves no output but its event."""
    marker = TaskOutput(
        nonce=f"replan-{event.replan_id}",
        task_attempt=event.task_attempt,
        executor_id=event.executor_id,
        is_shared=True,
        rows=0,
        bytes=0,
    )
    metrics: dict[int, TaskMetrics] = {0: event.metrics}
    return with_successes(stage, {0: marker}, metrics)


def why_not(graph: ExecutionGraph, event: StageReplanned) -> str | None:
    """Return why the stages of *event* cannot take the place of those that it drops, or None."""
    return next(_misfits(graph, event), None)


def _misfits(graph: ExecutionGraph, event: StageReplanned) -> Iterator[str]:
    dropped, known = {*event.dropped}, {stage.spec.stage_id: stage for stage in graph.stages}
    for i in event.dropped:
        stage = known.get(i)
        works = (StageWork.QUERY, StageWork.FEED, StageWork.PUBLISH_PLAN, StageWork.PUBLISH)
        may_go = stage is not None and isinstance(stage, UnresolvedStage | ResolvedStage | RunningStage)
        if stage is None or not may_go or stage.spec.work not in works or is_past_return(stage):
            yield f"stage {i} cannot be dropped"
    for expected, spec in enumerate(event.stages, start=len(graph.stages)):
        if spec.stage_id != expected or spec.partitions < 0 or spec.work in (StageWork.PLAN, StageWork.REPLAN):
            yield f"stage {spec.stage_id} stands where stage {expected} was expected"
        if spec.work is StageWork.FEED or spec.feed is not None:
            yield f"stage {spec.stage_id} grows, or is a feed"
        for source in spec.inputs:
            old = known.get(source.stage_id)
            is_there = source.stage_id not in dropped and old is not None and is_open(old)
            if source.stage_id >= spec.stage_id or not (source.stage_id >= len(graph.stages) or is_there):
                yield f"stage {spec.stage_id} reads stage {source.stage_id}, which is not there"
    yield from _unread(graph, event, dropped)


def _unread(graph: ExecutionGraph, event: StageReplanned, dropped: Collection[int]) -> Iterator[str]:
    """Yield each stage that is not done, and that nothing leads to."""
    assert graph.plan is not None
    by_id = {spec.stage_id: spec for spec in (*(s.spec for s in graph.stages), *event.stages)}
    result = by_id.get(event.result_stage_id)
    last = replace(graph.plan, result_stage_id=event.result_stage_id).last_stage_id
    is_new = event.result_stage_id >= len(graph.stages) and last == event.stages[-1].stage_id
    if result is None or result.work is not StageWork.QUERY or not is_new:
        yield f"stage {event.result_stage_id} cannot be the one with the result"
        return
    reached = reachable(last, lambda i: by_id[i].sources & by_id.keys())
    left = [s for s in graph.stages[1:] if not isinstance(s, SuccessfulStage | FusedStage | SupersededStage)]
    open_ids = {s.spec.stage_id for s in left if s.spec.work is not StageWork.REPLAN} - {*dropped}
    if astray := (open_ids | {spec.stage_id for spec in event.stages}) - reached:
        yield f"nothing reads {sorted(astray)}"
    if lost := reached & {*dropped}:
        yield f"something reads {sorted(lost)}"
