"""Why a task did not succeed: data, not exceptions, because it is stored, shown and decided on."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from onager.execution_graph.maps import SPARSE


class FailureKind(StrEnum):
    """The classes of failure that the graph tells apart.

    Source: the classes are Ballista's (`FailedTask.reason`), with LAUNCH_LOST added.
    """

    IO_ERROR = "io_error"
    """Reading or writing went wrong, or a Python worker died: tried again, and counted."""
    EXECUTOR_LOST = "executor_lost"
    """The executor died or left: tried again; only a task that outlives many executors is given up."""
    TASK_KILLED = "task_killed"
    """Stopped on request or by a drain: tried again, not counted."""
    RESULT_LOST = "result_lost"
    """The output of a finished task is gone: made again, not counted."""
    LAUNCH_LOST = "launch_lost"
    """The task never reached its executor: handed out again, not counted."""
    FETCH_FAILED = "fetch_failed"
    """An input is missing or damaged: the stage is rolled back and the input made again."""
    USER_ERROR = "user_error"
    """Anything else, which the same input would bring again: the job fails at once."""

    @property
    def is_retryable(self) -> bool:
        """Return whether the task may be handed out again as it is."""
        return self not in (FailureKind.FETCH_FAILED, FailureKind.USER_ERROR)

    @property
    def is_counted(self) -> bool:
        """Return whether it counts towards `RetryLimits.task_max_failures`."""
        return self is FailureKind.IO_ERROR


class FailureCause(StrEnum):
    """What is known of a failure beyond its kind.

    The kind says what becomes of the task, also to readers that do not know the cause; the cause is what people are
    told in its place, and may delay or direct the next try.
    """

    INTERNAL_ERROR = "internal_error"
    """Nothing that the user wrote: ours, or Spark's; with IO_ERROR."""
    NO_SPACE = "no_space"
    """The exchange, or where a dataset is staged, is full: tried again once a pause is over; with TASK_KILLED."""
    OTHER_VERSION = "other_version"
    """The executor cannot read a plan of another version: for those that can; with TASK_KILLED."""


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """Which output a reader could not read; `nonce` tells the execution that wrote it."""

    stage_id: int
    partition: int
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, in the user's words where the user can mend it."""

    kind: FailureKind
    message: str
    error_class: Annotated[str | None, SPARSE] = None
    """Spark's error condition, such as ``DIVIDE_BY_ZERO``."""
    sql_state: Annotated[str | None, SPARSE] = None
    query_context: Annotated[str | None, SPARSE] = None
    """The piece of the query that Spark points at."""
    details: Annotated[str | None, SPARSE] = None
    """A stack trace, at most 16 KiB."""
    fetch: Annotated[FetchFailure | None, SPARSE] = None
    """Set when, and only when, `kind` is FETCH_FAILED."""
    cause: Annotated[FailureCause | None, SPARSE] = None
    """Unknown to readers before 1.4, 2.3 and 3.1, which do without it."""

    @property
    def told_kind(self) -> str:
        """Return what people are told that it is."""
        return (self.cause or self.kind).value


UNCOUNTED_PAUSE_MS = 5_000
"""How long a partition waits that found no space, or came once more to an executor that cannot read its plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """When trying again ends. Source of the defaults 4 and 4: Spark and Ballista."""

    task_max_failures: int = 4
    """The so-manieth counted failure of one partition fails the job."""
    stage_max_failures: int = 4
    """Fetch failures in so many distinct attempts of a stage fail the job."""
    retry_pauses_ms: Annotated[tuple[int, ...], SPARSE] = ()
    """How long a partition waits after its first counted failure, its second, and so on; the last goes for all that
    follow. Empty: it is tried again at once."""
    task_max_executor_losses: int = 8
    """A task that was running on so many executors when they were lost is taken for their killer and fails the job."""

    def pause_after(self, failures: int) -> int:
        """Return for how many milliseconds a partition waits after so many counted failures, 1 or more."""
        return self.retry_pauses_ms[min(failures, len(self.retry_pauses_ms)) - 1] if self.retry_pauses_ms else 0
