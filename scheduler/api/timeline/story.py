"""The history of a job as attempts and marks: its intervals, and what people are told beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from onager.execution_graph import (
    Cancelled,
    Event,
    EventBatch,
    ExecutionGraph,
    ExecutorLost,
    Failed,
    FeedEnded,
    JobCancelled,
    JobFailed,
    JobPlanned,
    LaunchesRepeated,
    OutputsTaken,
    PartitionsAdded,
    PipelineAbandoned,
    ReplanBegun,
    ReplanGivenUp,
    StageLaidOut,
    StageReplanned,
    StagesStarted,
    StepEnded,
    StragglersFound,
    TaskFailed,
    TasksLaunched,
    TasksLost,
    TasksSpeculated,
    TaskSucceeded,
)
from onager.execution_graph.intervals import IntervalReader, Outcome, Step
from onager.redaction import shown_text
from onager.scheduler.api.timeline.buckets import Buckets
from onager.scheduler.api.timeline.model import Bucket, MarkKind

MOST_BARS: Final = 2_000
"""A job with more attempts is told by buckets: either way the JSON stays below about half a megabyte."""
_TEXT_CHARS: Final = 300
_MOST_MARKS: Final = 500
"""Of each kind; further ones are counted with the last one."""


@dataclass(slots=True)
class Moment:
    """Something that happened to the job, or the same several times."""

    number: int
    kind: MarkKind
    at_ms: int
    position: int
    text: str = ""
    stage_id: int | None = None
    partition: int | None = None
    executor_id: str = ""
    scheduler_id: str = ""
    count: int = 1
    incarnation: str = ""
    to_ms: int | None = None


class Story:
    """Attempts and marks of a job, from its first batch to the last one that was fed."""

    def __init__(self, job: ExecutionGraph) -> None:
        """Begin the story of *job*, given as it is now: its stages are not looked at."""
        self.log = IntervalReader(job)
        self._buckets: Buckets | None = None
        self.moments: list[Moment] = []
        self._last: dict[MarkKind, Moment] = {}
        self._marks: dict[MarkKind, int] = {}
        self._writer = ""
        self._note(MarkKind.SUBMITTED, job.submitted_ms, job.name)

    def feed(self, position: int, batch: EventBatch | None) -> None:
        """Go on with the batch at *position*, which follows that of before; None: it was not kept, nor those before."""
        if position <= self.log.position:
            return
        steps = self.log.read(position, batch)
        if batch is None:
            text = "what happened up to here is not in the store any more"
            self._note(MarkKind.NOT_KEPT, self.log.now_ms, text)
            return
        self._note_writer(batch)
        for step in steps:
            if not isinstance(step.events[0], TaskSucceeded):
                self._on(step.events[0], step)
            if step.after is not step.before and step.before is not None and step.after is not None:
                self._compare(step.before, step.after, step)

    def end_as(self, job: ExecutionGraph) -> None:
        """Take the end of *job*, the whole log of which was fed, from its graph if the history has not told it."""
        if not job.is_active and not self.log.is_over:
            self.log.end_as(job)
            self._note_end(job, job.ended_ms or self.log.now_ms)

    @property
    def is_long(self) -> bool:
        """Return whether there are too many attempts to tell them one by one."""
        return len(self.log.attempts) > MOST_BARS

    def outcomes(self) -> dict[Outcome, int]:
        """Return how many attempts there are by outcome."""
        running = self.log.in_hand_count
        return {**self.log.outcomes, **({Outcome.RUNNING: running} if running else {})}

    def buckets(self, length_ms: int, lanes: int) -> list[Bucket]:
        """Return counts of the attempts by time, in *length_ms*, and by executor, of which *lanes* have their own."""
        kept, log = self._buckets, self.log
        if kept is None or (kept.length_ms, kept.lanes) != (length_ms, lanes):
            kept = self._buckets = Buckets(log.submitted_ms, length_ms, lanes)
        kept.add(log.ended[kept.added :], log.now_ms)
        return kept.told(log.in_hand(), log.now_ms)

    # ---------------------------------------------------------------- what happened

    def _on(self, event: Event, step: Step) -> None:
        match event:
            case TasksSpeculated():
                self._note_tasks(MarkKind.SECOND_ATTEMPTS, event)
            case LaunchesRepeated():
                self._note_tasks(MarkKind.LAUNCHES_REPEATED, event)
            case TasksLost():
                self._note_tasks(MarkKind.TASK_RETRY, event, f": {event.reason.value}")
            case ExecutorLost():
                self._lose_executor(event, sum(attempt.outcome is Outcome.LOST for attempt in step.ended))
            case TaskFailed():
                self._fail(event)
            case JobPlanned():
                stages, tasks = len(event.stages), sum(stage.partitions for stage in event.stages)
                text = f"{stages} stage{'s' * (stages != 1)}, {tasks} task{'s' * (tasks != 1)}, by {event.executor_id}"
                self._note(MarkKind.PLANNED, event.at_ms, text, executor_id=event.executor_id)
            case JobCancelled():
                by = f", by {event.principal}" if event.principal else ""
                self._note(MarkKind.CANCELLED, event.at_ms, f"{event.reason}{by}")
            case StageReplanned():
                result = f"{len(event.stages)} new stages" if event.stages else "the plan is kept"
                text = f"planned again: {result}: {'; '.join(event.decisions)}"
                executor_id = event.executor_id
                self._note(MarkKind.PLANNED, event.at_ms, text, stage_id=event.replan_id, executor_id=executor_id)
            case (
                TasksLaunched()
                | PartitionsAdded()
                | FeedEnded()
                | ReplanBegun()
                | ReplanGivenUp()
                | OutputsTaken()
                | StagesStarted()
                | StageLaidOut()
                | StragglersFound()
                | PipelineAbandoned()
                | StepEnded()
                | JobFailed()
                | TaskSucceeded()
            ):
                pass  # seen in attempts and in the graph
            case _:
                assert_never(event)

    def _lose_executor(self, event: ExecutorLost, lost: int) -> None:
        running = f", with {lost} running task{'s' * (lost != 1)}" if lost else ""
        named = "" if f"executor {event.executor_id}" in event.reason else f"{event.executor_id}: "
        text = f"{named}{event.reason}{running}"
        executor_id, incarnation = event.executor_id, event.incarnation
        self._note(MarkKind.EXECUTOR_LOST, event.at_ms, text, executor_id=executor_id, incarnation=incarnation)

    def _fail(self, event: TaskFailed) -> None:
        failure = event.failure
        if failure.kind.is_retryable:
            where = f"task {event.partition} of stage {event.stage_id} on {event.executor_id}"
            message = shown_text(failure.message)[:_TEXT_CHARS]
            self._note(
                MarkKind.TASK_RETRY,
                event.at_ms,
                f"{where}: {failure.told_kind}: {message}",
                stage_id=event.stage_id,
                partition=event.partition,
                executor_id=event.executor_id,
            )

    def _compare(self, before: ExecutionGraph, after: ExecutionGraph, step: Step) -> None:
        """Note what follows from events: streaming that is given up, stages that run again, the end."""
        at_ms = step.at_ms
        reason = "" if after.pipeline is None else after.pipeline.reason
        if reason and before.pipeline is not None and not before.pipeline.reason:
            self._note(MarkKind.STREAMING_GIVEN_UP, at_ms, reason)
        elif not isinstance(step.events[0], TaskSucceeded):
            for old, stage in zip(before.stages, after.stages, strict=False):
                if stage.attempt > old.attempt:
                    stage_id = stage.spec.stage_id
                    text = f"stage {stage_id} runs again: {_cause(step.events[0])}"
                    self._note(MarkKind.STAGE_ROLLBACK, at_ms, text, stage_id=stage_id)
        if not after.is_active:
            self._note_end(after, at_ms)

    def _note_end(self, job: ExecutionGraph, at_ms: int) -> None:
        match job.outcome:
            case Failed(failure=failure):
                text = f"failed: {failure.message}"
            case Cancelled(told=told):
                text = f"cancelled: {told}"
            case _:
                text = "successful"
        self._note(MarkKind.ENDED, at_ms, text)

    # ---------------------------------------------------------------- notes

    def _note_writer(self, batch: EventBatch) -> None:
        if batch.writer and batch.events:
            if self._writer and batch.writer != self._writer:
                text = f"{batch.writer} goes on after {self._writer}"
                self._note(MarkKind.TAKE_OVER, batch.events[0].at_ms, text, scheduler_id=batch.writer)
            elif not self._writer:
                self.moments[0].scheduler_id, self.moments[0].position = batch.writer, self.log.position
            self._writer = batch.writer

    def _note_tasks(self, kind: MarkKind, event: TasksSpeculated | LaunchesRepeated | TasksLost, why: str = "") -> None:
        self._note(
            kind,
            event.at_ms,
            f"{_tasks(event.stage_id, event.tasks)} on {event.executor_id}{why}",
            stage_id=event.stage_id,
            executor_id=event.executor_id,
            count=len(event.tasks),
        )

    def _note(
        self,
        kind: MarkKind,
        at_ms: int,
        text: str,
        *,
        stage_id: int | None = None,
        partition: int | None = None,
        executor_id: str = "",
        scheduler_id: str = "",
        incarnation: str = "",
        count: int = 1,
    ) -> None:
        last = self._last.get(kind)
        is_like = last is not None and (
            last.position == self.log.position
            and (last.stage_id, last.executor_id, last.incarnation) == (stage_id, executor_id, incarnation)
        )
        if last is not None and (is_like or self._marks[kind] >= _MOST_MARKS):
            last.count += count
            last.to_ms = at_ms
            last.position = self.log.position
            if last.partition != partition:
                last.partition = None
            return
        text = shown_text(text)[:_TEXT_CHARS]
        made = Moment(
            number=len(self.moments),
            kind=kind,
            at_ms=at_ms,
            position=self.log.position,
            text=text,
            stage_id=stage_id,
            partition=partition,
            executor_id=executor_id,
            scheduler_id=scheduler_id,
            count=count,
            incarnation=incarnation,
        )
        self.moments.append(made)
        self._last[kind] = made
        self._marks[kind] = self._marks.get(kind, 0) + 1


def _cause(event: Event) -> str:
    match event:
        case ExecutorLost():
            return f"{event.executor_id} is lost: {event.reason}"
        case TaskFailed():
            return f"{event.failure.told_kind}: {event.failure.message}"
        case _:
            return "outputs were lost"


def _tasks(stage_id: int, tasks: Sequence[tuple[int, int]]) -> str:
    if len(tasks) == 1:
        return f"task {tasks[0][0]} of stage {stage_id}"
    return f"{len(tasks)} tasks of stage {stage_id}"
