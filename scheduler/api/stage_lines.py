"""The progress of a stage and of its tasks, as shown to people."""

from collections.abc import Sequence

from onager.execution_graph import FailedStage, RunningStage, Stage, SuccessfulStage
from onager.protocol import onager_pb2 as pb
from onager.scheduler import wire


def stage_info(stage: Stage) -> pb.StageInfo:
    """Return a stage's progress, without its tasks."""
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
    if ledger.wasted:
        info.wasted.CopyFrom(wire.metrics_message(ledger.wasted))
    if isinstance(stage, RunningStage | SuccessfulStage | FailedStage):
        info.started_ms = stage.started_ms
    if isinstance(stage, SuccessfulStage | FailedStage):
        info.ended_ms = stage.ended_ms
    return info


def task_infos(stage: Stage, partitions: range) -> Sequence[pb.TaskInfo]:
    """Return the states of *partitions* of a stage."""
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
        info.state = "stopped"  # its rows were no longer needed
    return info
