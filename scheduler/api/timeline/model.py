"""The shape of a timeline, as clients get it: its JSON is a contract. What is empty, 0 or false is left out."""

from enum import StrEnum
from typing import Any

from pydantic import AliasPath, BaseModel, ConfigDict, Field

from onager.execution_graph import StageWork
from onager.execution_graph.intervals import Outcome


class MarkKind(StrEnum):
    """What happened at a moment."""

    SUBMITTED = "submitted"
    """Its scheduler is the first one that committed something."""
    PLANNED = "planned"
    TAKE_OVER = "take_over"
    """Another scheduler than before committed what happened."""
    EXECUTOR_LOST = "executor_lost"
    TASK_RETRY = "task_retry"
    STAGE_ROLLBACK = "stage_rollback"
    """A stage goes back, because outputs that it reads or has made are gone."""
    SECOND_ATTEMPTS = "second_attempts"
    LAUNCHES_REPEATED = "launches_repeated"
    """Launches that never arrived were sent again, under the same attempt numbers."""
    STREAMING_GIVEN_UP = "streaming_given_up"
    CANCELLED = "cancelled"
    ENDED = "ended"
    NOT_KEPT = "not_kept"
    """What happened up to here is not in the store any more."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True, populate_by_name=True)


def _metric(name: str) -> Any:
    return Field(0, validation_alias=AliasPath("metrics", name))


class Lane(_Part):
    """An executor; bars and buckets name it by its index."""

    executor_id: str
    rows: int
    """The most attempts that it had at a time."""


class Bar(_Part):
    """An attempt of a task. Stage, stage attempt, partition and attempt together are its identity."""

    lane: int
    row: int = 0
    """Within the lane, from 0: bars of one row do not overlap."""
    stage: int = Field(validation_alias="stage_id")
    stage_attempt: int = 0
    partition: int = 0
    attempt: int = Field(0, validation_alias="number")
    from_ms: int
    """When it was launched, since the Unix epoch, by a scheduler's clock; so are all moments."""
    to_ms: int | None = None
    """When a scheduler learned of its end; None: it has not ended."""
    outcome: Outcome
    kind: str = ""
    """Why it did not succeed, as in ``onager events``: ``io_error`` and so on."""
    message: str = ""
    queued_ms: int = _metric("queued_ms")
    """The executor's own durations: before it began, while it ran, and of these for rows of other stages, and for the
    end of its output. 0: not reported."""
    run_ms: int = _metric("run_ms")
    fetch_ms: int = _metric("fetch_ms")
    commit_ms: int = _metric("commit_ms")
    speculative: bool = Field(False, validation_alias="is_second")
    """A second attempt beside a running one."""
    also_stage: int = Field(0, validation_alias="fused_stage")
    """The stage that this attempt of planning ran as well; 0: none."""


class Bucket(_Part):
    """What an executor did in `Timeline.bucket_ms` from `from_ms` on, for a job with many attempts."""

    lane: int
    from_ms: int
    running: float = 0
    """Attempts that it had at a time, on average."""
    successful: int = 0
    """Attempts that ended so in this time."""
    failed: int = 0
    lost: int = 0
    killed: int = 0
    stopped: int = 0


class Mark(_Part):
    """What happened to the job as a whole, or to many tasks at once."""

    number: int
    """Its identity within the job."""
    kind: MarkKind
    at_ms: int
    to_ms: int | None = None
    """Set for several that are shown as one: when the last one happened."""
    count: int = 1
    text: str = ""
    stage: int | None = None
    partition: int | None = None
    executor_id: str = ""
    scheduler_id: str = ""


class StageTimes(_Part):
    """One attempt of a stage."""

    stage: int = Field(validation_alias=AliasPath("spec", "stage_id"))
    attempt: int = 0
    name: str = Field(validation_alias=AliasPath("spec", "name"))
    work: StageWork = Field(validation_alias=AliasPath("spec", "work"))
    partitions: int = Field(validation_alias=AliasPath("spec", "partitions"))
    from_ms: int
    to_ms: int | None = None
    outcome: Outcome


class Timeline(_Part):
    """What a job did when and where.

    Who names `position` as *after* in the next call gets the marks and bars that are new or have changed; everything
    else is sent whole each time. With buckets instead of bars all is sent each time, and replaces what was before.
    """

    job_id: str
    name: str
    state: str
    submitted_ms: int
    to_ms: int
    """The latest moment in it."""
    position: int = 0
    """Of the job's log, up to which this tells."""
    is_over: bool = False
    is_early: bool = False
    """The log goes on after `position`: ask again."""
    is_partial: bool = False
    """Some of the history is not in the store any more: then bars and marks are missing."""
    attempts: int = 0
    """Of tasks, altogether."""
    outcomes: dict[Outcome, int] = {}
    """How many of them there are by outcome."""
    lanes: tuple[Lane, ...] = ()
    stages: tuple[StageTimes, ...] = ()
    bars: tuple[Bar, ...] = ()
    bucket_ms: int = 0
    """The length of a bucket; 0: there are bars."""
    buckets: tuple[Bucket, ...] = ()
    marks: tuple[Mark, ...] = ()

    def as_json(self) -> bytes:
        """Return it as JSON, without what is empty."""
        return self.model_dump_json(exclude_defaults=True).encode()
