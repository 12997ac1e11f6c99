"""The history of a job as attempts and marks: its intervals, and what people are shown beside them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from onager.execution_graph import (
    Cancelled,
    Event,
    EventBatch,
    ExecutionGraph,
    ExecutorLost,
    Failed,
    JobCancelled,
    JobPlanned,
    LaunchesRepeated,
    StageReplanned,
    TaskFailed,
    TasksLost,
    TasksSpeculated,
    TaskSucceeded,
)
from onager.execution_graph.intervals import IntervalReader, Outcome, Step
from onager.redaction import shown_text
from onager.scheduler.api.timeline.buckets import Buckets
from onager.scheduler.api.timeline.model import Bucket, MarkKind

MAX_BARS: Final = 2_000
"""A job with more attempts has buckets: either way the JSON stays below about half a megabyte."""
_TEXT_CHARS: Final = 300
_MAX_MARKS: Final = 500
"""Of each kind; further ones are counted with the last one."""


@dataclass(slots=True)
class Moment:
    """Something that happened to the job, or the same several times; what `Mark` tells of it, and more."""

    kind: MarkKind
    at_ms: int
    text: str = ""
    stage: int | None = None
    partition: int | None = None
    executor_id: str = ""
    incarnation: str = ""
    scheduler_id: str = ""
    count: int = 1
    to_ms: int | None = None
    number: int = 0
    position: int = 0
    """Of the log, where it changed last; set by `Story`, as *number* is."""


class Story:
    """Attempts and marks of a job, from its first batch to the last one that was fed."""

    def __init__(self, job: ExecutionGraph) -> None:
        """Begin the story of *job*, given as it is now: its stages are not looked at."""
        self.log = IntervalReader(job)
        self._buckets: Buckets | None = None
        self.moments: list[Moment] = []
        self._last: dict[MarkKind, Moment] = {}
        self._marks: Counter[MarkKind] = Counter()
        self._writer = ""
        self._note(Moment(MarkKind.SUBMITTED, job.submitted_ms, job.name))

    def feed(self, position: int, batch: EventBatch | None) -> None:
        """Go on with the batch at *position*, which follows that of before; None: it was not kept, nor those before."""
        if position <= self.log.position:
            return
        steps = self.log.read(position, batch)
        if batch is None:
            text = "what happened up to here is not in the store any more"
            self._note(Moment(MarkKind.NOT_KEPT, self.log.now_ms, text))
            return
        self._note_writer(batch)
        for step in steps:
            if not isinstance(step.events[0], TaskSucceeded):
                self._on(step.events[0], step)
            if step.after is not step.before and step.before is not None and step.after is not None:
                self._compare(step.before, step.after, step)

    def end_as(self, job: ExecutionGraph) -> None:
        """Take the end of *job*, the whole log of which was fed, from its graph if the history does not have it."""
        if not job.is_active and not self.log.is_over:
            self.log.end_as(job)
            self._note_end(job, job.ended_ms or self.log.now_ms)

    @property
    def is_long(self) -> bool:
        """Return whether there are too many attempts to tell them one by one."""
        return len(self.log.attempts) > MAX_BARS

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
        return kept.buckets(log.in_hand(), log.now_ms)

    # ---------------------------------------------------------------- what happened

    def _on(self, event: Event, step: Step) -> None:
        at_ms, kinds = event.at_ms, MarkKind
        match event:
            case TasksSpeculated():
                self._note_tasks(kinds.SECOND_ATTEMPTS, event)
            case LaunchesRepeated():
                self._note_tasks(kinds.LAUNCHES_REPEATED, event)
            case TasksLost():
                self._note_tasks(kinds.TASK_RETRY, event, f": {event.reason.value}")
            case ExecutorLost(executor_id=executor_id, incarnation=incarnation):
                lost = sum(attempt.outcome is Outcome.LOST for attempt in step.ended)
                running = f", with {lost} running task{'s' * (lost != 1)}" if lost else ""
                named = "" if f"executor {executor_id}" in event.reason else f"{executor_id}: "
                text = f"{named}{event.reason}{running}"
                self._note(Moment(kinds.EXECUTOR_LOST, at_ms, text, executor_id=executor_id, incarnation=incarnation))
            case TaskFailed(failure=failure, partition=partition, stage_id=stage, executor_id=executor_id):
                if failure.kind.is_retryable:
                    message = shown_text(failure.message)[:_TEXT_CHARS]
                    text = f"task {partition} of stage {stage} on {executor_id}: {failure.shown_kind}: {message}"
                    self._note(Moment(kinds.TASK_RETRY, at_ms, text, stage, partition, executor_id))
            case JobPlanned(executor_id=executor_id):
                stages, tasks = len(event.stages), sum(stage.partitions for stage in event.stages)
                text = f"{stages} stage{'s' * (stages != 1)}, {tasks} task{'s' * (tasks != 1)}, by {executor_id}"
                self._note(Moment(kinds.PLANNED, at_ms, text, executor_id=executor_id))
            case StageReplanned():
                result = f"{len(event.stages)} new stages" if event.stages else "the plan is kept"
                text = f"planned again: {result}: {'; '.join(event.decisions)}"
                self._note(Moment(kinds.PLANNED, at_ms, text, event.replan_id, executor_id=event.executor_id))
            case JobCancelled():
                by = f", by {event.principal}" if event.principal else ""
                self._note(Moment(kinds.CANCELLED, at_ms, f"{event.reason}{by}"))
            case _:
                pass  # seen in attempts, or in the graph

    def _compare(self, before: ExecutionGraph, after: ExecutionGraph, step: Step) -> None:
        """Note what follows from events: streaming that is given up, stages that run again, the end."""
        reason = "" if after.streaming is None else after.streaming.reason
        if reason and before.streaming is not None and not before.streaming.reason:
            self._note(Moment(MarkKind.STREAMING_GIVEN_UP, step.at_ms, reason))
        elif not isinstance(step.events[0], TaskSucceeded):
            for stage_id, (old, stage) in enumerate(zip(before.stages, after.stages, strict=False)):
                if stage.attempt > old.attempt:
                    text = f"stage {stage_id} runs again: {_cause(step.events[0])}"
                    self._note(Moment(MarkKind.STAGE_ROLLBACK, step.at_ms, text, stage_id))
        if not after.is_active:
            self._note_end(after, step.at_ms)

    def _note_end(self, job: ExecutionGraph, at_ms: int) -> None:
        match job.outcome:
            case Failed(failure=failure):
                text = f"failed: {failure.message}"
            case Cancelled(text=why):
                text = f"cancelled: {why}"
            case _:
                text = "successful"
        self._note(Moment(MarkKind.ENDED, at_ms, text))

    # ---------------------------------------------------------------- notes

    def _note_writer(self, batch: EventBatch) -> None:
        if batch.writer and batch.events:
            if self._writer and batch.writer != self._writer:
                text = f"{batch.writer} goes on after {self._writer}"
                self._note(Moment(MarkKind.TAKE_OVER, batch.events[0].at_ms, text, scheduler_id=batch.writer))
            elif not self._writer:
                self.moments[0].scheduler_id, self.moments[0].position = batch.writer, self.log.position
            self._writer = batch.writer

    def _note_tasks(self, kind: MarkKind, event: TasksSpeculated | LaunchesRepeated | TasksLost, why: str = "") -> None:
        text = f"{_tasks(event.stage_id, event.tasks)} on {event.executor_id}{why}"
        count = len(event.tasks)
        self._note(Moment(kind, event.at_ms, text, event.stage_id, executor_id=event.executor_id, count=count))

    def _note(self, made: Moment) -> None:
        kind, last = made.kind, self._last.get(made.kind)
        is_like = last is not None and (
            last.position == self.log.position
            and (last.stage, last.executor_id, last.incarnation) == (made.stage, made.executor_id, made.incarnation)
        )
        if last is not None and (is_like or self._marks[kind] >= _MAX_MARKS):
            last.count += made.count
            last.to_ms, last.position = made.at_ms, self.log.position
            if last.partition != made.partition:
                last.partition = None
            return
        made.text = shown_text(made.text)[:_TEXT_CHARS]
        made.number, made.position = len(self.moments), self.log.position
        self.moments.append(made)
        self._last[kind] = made
        self._marks[kind] += 1


def _cause(event: Event) -> str:
    match event:
        case ExecutorLost():
            return f"{event.executor_id} is lost: {event.reason}"
        case TaskFailed():
            return f"{event.failure.shown_kind}: {event.failure.message}"
        case _:
            return "outputs were lost"


def _tasks(stage_id: int, tasks: Sequence[tuple[int, int]]) -> str:
    if len(tasks) == 1:
        return f"task {tasks[0][0]} of stage {stage_id}"
    return f"{len(tasks)} tasks of stage {stage_id}"
