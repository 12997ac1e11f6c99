"""The history of a job as attempts and marks: its log, replayed.

What an event says of itself is taken from the event. What follows from it for others (a stage that is rolled back and
whose running tasks are stopped, streaming that is given up, the end of the job) is seen by comparing the graphs before
and after it, so that none of the graph's rules stands here a second time. Where the history has a gap there is no graph
to compare, and only what events say is told.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import groupby
from typing import Final, assert_never

from onager.execution_graph import (
    Cancelled,
    Event,
    EventBatch,
    ExecutionGraph,
    ExecutorLost,
    Failed,
    FailureKind,
    FeedEnded,
    FeedEvent,
    JobCancelled,
    JobFailed,
    JobPlanned,
    LaunchesRepeated,
    OutputsTaken,
    PartitionsAdded,
    PipelineAbandoned,
    ReplanBegun,
    ReplanGivenUp,
    RunningStage,
    Stage,
    StageLaidOut,
    StageReplanned,
    StageSpec,
    StagesStarted,
    StepEnded,
    StragglersFound,
    SuccessfulStage,
    TaskFailed,
    TaskMetrics,
    TasksLaunched,
    TasksLost,
    TasksSpeculated,
    TaskSucceeded,
    apply_all,
    planned_at_once,
    submit,
    was_planned_at_once,
)
from onager.redaction import shown_text
from onager.scheduler.api.timeline.buckets import Buckets
from onager.scheduler.api.timeline.model import Bucket, MarkKind, Outcome

MOST_BARS: Final = 2_000
"""A job with more attempts is told by buckets: either way the JSON stays below about half a megabyte."""
_TEXT_CHARS: Final = 300
_MOST_MARKS: Final = 500
"""Of each kind; further ones are counted with the last one."""

_ENDED_BY: Final = {
    FailureKind.EXECUTOR_LOST: Outcome.LOST,
    FailureKind.LAUNCH_LOST: Outcome.LOST,
    FailureKind.TASK_KILLED: Outcome.KILLED,
}


@dataclass(slots=True)
class Attempt:
    """An attempt of a task."""

    lane: int
    row: int
    stage_id: int
    stage_attempt: int
    partition: int
    number: int
    incarnation: str
    from_ms: int
    position: int
    """Of the log, where it changed last."""
    is_second: bool = False
    to_ms: int | None = None
    outcome: Outcome = Outcome.RUNNING
    kind: str = ""
    message: str = ""
    metrics: TaskMetrics | None = None
    fused_stage: int = 0


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


@dataclass(slots=True)
class StageRun:
    """One attempt of a stage."""

    spec: StageSpec
    attempt: int
    from_ms: int
    to_ms: int | None = None
    outcome: Outcome = Outcome.RUNNING


@dataclass(slots=True)
class Place:
    """An executor, and the rows in which its attempts lie."""

    executor_id: str
    rows: int = 0
    free: list[int] = field(default_factory=list)

    def take(self) -> int:
        """Return the lowest free row."""
        if self.free:
            return heappop(self.free)
        self.rows += 1
        return self.rows - 1

    def give(self, row: int) -> None:
        """Free a row."""
        heappush(self.free, row)


def _as_submitted(graph: ExecutionGraph) -> ExecutionGraph:
    """Return the graph with which a job began, but for the pipeline, which is as it is now."""
    submitted = submit(
        job_id=graph.job_id,
        name=graph.name,
        client_id=graph.client_id,
        spec_digest=graph.spec_digest,
        at_ms=graph.submitted_ms,
        limits=graph.limits,
        speculation=graph.speculation,
        pipeline=graph.pipeline,
    )
    if not was_planned_at_once(graph):
        return submitted
    return planned_at_once(submitted, [stage.spec for stage in graph.stages[1:]], graph.submitted_ms)


class Story:
    """Attempts and marks of a job, from its first batch to the last one that was fed."""

    def __init__(self, job: ExecutionGraph) -> None:
        """Begin the story of *job*, given as it is now: its stages are not looked at."""
        self._submitted = _as_submitted(job)
        self.graph: ExecutionGraph | None = None
        """The job at `position`; None before the first batch, after a gap, and after the end."""
        self.position = 0
        self.submitted_ms = job.submitted_ms
        self.last_ms = job.submitted_ms
        self.is_partial = False
        self.is_over = False
        self.attempts: list[Attempt] = []
        self._ended: list[Attempt] = []
        """Of `attempts`, as they ended."""
        self._outcomes: Counter[Outcome] = Counter()
        """Theirs."""
        self._buckets: Buckets | None = None
        self.moments: list[Moment] = []
        self.stage_runs: list[StageRun] = []
        self.places: list[Place] = []
        self._place_of: dict[str, int] = {}
        self._open: dict[int, dict[int, list[Attempt]]] = {}
        """Attempts that go on, by stage and partition."""
        self._stage_open: dict[int, StageRun] = {}
        self._last: dict[MarkKind, Moment] = {}
        self._marks: dict[MarkKind, int] = {}
        self._writer = ""
        self._note(MarkKind.SUBMITTED, job.submitted_ms, job.name)

    def feed(self, position: int, batch: EventBatch | None) -> None:
        """Go on with the batch at *position*, which follows that of before; None: it was not kept, nor those before."""
        if position <= self.position:
            return
        is_first = self.position == 0
        self.position = position
        if batch is None:
            self._go_on_after_gap()
            return
        if is_first and batch.events:
            self.graph = self._submitted
            pipeline = self.graph.pipeline
            if pipeline is not None and pipeline.abandoned_ms > batch.events[0].at_ms:
                self.graph = replace(self.graph, pipeline=replace(pipeline, reason="", abandoned_ms=0))
            self._compare_stages((), self.graph.stages, self.submitted_ms, "")
        self._note_writer(batch)
        for is_success, events in groupby(batch.events, lambda event: isinstance(event, TaskSucceeded)):
            if is_success:
                self._on_successes([event for event in events if isinstance(event, TaskSucceeded)])
            else:
                for event in events:
                    self._on(event)

    def end_as(self, job: ExecutionGraph) -> None:
        """Take the end of *job*, the whole log of which was fed, from its graph if the history has not told it."""
        if not job.is_active and not self.is_over:
            self._end(job, job.ended_ms or self.last_ms)

    def running(self) -> int:
        """Return how many attempts go on."""
        return sum(len(attempts) for stage in self._open.values() for attempts in stage.values())

    @property
    def is_long(self) -> bool:
        """Return whether there are too many attempts to tell them one by one."""
        return len(self.attempts) > MOST_BARS

    def outcomes(self) -> dict[Outcome, int]:
        """Return how many attempts there are by outcome."""
        running = self.running()
        return {**self._outcomes, **({Outcome.RUNNING: running} if running else {})}

    def buckets(self, length_ms: int, lanes: int) -> list[Bucket]:
        """Return counts of the attempts by time, in *length_ms*, and by executor, of which *lanes* have their own."""
        kept = self._buckets
        if kept is None or (kept.length_ms, kept.lanes) != (length_ms, lanes):
            kept = self._buckets = Buckets(self.submitted_ms, length_ms, lanes)
        kept.add(self._ended[kept.added :], self.last_ms)
        return kept.told(self._going_on(), self.last_ms)

    def _going_on(self) -> Iterator[Attempt]:
        return (attempt for stage in self._open.values() for attempts in stage.values() for attempt in attempts)

    # ---------------------------------------------------------------- what happened

    def _on(self, event: Event) -> None:  # noqa: C901 - one case an event
        self.last_ms = max(self.last_ms, event.at_ms)
        match event:
            case TasksLaunched():
                self._launch(event, is_second=False)
            case TasksSpeculated():
                self._launch(event, is_second=True)
                self._note_tasks(MarkKind.SECOND_ATTEMPTS, event)
            case LaunchesRepeated():
                self._note_tasks(MarkKind.LAUNCHES_REPEATED, event)
            case TasksLost():
                self._take_back(event)
            case ExecutorLost():
                self._lose_executor(event)
            case TaskFailed():
                self._fail(event)
            case JobPlanned():
                self._plan(event)
            case PartitionsAdded() | FeedEnded():
                self._close_successful(event)
            case JobCancelled():
                by = f", by {event.principal}" if event.principal else ""
                self._note(MarkKind.CANCELLED, event.at_ms, f"{event.reason}{by}")
            case StageReplanned():
                self._replan(event)
            case (
                ReplanBegun()
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
                pass  # seen in the graph; successes come in groups
            case _:
                assert_never(event)
        self._go_on((event,), event.at_ms, _cause(event))

    def _on_successes(self, events: Sequence[TaskSucceeded]) -> None:
        for event in events:
            self._close_successful(event)
        self.last_ms = max(self.last_ms, *(event.at_ms for event in events))
        self._go_on(events, events[-1].at_ms, "")

    def _close_successful(self, event: TaskSucceeded | FeedEvent) -> None:
        attempt = self._find(event.stage_id, event.stage_attempt, event.partition, event.task_attempt)
        if attempt is None:
            return
        self._close(attempt, event.at_ms, Outcome.SUCCESSFUL, metrics=event.metrics)
        for other in [*self._open.get(event.stage_id, {}).get(event.partition, ())]:
            self._close(other, event.at_ms, Outcome.KILLED, kind="another_attempt_won")

    def _launch(self, event: TasksLaunched | TasksSpeculated, *, is_second: bool) -> None:
        lane = self._lane(event.executor_id)
        place = self.places[lane]
        stage = self._open.setdefault(event.stage_id, {})
        for partition, number in event.tasks:
            attempt = Attempt(
                lane=lane,
                row=place.take(),
                stage_id=event.stage_id,
                stage_attempt=event.stage_attempt,
                partition=partition,
                number=number,
                incarnation=event.incarnation,
                from_ms=event.at_ms,
                position=self.position,
                is_second=is_second,
            )
            self.attempts.append(attempt)
            stage.setdefault(partition, []).append(attempt)

    def _take_back(self, event: TasksLost) -> None:
        outcome = _ENDED_BY.get(event.reason, Outcome.LOST)
        for partition, number in event.tasks:
            attempt = self._find(event.stage_id, event.stage_attempt, partition, number)
            if attempt is not None:
                self._close(attempt, event.at_ms, outcome, kind=event.reason.value)
        self._note_tasks(MarkKind.TASK_RETRY, event, f": {event.reason.value}")

    def _lose_executor(self, event: ExecutorLost) -> None:
        lane = self._lane(event.executor_id)
        reason = shown_text(event.reason)[:_TEXT_CHARS]
        lost = [each for each in self._going_on() if each.lane == lane and each.incarnation == event.incarnation]
        for attempt in lost:
            kind = FailureKind.EXECUTOR_LOST.value
            self._close(attempt, event.at_ms, Outcome.LOST, kind=kind, message=reason)
        running = f", with {len(lost)} running task{'s' * (len(lost) != 1)}" if lost else ""
        named = "" if f"executor {event.executor_id}" in event.reason else f"{event.executor_id}: "
        text = f"{named}{event.reason}{running}"
        executor_id, incarnation = event.executor_id, event.incarnation
        self._note(MarkKind.EXECUTOR_LOST, event.at_ms, text, executor_id=executor_id, incarnation=incarnation)

    def _fail(self, event: TaskFailed) -> None:
        failure = event.failure
        kind, message = failure.told_kind, shown_text(failure.message)[:_TEXT_CHARS]
        attempt = self._find(event.stage_id, event.stage_attempt, event.partition, event.task_attempt)
        if attempt is not None:
            outcome = Outcome.FAILED if failure.cause else _ENDED_BY.get(failure.kind, Outcome.FAILED)
            self._close(attempt, event.at_ms, outcome, kind=kind, message=message, metrics=event.metrics)
        if failure.kind.is_retryable:
            where = f"task {event.partition} of stage {event.stage_id} on {event.executor_id}"
            self._note(
                MarkKind.TASK_RETRY,
                event.at_ms,
                f"{where}: {kind}: {message}",
                stage_id=event.stage_id,
                partition=event.partition,
                executor_id=event.executor_id,
            )

    def _replan(self, event: StageReplanned) -> None:
        for attempts in [*self._open.get(event.replan_id, {}).values()]:
            for attempt in [*attempts]:
                self._close(attempt, event.at_ms, Outcome.SUCCESSFUL, metrics=event.metrics)
        result = f"{len(event.stages)} new stages" if event.stages else "the plan is kept"
        text = shown_text(f"planned again: {result}: {'; '.join(event.decisions)}")[:_TEXT_CHARS]
        self._note(MarkKind.PLANNED, event.at_ms, text, stage_id=event.replan_id, executor_id=event.executor_id)

    def _plan(self, event: JobPlanned) -> None:
        for attempts in [*self._open.get(0, {}).values()]:
            for attempt in [*attempts]:
                if attempt.number == event.task_attempt:
                    self._close(attempt, event.at_ms, Outcome.SUCCESSFUL, metrics=event.metrics)
                    attempt.fused_stage = 1 if event.fused_output is not None else 0
        tasks = sum(stage.partitions for stage in event.stages)
        stages = len(event.stages)
        text = f"{stages} stage{'s' * (stages != 1)}, {tasks} task{'s' * (tasks != 1)}, by {event.executor_id}"
        self._note(MarkKind.PLANNED, event.at_ms, text, executor_id=event.executor_id)

    # ---------------------------------------------------------------- what follows

    def _go_on(self, events: Iterable[Event], at_ms: int, why: str) -> None:
        if self.graph is None:
            return
        before, self.graph = self.graph, apply_all(self.graph, events)
        if self.graph is before:
            return
        reason = "" if self.graph.pipeline is None else self.graph.pipeline.reason
        if reason and before.pipeline is not None and not before.pipeline.reason:
            self._note(MarkKind.STREAMING_GIVEN_UP, at_ms, reason)
            why = ""
        self._compare_stages(before.stages, self.graph.stages, at_ms, why)
        if not self.graph.is_active:
            self._end(self.graph, at_ms)

    def _compare_stages(self, before: Sequence[Stage], after: Sequence[Stage], at_ms: int, why: str) -> None:
        for stage_id in range(len(after), len(before)):
            self._leave_stage(stage_id, at_ms)  # the job is planned again
        for stage_id, stage in enumerate(after):
            old = before[stage_id] if stage_id < len(before) else None
            if old is stage:
                continue
            if old is not None and stage.attempt > old.attempt and why:
                text = f"stage {stage_id} runs again: {why}"
                self._note(MarkKind.STAGE_ROLLBACK, at_ms, text, stage_id=stage_id)
            self._follow_stage(stage_id, stage, at_ms)

    def _follow_stage(self, stage_id: int, stage: Stage, at_ms: int) -> None:
        run = self._stage_open.get(stage_id)
        if isinstance(stage, RunningStage):
            if run is not None and run.attempt == stage.attempt:
                return
            self._leave_stage(stage_id, at_ms)
            self._begin_stage(stage, stage.started_ms)
        elif isinstance(stage, SuccessfulStage):
            if run is None or run.attempt != stage.attempt:
                known = next((r for r in reversed(self.stage_runs) if r.spec.stage_id == stage_id), None)
                if known is not None and known.attempt == stage.attempt and known.outcome is Outcome.SUCCESSFUL:
                    return
                run = self._begin_stage(stage, stage.started_ms)
            self._leave_stage(stage_id, at_ms, Outcome.SUCCESSFUL)
        else:
            self._leave_stage(stage_id, at_ms, Outcome.FAILED if stage.state == "failed" else Outcome.STOPPED)

    def _begin_stage(self, stage: Stage, from_ms: int) -> StageRun:
        run = StageRun(stage.spec, stage.attempt, from_ms)
        self.stage_runs.append(run)
        self._stage_open[stage.spec.stage_id] = run
        return run

    def _leave_stage(self, stage_id: int, at_ms: int, outcome: Outcome = Outcome.STOPPED) -> None:
        run = self._stage_open.pop(stage_id, None)
        if run is not None:
            run.to_ms, run.outcome = at_ms, outcome
        for attempts in [*self._open.get(stage_id, {}).values()]:
            for attempt in [*attempts]:
                self._close(attempt, at_ms, Outcome.STOPPED)

    def _end(self, job: ExecutionGraph, at_ms: int) -> None:
        self.is_over, self.graph = True, None
        self.last_ms = max(self.last_ms, at_ms)
        for stage_id in [*self._open]:
            self._leave_stage(stage_id, at_ms)
        match job.outcome:
            case Failed(failure=failure):
                text = f"failed: {failure.message}"
            case Cancelled(told=told):
                text = f"cancelled: {told}"
            case _:
                text = "successful"
        self._note(MarkKind.ENDED, at_ms, text)

    def _go_on_after_gap(self) -> None:
        self.graph, self.is_partial = None, True
        for stage_id in [*self._open, *self._stage_open]:
            self._leave_stage(stage_id, self.last_ms)
        self._note(MarkKind.NOT_KEPT, self.last_ms, "what happened up to here is not in the store any more")

    # ---------------------------------------------------------------- notes

    def _note_writer(self, batch: EventBatch) -> None:
        if batch.writer and batch.events:
            if self._writer and batch.writer != self._writer:
                text = f"{batch.writer} goes on after {self._writer}"
                self._note(MarkKind.TAKE_OVER, batch.events[0].at_ms, text, scheduler_id=batch.writer)
            elif not self._writer:
                self.moments[0].scheduler_id, self.moments[0].position = batch.writer, self.position
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
            last.position == self.position
            and (last.stage_id, last.executor_id, last.incarnation) == (stage_id, executor_id, incarnation)
        )
        if last is not None and (is_like or self._marks[kind] >= _MOST_MARKS):
            last.count += count
            last.to_ms = at_ms
            last.position = self.position
            if last.partition != partition:
                last.partition = None
            return
        text = shown_text(text)[:_TEXT_CHARS]
        made = Moment(
            number=len(self.moments),
            kind=kind,
            at_ms=at_ms,
            position=self.position,
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

    # ---------------------------------------------------------------- attempts

    def _lane(self, executor_id: str) -> int:
        lane = self._place_of.get(executor_id)
        if lane is None:
            lane = self._place_of[executor_id] = len(self.places)
            self.places.append(Place(executor_id))
        return lane

    def _find(self, stage_id: int, stage_attempt: int, partition: int, number: int) -> Attempt | None:
        for attempt in self._open.get(stage_id, {}).get(partition, ()):
            if attempt.number == number and attempt.stage_attempt == stage_attempt:
                return attempt
        return None

    def _close(
        self,
        attempt: Attempt,
        at_ms: int,
        outcome: Outcome,
        *,
        kind: str = "",
        message: str = "",
        metrics: TaskMetrics | None = None,
    ) -> None:
        attempt.to_ms = max(at_ms, attempt.from_ms)
        attempt.outcome, attempt.kind, attempt.message, attempt.metrics = outcome, kind, message, metrics
        attempt.position = self.position
        self._ended.append(attempt)
        self._outcomes[outcome] += 1
        self.places[attempt.lane].give(attempt.row)
        stage = self._open[attempt.stage_id]
        left = stage[attempt.partition]
        left.remove(attempt)
        if not left:
            del stage[attempt.partition]


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
