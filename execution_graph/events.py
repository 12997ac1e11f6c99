"""Events, in the past tense: all that ever changes an `ExecutionGraph`, and what a job's log holds.

Times are wall-clock milliseconds taken where the event was decided, so that every scheduler computes the same graph.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from onager.execution_graph.failures import Failure, FailureKind
from onager.execution_graph.maps import SPARSE
from onager.execution_graph.quick import quick_dataclass
from onager.execution_graph.stages import NO_METRICS, StageSpec, TaskMetrics, TaskOutput, TaskRead


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesStarted:
    """Resolved stages were started."""

    stage_ids: tuple[int, ...]
    at_ms: int
    type: Literal["stages_started"] = "stages_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLaidOut:
    """A stage that never launched a task gets others than it was planned with, by what its inputs measured.

    Either its one task computes stages before it, too, or its tasks read other ranges of buckets.
    """

    stage_id: int
    basis: tuple[tuple[int, int], ...]
    """(stage, its attempt) of all that this was decided from, ascending: the stage, those that are fused into it, and
    those that they read. The event changes nothing once one of them has another attempt."""
    fused: Annotated[tuple[int, ...], SPARSE] = ()
    """The stages that its one task computes, too, ascending."""
    reads: Annotated[tuple[TaskRead, ...], SPARSE] = ()
    """What each task reads, by partition."""
    at_ms: int
    type: Literal["stage_laid_out"] = "stage_laid_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksLaunched:
    """Pending tasks of one stage were assigned to an executor."""

    stage_id: int
    stage_attempt: int
    executor_id: str
    incarnation: str
    list_number: int
    tasks: tuple[tuple[int, int], ...]
    """(partition, task attempt), ascending."""
    at_ms: int
    type: Literal["tasks_launched"] = "tasks_launched"


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglersFound:
    """Running tasks take much longer than others of their stage: each gets a second attempt."""

    stage_id: int
    stage_attempt: int
    tasks: tuple[tuple[int, int], ...]
    """(partition, running task attempt), ascending."""
    at_ms: int
    type: Literal["stragglers_found"] = "stragglers_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksSpeculated:
    """Second attempts of running tasks of one stage were assigned to another executor."""

    stage_id: int
    stage_attempt: int
    executor_id: str
    incarnation: str
    list_number: int
    tasks: tuple[tuple[int, int], ...]
    """(partition, attempt number of the second attempt), ascending."""
    at_ms: int
    type: Literal["tasks_speculated"] = "tasks_speculated"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesRepeated:
    """An executor's later list lacked these tasks: they are sent again under the same attempt numbers."""

    stage_id: int
    stage_attempt: int
    executor_id: str
    list_number: int
    tasks: tuple[tuple[int, int], ...]
    at_ms: int
    type: Literal["launches_repeated"] = "launches_repeated"


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class TaskSucceeded:
    """An execution of a task attempt wrote its whole output."""

    stage_id: int
    stage_attempt: int
    partition: int
    task_attempt: int
    executor_id: str
    output: TaskOutput
    metrics: TaskMetrics
    op_metrics: Annotated[str, SPARSE] = ""
    """What its operators measured (`operators`), as Base64; empty: not reported."""
    bound_plan: Annotated[str, SPARSE] = ""
    """The bound plan of `op_metrics`, by content; empty: the first one of the stage."""
    at_ms: int
    type: Literal["task_succeeded"] = "task_succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTable:
    """A table of the catalog whose partitions rows go into."""

    key: str
    table_id: str
    location: str
    """A URI."""
    replaces: Literal["nothing", "written", "matching"]
    """What goes: nothing, the rows of partitions that are written to, or all partitions below `within` besides."""
    within: str = ""
    """The path of the partition that was named; empty: the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBuckets:
    """The buckets of a table: each of its files has rows of one."""

    count: int
    by: tuple[str, ...]
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """Where and how a result is written as a dataset."""

    path: str
    format: str
    mode: Literal["error", "overwrite", "append"]
    options: tuple[tuple[str, str], ...] = ()
    partition_by: Annotated[tuple[str, ...], SPARSE] = ()
    """The columns that become directories."""
    table: Annotated[SinkTable | None, SPARSE] = None
    buckets: Annotated[SinkBuckets | None, SPARSE] = None
    foreign: Annotated[str, SPARSE] = ""
    """The table of another catalog that the files become part of, as JSON that executors read. Empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """What planning found besides the stages."""

    arrow_schema: str
    """Base64 of the Arrow IPC schema message of the result."""
    schema_json: str
    """The same as Spark's JSON."""
    explain_digest: str | None
    """The plan and each stage's fragment as text, by content."""
    sink: SinkSpec | None
    result_stage_id: int
    """The last QUERY stage: its outputs are the result, or the staged files. Of a program, the last step."""
    is_fused: bool
    frame_digest: Annotated[str, SPARSE] = ""
    """What the rest of the query can be planned again from, by content; empty: it cannot."""
    broadcast_bytes: Annotated[int, SPARSE] = 0
    """Up to how many bytes Spark would broadcast."""
    catalog_digest: Annotated[str, SPARSE] = ""
    """What the job changes in the catalog, by content: committed in the transaction that makes it successful. Empty:
    nothing."""
    folders_made: Annotated[tuple[str, ...], SPARSE] = ()
    """Of tables: nobody needs them if the job does not succeed."""
    folders_retired: Annotated[tuple[str, ...], SPARSE] = ()
    """Of tables: nobody needs them once the job has succeeded."""
    observed: Annotated[str, SPARSE] = ""
    """What the query has observed, for clients of Spark Connect: Base64 of an ExecutePlanResponse."""

    @property
    def last_stage_id(self) -> int:
        """Return the id of the stage whose success ends the job."""
        return self.result_stage_id + (0 if self.sink is None else 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlanned:
    """The PLAN task succeeded; `fused_output` is set when it also ran the single stage that it planned."""

    task_attempt: int
    executor_id: str
    stages: tuple[StageSpec, ...]
    """Ids 1 to n, producers before consumers."""
    summary: PlanSummary
    fused_output: TaskOutput | None
    metrics: TaskMetrics
    op_metrics: Annotated[str, SPARSE] = ""
    """Of a fused output: what the operators of Spark's final plan measured, as in `TaskSucceeded`."""
    bound_plan: Annotated[str, SPARSE] = ""
    """That plan, by content."""
    at_ms: int
    type: Literal["job_planned"] = "job_planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOutput:
    """What a stage of another job gave, for a stage that would give the same rows."""

    stage_id: int
    job_id: str
    of_stage_id: int
    """The stage of that job."""
    fingerprint: str
    """Of both stages."""
    outputs: tuple[TaskOutput, ...]
    """By partition of that stage, all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsTaken:
    """Stages that have not begun take what other jobs gave: neither they nor what only they read are computed."""

    taken: tuple[TakenOutput, ...]
    """By stage, ascending."""
    at_ms: int
    type: Literal["outputs_taken"] = "outputs_taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanBegun:
    """Finished stages measured something that may change the plan: a task plans the rest of the query again."""

    replan_id: int
    """The stage of that task: the next free id."""
    basis: tuple[tuple[int, int], ...]
    """(stage, its attempt) of all stages that have begun, ascending: the new plan may read what they give."""
    finished: tuple[int, ...]
    """Those of them that are done, and have measured it."""
    held: tuple[int, ...]
    """The stages that have not begun, ascending: they wait for the new plan, but not for long."""
    why: str
    """For people."""
    at_ms: int
    type: Literal["replan_begun"] = "replan_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReplanned:
    """A REPLAN task has ended: the rest of the query gets other stages, or, without *stages*, keeps its own."""

    replan_id: int
    task_attempt: int
    executor_id: str
    basis: tuple[tuple[int, int], ...]
    """As in `ReplanBegun`. The event changes no plan once one of these stages has another attempt; and an attempt that
    is done has one set of outputs."""
    dropped: tuple[int, ...] = ()
    """The stages that the new plan does without, ascending."""
    stages: tuple[StageSpec, ...] = ()
    """Ids from the next free one on, producers before consumers."""
    result_stage_id: int = 0
    frame_digest: str = ""
    """What the next re-plan begins with, by content."""
    explain_digest: str = ""
    """The new stages' plans as text, by content."""
    decisions: tuple[str, ...] = ()
    """What changed and why, or why nothing did, for people."""
    metrics: Annotated[TaskMetrics, SPARSE] = NO_METRICS
    at_ms: int
    type: Literal["stage_replanned"] = "stage_replanned"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanGivenUp:
    """A re-plan took too long: the plan stays as it is."""

    replan_id: int
    reason: str
    at_ms: int
    type: Literal["replan_given_up"] = "replan_given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAdded:
    """A task of a feed succeeded, and there is more to find: the stage that it feeds gets partitions.

    A success like any other: it counts once, for the attempt that the graph gave to the executor.
    """

    stage_id: int
    """The feed."""
    stage_attempt: int
    partition: int
    task_attempt: int
    executor_id: str
    output: TaskOutput
    """What the added partitions read, as its payload."""
    added: int
    """How many partitions the stage that it feeds gets, 0 or more."""
    metrics: TaskMetrics
    at_ms: int
    type: Literal["partitions_added"] = "partitions_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEnded:
    """A task of a feed succeeded, and found the end: the stage that it feeds gets its last partitions."""

    stage_id: int
    """The feed."""
    stage_attempt: int
    partition: int
    task_attempt: int
    executor_id: str
    output: TaskOutput
    """What the added partitions read, as its payload."""
    added: int
    """How many partitions the stage that it feeds gets, 0 or more."""
    metrics: TaskMetrics
    at_ms: int
    type: Literal["feed_ended"] = "feed_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """A task attempt ended without output."""

    stage_id: int
    stage_attempt: int
    partition: int
    task_attempt: int
    executor_id: str
    failure: Failure
    metrics: Annotated[TaskMetrics, SPARSE] = NO_METRICS
    at_ms: int
    type: Literal["task_failed"] = "task_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksLost:
    """Running tasks were taken back, uncounted, though the executor itself was not lost."""

    stage_id: int
    stage_attempt: int
    executor_id: str
    tasks: tuple[tuple[int, int], ...]
    reason: FailureKind
    at_ms: int
    type: Literal["tasks_lost"] = "tasks_lost"


class SuspectTask(NamedTuple):
    """A task that was running in a JVM when it ended."""

    job_id: str
    stage_id: int
    stage_attempt: int
    partition: int
    task_attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmDeath:
    """An executor's JVM ended by itself, and its agent, which lived on, reported how."""

    is_memory: bool
    """Whether there is evidence that memory ran out."""
    was_alone: bool
    """Whether its only task had the executor to itself, without planning and requests of Spark Connect."""
    tasks: int
    """How many tasks were running in it, of all jobs."""
    suspects: tuple[SuspectTask, ...] = ()
    """Those of them that belong to this job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLost:
    """One life of an executor ended: its running tasks are gone, and its outputs where they are not shared."""

    executor_id: str
    incarnation: str
    reason: str
    at_ms: int
    death: Annotated[JvmDeath | None, SPARSE] = None
    """Set if its JVM ended by itself."""
    type: Literal["executor_lost"] = "executor_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAbandoned:
    """The stages of a pipelined job cannot run together, for a reason outside of its tasks.

    Failures of tasks, outputs and executors have the same consequence without this event.
    """

    reason: str
    at_ms: int
    type: Literal["pipeline_abandoned"] = "pipeline_abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """A user asked for the job to end."""

    reason: str
    at_ms: int
    principal: Annotated[str, SPARSE] = ""
    """The name of the user's token, if it has one."""
    type: Literal["job_cancelled"] = "job_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """The job that did the work of a program's step has ended."""

    stage_id: int
    child_id: str
    """That job: of this program, or of one that this program is a retry of."""
    rows: int
    """How many rows its result has, or it wrote."""
    failure: Failure | None = None
    """Why it failed; None: it was successful."""
    at_ms: int
    type: Literal["step_ended"] = "step_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed:
    """The job fails, for a reason that is in none of its tasks: its time is over, or its end cannot be committed."""

    failure: Failure
    at_ms: int
    type: Literal["job_failed"] = "job_failed"


FeedEvent = PartitionsAdded | FeedEnded
"""The successes of tasks of feeds."""

LaunchEvent = TasksLaunched | TasksSpeculated | LaunchesRepeated
"""The events that assign tasks to executors."""

Event = Annotated[
    StagesStarted
    | StageLaidOut
    | TasksLaunched
    | StragglersFound
    | TasksSpeculated
    | LaunchesRepeated
    | TaskSucceeded
    | JobPlanned
    | OutputsTaken
    | ReplanBegun
    | StageReplanned
    | ReplanGivenUp
    | PartitionsAdded
    | FeedEnded
    | TaskFailed
    | TasksLost
    | ExecutorLost
    | PipelineAbandoned
    | StepEnded
    | JobFailed
    | JobCancelled,
    Field(discriminator="type"),
]
