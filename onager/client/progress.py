"""The progress of a job, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from onager.client.copying import copied
from onager.errors import JobCancelledError, JobEndedError, JobFailedError
from onager.protocol import onager_pb2 as pb


class JobState(StrEnum):
    """The state of a job; the last three are final."""

    QUEUED = "queued"
    PLANNING = "planning"
    RUNNING = "running"
    PUBLISHING = "publishing"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Return whether a job in this state never changes again."""
        return self in {JobState.SUCCESSFUL, JobState.FAILED, JobState.CANCELLED}


_METRICS: Final = (
    *("run_ms", "rows_out", "bytes_out", "bytes_in", "queued_ms", "fetch_ms", "commit_ms"),
    *("peak_memory_bytes", "executor_rss_bytes"),
)
"""Fields of a stage that are among the metrics of its tasks."""


@dataclass(frozen=True, slots=True)
class Latency:
    """How long the tasks of a stage took for one part of their way, in milliseconds."""

    part: str
    """``queued`` on the executor (which binds the stage's plan meanwhile), ``run``, ``fetch`` (the part of ``run`` that
    waited for other stages), or ``delivery``: launch and report on their way."""
    tasks: int
    p50_ms: int
    p95_ms: int
    p99_ms: int
    max_ms: int
    relative_error: float
    """The relative error of the quantiles: 0.02, more where durations differ very much."""


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A part of a job's wall time."""

    use: str
    """``waiting`` for a slot, ``planning``, ``function``, ``scheduling``, ``launching``, ``binding``,
    ``code_generation``, ``running``, ``fetching``, ``writing``, ``wasted``, ``retry_pause``, ``publishing``, or
    ``unknown``: not in the store any more."""
    ms: int


@dataclass(frozen=True, slots=True)
class StageProgress:
    """One stage: the states of its partitions, and its cost so far."""

    stage_id: int
    name: str
    work: str
    """``plan``, ``query``, ``feed``, ``replan``, ``publish_plan``, ``publish``, or, of a script, ``step``."""
    state: str
    attempt: int
    partitions: int
    successful: int
    running: int
    pending: int
    tasks_failed: int
    tasks_lost: int
    tasks_speculated: int
    """Tasks with a speculative attempt, which ran beside the first one."""
    started_ms: int
    """Since the Unix epoch; 0 until the first task starts."""
    ended_ms: int
    run_ms: int
    """The sum of its tasks' run times."""
    rows_out: int
    bytes_out: int
    bytes_in: int
    queued_ms: int
    """The sum of the times that its tasks waited on executors before they began."""
    fetch_ms: int
    """The part of `run_ms` in which tasks waited for rows of other stages."""
    commit_ms: int
    """The part of `run_ms` from the last row to the output under its final name."""
    wasted_ms: int
    """The run time of attempts that failed, were stopped because another one won, or made an output again."""
    fraction: float = 0.0
    """The part of its work that is done, with running tasks counted in part; only while the job runs."""
    rows_read: int = 0
    """By the attempts that run now."""
    bytes_read: int = 0
    latencies: tuple[Latency, ...] = ()
    """Of tasks whose outputs count: from `JobHandle.progress`, and of a job that has ended."""
    peak_memory_bytes: int = 0
    """The most that Spark held for the work of one task."""
    executor_rss_bytes: int = 0
    """The most that all processes of an executor held while tasks of the stage ran, as sampled."""
    child_job_id: str = ""
    """Of a step: the job that does its work, or has done it; empty before the step begins."""
    step_state: str = ""
    """Of a step that runs: the state of that job."""
    step_rows: int = 0
    """Of a step that has ended: the rows of its result, or those that it wrote."""

    @classmethod
    def from_message(cls, message: pb.StageInfo) -> Self:
        """Return the stage that *message* describes."""
        metrics = {name: getattr(message.metrics, name) for name in _METRICS}
        latencies = tuple(copied(Latency, each) for each in message.latencies)
        return copied(cls, message, **metrics, wasted_ms=message.wasted.run_ms, latencies=latencies)


@dataclass(frozen=True, slots=True)
class TaskRetry:
    """The failed task that is retried next."""

    stage_id: int
    partition: int
    next_try: int
    """The number of the next try; 2 is the first retry."""
    max_tries: int
    """0: no limit, since the failure is not the task's fault."""
    message: str
    """The error of the last try."""
    not_before_ms: int
    tasks: int
    """The number of tasks that wait for a retry, including this one."""

    def text(self, now_ms: int) -> str:
        """Return a line for people: the error, the number of the next try, and the seconds until it."""
        first_line = self.message.partition("\n")[0]
        more = self.tasks - 1
        others = f" ({more} more {'task waits' if more == 1 else 'tasks wait'} for a retry)" if more else ""
        pause_s = max(0, self.not_before_ms - now_ms) / 1000
        if not self.max_tries:
            where = f"task {self.partition} of stage {self.stage_id}"
            return f"{where} waits: {first_line}; retry in {pause_s:.1f} s{others}"
        return (
            f"task {self.partition} of stage {self.stage_id} failed: {first_line}; try {self.next_try} of "
            f"{self.max_tries} in {pause_s:.1f} s{others}"
        )


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job at one moment. Times are milliseconds since the Unix epoch; 0: not yet."""

    job_id: str
    name: str
    state: JobState
    submitted_ms: int
    started_ms: int
    ended_ms: int
    stages: tuple[StageProgress, ...]
    waiting_for: str
    """Why no task runs, for people; empty when one does."""
    result_rows: int
    sink_path: str
    """Where the result is written as a dataset; empty if the client fetches it."""
    exchange_bytes: int
    """The size of its files in the exchange directory: all outputs while it runs, then its result until that is
    removed."""
    failure: JobEndedError | None
    """Why the job failed or was cancelled; None for other jobs."""
    exchange: str = "durable"
    """How rows get from stage to stage: ``durable``, through files, or ``streaming``, while both stages run."""
    durable_because: str = ""
    """Why a job that asked for streaming uses files; empty for other jobs."""
    retry: TaskRetry | None = None
    """Set while failed tasks wait for a retry."""
    principal: str = ""
    """The name of the token with which it was submitted; empty without tokens, and for a token without a name."""
    fraction: float = 0.0
    """The part of its work that is done, 0 to 1; only while it runs."""
    eta_ms: tuple[int, int] | None = None
    """How many milliseconds more it is likely to run, at least and at most; None if unknown."""
    fraction_fell: str = ""
    """Why `fraction` is lower than it was; empty if it is not."""
    time_shares: tuple[TimeShare, ...] = ()
    """Where the wall time since the submission went: they add up to it. Only from `JobHandle.progress`."""
    retry_of: str = ""
    """The id of the job whose specification was submitted again; empty for other jobs."""
    session: str = ""
    """Jobs of one session share a limit of running tasks."""
    stages_total: int = 0
    """The stages known so far; only in lists, which leave `stages` out."""
    stages_done: int = 0
    parent: str = ""
    """The script of which it is a step; empty for other jobs."""
    labels: Mapping[str, str] = field(default_factory=dict)
    deadline_ms: int = 0
    """When it fails if it has not ended; 0: never."""

    @property
    def is_script(self) -> bool:
        """Return whether the job's stages are steps, each a job of its own."""
        return any(stage.work == "step" for stage in self.stages)

    @property
    def is_program(self) -> bool:
        """Return whether the job is a program of PySpark."""
        return any(stage.work == "program" for stage in self.stages)

    @classmethod
    def from_message(cls, message: pb.JobProgress) -> Self:
        """Return the progress that *message* describes."""
        state = JobState(pb.JobState.Name(message.state).lower())
        return copied(
            cls,
            message,
            state=state,
            stages=tuple(StageProgress.from_message(stage) for stage in message.stages),
            failure=_failure(message, state),
            exchange=message.exchange or "durable",
            retry=copied(TaskRetry, message.retry) if message.HasField("retry") else None,
            eta_ms=(message.eta_low_ms, message.eta_high_ms) if message.eta_high_ms else None,
            time_shares=tuple(copied(TimeShare, share) for share in message.time_shares),
            labels=dict(message.labels),
        )


def _failure(message: pb.JobProgress, state: JobState) -> JobEndedError | None:
    failure = message.failure
    match state:
        case JobState.CANCELLED:
            why = f": {failure.message}" if failure.message else ""
            return JobCancelledError(message.job_id, f"job {message.job_id} was cancelled{why}")
        case JobState.FAILED:
            text = failure.message or "the job failed for an unknown reason"
            if failure.query_context and failure.query_context.strip() not in text:
                text = f"{text}\n{failure.query_context}"
            return JobFailedError(
                message.job_id,
                text,
                failure.error_class or None,
                sql_state=failure.sql_state or None,
                query_context=failure.query_context or None,
                details=failure.details or None,
            )
        case _:
            return None
