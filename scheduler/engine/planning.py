"""The outcome of a PLAN task, made into stages: checked, with the publishing of a dataset appended."""

import base64
import json
from collections.abc import Sequence

from onager.caches import cache_of
from onager.errors import PlanningError, UnsupportedPlanError
from onager.execution_graph import (
    ExecutionGraph,
    Feed,
    FeedEnded,
    FeedEvent,
    FusedStage,
    JobPlanned,
    OutputLayout,
    PartitionsAdded,
    PlanSummary,
    Portion,
    Replan,
    StageInput,
    StageReplanned,
    StageSpec,
    StageWork,
    SuccessfulStage,
    SupersededStage,
    check_stages,
    metrics_text,
    script_summary,
    stage_fed_by,
)
from onager.ids import BlobDigest, TaskKey, is_digest
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_STAGES, MAX_STEPS, MAX_TASKS_OF_JOB, MAX_TASKS_OF_STAGE
from onager.redaction import shown_name, shown_text
from onager.scheduler import wire
from onager.scheduler.catalog.changes import MAX_CHANGED, changes_from, encoded

_KINDS = ("exchange", "result", "sink", "control")
_MAX_DECISIONS = 20
_SIDES = ("", "shuffled", "broadcast", "joined")


def explanation(outcome: pb.PlanOutcome) -> bytes:
    """Return the blob with the plan and each stage's fragment as text, and the rows that Spark expected, for people."""
    stages = {str(stage.stage_id): shown_text(stage.plan) for stage in outcome.stages if stage.plan}
    explained: dict[str, object] = {"plan": shown_text(outcome.plan), "stages": stages}
    if outcome.estimates:
        explained["estimates"] = {str(each.stage_id): each.rows for each in outcome.estimates}
    return json.dumps(explained, ensure_ascii=False, sort_keys=True).encode()


def catalog_changes(outcome: pb.PlanOutcome) -> bytes:
    """Return the blob with what the plan changes in the catalog, empty for nothing; errors as in `changes_from`."""
    if not outcome.HasField("catalog"):
        return b""
    changes = changes_from(outcome.catalog)
    return b"" if changes.is_empty else encoded(changes)


def planned(
    task: TaskKey,
    executor_id: str,
    success: pb.TaskSuccess,
    explain_digest: BlobDigest,
    at_ms: int,
    catalog_digest: str = "",
) -> JobPlanned:
    """Return the event for a PLAN task that succeeded; `PlanningError` when its outcome cannot be a plan."""
    outcome = success.plan
    if outcome.stages and outcome.stages[0].work == pb.STEP:
        return _planned_steps(task, executor_id, success, explain_digest, at_ms)
    stages = _stages(outcome)
    is_fused = outcome.HasField("fused_output")
    _check_size(stages)
    why = check_stages(stages)
    if why is None and not is_fused and not all(s.plan_digest for s in stages):
        why = "a stage has no plan"
    if why is None and is_fused and (len(stages) != 1 or stages[0].partitions != 1):
        why = "a query that ran while it was planned must be one stage of one partition"
    if why is not None:
        raise PlanningError(f"the planner returned stages that do not fit together: {why}")
    try:
        sink = wire.sink_from(outcome.sink) if outcome.HasField("sink") else None
    except ValueError as error:
        raise PlanningError(f"the planner returned a sink that cannot be written: {error}") from error
    result_stage_id = len(stages)
    summary = PlanSummary(
        arrow_schema=base64.b64encode(outcome.arrow_schema).decode(),
        schema_json=outcome.schema_json,
        explain_digest=explain_digest,
        sink=sink,
        result_stage_id=result_stage_id,
        is_fused=is_fused,
        frame_digest=_frame_of(outcome),
        broadcast_bytes=outcome.broadcast_bytes,
        catalog_digest=catalog_digest,
        folders_made=_folders(outcome.catalog.folders_made),
        folders_retired=_folders(outcome.catalog.folders_retired),
        observed=base64.b64encode(outcome.fused_observed).decode() if is_fused else "",
    )
    fused = wire.output_from(outcome.fused_output, task.task_attempt, executor_id) if is_fused else None
    has_operators = is_fused and outcome.fused_bound_plan in {blob.digest for blob in outcome.blobs}
    op_metrics = metrics_text(outcome.fused_op_metrics) if has_operators else ""
    return JobPlanned(
        task_attempt=task.task_attempt,
        executor_id=executor_id,
        stages=stages if sink is None else (*stages, *_publishing(result_stage_id)),
        summary=summary,
        fused_output=fused,
        metrics=wire.metrics_from(outcome.fused_metrics if is_fused else success.metrics),
        op_metrics=op_metrics,
        bound_plan=outcome.fused_bound_plan if op_metrics else "",
        at_ms=at_ms,
    )


def _planned_steps(
    task: TaskKey, executor_id: str, success: pb.TaskSuccess, explain_digest: BlobDigest, at_ms: int
) -> JobPlanned:
    """Return the event for a script of SQL that was split into steps."""
    outcome = success.plan
    if len(outcome.stages) > MAX_STEPS:
        what = f"a script with {len(outcome.stages):,} steps, more than {MAX_STEPS:,}"
        raise UnsupportedPlanError(what, "submit it as several scripts", runs_whole=False)
    steps = tuple(
        StageSpec(
            stage_id=stage.stage_id,
            name=shown_name(stage.name) or f"step {stage.stage_id}",
            work=StageWork.STEP if stage.work == pb.STEP else StageWork.QUERY,
            plan_digest=stage.plan_digest or None,
            partitions=1,
            inputs=tuple(StageInput(source.stage_id, "all") for source in stage.inputs),
            output=OutputLayout("control"),
        )
        for stage in outcome.stages
    )
    if (why := check_stages(steps)) is not None:
        raise PlanningError(f"the planner returned steps that do not fit together: {why}")
    return JobPlanned(
        task_attempt=task.task_attempt,
        executor_id=executor_id,
        stages=steps,
        summary=script_summary(len(steps), explain_digest),
        fused_output=None,
        metrics=wire.metrics_from(success.metrics),
        at_ms=at_ms,
    )


def replanned(
    graph: ExecutionGraph,
    task: TaskKey,
    executor_id: str,
    success: pb.TaskSuccess,
    explain_digest: BlobDigest,
    at_ms: int,
) -> StageReplanned:
    """Return the event for a REPLAN task that succeeded; `PlanningError` when its outcome cannot be a plan."""
    outcome, plan, replan = success.plan, graph.plan, _replan_of(graph, task)
    stages = _stages(outcome)
    if stages and plan is not None:
        _check_size([*(stage.spec for stage in graph.stages[1:]), *stages])
        if not all(stage.plan_digest for stage in stages):
            raise PlanningError("the planner returned stages that do not fit together: a stage has no plan")
        result = stages[-1].stage_id
        stages = stages if plan.sink is None else (*stages, *_publishing(result))
    decisions = [shown_text(text) for text in outcome.decisions[:_MAX_DECISIONS]]
    return StageReplanned(
        replan_id=task.stage_id,
        task_attempt=task.task_attempt,
        executor_id=executor_id,
        basis=replan.basis,
        dropped=_dropped(graph, stages) if stages else (),
        stages=stages,
        result_stage_id=result if stages else 0,
        frame_digest=_frame_of(outcome) if stages else "",
        explain_digest=explain_digest if stages else "",
        decisions=tuple(decisions),
        metrics=wire.metrics_from(success.metrics),
        at_ms=at_ms,
    )


def fed(graph: ExecutionGraph, task: TaskKey, executor_id: str, success: pb.TaskSuccess, at_ms: int) -> FeedEvent:
    """Return the event for a FEED task that succeeded.

    `PlanningError` when it says nothing of use, `UnsupportedPlanError` when the stage would get too many tasks.
    """
    if not success.HasField("feed") or not success.output.payload_digest:
        raise PlanningError("the task found partitions, and did not say which")
    outcome, stage = success.feed, stage_fed_by(graph, task.stage_id)
    known = 0 if stage is None else stage.spec.partitions
    if (count := known + outcome.added) > MAX_TASKS_OF_STAGE:
        raise _too_many(f"a stage of {count:,} partitions, more than {MAX_TASKS_OF_STAGE:,}")
    if (count := sum(s.spec.partitions for s in graph.stages) + outcome.added) > MAX_TASKS_OF_JOB:
        raise _too_many(f"a job of {count:,} tasks, more than {MAX_TASKS_OF_JOB:,}")
    kind = FeedEnded if outcome.ended else PartitionsAdded
    return kind(
        stage_id=task.stage_id,
        stage_attempt=task.stage_attempt,
        partition=task.partition,
        task_attempt=task.task_attempt,
        executor_id=executor_id,
        output=wire.output_from(success.output, task.task_attempt, executor_id),
        added=outcome.added,
        metrics=wire.metrics_from(success.metrics),
        at_ms=at_ms,
    )


def _replan_of(graph: ExecutionGraph, task: TaskKey) -> Replan:
    if graph.replan is None or graph.replan.replan_id != task.stage_id:
        raise PlanningError("nobody waits for this plan any more")
    return graph.replan


def _dropped(graph: ExecutionGraph, stages: Sequence[StageSpec]) -> tuple[int, ...]:
    """Return the stages that are not done, and that *stages*, of which the last ends the job, do without."""
    sources = {spec.stage_id: spec.sources for spec in (*(s.spec for s in graph.stages), *stages)}
    needed, below = {stages[-1].stage_id}, [stages[-1].stage_id]
    while below:
        found = sources.get(below.pop(), frozenset()) - needed
        needed |= found
        below += found
    over = (SuccessfulStage, FusedStage, SupersededStage)
    left = [s.spec for s in graph.stages[1:] if not isinstance(s, over) and s.spec.work is not StageWork.REPLAN]
    return tuple(spec.stage_id for spec in left if spec.stage_id not in needed)


def _stages(outcome: pb.PlanOutcome) -> tuple[StageSpec, ...]:
    expected = {each.stage_id: each.rows for each in outcome.estimates}
    return tuple(_stage(stage, expected.get(stage.stage_id, 0)) for stage in outcome.stages)


def _folders(named: Sequence[str]) -> tuple[str, ...]:
    if len(named) > MAX_CHANGED:
        raise PlanningError(f"the planner named {len(named):,} folders of tables, more than it may change tables")
    return tuple(named)


def _frame_of(outcome: pb.PlanOutcome) -> str:
    """Return the digest of the frame if it came along."""
    return outcome.frame_digest if outcome.frame_digest in {blob.digest for blob in outcome.blobs} else ""


def _check_size(stages: Sequence[StageSpec]) -> None:
    """Raise `UnsupportedPlanError` when *stages* have more tasks than a scheduler can track."""
    if len(stages) > MAX_STAGES:
        raise _too_many(f"a plan of {len(stages):,} stages, more than {MAX_STAGES:,}")
    for stage in stages:
        if (count := max(stage.partitions, stage.output.buckets)) > MAX_TASKS_OF_STAGE:
            raise _too_many(f"a stage of {count:,} partitions, more than {MAX_TASKS_OF_STAGE:,}")
    if (count := sum(stage.partitions for stage in stages)) > MAX_TASKS_OF_JOB:
        raise _too_many(f"a plan of {count:,} tasks, more than {MAX_TASKS_OF_JOB:,}")


def _too_many(what: str) -> UnsupportedPlanError:
    advice = (
        "read in fewer and larger partitions (spark.sql.files.maxPartitionBytes, spark.sql.shuffle.partitions, "
        "or what a data source gives)"
    )
    return UnsupportedPlanError(what, advice, runs_whole=False)


def _publishing(result_stage_id: int) -> tuple[StageSpec, StageSpec]:
    """Return the stages that make staged files a dataset: one writes every move down, the next carries them out."""
    return (
        StageSpec(
            stage_id=result_stage_id + 1,
            name="publish plan",
            work=StageWork.PUBLISH_PLAN,
            plan_digest=None,
            partitions=1,
            inputs=(StageInput(result_stage_id, "all"),),
            output=OutputLayout("control"),
        ),
        StageSpec(
            stage_id=result_stage_id + 2,
            name="publish",
            work=StageWork.PUBLISH,
            plan_digest=None,
            partitions=1,
            inputs=(StageInput(result_stage_id + 1, "all"),),
            output=OutputLayout("control"),
        ),
    )


def _stage(stage: pb.PlannedStage, expected_rows: int) -> StageSpec:
    if stage.work not in (pb.QUERY, pb.FEED, pb.WORK_UNSPECIFIED):
        raise PlanningError(f"the planner returned stage {stage.stage_id} of other work than a query's")
    kind = stage.output.kind or "result"
    if kind not in _KINDS:
        raise PlanningError(f"the planner returned stage {stage.stage_id} with an output of kind {kind!r}")
    for source in stage.inputs:
        if source.read not in ("bucket", "all") or source.side not in _SIDES:
            how = f"{source.read!r} as {source.side!r}"
            raise PlanningError(f"the planner returned stage {stage.stage_id} that reads by {how}")
    return StageSpec(
        stage_id=stage.stage_id,
        name=shown_name(stage.name) or f"stage {stage.stage_id}",
        work=StageWork.FEED if stage.work == pb.FEED else StageWork.QUERY,
        plan_digest=stage.plan_digest or None,
        partitions=stage.partitions,
        inputs=tuple(StageInput(s.stage_id, s.read, s.may_split, s.side) for s in stage.inputs),  # type: ignore[arg-type]
        output=OutputLayout(kind, max(1, stage.output.buckets)),  # type: ignore[arg-type]
        is_deterministic=stage.deterministic,
        leaf_bytes=stage.leaf_bytes,
        may_fuse=stage.may_fuse,
        may_merge=stage.may_merge,
        expected_rows=expected_rows,
        feed=_feed(stage) if stage.feed_stage_id else None,
        fingerprint=stage.fingerprint if _is_reusable(stage) else "",
    )


def _is_reusable(stage: pb.PlannedStage) -> bool:
    is_same = stage.deterministic and is_digest(stage.fingerprint)
    return is_same or bool(cache_of(stage.fingerprint))


def _feed(stage: pb.PlannedStage) -> Feed:
    portions = tuple(Portion(digest=each.digest, partitions=each.partitions) for each in stage.portions)
    return Feed(stage_id=stage.feed_stage_id, portions=portions, planned=len(portions))
