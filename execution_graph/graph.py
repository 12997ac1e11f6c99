"""The `ExecutionGraph` of a job: a value. `onager.execution_graph.transitions` says how it changes."""

from enum import StrEnum
from typing import Literal, assert_never

from onager.execution_graph.events import PlanSummary
from onager.execution_graph.failures import Failure, RetryLimits
from onager.execution_graph.record import Record
from onager.execution_graph.stages import (
    ExecutorLife,
    FailedStage,
    OutputLayout,
    ResolvedStage,
    RunningStage,
    Stage,
    StageSpec,
    StageWork,
    SuccessfulStage,
)

PLAN_STAGE_ID = 0
"""Every job begins with this stage of one task; its success brings all other stages."""


class JobState(StrEnum):
    """The state of a job as shown to people; derived from the graph, never stored."""

    QUEUED = "queued"
    PLANNING = "planning"
    RUNNING = "running"
    PUBLISHING = "publishing"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Return whether nothing can change the job's state any more."""
        return self in (JobState.SUCCESSFUL, JobState.FAILED, JobState.CANCELLED)


class Active(Record, frozen=True, tag="active"):
    """The job has not ended."""


class Succeeded(Record, frozen=True, kw_only=True, tag="succeeded"):
    """The last stage is successful."""

    ended_ms: int


class Failed(Record, frozen=True, kw_only=True, tag="failed"):
    """The job will not be retried."""

    ended_ms: int
    failure: Failure
    stage_id: int


class Cancelled(Record, frozen=True, kw_only=True, tag="cancelled"):
    """A user asked for the end."""

    ended_ms: int
    reason: str
    principal: str = ""
    """The name of the user's token, if it has one."""

    @property
    def text(self) -> str:
        """Return the reason, and who gave it, for people."""
        return f"{self.reason}, by {self.principal}" if self.principal else self.reason


Outcome = Active | Succeeded | Failed | Cancelled


class SpeculationPolicy(Record, frozen=True, kw_only=True, omit_defaults=False):
    """When a task counts as a straggler, which gets a second attempt.

    Source: Spark's `spark.speculation.*`, with the defaults that it had for ten years (3.5; 4.0 is more patient).
    """

    multiplier: float = 1.5
    """It has run this many times longer than the median of the finished tasks."""
    quantile: float = 0.75
    """This part of its stage is finished."""
    min_task_runtime_ms: int = 100
    """It has run for at least this long."""


class AdaptivePolicy(Record, frozen=True, kw_only=True, omit_defaults=False):
    """By which sizes stages are laid out when they start (`onager.execution_graph.layout_rules`)."""

    fuse_bytes: int = 8 * 1024 * 1024
    """Stages that read no more than this in all become one task."""
    target_bytes: int = 64 * 1024 * 1024
    """What one task after an exchange shall read."""
    replan: Literal["", "on", "force"] = ""
    """Whether the rest of the query is planned again by what was measured; ``force``: whenever a stage is done, by
    sizes that are made up."""


class Replan(Record, frozen=True, kw_only=True):
    """One time that the rest of the query was planned again (`replan_rules`)."""

    replan_id: int
    """Its stage."""
    basis: tuple[tuple[int, int], ...]
    finished: tuple[int, ...]
    held: tuple[int, ...]
    why: str
    begun_ms: int
    ended_ms: int = 0
    """0: it is under way."""
    is_taken: bool = False
    dropped: tuple[int, ...] = ()
    """The stages that the new plan does without."""
    explain_digest: str = ""
    """The new stages' plans as text, by content."""
    decisions: tuple[str, ...] = ()
    """What changed and why, or why nothing did, for people."""


class Streaming(Record, frozen=True, kw_only=True):
    """A job's wish that its stages run together, each reading what the others still write."""

    reason: str = ""
    """Why streaming was given up, for people: since then the job runs over the durable exchange. Empty: it was not."""
    abandoned_ms: int = 0


class ExecutionGraph(Record, frozen=True, kw_only=True):
    """A job: its stages by id, what was planned, and how it ended.

    Runnable work comes out as tasks (`onager.execution_graph.scheduling`). The locations of outputs are kept with the
    producers, never copied into consumers, so that no output can be counted twice.
    """

    job_id: str
    name: str
    client_id: str
    spec_digest: str
    submitted_ms: int
    stages: tuple[Stage, ...]
    """By id: `stages[i].spec.stage_id == i`; producers before consumers; `last_stage` ends the job."""
    limits: RetryLimits = RetryLimits()
    plan: PlanSummary | None = None
    outcome: Outcome = Active()
    speculation: SpeculationPolicy | None = None
    """Set for a job whose stragglers get second attempts."""
    streaming: Streaming | None = None
    """Set for a job that asked for the streaming exchange."""
    adaptive: AdaptivePolicy | None = None
    """Set for a job whose stages are laid out by what was measured. Only decisions depend on it, no event's effect, so
    a scheduler that does not know the field computes the same graph."""
    replans: tuple[Replan, ...] = ()
    """In order; only the last one can be under way."""
    lost_lives: tuple[ExecutorLife, ...] = ()
    """Lives that ended while outputs that were no longer needed were bound to them: remembered, because a later loss
    may make those outputs needed again, and then they have to be made first."""

    @property
    def state(self) -> JobState:
        """Return the state that is shown to people."""
        match self.outcome:
            case Succeeded():
                return JobState.SUCCESSFUL
            case Failed():
                return JobState.FAILED
            case Cancelled():
                return JobState.CANCELLED
            case Active():
                return self._active_state()
            case _:
                assert_never(self.outcome)

    def _active_state(self) -> JobState:
        planning = self.stages[PLAN_STAGE_ID]
        if not isinstance(planning, SuccessfulStage):
            is_handed_out = isinstance(planning, RunningStage) and len(planning.running) > 0
            has_begun = is_handed_out or len(planning.ledger.attempts) > 0
            return JobState.PLANNING if has_begun else JobState.QUEUED
        publishing = any(
            isinstance(s, RunningStage | SuccessfulStage) and s.spec.work is StageWork.PUBLISH_PLAN for s in self.stages
        )
        return JobState.PUBLISHING if publishing else JobState.RUNNING

    @property
    def is_active(self) -> bool:
        """Return whether the job has not ended."""
        return isinstance(self.outcome, Active)

    @property
    def may_stream(self) -> bool:
        """Return whether stages may read what others still write, if the plan has such stages."""
        return self.streaming is not None and not self.streaming.reason

    @property
    def is_streaming(self) -> bool:
        """Return whether stages read what others still write (`onager.execution_graph.streaming`)."""
        return self.may_stream and any(s.spec.inputs and s.spec.work is StageWork.QUERY for s in self.stages)

    @property
    def ended_ms(self) -> int | None:
        """Return when the job ended, if it has."""
        return None if isinstance(self.outcome, Active) else self.outcome.ended_ms

    @property
    def started_ms(self) -> int | None:
        """Return when the job's planning was first started, or None."""
        planning = self.stages[PLAN_STAGE_ID]
        return planning.started_ms if isinstance(planning, RunningStage | SuccessfulStage | FailedStage) else None

    @property
    def is_script(self) -> bool:
        """Return whether the job's stages are done by jobs of their own (`scripts`)."""
        return len(self.stages) > 1 and self.stages[1].spec.work is StageWork.STEP

    @property
    def is_program(self) -> bool:
        """Return whether the job is a program: executors that run programs take its task, and no others."""
        return len(self.stages) > 1 and self.stages[1].spec.work is StageWork.PROGRAM

    @property
    def is_done(self) -> bool:
        """Return whether everything is successful that the job's success needs."""
        if self.is_script:
            return all(isinstance(stage, SuccessfulStage) for stage in self.stages)
        return self.plan is not None and isinstance(self.last_stage, SuccessfulStage)

    @property
    def last_stage(self) -> Stage:
        """Return the stage whose success ends the job: the last one, but for what a re-plan has left behind."""
        return self.stages[-1 if self.plan is None or not self.replans else self.plan.last_stage_id]

    @property
    def replan(self) -> Replan | None:
        """Return the re-plan that is under way."""
        return self.replans[-1] if self.replans and not self.replans[-1].ended_ms else None

    @property
    def result_stage(self) -> Stage | None:
        """Return the stage whose outputs are the result (or the staged files of a sink), once planned."""
        return None if self.plan is None else self.stages[self.plan.result_stage_id]


def submit(
    *,
    job_id: str,
    name: str,
    client_id: str,
    spec_digest: str,
    at_ms: int,
    limits: RetryLimits | None = None,
    speculation: SpeculationPolicy | None = None,
    streaming: Streaming | None = None,
    adaptive: AdaptivePolicy | None = None,
) -> ExecutionGraph:
    """Return the graph of a job that was just accepted: one PLAN stage, resolved."""
    planning = StageSpec(
        stage_id=PLAN_STAGE_ID,
        name="plan",
        work=StageWork.PLAN,
        plan_digest=None,
        partitions=1,
        inputs=(),
        output=OutputLayout("control"),
    )
    return ExecutionGraph(
        job_id=job_id,
        name=name,
        client_id=client_id,
        spec_digest=spec_digest,
        submitted_ms=at_ms,
        stages=(ResolvedStage(spec=planning),),
        limits=limits or RetryLimits(),
        speculation=speculation,
        streaming=streaming,
        adaptive=adaptive,
    )
