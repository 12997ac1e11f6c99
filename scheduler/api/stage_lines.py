"""The progress of a stage and of its tasks, as shown to people."""

from collections.abc import Sequence
from typing import Final

from onager.execution_graph import (
    FailedStage,
    FusedStage,
    Replan,
    RunningStage,
    Stage,
    StageWork,
    SuccessfulStage,
    SupersededStage,
    child_of,
)
from onager.execution_graph.duration_sketch import LatencyMetric
from onager.protocol import onager_pb2 as pb
from onager.scheduler import wire

_MAX_SHOWN: Final = 5
"""How many fused stages are named."""


def stage_info(stage: Stage, replans: Sequence[Replan] = (), *, has_latencies: bool = False) -> pb.StageInfo:
    """Return a stage's progress, without its tasks; *replans*: those of its job."""
    running = len(stage.running) if isinstance(stage, RunningStage) else 0
    done = len(stage.ledger.outputs)
    ledger = stage.ledger
    info = pb.StageInfo(
        stage_id=stage.spec.stage_id,
        name=_shown_name(stage, replans),
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
    if stage.spec.work is StageWork.STEP:
        _add_step(info, stage)
    if ledger.wasted:
        info.wasted.CopyFrom(wire.metrics_message(ledger.wasted))
    if has_latencies:
        info.latencies.extend(latency_lines(stage))
    if isinstance(stage, RunningStage | SuccessfulStage | FailedStage):
        info.started_ms = stage.started_ms
    if isinstance(stage, SuccessfulStage | FailedStage):
        info.ended_ms = stage.ended_ms
    return info


def _add_step(info: pb.StageInfo, stage: Stage) -> None:
    """Add what is to say of a step: no executor has it, and it runs from its beginning."""
    is_running = isinstance(stage, RunningStage)
    info.running, info.pending = int(is_running), info.pending - int(is_running)
    info.child_job_id = child_of(stage)
    if stage.ledger.outputs:
        info.step_rows = stage.ledger.outputs[0].rows


def _shown_name(  # noqa: PLR0911 - one for each way
    stage: Stage, replans: Sequence[Replan]
) -> str:
    """Return a stage's name, and how it was laid out or planned again, if it was."""
    name, layout = stage.spec.name, stage.spec.layout
    for replan in replans:
        if replan.replan_id == stage.spec.stage_id:
            return f"{name} ({replan_text(replan)})"
        if stage.spec.stage_id in replan.dropped:
            return f"{name} (superseded: planned again by stage {replan.replan_id})"
    if isinstance(stage, FusedStage):
        return f"{name} (fused into stage {stage.into})"
    if (taken := stage.spec.taken) is not None:
        return f"{name} (reused from {taken.job_id}/{taken.stage_id})"
    if isinstance(stage, SupersededStage) and stage.planned is not None:
        return f"{name} (not needed: its rows are in what is reused)"
    if layout is None:
        return f"{name} (more tasks may come)" if stage.spec.is_growing else name
    if layout.fused:
        named = ", ".join(map(str, layout.fused[:_MAX_SHOWN]))
        more = f" and {len(layout.fused) - _MAX_SHOWN} more" if len(layout.fused) > _MAX_SHOWN else ""
        return f"{name} (with stage{'s' * (len(layout.fused) != 1)} {named}{more}, by what was measured)"
    buckets, tasks = layout.planned_partitions, stage.spec.partitions
    return f"{name} (reads {buckets} buckets in {tasks} task{'s' * (tasks != 1)}, by what was measured)"


def replan_text(replan: Replan) -> str:
    """Return why the rest of a query was planned again, and what came of it."""
    if not replan.ended_ms:
        return replan.why
    result = "; ".join(replan.decisions)
    if not replan.is_taken:
        return f"{replan.why}; the plan is kept: {result}"
    dropped = ", ".join(map(str, replan.dropped[:_MAX_SHOWN])) + (", …" if len(replan.dropped) > _MAX_SHOWN else "")
    without = f"; without stage{'s' * (len(replan.dropped) != 1)} {dropped}" if replan.dropped else ""
    return f"{replan.why}; a new plan: {result}{without}"


def latency_lines(stage: Stage) -> list[pb.Latency]:
    """Return how long the tasks of a stage took; of a single task, what it reported."""
    cost = stage.ledger.metrics
    if stage.spec.partitions == 1 and stage.ledger.outputs:
        parts = {"queued": cost.queued_ms, "run": cost.run_ms, "fetch": cost.fetch_ms}
        return [
            pb.Latency(part=part, tasks=1, p50_ms=ms, p95_ms=ms, p99_ms=ms, max_ms=ms) for part, ms in parts.items()
        ]
    known = stage.ledger.latencies.distributions()
    return [_latency(part, getattr(known, part)) for part in ("queued", "run", "fetch", "delivery") if known.run]


def _latency(part: str, metric: LatencyMetric) -> pb.Latency:
    p50_ms, p95_ms, p99_ms = metric.quantiles_ms(50, 95, 99)
    return pb.Latency(
        part=part,
        tasks=metric.count,
        p50_ms=p50_ms,
        p95_ms=p95_ms,
        p99_ms=p99_ms,
        max_ms=metric.max_ms,
        relative_error=metric.relative_error,
    )


def task_info(stage: Stage, partition: int) -> pb.TaskInfo:
    """Return the state of a task."""
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
