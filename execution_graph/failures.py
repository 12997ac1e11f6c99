"""Why a task did not succeed: data, not exceptions, because it is stored, shown, and used in decisions."""

from enum import StrEnum

from onager.execution_graph.record import Record


class FailureKind(StrEnum):
    """The classes of failure that the graph tells apart.

    Source: the classes are Ballista's (`FailedTask.reason`), with LAUNCH_LOST added.
    """

    IO_ERROR = "io_error"
    """Reading or writing failed, or a Python worker died: retried, and counted."""
    EXECUTOR_LOST = "executor_lost"
    """The executor died or left: retried; the job fails only over a task that has lost many executors."""
    TASK_KILLED = "task_killed"
    """Stopped on request or by a drain: retried, not counted."""
    RESULT_LOST = "result_lost"
    """The output of a finished task is gone: made again, not counted."""
    LAUNCH_LOST = "launch_lost"
    """The task never reached its executor: launched again, not counted."""
    FETCH_FAILED = "fetch_failed"
    """An input is missing or damaged: the stage is rolled back, and the input is made again."""
    USER_ERROR = "user_error"
    """Anything else, which would happen again with the same input: the job fails at once."""

    @property
    def is_retryable(self) -> bool:
        """Return whether the task may be launched again as it is."""
        return self not in (FailureKind.FETCH_FAILED, FailureKind.USER_ERROR)

    @property
    def is_counted(self) -> bool:
        """Return whether it counts towards `RetryLimits.task_max_failures`."""
        return self is FailureKind.IO_ERROR


class FailureCause(StrEnum):
    """What is known of a failure beyond its kind.

    The kind decides what happens to the task, also for readers that do not know the cause. The cause is shown to people
    in its place, and may delay or direct the retry.
    """

    INTERNAL_ERROR = "internal_error"
    """An error in Onager or in Spark, not in what the user wrote; with IO_ERROR."""
    NO_SPACE = "no_space"
    """The exchange, or the staging place of a dataset, is full: retried after a pause; with TASK_KILLED."""
    OTHER_VERSION = "other_version"
    """The executor cannot read a plan of another version: left to executors that can; with TASK_KILLED."""
    CATALOG_CHANGED = "catalog_changed"
    """Another job changed what the job was planned on in the catalog: planned again; with IO_ERROR."""
    NO_PLACE = "no_place"
    """The executor does not see a directory that the cluster shares: left to executors that do; with TASK_KILLED."""


class FetchFailure(Record, frozen=True):
    """The output that a reader could not read; `nonce` names the execution that wrote it."""

    stage_id: int
    partition: int
    nonce: str


class Failure(Record, frozen=True, kw_only=True):
    """What went wrong, in the user's words if the user can fix it."""

    kind: FailureKind
    message: str
    error_class: str | None = None
    """Spark's error condition, such as ``DIVIDE_BY_ZERO``."""
    sql_state: str | None = None
    query_context: str | None = None
    """The part of the query that Spark points at."""
    details: str | None = None
    """A stack trace, at most 16 KiB."""
    fetch: FetchFailure | None = None
    """Set when, and only when, `kind` is FETCH_FAILED."""
    cause: FailureCause | None = None
    log_tail: str | None = None
    """The end of what the attempt logged, at most 16 KiB."""
    connect_details: str | None = None
    """Of an operation of Spark Connect: all that Spark tells of the error, in Base64."""

    @property
    def shown_kind(self) -> str:
        """Return the kind of failure that is shown to people."""
        return (self.cause or self.kind).value


UNCOUNTED_PAUSE_MS = 5_000
"""How long a partition waits after it found no space, or met again an executor that cannot read its plan or see its
place."""
LEFT_TO_OTHERS = frozenset({FailureCause.OTHER_VERSION, FailureCause.NO_PLACE})
"""The causes of failures that others may not have, so that the task goes to an executor on which it has not failed."""
UNCOUNTED = LEFT_TO_OTHERS | {FailureCause.NO_SPACE}
"""The causes of failures that count against nobody."""


class RetryLimits(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The limits of retries. Source of the defaults 4 and 4: Spark and Ballista."""

    task_max_failures: int = 4
    """This many counted failures of one partition fail the job."""
    stage_max_failures: int = 4
    """Fetch failures in this many distinct attempts of a stage fail the job."""
    retry_pauses_ms: tuple[int, ...] = ()
    """How long a partition waits after its first counted failure, its second, and so on; the last value holds for all
    later ones. Empty: it is retried at once."""

    def pause_after(self, failures: int) -> int:
        """Return the milliseconds that a partition waits after *failures* counted failures, 1 or more."""
        return self.retry_pauses_ms[min(failures, len(self.retry_pauses_ms)) - 1] if self.retry_pauses_ms else 0
