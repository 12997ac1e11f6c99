"""What executors are asked to read and to compute, held against the graph."""

from collections import Counter
from typing import TYPE_CHECKING

from onager.execution_graph import ExecutionGraph, ExecutorLife, FusedStage, RunningStage, is_streaming, streams_of
from onager.protocol import onager_pb2 as pb

if TYPE_CHECKING:
    from tests.simulation.observer import Observer


def check(observer: "Observer", life: str, task_set: pb.TaskSet) -> None:
    """A task reads the winning outputs: the inputs of a stage's attempt do not change."""
    job = observer.jobs[task_set.job_id]
    stage = job.graph.stages[task_set.stage_id] if job.graph and job.graph.is_active else None
    if job.graph is None or not isinstance(stage, RunningStage) or stage.attempt != task_set.stage_attempt:
        return
    _check_streams(observer, life, task_set, job.graph, stage)
    _check_layout(observer, life, task_set, job.graph, stage)
    for location in task_set.inputs:
        outputs = job.graph.stages[location.stage_id].ledger.outputs
        given, known = [o.nonce for o in location.outputs], [outputs[p].nonce for p in sorted(outputs)]
        if given != known:
            where = f"{job.job_id}/{task_set.stage_id} in attempt {stage.attempt}"
            observer.fail(f"{life} is asked to read {given} for {where}, where {known} count")


def _check_layout(
    observer: "Observer", life: str, task_set: pb.TaskSet, graph: ExecutionGraph, stage: RunningStage
) -> None:
    """What tasks are asked to read and to compute is all that was planned, once."""
    where, fused = f"{task_set.job_id}/{task_set.stage_id}", [each.stage_id for each in task_set.fused]
    known = [s.spec.stage_id for s in graph.stages if isinstance(s, FusedStage) and s.into == task_set.stage_id]
    if fused != known or any(not each.plan_digest for each in task_set.fused):
        observer.fail(f"{life} is given {where} with the fused stages {fused}, which are {known}")
    if fused and (task_set.partitions != 1 or task_set.reads):
        observer.fail(f"{life} is asked to compute {where} and {fused} in several tasks")
    if not task_set.reads:
        return
    if task_set.partitions != len(task_set.reads):
        observer.fail(f"{life} gets {len(task_set.reads)} reads for {task_set.partitions} tasks of {where}")
    buckets = 0 if stage.spec.layout is None else stage.spec.layout.planned_partitions
    for location in task_set.inputs:
        read = Counter[tuple[int, int]]()
        shared = {r.first_bucket for r in task_set.reads if r.split_stage_id not in (0, location.stage_id)}
        for each in task_set.reads:
            is_part = each.split_stage_id == location.stage_id
            first, end = (each.first_producer, each.end_producer) if is_part else (0, len(location.outputs))
            read.update((b, p) for b in range(each.first_bucket, each.end_bucket) for p in range(first, end))
        wrong = [
            (b, p) for b in range(buckets) for p in range(len(location.outputs)) if read[b, p] != 1 and b not in shared
        ]
        if wrong or any(b >= buckets for b, _ in read):
            observer.fail(f"{life} is asked to read {wrong[:5]} of stage {location.stage_id} not once for {where}")


def _check_streams(
    observer: "Observer", life: str, task_set: pb.TaskSet, graph: ExecutionGraph, stage: RunningStage
) -> None:
    where = f"{task_set.job_id}/{task_set.stage_id} in attempt {stage.attempt}"
    if task_set.streaming != is_streaming(graph, stage):
        observer.fail(f"{life} gets for {where} that it is {'' if task_set.streaming else 'not '}to stream")
        return
    if not task_set.streaming:
        return
    given = [(s.stage_id, s.stage_attempt, [(t.task_attempt, t.address) for t in s.tasks]) for s in task_set.streams]
    known = [
        (
            s.stage_id,
            s.stage_attempt,
            [(a, _stream_address(observer, life, x)) for (a, life), (_, x) in zip(s.tasks, mine, strict=False)],
        )
        for s, (_, _, mine) in zip(streams_of(graph, task_set.stage_id), given, strict=False)
    ]
    if given != known:
        observer.fail(f"{life} is asked to read {given} for {where}, where {known} run")


def _stream_address(observer: "Observer", executor: ExecutorLife, given: str) -> str:
    """Return where the life of an executor streams; one that is over need not be known any more."""
    record = observer.executors.get(executor.executor_id)
    is_over = record is None or record.incarnation != executor.incarnation or record.state == "lost"
    return given if is_over and not given else observer.exchange.stream_addresses[executor.incarnation]
