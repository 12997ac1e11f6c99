"""Drives one stage: makes the task sets that executors are sent, and tells people how far it is."""

from collections.abc import Sequence

from execution_graph import (
    ExecutionGraph,
    FailedStage,
    LaunchEvent,
    RunningStage,
    Stage,
    StageWork,
    SuccessfulStage,
    UnresolvedStage,
    is_streaming,
)
from onager.protocol import onager_pb2 as pb
from scheduler import wire
from scheduler.tasks.streams import Streams


class StageCoordinator:
    """One attempt of one stage. Its inputs are settled for as long as the attempt is, so they are gathered once."""

    def __init__(self, graph: ExecutionGraph, stage_id: int, streams: Streams) -> None:
        stage = graph.stages[stage_id]
        self.attempt = stage.attempt
        streaming = is_streaming(graph, stage)
        self._template = pb.TaskSet(
            job_id=graph.job_id,
            stage_id=stage_id,
            stage_attempt=stage.attempt,
            work=wire.WORK[stage.spec.work],
            spec_digest=graph.spec_digest,
            plan_digest=stage.spec.plan_digest or "",
            partitions=stage.spec.partitions,
            pipelined=streaming,
            streams=streams.told(graph, stage_id) if streaming else [],
            output=wire.layout_message(stage.spec.output),
        )
        self.inputs = pb.TaskSet(
            inputs=[] if streaming else [_locations(graph.stages[source.stage_id]) for source in stage.spec.inputs]
        )
        """Nothing but the inputs, which may be many."""
        self.inputs_digest = ""
        """Of the blob with them, once there is one."""
        if graph.plan is not None and graph.plan.sink is not None:
            writes = stage.spec.output.kind == "sink" or stage.spec.work in (StageWork.PUBLISH_PLAN, StageWork.PUBLISH)
            if writes:
                self._template.sink.CopyFrom(wire.sink_message(graph.plan.sink))
            if stage.spec.work is StageWork.PUBLISH_PLAN:
                self._template.sink.schema_json = graph.plan.schema_json

    def task_set(self, launch: LaunchEvent, cluster_slots: int, *, fetches_inputs: bool = False) -> pb.TaskSet:
        """Return what the executor of *launch* is sent; one that *fetches_inputs* is told of a blob by its digest."""
        task_set = pb.TaskSet()
        task_set.CopyFrom(self._template)
        if fetches_inputs and self.inputs_digest:
            task_set.inputs_digest = self.inputs_digest
        else:
            task_set.MergeFrom(self.inputs)
        task_set.tasks.extend(pb.TaskAttempt(partition=p, task_attempt=a) for p, a in launch.tasks)
        if task_set.work == pb.PLAN:
            task_set.cluster_slots = cluster_slots
        return task_set


def stage_info(stage: Stage) -> pb.StageInfo:
    """Return how far a stage is, without its tasks."""
    running = len(stage.running) if isinstance(stage, RunningStage) else 0
    done = len(stage.ledger.outputs)
    ledger = stage.ledger
    info = pb.StageInfo(
        stage_id=stage.spec.stage_id,
        name=stage.spec.name,
        work=stage.spec.work.value,
        state=stage.state,
        attempt=stage.attempt,
        partitions=stage.spec.partitions,
        successful=done,
        running=running,
        pending=0 if isinstance(stage, SuccessfulStage) else max(0, stage.spec.partitions - done - running),
        input_stage_ids=[source.stage_id for source in stage.spec.inputs],
        metrics=wire.metrics_message(ledger.metrics),
        tasks_failed=ledger.tasks_failed,
        tasks_lost=ledger.tasks_lost,
        tasks_speculated=len(ledger.speculated),
    )
    if isinstance(stage, RunningStage | SuccessfulStage | FailedStage):
        info.started_ms = stage.started_ms
    if isinstance(stage, SuccessfulStage | FailedStage):
        info.ended_ms = stage.ended_ms
    return info


def task_infos(stage: Stage, partitions: range) -> Sequence[pb.TaskInfo]:
    """Return what became of *partitions* of a stage."""
    return [_task_info(stage, partition) for partition in partitions]


def _task_info(stage: Stage, partition: int) -> pb.TaskInfo:
    ledger = stage.ledger
    output = ledger.outputs.get(partition)
    running = stage.running.get(partition) if isinstance(stage, RunningStage) else None
    info = pb.TaskInfo(
        partition=partition,
        state="pending",
        attempts=ledger.next_attempt(partition),
        successes=ledger.success_count(partition),
        failures=ledger.failures.get(partition, 0),
        speculated=partition in ledger.speculated,
    )
    if output is not None:
        info.state, info.executor_id = "successful", output.executor_id
        info.attempts = max(info.attempts, ledger.last_known_attempt(partition, output.task_attempt) + 1)
        info.speculative_won = output.task_attempt == ledger.speculated.get(partition)
    elif running is not None:
        info.state, info.executor_id = "running", running.executor_id
        info.attempts = ledger.last_known_attempt(partition, running.attempt) + 1
        second = stage.speculative.get(partition) if isinstance(stage, RunningStage) else None
        info.speculative_executor_id = "" if second is None else second.executor_id
    elif isinstance(stage, FailedStage) and info.failures:
        info.state = "failed"
    elif isinstance(stage, SuccessfulStage):
        info.state = "stopped"  # nobody needed its rows any more
    return info


def _locations(producer: Stage) -> pb.StageInputLocations:
    outputs = producer.ledger.outputs
    if isinstance(producer, UnresolvedStage):
        return pb.StageInputLocations(stage_id=producer.spec.stage_id)
    return pb.StageInputLocations(
        stage_id=producer.spec.stage_id,
        outputs=[wire.output_message(outputs[p]) for p in range(producer.spec.partitions) if p in outputs],
    )
