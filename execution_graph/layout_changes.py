"""The effect of a stage's layout (`layout_rules` decides it): it has other tasks, and computes stages before it, too.

The effect depends on states, attempts and the event only.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from onager.execution_graph.events import StageLaidOut
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.settling import settled
from onager.execution_graph.stages import (
    FusedStage,
    ResolvedStage,
    Stage,
    StageInput,
    StageLayout,
    StageWork,
    SuccessfulStage,
    TaskRead,
    UnresolvedStage,
)


def may_be_laid_out(stage: Stage) -> bool:
    """Return whether *stage*, of a query, is as it was planned, and has never launched a task."""
    return (
        isinstance(stage, UnresolvedStage | ResolvedStage)
        and stage.spec.work is StageWork.QUERY
        and stage.spec.plan_digest is not None
        and stage.spec.layout is None
        and stage.spec.feed is None
        and not stage.ledger.attempts
        and not stage.ledger.outputs
    )


def covers(reads: Sequence[TaskRead], buckets: int, producers: Mapping[int, int]) -> bool:
    """Return whether *reads* are of each of *buckets* once, in order; *producers* has the inputs' numbers of tasks.

    A bucket may come in several parts, which together are what all tasks of one input gave.
    """
    bucket = producer = part_of = 0
    for read in reads:
        if read.first_bucket != bucket or not bucket < read.end_bucket <= buckets:
            return False
        if not read.split_stage_id:
            if producer:
                return False
            bucket = read.end_bucket
            continue
        count = producers.get(read.split_stage_id, 0)
        is_next = read.first_producer == producer < read.end_producer <= count
        if not is_next or read.end_bucket != bucket + 1 or (producer and read.split_stage_id != part_of):
            return False
        producer, part_of = read.end_producer, read.split_stage_id
        if producer == count:
            bucket, producer = bucket + 1, 0
    return bucket == buckets and not producer


def on_stage_laid_out(graph: ExecutionGraph, event: StageLaidOut) -> ExecutionGraph:
    """Give the stage its tasks, unless anything is not as it was when that was decided."""
    ids = (*event.fused, event.stage_id)
    if graph.streaming is not None or not all(0 <= i < len(graph.stages) for i in ids) or len({*ids}) < len(ids):
        return graph
    group = {i: graph.stages[i] for i in ids}
    inputs = sorted({source.stage_id for stage in group.values() for source in stage.spec.inputs} - group.keys())
    if (
        not all(may_be_laid_out(stage) for stage in group.values())
        or not all(isinstance(graph.stages[i], SuccessfulStage) for i in inputs)
        or event.basis != tuple((i, graph.stages[i].attempt) for i in sorted({*ids, *inputs}))
    ):
        return graph
    if event.fused and not event.reads:
        return _fused(graph, event, group, inputs)
    return _with_reads(graph, event) if event.reads and not event.fused else graph


def _fused(
    graph: ExecutionGraph, event: StageLaidOut, group: Mapping[int, Stage], inputs: Sequence[int]
) -> ExecutionGraph:
    read = Counter(source.stage_id for stage in graph.stages for source in stage.spec.inputs)
    read_inside = Counter(source.stage_id for stage in group.values() for source in stage.spec.inputs)
    if not all(read[i] == read_inside[i] == 1 for i in event.fused):
        return graph  # something else waits for its output
    stages = list(graph.stages)
    stage = stages[event.stage_id]
    spec = replace(
        stage.spec,
        partitions=1,
        inputs=tuple(StageInput(i, "all") for i in inputs),
        is_deterministic=all(each.spec.is_deterministic for each in group.values()),
        layout=StageLayout(planned_partitions=stage.spec.partitions, fused=tuple(sorted(event.fused))),
    )
    stages[event.stage_id] = replace(stage, spec=spec)
    for i in event.fused:
        gone = replace(stages[i].spec, partitions=0, inputs=())
        stages[i] = FusedStage(spec=gone, attempt=stages[i].attempt, into=event.stage_id)
    return settled(replace(graph, stages=tuple(stages)), event.at_ms)


def _with_reads(graph: ExecutionGraph, event: StageLaidOut) -> ExecutionGraph:
    stages = list(graph.stages)
    stage = stages[event.stage_id]
    planned = stage.spec.partitions
    producers = {i.stage_id: stages[i.stage_id].spec.partitions for i in stage.spec.inputs if i.read == "bucket"}
    is_of_each = all(stages[i].spec.output.buckets == planned for i in producers)
    if not producers or not is_of_each or not covers(event.reads, planned, producers):
        return graph
    layout = StageLayout(planned_partitions=planned, reads=event.reads)
    spec = replace(stage.spec, partitions=len(event.reads), layout=layout)
    stages[event.stage_id] = replace(stage, spec=spec)
    return replace(graph, stages=tuple(stages))
