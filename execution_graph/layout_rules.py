"""How stages that are about to start are laid out: by what the stages that they read have measured.

Three rules, each of which saves tasks or the wait for one:

- *Fusing*: a stage and those that lead to it, none of which has launched a task, become one task, if what they read is
  small in all. The largest such tree wins.
- *Merging*: a task reads neighbouring small buckets.
- *Splitting*: several tasks read a bucket that is much larger than the others, each what some producers gave to it.

Pure functions of the graph, so that every scheduler decides alike; what is decided is an event (`layout_changes`).

Source: Spark's `CoalesceShufflePartitions` and `OptimizeSkewedJoin`. That splits from 256 MiB and 5 times the median
on; here what a task shall read, and twice the median, are enough, since the parts need no other exchange.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from statistics import median
from typing import Final

from onager.execution_graph.bucket_sizes import even_ranges, runs_up_to, sizes_by_bucket, total_bytes
from onager.execution_graph.events import StageLaidOut
from onager.execution_graph.graph import AdaptivePolicy, ExecutionGraph
from onager.execution_graph.layout_changes import may_be_laid_out
from onager.execution_graph.replan_rules import held_stages
from onager.execution_graph.stages import ResolvedStage, Stage, StageInput, SuccessfulStage, TaskRead, reachable

_MIB: Final = 1 << 20
_WORTH_A_TASK_BYTES: Final = _MIB
"""With fewer bytes per slot than this, fewer slots are used; as where the job is planned."""
_SKEWED_FACTOR: Final = 2
_MAX_PARTS: Final = 1_000
"""Of one bucket; up to twice as many if its producers' shares do not fit together."""


def lay_out(graph: ExecutionGraph, slots: int, at_ms: int) -> tuple[StageLaidOut, ...]:
    """Return how stages of *graph* are laid out that `scheduling.revive` would start, in a cluster of *slots*.

    None of the events concerns what another one does. Without a stage to start, this costs a look at each stage.
    """
    policy = graph.adaptive
    if policy is None or graph.streaming is not None or not graph.is_active:
        return ()
    held = held_stages(graph, at_ms)
    resolved = (s for s in graph.stages if isinstance(s, ResolvedStage) and s.spec.stage_id not in held)
    ready = [stage for stage in resolved if may_be_laid_out(stage)]
    events: list[StageLaidOut] = []
    # The lowest stages of a tree read nothing that is not there, so they are among those that would start.
    if any(stage.spec.may_fuse for stage in ready):
        events += _fusions(graph, policy.fuse_bytes, at_ms, held)
    taken = {stage_id for event in events for stage_id in (event.stage_id, *event.fused)}
    for stage in ready:
        reads = () if stage.spec.stage_id in taken else _reads(graph, stage, policy, slots)
        if reads:
            events.append(_event(graph, stage.spec.stage_id, at_ms, reads=reads))
    return tuple(events)


def _event(
    graph: ExecutionGraph,
    stage_id: int,
    at_ms: int,
    *,
    fused: tuple[int, ...] = (),
    reads: tuple[TaskRead, ...] = (),
) -> StageLaidOut:
    group = (*fused, stage_id)
    concerned = {*group, *(source.stage_id for i in group for source in graph.stages[i].spec.inputs)}
    basis = tuple((i, graph.stages[i].attempt) for i in sorted(concerned))
    return StageLaidOut(stage_id=stage_id, basis=basis, fused=fused, reads=reads, at_ms=at_ms)


# ---------------------------------------------------------------- fusing


def _fusions(
    graph: ExecutionGraph, most_bytes: int, at_ms: int, held: AbstractSet[int] = frozenset()
) -> Iterator[StageLaidOut]:
    """Yield the largest trees of stages, none in *held*, that read no more than *most_bytes*, each as one stage."""
    readers = Counter(source.stage_id for stage in graph.stages for source in stage.spec.inputs)
    cost: dict[int, int] = {}
    """What a stage and all before it that are not done read, where they can be one task."""
    for stage in graph.stages:
        # What reads no other stage is there to be started at once, and nothing of it was measured.
        may_go = stage.spec.may_fuse and stage.spec.stage_id not in held
        if may_go and stage.spec.inputs and may_be_laid_out(stage):
            reads_bytes = _bytes_read(graph, stage, cost, readers, most_bytes)
            if reads_bytes <= most_bytes:
                cost[stage.spec.stage_id] = reads_bytes
    taken: set[int] = set()
    for stage_id in sorted(cost, reverse=True):  # readers come last, so the largest tree comes first
        if stage_id not in taken:
            group = reachable(stage_id, lambda i: {s.stage_id for s in graph.stages[i].spec.inputs} & cost.keys())
            taken |= group
            if fused := tuple(sorted(group - {stage_id})):
                yield _event(graph, stage_id, at_ms, fused=fused)


def _bytes_read(
    graph: ExecutionGraph, stage: Stage, cost: dict[int, int], readers: Counter[int], most_bytes: int
) -> int:
    """Return what the tree below *stage* reads, or more than *most_bytes* if that is no tree that can be fused."""
    total = stage.spec.leaf_bytes
    for source in stage.spec.inputs:
        producer = graph.stages[source.stage_id]
        if isinstance(producer, SuccessfulStage):
            for output in producer.ledger.outputs.values():
                total += output.bytes
                if total > most_bytes:
                    return total
        elif source.stage_id in cost and readers[source.stage_id] == 1:
            total += cost[source.stage_id]
        else:
            return most_bytes + 1
    return total


# ---------------------------------------------------------------- merging and splitting


def _reads(graph: ExecutionGraph, stage: Stage, policy: AdaptivePolicy, slots: int) -> tuple[TaskRead, ...]:
    """Return what each task of *stage* shall read; nothing if that is what was planned, or sizes are not known."""
    spec, buckets = stage.spec, stage.spec.partitions
    by_bucket = [source for source in spec.inputs if source.read == "bucket"]
    if not by_bucket or buckets < 2 or not (spec.may_merge or any(source.may_split for source in by_bucket)):
        return ()
    sizes: dict[int, list[bytes]] = {}
    for source in by_bucket:
        producer = graph.stages[source.stage_id]
        found = None
        if producer.spec.output.buckets == buckets:
            found = sizes_by_bucket(producer.ledger.outputs, producer.spec.partitions, buckets)
        if found is None:
            return ()
        sizes[source.stage_id] = found
    totals = {stage_id: [total_bytes(each) for each in columns] for stage_id, columns in sizes.items()}
    parts = _parts(by_bucket, sizes, totals, policy.target_bytes)
    whole = [sum(totals[source.stage_id][bucket] for source in by_bucket) for bucket in range(buckets)]
    most = _most_bytes(sum(n for bucket, n in enumerate(whole) if bucket not in parts), policy.target_bytes, slots)
    reads: list[TaskRead] = []
    for is_split, some in groupby(range(buckets), parts.__contains__):
        run = list(some)
        if is_split:
            reads += [part for bucket in run for part in parts[bucket]]
            continue
        first, end = run[0], run[-1] + 1
        merged = runs_up_to(whole[first:end], most) if spec.may_merge else [(n, n + 1) for n in range(len(run))]
        reads += [TaskRead(first_bucket=first + a, end_bucket=first + b) for a, b in merged]
    is_as_planned = not parts and len(reads) == buckets
    return () if is_as_planned else tuple(reads)


def _most_bytes(total: int, target_bytes: int, slots: int) -> int:
    """Return how much of *total* a task reads at most: every slot gets something, unless that is too little."""
    return min(target_bytes, max(total // max(slots, 1), _WORTH_A_TASK_BYTES))


def _parts(
    inputs: Sequence[StageInput], sizes: dict[int, list[bytes]], totals: dict[int, list[int]], target_bytes: int
) -> dict[int, list[TaskRead]]:
    """Return the tasks that share each bucket that is much larger than others of the same input.

    Each of them reads all of the other inputs' bucket, and no less than that of its own.
    """
    times_read = Counter(source.stage_id for source in inputs)  # one that is read twice meets itself in a join
    found: dict[int, tuple[int, int]] = {}
    """The input to be split, and its bytes, by bucket."""
    middle: dict[int, float] = {}
    for source in inputs:
        stage_id = source.stage_id
        if not source.may_split or times_read[stage_id] > 1:
            continue
        middle[stage_id] = median(totals[stage_id])
        least = max(_SKEWED_FACTOR * middle[stage_id], target_bytes)
        for bucket, size in enumerate(totals[stage_id]):
            if size > least and size > found.get(bucket, (0, 0))[1]:
                found[bucket] = (stage_id, size)
    parts = {}
    for bucket, (stage_id, size) in found.items():
        beside = sum(each[bucket] for other, each in totals.items() if other != stage_id)
        most = max(target_bytes, int(middle[stage_id]), beside, size // _MAX_PARTS)
        pieces = even_ranges(sizes[stage_id][bucket], most)
        if len(pieces) > 1:
            parts[bucket] = [
                TaskRead(
                    first_bucket=bucket,
                    end_bucket=bucket + 1,
                    split_stage_id=stage_id,
                    first_producer=first,
                    end_producer=end,
                )
                for first, end in pieces
            ]
    return parts
