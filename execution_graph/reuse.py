"""Outputs of other jobs, taken in place of computing the same again.

A planner gives each stage that may be reused a fingerprint: a digest of what it computes, from which inputs (files by
path, size and time) and under which settings. A stage takes the output of a stage of another job that has the same
one, and then nothing before it is computed that no other stage reads. Should that output be lost, all that was taken of
that job is computed after all, and so is what was made of it: the other job may have divided the rows otherwise.
"""

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from onager.caches import cache_of
from onager.execution_graph.events import OutputsTaken, TakenOutput
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.settling import settled, superseded
from onager.execution_graph.stages import (
    FusedStage,
    ResolvedStage,
    Stage,
    StageSpec,
    StageWork,
    SuccessfulStage,
    SupersededStage,
    TakenFrom,
    TaskLedger,
    TaskOutput,
    UnresolvedStage,
    reachable,
)
from onager.execution_graph.task_metrics import TaskMetrics

MAX_REUSABLE = 64
"""The stages of a job whose outputs others may take: heads of jobs are small. The last ones save the most."""


def reusable_stages(graph: ExecutionGraph) -> dict[str, int]:
    """Return the stages whose outputs other jobs may take, by their fingerprints."""
    found = [stage.spec for stage in graph.stages if outputs_to_take(stage)][-MAX_REUSABLE:]
    return {spec.fingerprint: spec.stage_id for spec in found}


def outputs_to_take(stage: Stage) -> tuple[TaskOutput, ...]:
    """Return what another job may take of *stage*, by partition; empty: nothing.

    What it took from another job is that job's to give.
    """
    spec, outputs = stage.spec, stage.ledger.outputs
    if not isinstance(stage, SuccessfulStage) or not spec.fingerprint or spec.taken is not None:
        return ()
    if spec.output.kind != "exchange" or len(outputs) != spec.partitions or not all(map(_stays, outputs.values())):
        return ()
    return tuple(outputs[partition] for partition in range(spec.partitions))


def _stays(output: TaskOutput) -> bool:
    return output.is_shared and not output.is_inline


def worth_taking(stages: Sequence[StageSpec], result_stage_id: int, offered: Callable[[StageSpec], bool]) -> list[int]:
    """Return which of *stages*, of a new plan, take an output that is *offered*, ascending.

    These are the last ones: what comes before them is then not needed.
    """
    by_id = {spec.stage_id: spec for spec in stages}
    found: set[int] = set()
    seen, below = {result_stage_id}, [result_stage_id]
    while below:
        spec = by_id[below.pop()]
        if spec.fingerprint and spec.output.kind == "exchange" and offered(spec):
            found.add(spec.stage_id)
            continue
        below += spec.sources - seen
        seen |= spec.sources
    return sorted(found)


def on_outputs_taken(graph: ExecutionGraph, event: OutputsTaken) -> ExecutionGraph:
    """Take outputs of other jobs, all or none, and leave out what only those stages read that take them.

    That is so only right after planning: nothing of the plan has begun.
    """
    if graph.plan is None or graph.may_stream or not all(map(_is_untouched, graph.stages[1:])):
        return graph
    if not all(_fits(graph, each) for each in event.taken):
        return graph
    stages = list(graph.stages)
    for each in event.taken:
        stages[each.stage_id] = _with_taken(stages[each.stage_id], each, event.at_ms)
    needed = reachable(graph.last_stage.spec.stage_id, lambda i: stages[i].spec.sources)
    left_out = [stage for stage in stages[1:] if stage.spec.stage_id not in needed]
    if any(stage.spec.work is not StageWork.QUERY or stage.spec.feed is not None for stage in left_out):
        return graph
    for stage in left_out:
        stages[stage.spec.stage_id] = replace(
            superseded(stage, event.at_ms), planned=graph.stages[stage.spec.stage_id].spec
        )
    return settled(replace(graph, stages=tuple(stages)), event.at_ms)


def _is_untouched(stage: Stage) -> bool:
    is_waiting = isinstance(stage, UnresolvedStage | ResolvedStage)
    return is_waiting and stage.ledger == TaskLedger() and stage.spec.layout is None


def _fits(graph: ExecutionGraph, taken: TakenOutput) -> bool:
    if not 0 < taken.stage_id < len(graph.stages):
        return False
    spec = graph.stages[taken.stage_id].spec
    is_same = bool(spec.fingerprint) and spec.fingerprint == taken.fingerprint  # the report of a plan may come late
    is_fixed = spec.is_deterministic or bool(cache_of(spec.fingerprint))  # a program caches what it wants to stay
    is_alike = spec.work is StageWork.QUERY and spec.output.kind == "exchange" and is_fixed
    has_all = bool(taken.outputs) and all(map(_stays, taken.outputs))
    return is_same and is_alike and spec.feed is None and has_all and taken.job_id != graph.job_id


def _with_taken(stage: Stage, taken: TakenOutput, at_ms: int) -> SuccessfulStage:
    spec = stage.spec
    cost = TaskMetrics(
        rows_out=sum(output.rows for output in taken.outputs), bytes_out=sum(output.bytes for output in taken.outputs)
    )
    outputs = {number: replace(output, task_attempt=0) for number, output in enumerate(taken.outputs)}
    return SuccessfulStage(
        spec=replace(
            spec,
            inputs=(),
            partitions=len(outputs),
            taken=TakenFrom(
                job_id=taken.job_id, stage_id=taken.of_stage_id, inputs=spec.inputs, partitions=spec.partitions
            ),
        ),
        attempt=stage.attempt,
        ledger=TaskLedger().with_outputs(outputs, {0: cost}),
        started_ms=at_ms,
        ended_ms=at_ms,
    )


def taken_in(graph: ExecutionGraph, stage_ids: Collection[int]) -> set[str]:
    """Return the jobs whose outputs those of *stage_ids* have taken."""
    specs = [graph.stages[i].spec for i in stage_ids]
    return {spec.taken.job_id for spec in specs if spec.taken is not None}


def taken_of(graph: ExecutionGraph, sources: Collection[str]) -> list[int]:
    """Return the stages that have taken outputs of the jobs *sources*."""
    specs = [stage.spec for stage in graph.stages]
    return [spec.stage_id for spec in specs if spec.taken is not None and spec.taken.job_id in sources]


def with_taken_lost(graph: ExecutionGraph, lost: Collection[int]) -> ExecutionGraph | None:
    """Return *graph* with the stages *lost*, which had taken outputs, to be computed, and with all that they read.

    None: under this plan they cannot be.
    """
    stages = list(graph.stages)
    for number in lost:
        stage, taken = stages[number], stages[number].spec.taken
        assert taken is not None
        spec = replace(stage.spec, inputs=taken.inputs, partitions=taken.partitions, taken=None)
        ledger = TaskLedger(tasks_lost=stage.ledger.tasks_lost + len(stage.ledger.outputs))
        stages[number] = UnresolvedStage(spec=spec, attempt=stage.attempt + 1, ledger=ledger)
    below = list(lost)
    while below:
        for source in stages[below.pop()].spec.inputs:
            stage = stages[source.stage_id]
            if isinstance(stage, SupersededStage) and stage.planned is not None:
                stages[source.stage_id] = UnresolvedStage(spec=stage.planned, attempt=stage.attempt + 1)
                below.append(source.stage_id)
            elif isinstance(stage, SupersededStage | FusedStage):
                return None
    return replace(graph, stages=tuple(stages))
