"""The state of a job as a pure value: stages, tasks with attempts, events, and what follows from them.

No I/O, no clock, no Spark: `graph` and `stages` are the values, `events` what can happen to them. `transitions` says
what each event changes, with `attempts`, `speculation`, `outcomes`, `losses`, `reuse`, `feed_changes`,
`layout_changes` and `replan_changes`. `feed_records` says where the partitions of growing stages come from,
`operators` what plans' operators measured, `rollback` what follows when something finished is lost, and `streaming`
what is different where stages run together. `layout_rules` decides how stages that start are laid out, `replan_rules`
when the rest is planned again, and `scheduling` what to do next. `intervals` reads a job's log, and `wall_time` adds up
where its time went.
"""

from onager.execution_graph.bucket_sizes import sizes_text
from onager.execution_graph.codec import (
    EventBatch,
    decode_batch,
    decode_graph,
    decoding_graph,
    encode_batch,
    encode_event,
    encoding_graph,
)
from onager.execution_graph.events import (
    Event,
    ExecutorLost,
    FeedEnded,
    FeedEvent,
    JobCancelled,
    JobFailed,
    JobPlanned,
    JvmDeath,
    LaunchesRepeated,
    LaunchEvent,
    OutputsTaken,
    PartitionsAdded,
    PlanSummary,
    SinkBuckets,
    SinkSpec,
    SinkTable,
    StageReplanned,
    StagesStarted,
    StepEnded,
    SuspectTask,
    TakenOutput,
    TaskFailed,
    TasksLaunched,
    TasksLost,
    TasksSpeculated,
    TaskSucceeded,
)
from onager.execution_graph.failures import (
    LEFT_TO_OTHERS,
    UNCOUNTED,
    Failure,
    FailureCause,
    FailureKind,
    FetchFailure,
    RetryLimits,
)
from onager.execution_graph.feed_changes import stage_fed_by
from onager.execution_graph.feed_records import Feed, Portion
from onager.execution_graph.graph import (
    AdaptivePolicy,
    Cancelled,
    ExecutionGraph,
    Failed,
    JobState,
    Replan,
    SpeculationPolicy,
    Streaming,
    Succeeded,
    submit,
)
from onager.execution_graph.invariants import violations
from onager.execution_graph.layout_rules import lay_out
from onager.execution_graph.losses import find_culprit
from onager.execution_graph.operators import OperatorTotals, metrics_text
from onager.execution_graph.plan_checks import check_stages
from onager.execution_graph.refusing import refusal
from onager.execution_graph.replan_rules import bytes_in_memory, find_replan, is_repeatable
from onager.execution_graph.reuse import outputs_to_take, reusable_stages, taken_in, worth_taking
from onager.execution_graph.scheduling import (
    HeldTask,
    available_tasks,
    can_judge,
    has_failed_somewhere,
    has_runnable_work,
    has_task_for,
    held_tasks,
    is_alone,
    is_held,
    lives_at_work,
    lost_launches,
    not_held,
    paused_tasks,
    pop_next_tasks,
    revive,
    running_count,
)
from onager.execution_graph.scripts import (
    child_of,
    deadline_passed,
    planned_at_once,
    running_steps,
    script_summary,
)
from onager.execution_graph.speculation import find_stragglers
from onager.execution_graph.stages import (
    ExecutorLife,
    ExecutorSlot,
    FailedStage,
    FusedStage,
    OutputLayout,
    ResolvedStage,
    RunningStage,
    Stage,
    StageInput,
    StageSpec,
    StageWork,
    SuccessfulStage,
    SupersededStage,
    TaskOutput,
    TaskRead,
    UnresolvedStage,
)
from onager.execution_graph.streaming import find_abandonment, is_streaming, streams_of
from onager.execution_graph.task_metrics import NO_METRICS, TaskMetrics
from onager.execution_graph.transitions import apply, apply_all
