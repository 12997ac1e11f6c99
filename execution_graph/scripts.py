"""Scripts: jobs whose stages are steps, each done by a job of its own, its *child*; and programs, which are one stage.

An executor never sees a step. The scheduler that drives the script submits the child, and tells the graph when that has
ended. The child's id follows from the script's and the step's, so that there is one, whoever submits it, and however
often.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from onager.execution_graph import rollback
from onager.execution_graph.attempts import running_stage
from onager.execution_graph.events import JobFailed, PlanSummary, StepEnded
from onager.execution_graph.failures import Failure, FailureKind
from onager.execution_graph.graph import PLAN_STAGE_ID, ExecutionGraph
from onager.execution_graph.settling import failed, settled, with_stage, with_successes
from onager.execution_graph.stages import (
    RunningStage,
    Stage,
    StageSpec,
    StageWork,
    SuccessfulStage,
    TaskLedger,
    TaskOutput,
    UnresolvedStage,
)

DEADLINE_CLASS = "ONAGER_DEADLINE_PASSED"
"""The error class of jobs that did not end in time."""


def planned_at_once(graph: ExecutionGraph, steps: Sequence[StageSpec], at_ms: int) -> ExecutionGraph:
    """Return *graph*, of a job that was just accepted, with its steps, or its program: so nobody has to plan it.

    Those that wait for nothing have begun.
    """
    marker = TaskOutput(nonce="plan", is_shared=True, rows=0, bytes=0)
    planning = SuccessfulStage(
        spec=graph.stages[PLAN_STAGE_ID].spec,
        attempt=0,
        ledger=TaskLedger().with_outputs({0: marker}, {}),
        started_ms=at_ms,
        ended_ms=at_ms,
    )
    begun = (
        UnresolvedStage(spec=spec)
        if spec.inputs
        else RunningStage(spec=spec, attempt=0, ledger=TaskLedger(), started_ms=at_ms)
        for spec in steps
    )
    stages: tuple[Stage, ...] = (planning, *begun)
    return settled(replace(graph, stages=stages, plan=script_summary(len(steps))), at_ms)


def was_planned_at_once(graph: ExecutionGraph) -> bool:
    """Return whether the stages of *graph* were given with the job."""
    outputs = graph.stages[PLAN_STAGE_ID].ledger.outputs
    return (graph.is_script or graph.is_program) and 0 in outputs and not outputs[0].executor_id


def script_summary(last_step_id: int, explain_digest: str | None = None) -> PlanSummary:
    """Return what there is to say of a script's plan; its result is that of the last step, which comes later."""
    return PlanSummary(
        arrow_schema="",
        schema_json="",
        explain_digest=explain_digest,
        sink=None,
        result_stage_id=last_step_id,
        is_fused=False,
    )


def running_steps(graph: ExecutionGraph) -> Iterator[RunningStage]:
    """Yield the steps whose children are to be there."""
    if graph.is_active and graph.is_script:
        for stage in graph.stages:
            if isinstance(stage, RunningStage) and stage.spec.work is StageWork.STEP:
                yield stage


def child_of(stage: Stage) -> str:
    """Return the job that has done the work of a step; empty while none has."""
    output = stage.ledger.outputs.get(0) if stage.spec.work is StageWork.STEP else None
    return "" if output is None else output.nonce


def on_step_ended(graph: ExecutionGraph, event: StepEnded) -> ExecutionGraph:
    """Apply the end of a child: the step is successful, or the script fails with the child's failure."""
    stage = running_stage(graph, event.stage_id, None)
    if stage is None or stage.spec.work is not StageWork.STEP:
        return graph
    if event.failure is not None:
        ledger = replace(stage.ledger, tasks_failed=stage.ledger.tasks_failed + 1)
        failure = replace(event.failure, message=f"{_place(graph, stage)}: {event.failure.message}")
        return failed(graph, replace(stage, ledger=ledger), failure, event.at_ms)
    output = TaskOutput(nonce=event.child_id, is_shared=True, rows=max(0, event.rows), bytes=0)
    return settled(with_stage(graph, with_successes(stage, {0: output}, {})), event.at_ms)


def _place(graph: ExecutionGraph, stage: Stage) -> str:
    return f"step {stage.spec.stage_id} of {len(graph.stages) - 1} ({stage.spec.name})"


def deadline_passed(graph: ExecutionGraph, deadline_ms: int, at_ms: int) -> JobFailed:
    """Return the event with which a job fails that has not ended by *deadline_ms*."""
    within_s = max(0, deadline_ms - graph.submitted_ms) / 1000
    message = f"the job has not ended within {within_s:g} s, its deadline, and was stopped"
    failure = Failure(kind=FailureKind.USER_ERROR, message=message, error_class=DEADLINE_CLASS)
    return JobFailed(failure=failure, at_ms=at_ms)


def on_job_failed(graph: ExecutionGraph, event: JobFailed) -> ExecutionGraph:
    """End a job where it is, unless its dataset is being published right now."""
    if rollback.is_being_published(graph.stages):
        return graph
    late = next(
        (s for s in graph.stages if isinstance(s, RunningStage)),
        next(s for s in graph.stages if not isinstance(s, SuccessfulStage)),
    )
    failure = event.failure
    if late.spec.work is StageWork.STEP:
        failure = replace(failure, message=f"{_place(graph, late)}: {failure.message}")
    started_ms = late.started_ms if isinstance(late, RunningStage) else event.at_ms
    running = RunningStage(spec=late.spec, attempt=late.attempt, ledger=late.ledger, started_ms=started_ms)
    return failed(graph, running, failure, event.at_ms)
