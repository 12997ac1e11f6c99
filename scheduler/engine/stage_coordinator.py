"""Drives one stage: makes the task sets that executors are sent."""

from collections.abc import Iterable, Iterator

from onager.execution_graph import (
    ExecutionGraph,
    Feed,
    LaunchEvent,
    Portion,
    Stage,
    StageWork,
    TaskRead,
    UnresolvedStage,
    bytes_in_memory,
    is_repeatable,
    is_streaming,
    stage_fed_by,
)
from onager.protocol import onager_pb2 as pb
from onager.scheduler import wire
from onager.scheduler.engine.streams import Streams


class StageCoordinator:
    """One attempt of one stage; its inputs are fixed for as long as the attempt, so they are gathered once."""

    def __init__(self, graph: ExecutionGraph, stage_id: int, streams: Streams) -> None:
        stage = graph.stages[stage_id]
        self.attempt = stage.attempt
        streaming = is_streaming(graph, stage)
        layout = stage.spec.layout
        self._template = pb.TaskSet(
            job_id=graph.job_id,
            stage_id=stage_id,
            stage_attempt=stage.attempt,
            work=wire.WORK[stage.spec.work],
            spec_digest=graph.spec_digest,
            plan_digest=stage.spec.plan_digest or "",
            partitions=stage.spec.partitions,
            fused=[_fused(graph.stages[i]) for i in layout.fused] if layout is not None else [],
            reads=[_read(each) for each in layout.reads] if layout is not None else [],
            streaming=streaming,
            streams=streams.inputs_of(graph, stage_id) if streaming else [],
            output=wire.layout_message(stage.spec.output),
        )
        if stage.spec.work is StageWork.REPLAN:
            self._template.replan.CopyFrom(_replan(graph))
        self.inputs = pb.TaskSet(
            inputs=[] if streaming else [_locations(graph.stages[source.stage_id]) for source in stage.spec.inputs]
        )
        """Only the inputs, which may be many."""
        self.inputs_digest = ""
        """The digest of the blob with the inputs, once there is one."""
        if graph.plan is not None and graph.plan.sink is not None:
            writes = stage.spec.output.kind == "sink" or stage.spec.work in (StageWork.PUBLISH_PLAN, StageWork.PUBLISH)
            if writes:
                self._template.sink.CopyFrom(wire.sink_message(graph.plan.sink))
            if stage.spec.work is StageWork.PUBLISH_PLAN:
                self._template.sink.schema_json = graph.plan.schema_json

    def task_sets(self, graph: ExecutionGraph, launch: LaunchEvent) -> list[pb.TaskSet]:
        """Return the messages for the executor of *launch*: one, or one for each portion of a growing stage."""
        found = self._task_sets(graph, launch)
        ledger = graph.stages[launch.stage_id].ledger
        for task in (task for task_set in found for task in task_set.tasks if ledger.suspicions):
            task.alone = ledger.runs_alone(task.partition)
        return found

    def _task_sets(self, graph: ExecutionGraph, launch: LaunchEvent) -> list[pb.TaskSet]:
        spec = graph.stages[launch.stage_id].spec
        if spec.feed is not None:
            return [self._of_portion(*part) for part in _by_portion(spec.feed, launch)]
        task_set = self.task_set(launch.tasks)
        if spec.work is StageWork.FEED and (known := _last_portion(graph, launch.stage_id)) is not None:
            task_set.portion.CopyFrom(known)
        return [task_set]

    def _of_portion(self, first: int, portion: Portion, tasks: list[tuple[int, int]]) -> pb.TaskSet:
        task_set = self.task_set(tasks)
        task_set.portion.digest = portion.digest
        task_set.portion.first_partition, task_set.portion.partitions = first, portion.partitions
        task_set.partitions = first + portion.partitions
        return task_set

    def task_set(self, tasks: Iterable[tuple[int, int]]) -> pb.TaskSet:
        """Return the message for an executor of *tasks*, each a partition with its attempt."""
        task_set = pb.TaskSet()
        task_set.CopyFrom(self._template)
        if self.inputs_digest:
            task_set.inputs_digest = self.inputs_digest
        else:
            task_set.MergeFrom(self.inputs)
        task_set.tasks.extend(pb.TaskAttempt(partition=p, task_attempt=a) for p, a in tasks)
        return task_set


def _replan(graph: ExecutionGraph) -> pb.ReplanTask:
    """Return the task of a re-plan: what the stages had measured that were done when it began."""
    replan, plan, policy = graph.replan, graph.plan, graph.adaptive
    if replan is None or plan is None:
        return pb.ReplanTask()
    is_forced = policy is not None and policy.replan == "force"
    return pb.ReplanTask(
        frame_digest=plan.frame_digest,
        first_stage_id=len(graph.stages),
        falsify=f"{graph.job_id} {replan.replan_id}" if is_forced else "",
        begun=[_begun(graph, i, is_finished=i in replan.finished) for i, _ in replan.basis],
    )


def _begun(graph: ExecutionGraph, stage_id: int, *, is_finished: bool) -> pb.BegunStage:
    stage = graph.stages[stage_id]
    spec, outputs = stage.spec, stage.ledger.outputs.values()
    return pb.BegunStage(
        stage_id=stage_id,
        finished=is_finished,
        repeatable=is_repeatable(graph, stage_id),
        rows=sum(output.rows for output in outputs) if is_finished else 0,
        bytes=max(bytes_in_memory(stage), sum(output.bytes for output in outputs)) if is_finished else 0,
        tasks=spec.partitions,
        buckets=spec.output.buckets,
    )


def _by_portion(feed: Feed, launch: LaunchEvent) -> Iterator[tuple[int, Portion, list[tuple[int, int]]]]:
    """Yield the tasks of *launch* by the portion that they read, with its first partition."""
    left = list(launch.tasks)
    while left:
        first, portion = feed.portion_of(left[0][0])
        count = sum(partition < first + portion.partitions for partition, _ in left)
        yield first, portion, left[:count]
        left = left[count:]


def _last_portion(graph: ExecutionGraph, stage_id: int) -> pb.StagePortion | None:
    """Return the portion after which the running task of a feed goes on; its tasks run one after the other."""
    fed = stage_fed_by(graph, stage_id)
    if fed is None or fed.spec.feed is None or not fed.spec.feed.portions:
        return None
    return pb.StagePortion(digest=fed.spec.feed.portions[-1].digest, first_partition=fed.spec.partitions)


def _fused(stage: Stage) -> pb.FusedStage:
    return pb.FusedStage(stage_id=stage.spec.stage_id, plan_digest=stage.spec.plan_digest or "")


def _read(read: TaskRead) -> pb.TaskRead:
    return pb.TaskRead(
        first_bucket=read.first_bucket,
        end_bucket=read.end_bucket,
        split_stage_id=read.split_stage_id,
        first_producer=read.first_producer,
        end_producer=read.end_producer,
    )


def _locations(producer: Stage) -> pb.StageInputLocations:
    outputs, taken = producer.ledger.outputs, producer.spec.taken
    if isinstance(producer, UnresolvedStage):
        return pb.StageInputLocations(stage_id=producer.spec.stage_id)
    return pb.StageInputLocations(
        stage_id=producer.spec.stage_id,
        outputs=[wire.output_message(outputs[p]) for p in range(producer.spec.partitions) if p in outputs],
        job_id="" if taken is None else taken.job_id,
        of_stage_id=0 if taken is None else taken.stage_id,
    )
