"""Events, in the past tense: all that ever changes an `ExecutionGraph`, and what a job's log holds.

Times are wall-clock milliseconds taken where the event was decided, so that every scheduler computes the same graph.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from onager.execution_graph.failures import Failure, FailureKind
from onager.execution_graph.record import Record
from onager.execution_graph.stages import ExecutorSlot, RunningStage, RunningTask, StageSpec, TaskOutput, TaskRead
from onager.execution_graph.task_metrics import NO_METRICS, TaskMetrics


class _Event(Record, frozen=True, kw_only=True):
    """What all events have."""

    at_ms: int


class _StageEvent(_Event, frozen=True, kw_only=True):
    """What happened to a stage."""

    stage_id: int
    stage_attempt: int


class _Launch(_StageEvent, frozen=True, kw_only=True):
    """An assignment of tasks of one stage to an executor."""

    executor_id: str
    incarnation: str
    list_number: int
    tasks: tuple[tuple[int, int], ...]
    """(partition, task attempt), ascending."""

    @classmethod
    def to(cls, slot: ExecutorSlot, stage: RunningStage, tasks: tuple[tuple[int, int], ...], at_ms: int) -> Self:
        """Return the assignment of *tasks* of *stage* to the executor of *slot*."""
        return cls(
            stage_id=stage.spec.stage_id,
            stage_attempt=stage.attempt,
            executor_id=slot.executor_id,
            incarnation=slot.incarnation,
            list_number=slot.list_number,
            tasks=tasks,
            at_ms=at_ms,
        )

    def running_task(self, attempt: int) -> RunningTask:
        """Return one of the tasks as the graph has it, given the number of its attempt."""
        return RunningTask(
            attempt=attempt,
            executor_id=self.executor_id,
            incarnation=self.incarnation,
            launched_ms=self.at_ms,
            list_number=self.list_number,
        )


class _TaskEnded(_StageEvent, frozen=True, kw_only=True):
    """The end of an attempt of a task, as its executor reported it."""

    partition: int
    task_attempt: int
    executor_id: str


class _FeedSuccess(_TaskEnded, frozen=True, kw_only=True):
    """The success of a task of a feed, which is the stage of the event.

    A success like any other: it counts once, for the attempt that the graph gave to the executor.
    """

    output: TaskOutput
    """What the added partitions read, as its payload."""
    added: int
    """How many partitions the stage that it feeds gets, 0 or more."""
    metrics: TaskMetrics


class StagesStarted(_Event, frozen=True, kw_only=True, tag="stages_started"):
    """Resolved stages were started."""

    stage_ids: tuple[int, ...]


class StageLaidOut(_Event, frozen=True, kw_only=True, tag="stage_laid_out"):
    """A stage that never launched a task gets others than it was planned with, by what its inputs measured.

    Either its one task computes stages before it, too, or its tasks read other ranges of buckets.
    """

    stage_id: int
    basis: tuple[tuple[int, int], ...]
    """(stage, its attempt) of all that this was decided from, ascending: the stage, those that are fused into it, and
    those that they read. The event changes nothing once one of them has another attempt."""
    fused: tuple[int, ...] = ()
    """The stages that its one task computes, too, ascending."""
    reads: tuple[TaskRead, ...] = ()
    """What each task reads, by partition."""


class TasksLaunched(_Launch, frozen=True, kw_only=True, tag="tasks_launched"):
    """Pending tasks of one stage were assigned to an executor."""


class StragglersFound(_StageEvent, frozen=True, kw_only=True, tag="stragglers_found"):
    """Running tasks take much longer than others of their stage: each gets a second attempt."""

    tasks: tuple[tuple[int, int], ...]
    """(partition, running task attempt), ascending."""


class TasksSpeculated(_Launch, frozen=True, kw_only=True, tag="tasks_speculated"):
    """Second attempts of running tasks of one stage were assigned to another executor.

    The attempt numbers are those of the second attempts.
    """


class LaunchesRepeated(_StageEvent, frozen=True, kw_only=True, tag="launches_repeated"):
    """An executor's later list lacked these tasks: they are sent again under the same attempt numbers."""

    executor_id: str
    list_number: int
    tasks: tuple[tuple[int, int], ...]


class TaskSucceeded(_TaskEnded, frozen=True, kw_only=True, tag="task_succeeded"):
    """An execution of a task attempt wrote its whole output."""

    output: TaskOutput
    metrics: TaskMetrics
    op_metrics: str = ""
    """What its operators measured (`operators`), as Base64; empty: not reported."""
    bound_plan: str = ""
    """The bound plan of `op_metrics`, by content; empty: the first one of the stage."""


class SinkTable(Record, frozen=True, kw_only=True):
    """A table of the catalog whose partitions rows go into."""

    key: str
    table_id: str
    location: str
    """A URI."""
    replaces: Literal["nothing", "written", "matching"]
    """What goes: nothing, the rows of partitions that are written to, or all partitions below `within` besides."""
    within: str = ""
    """The path of the partition that was named; empty: the table."""


class SinkBuckets(Record, frozen=True, kw_only=True):
    """The buckets of a table: each of its files has rows of one."""

    count: int
    by: tuple[str, ...]
    sort_by: tuple[str, ...] = ()


class SinkSpec(Record, frozen=True, kw_only=True):
    """Where and how a result is written as a dataset."""

    path: str
    format: str
    mode: Literal["error", "overwrite", "append"]
    options: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[str, ...] = ()
    """The columns that become directories."""
    table: SinkTable | None = None
    buckets: SinkBuckets | None = None
    foreign: str = ""
    """The table of another catalog that the files become part of, as JSON that executors read. Empty: none."""


class PlanSummary(Record, frozen=True, kw_only=True):
    """What planning found besides the stages."""

    arrow_schema: str
    """Base64 of the Arrow IPC schema message of the result."""
    schema_json: str
    """The same as Spark's JSON."""
    explain_digest: str | None
    """The plan and each stage's fragment as text, by content."""
    sink: SinkSpec | None
    result_stage_id: int
    """The last QUERY stage: its outputs are the result, or the staged files. Of a script, the last step."""
    is_fused: bool
    frame_digest: str = ""
    """What the rest of the query can be planned again from, by content; empty: it cannot."""
    broadcast_bytes: int = 0
    """Up to how many bytes Spark would broadcast."""
    catalog_digest: str = ""
    """What the job changes in the catalog, by content: committed in the transaction that makes it successful. Empty:
    nothing."""
    folders_made: tuple[str, ...] = ()
    """Of tables: nobody needs them if the job does not succeed."""
    folders_retired: tuple[str, ...] = ()
    """Of tables: nobody needs them once the job has succeeded."""
    observed: str = ""
    """What the query has observed, for clients of Spark Connect: Base64 of an ExecutePlanResponse."""

    @property
    def last_stage_id(self) -> int:
        """Return the id of the stage whose success ends the job."""
        return self.result_stage_id + (0 if self.sink is None else 2)


class JobPlanned(_Event, frozen=True, kw_only=True, tag="job_planned"):
    """The PLAN task succeeded; `fused_output` is set when it also ran the single stage that it planned."""

    task_attempt: int
    executor_id: str
    stages: tuple[StageSpec, ...]
    """Ids 1 to n, producers before consumers."""
    summary: PlanSummary
    fused_output: TaskOutput | None
    metrics: TaskMetrics
    op_metrics: str = ""
    """Of a fused output: what the operators of Spark's final plan measured, as in `TaskSucceeded`."""
    bound_plan: str = ""
    """That plan, by content."""


class TakenOutput(Record, frozen=True, kw_only=True):
    """What a stage of another job gave, for a stage that would give the same rows."""

    stage_id: int
    job_id: str
    of_stage_id: int
    """The stage of that job."""
    fingerprint: str
    """Of both stages."""
    outputs: tuple[TaskOutput, ...]
    """By partition of that stage, all of them."""


class OutputsTaken(_Event, frozen=True, kw_only=True, tag="outputs_taken"):
    """Stages that have not begun take what other jobs gave: neither they nor what only they read are computed."""

    taken: tuple[TakenOutput, ...]
    """By stage, ascending."""


class ReplanBegun(_Event, frozen=True, kw_only=True, tag="replan_begun"):
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


class StageReplanned(_Event, frozen=True, kw_only=True, omit_defaults=False, tag="stage_replanned"):
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
    metrics: TaskMetrics = NO_METRICS


class ReplanGivenUp(_Event, frozen=True, kw_only=True, tag="replan_given_up"):
    """A re-plan took too long: the plan stays as it is."""

    replan_id: int
    reason: str


class PartitionsAdded(_FeedSuccess, frozen=True, kw_only=True, tag="partitions_added"):
    """A task of a feed succeeded, and there is more to find: the stage that it feeds gets partitions."""


class FeedEnded(_FeedSuccess, frozen=True, kw_only=True, tag="feed_ended"):
    """A task of a feed succeeded, and found the end: the stage that it feeds gets its last partitions."""


class TaskFailed(_TaskEnded, frozen=True, kw_only=True, tag="task_failed"):
    """A task attempt ended without output."""

    failure: Failure
    metrics: TaskMetrics = NO_METRICS


class TasksLost(_StageEvent, frozen=True, kw_only=True, tag="tasks_lost"):
    """Running tasks were taken back, uncounted, though the executor itself was not lost."""

    executor_id: str
    tasks: tuple[tuple[int, int], ...]
    reason: FailureKind


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


class ExecutorLost(_Event, frozen=True, kw_only=True, tag="executor_lost"):
    """One life of an executor ended: its running tasks are gone, and its outputs where they are not shared."""

    executor_id: str
    incarnation: str
    reason: str
    death: JvmDeath | None = None
    """Set if its JVM ended by itself."""


class StreamingAbandoned(_Event, frozen=True, kw_only=True, tag="streaming_abandoned"):
    """The stages of a streaming job cannot run together, for a reason outside of its tasks.

    Failures of tasks, outputs and executors have the same consequence without this event.
    """

    reason: str


class JobCancelled(_Event, frozen=True, kw_only=True, tag="job_cancelled"):
    """A user asked for the job to end."""

    reason: str
    principal: str = ""
    """The name of the user's token, if it has one."""


class StepEnded(_Event, frozen=True, kw_only=True, omit_defaults=False, tag="step_ended"):
    """The job that did the work of a script's step has ended."""

    stage_id: int
    child_id: str
    """That job: of this script, or of one that this script is a retry of."""
    rows: int
    """How many rows its result has, or it wrote."""
    failure: Failure | None = None
    """Why it failed; None: it was successful."""


class JobFailed(_Event, frozen=True, kw_only=True, tag="job_failed"):
    """The job fails, for a reason that is in none of its tasks: its time is over, or its end cannot be committed."""

    failure: Failure


FeedEvent = PartitionsAdded | FeedEnded
"""The successes of tasks of feeds."""

LaunchEvent = TasksLaunched | TasksSpeculated | LaunchesRepeated
"""The events that assign tasks to executors."""

Event = (
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
    | StreamingAbandoned
    | StepEnded
    | JobFailed
    | JobCancelled
)
