"""What holds for every graph that `apply` can reach: tests check it after every event, an admin over a store."""

from collections.abc import Iterator

from onager.execution_graph.graph import PLAN_STAGE_ID, ExecutionGraph, Failed, Succeeded
from onager.execution_graph.layout_changes import covers
from onager.execution_graph.plan_checks import check_stages
from onager.execution_graph.settling import has_inputs, is_complete
from onager.execution_graph.speculation import may_be_speculated
from onager.execution_graph.stages import (
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

_NO_LEDGER = TaskLedger()


def violations(graph: ExecutionGraph) -> tuple[str, ...]:
    """Return a sentence for each invariant that *graph* breaks; empty for a sound one."""
    return tuple(_of_graph(graph)) + tuple(v for stage in graph.stages for v in _of_stage(graph, stage))


def _of_graph(graph: ExecutionGraph) -> Iterator[str]:
    if not graph.stages or graph.stages[PLAN_STAGE_ID].spec.work is not StageWork.PLAN:
        yield "the first stage is not the PLAN stage"
        return
    planned = tuple(s.spec for s in graph.stages[1:])
    if (graph.plan is None) != (not planned):
        yield "stages and plan summary do not come together"
    why = check_stages(planned, _unread(graph)) if planned else None
    if why is not None:
        yield why
    failed = [s for s in graph.stages if isinstance(s, FailedStage)]
    if bool(failed) != isinstance(graph.outcome, Failed):
        yield f"{len(failed)} stages failed, but the outcome is {graph.outcome.type}"
    if graph.is_done != isinstance(graph.outcome, Succeeded):
        yield f"the last stage is {graph.last_stage.state}, but the outcome is {graph.outcome.type}"
    yield from _of_replans(graph)


def _unread(graph: ExecutionGraph) -> set[int]:
    """Return the stages that need no reader."""
    found = {
        s.spec.stage_id
        for s in graph.stages
        if isinstance(s, FusedStage) or (isinstance(s, SupersededStage) and s.planned is not None)
    }
    if graph.replans:  # the new plan may do without what is done
        found |= {s.spec.stage_id for s in graph.stages if isinstance(s, SuccessfulStage | SupersededStage)}
        found |= {graph.last_stage.spec.stage_id, *(replan.replan_id for replan in graph.replans)}
    return found


def _of_replans(graph: ExecutionGraph) -> Iterator[str]:
    for replan in graph.replans:
        stage = graph.stages[replan.replan_id]
        is_under_way = not replan.ended_ms
        if is_under_way and replan is not graph.replans[-1]:
            yield f"re-plan {replan.replan_id} is under way beside another one"
        if stage.spec.work is not StageWork.REPLAN or is_under_way != isinstance(stage, RunningStage):
            yield f"re-plan {replan.replan_id} ended at {replan.ended_ms}, and its stage is {stage.state}"
        if lacking := [i for i in replan.dropped if not isinstance(graph.stages[i], SupersededStage)]:
            yield f"re-plan {replan.replan_id} did without stages that are there: {lacking}"
    if len(graph.replans) != sum(s.spec.work is StageWork.REPLAN for s in graph.stages):
        yield "there are other stages of re-plans than re-plans"


def _of_stage(graph: ExecutionGraph, stage: Stage) -> Iterator[str]:  # noqa: C901, PLR0912 - one after the other
    name, ledger, count = f"stage {stage.spec.stage_id}", stage.ledger, stage.spec.partitions
    can_run = has_inputs(stage.spec, graph.stages, is_streaming=graph.is_streaming)
    if isinstance(stage, ResolvedStage | RunningStage) and graph.is_active and not can_run:
        yield f"{name} is {stage.state} without all of its inputs"
    if isinstance(stage, UnresolvedStage) and can_run:
        yield f"{name} is unresolved though all of its inputs are there"
    was_cut_short = graph.is_streaming and stage.spec.output.kind == "exchange"
    if isinstance(stage, SuccessfulStage) and len(ledger.outputs) != count and not was_cut_short:
        yield f"{name} is successful with {len(ledger.outputs)} of {count} outputs"
    if any(not 0 <= p < count for p in ledger.outputs):
        yield f"{name} has an output of a partition that it does not have"
    if any(o.task_attempt < ledger.next_attempt(p) for p, o in ledger.outputs.items()):
        yield f"{name} took an output of an attempt that was given up"
    if graph.is_streaming and stage.spec.work is StageWork.QUERY:
        yield from _of_streaming(stage, name)
    if graph.is_active and not isinstance(stage, SuccessfulStage) and not _is_needed(graph, stage):
        yield f"{name} is {stage.state} though everything that reads it is successful"
    limit = graph.limits.task_max_failures
    if graph.is_active and any(n >= limit for n in ledger.failures.values()):
        yield f"{name} has a partition that failed more often than is allowed"
    if any(p in ledger.outputs for p in ledger.suspicions):
        yield f"{name} suspects a partition that has its output"
    if any(o.is_durable != (not o.incarnation) for o in ledger.outputs.values()):
        yield f"{name} has an output that is bound to a life though it outlives it, or the other way round"
    yield from _of_layout(graph, stage, name)
    if stage.spec.taken is not None and (not isinstance(stage, SuccessfulStage) or stage.spec.inputs):
        yield f"{name} has taken another job's output, and is {stage.state} or reads others"
    if isinstance(stage, SupersededStage):
        yield from _of_superseded(graph, stage, name)
    if stage.spec.feed is not None:
        yield from _of_feed(stage, graph.stages[stage.spec.feed.stage_id], name)
    if isinstance(stage, RunningStage):
        yield from _of_running(stage, name)
        yield from _of_speculation(graph, stage, name)


def _of_layout(graph: ExecutionGraph, stage: Stage, name: str) -> Iterator[str]:
    spec, layout = stage.spec, stage.spec.layout
    if isinstance(stage, FusedStage):
        into = graph.stages[stage.into].spec.layout if 0 <= stage.into < len(graph.stages) else None
        if into is None or spec.stage_id not in into.fused:
            yield f"{name} is fused into stage {stage.into}, which does not compute it"
        if spec.partitions or spec.inputs or stage.ledger != _NO_LEDGER:
            yield f"{name} is fused, and has tasks or inputs of its own"
        if any(source.stage_id == spec.stage_id for s in graph.stages for source in s.spec.inputs):
            yield f"{name} is fused, and something reads it"
    if layout is None:
        return
    lacking = [i for i in layout.fused if not isinstance(graph.stages[i], FusedStage)]
    if lacking:
        yield f"{name} computes stages that are not fused into it: {lacking}"
    if isinstance(stage, SupersededStage):
        return  # the layout that it had is kept, and it has no tasks any more
    tasks = 1 if layout.fused else len(layout.reads)
    if spec.partitions != tasks or bool(layout.fused) == bool(layout.reads):
        yield f"{name} has {spec.partitions} tasks, and a layout of {tasks}"
    partitions = {source.stage_id: graph.stages[source.stage_id].spec.partitions for source in spec.inputs}
    if layout.reads and not covers(layout.reads, layout.planned_partitions, partitions):
        yield f"{name} does not read every bucket once"


def _of_superseded(graph: ExecutionGraph, stage: SupersededStage, name: str) -> Iterator[str]:
    if stage.spec.partitions or stage.spec.inputs or stage.ledger.outputs or stage.ledger.attempts:
        yield f"{name} is superseded, and has tasks or inputs"
    if any(source.stage_id == stage.spec.stage_id for s in graph.stages for source in s.spec.inputs):
        yield f"{name} is superseded, and something reads it"


def _of_feed(stage: Stage, feeding: Stage, name: str) -> Iterator[str]:
    feed, given = stage.spec.feed, feeding.ledger.outputs
    if feed is None:
        return
    if isinstance(stage, SuccessfulStage) and not feed.has_ended:
        yield f"{name} is successful before its feed has ended"
    if feed.has_ended != isinstance(feeding, SuccessfulStage):
        yield f"{name} has a feed that is {feeding.state}, and {'has' if feed.has_ended else 'has not'} ended"
    if [given[p].payload_digest for p in sorted(given)] != [each.digest for each in feed.portions[feed.planned :]]:
        yield f"{name} does not have the partitions that its feed gave, each once"
    if len(given) != feeding.spec.partitions - (not feed.has_ended):
        yield f"{name} has a feed of {feeding.spec.partitions} tasks, of which {len(given)} are done"


def _of_running(stage: RunningStage, name: str) -> Iterator[str]:
    ledger, count = stage.ledger, stage.spec.partitions
    if is_complete(stage):
        yield f"{name} is running though every partition has its output"
    if any(p in ledger.outputs for p in stage.running):
        yield f"{name} runs a partition that has its output"
    if any(t.attempt != ledger.next_attempt(p) for p, t in stage.running.items()):
        yield f"{name} runs a partition under an attempt number that is not its own"
    if list(stage.returned) != sorted(set(stage.returned)) or any(p >= stage.next_fresh for p in stage.returned):
        yield f"{name} has returned partitions out of order or beyond the fresh ones: {stage.returned}"
    if not set(stage.paused) <= set(stage.returned):
        yield f"{name} pauses partitions that do not wait: {sorted(stage.paused)}"
    if stage.spec.work is StageWork.STEP:
        if stage.running or stage.next_fresh or stage.returned:
            yield f"{name} is a step, and has tasks"
        return
    fresh = {p for p in range(stage.next_fresh, count) if p not in ledger.outputs}
    pending = fresh | set(stage.returned)
    everything = pending | set(stage.running) | set(ledger.outputs)
    if everything != set(range(count)) or len(pending) != stage.pending_count:
        yield f"{name} lost sight of partitions: {sorted(set(range(count)) ^ everything)[:5]}"


def _of_speculation(graph: ExecutionGraph, stage: RunningStage, name: str) -> Iterator[str]:
    for partition, task in stage.speculative.items():
        first = stage.running.get(partition)
        number = stage.ledger.speculated.get(partition)
        if first is None or not task.attempt == first.attempt + 1 == number:
            yield f"{name} runs a second attempt of {partition} that does not go with a first one"
        elif task.executor_id == first.executor_id:
            yield f"{name} runs both attempts of {partition} on one executor"
    waiting = stage.speculatable
    if list(waiting) != sorted(set(waiting)) or not all(may_be_speculated(stage, p) for p in waiting):
        yield f"{name} waits for second attempts that may not be: {waiting}"
    if (waiting or stage.speculative) and graph.speculation is None:
        yield f"{name} has second attempts that its job does not want"


def _of_streaming(stage: Stage, name: str) -> Iterator[str]:
    ledger = stage.ledger
    if ledger.failures or ledger.failed_fetch_attempts:
        yield f"{name} counts failures, of which the first should have ended streaming"
    if stage.spec.output.kind == "exchange" and any(o.is_durable for o in ledger.outputs.values()):
        yield f"{name} has an output that would outlive its executor, and lies nowhere"
    if isinstance(stage, RunningStage) and (stage.speculatable or stage.speculative):
        yield f"{name} runs tasks twice, of which others read"


def _is_needed(graph: ExecutionGraph, stage: Stage) -> bool:
    readers = [s for s in graph.stages if any(i.stage_id == stage.spec.stage_id for i in s.spec.inputs)]
    return not readers or any(not isinstance(s, SuccessfulStage) for s in readers)
