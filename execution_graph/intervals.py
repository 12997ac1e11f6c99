"""A job's log as intervals: what ran where, from when to when, and why it ended.

This is the only reader of what events mean for attempts. Timelines, shares of wall time, traces, Spark event logs and
counters add up what it finds.

An event says how the attempts that it names ended. What follows for others (a stage is rolled back and its running
tasks are stopped, the job ends) shows when the graphs before and after the event are compared, so none of the graph's
rules is repeated here. Where the history has a gap there is no graph, and only the attempts that events name end.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from itertools import groupby
from typing import Final, NamedTuple

from onager.execution_graph.codec import EventBatch
from onager.execution_graph.events import (
    Event,
    ExecutorLost,
    FeedEnded,
    JobPlanned,
    PartitionsAdded,
    ReplanBegun,
    StageReplanned,
    TaskFailed,
    TasksLaunched,
    TasksLost,
    TasksSpeculated,
    TaskSucceeded,
)
from onager.execution_graph.failures import FailureKind
from onager.execution_graph.graph import PLAN_STAGE_ID, ExecutionGraph, Streaming, submit
from onager.execution_graph.scripts import planned_at_once, was_planned_at_once
from onager.execution_graph.stages import RunningStage, Stage, StageSpec, StageWork, SuccessfulStage
from onager.execution_graph.task_metrics import TaskMetrics
from onager.execution_graph.transitions import apply_all
from onager.redaction import shown_text

_MESSAGE_CHARS: Final = 300


class Outcome(StrEnum):
    """What became of an attempt of a task."""

    RUNNING = "running"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    LOST = "lost"
    """Its executor died or left, or it never arrived there."""
    KILLED = "killed"
    """Another attempt of the task won, or it was stopped on request."""
    STOPPED = "stopped"
    """Its stage was rolled back, or its job ended."""


class Idle(StrEnum):
    """Why no executor has a task of the job; the values are those of `wall_time.TimeUse`."""

    WAITING = "waiting"
    """Tasks wait for a slot."""
    RETRY_PAUSE = "retry_pause"
    """All tasks that could run pause before a retry."""
    NOTHING_TO_LAUNCH = "scheduling"
    UNKNOWN = "unknown"
    """The history has a gap."""


AttemptKey = tuple[int, int | None, int, int]
"""Stage, stage attempt (None: the one that runs), partition, task attempt."""


class Ending(NamedTuple):
    """How an attempt ended."""

    outcome: Outcome
    kind: str = ""
    """Why it did not succeed, as in ``onager events``: ``io_error`` and so on."""
    message: str = ""
    metrics: TaskMetrics | None = None


_OUTCOMES: Final = {
    FailureKind.EXECUTOR_LOST: Outcome.LOST,
    FailureKind.LAUNCH_LOST: Outcome.LOST,
    FailureKind.TASK_KILLED: Outcome.KILLED,
}
_BEATEN: Final = Ending(Outcome.KILLED, "another_attempt_won")
_STOPPED: Final = Ending(Outcome.STOPPED)


def endings(event: Event, held_by: Callable[[str, str], Iterable[AttemptKey]]) -> Iterator[tuple[AttemptKey, Ending]]:
    """Yield the attempts that *event* names, and how they ended, if executors hold them at all.

    *held_by* returns the attempts that a life of an executor holds, by its executor id and incarnation.
    """
    match event:
        case TaskSucceeded() | PartitionsAdded() | FeedEnded():
            key = (event.stage_id, event.stage_attempt, event.partition, event.task_attempt)
            yield key, Ending(Outcome.SUCCESSFUL, metrics=event.metrics)
        case JobPlanned():
            yield (PLAN_STAGE_ID, None, 0, event.task_attempt), Ending(Outcome.SUCCESSFUL, metrics=event.metrics)
        case StageReplanned():
            yield (event.replan_id, None, 0, event.task_attempt), Ending(Outcome.SUCCESSFUL, metrics=event.metrics)
        case TaskFailed(failure=failure):
            key = (event.stage_id, event.stage_attempt, event.partition, event.task_attempt)
            outcome = Outcome.FAILED if failure.cause else _OUTCOMES.get(failure.kind, Outcome.FAILED)
            yield key, Ending(outcome, failure.shown_kind, failure.message, event.metrics)
        case TasksLost():
            lost = Ending(_OUTCOMES.get(event.reason, Outcome.LOST), event.reason.value)
            for partition, attempt in event.tasks:
                yield (event.stage_id, event.stage_attempt, partition, attempt), lost
        case ExecutorLost():
            lost = Ending(Outcome.LOST, FailureKind.EXECUTOR_LOST.value, event.reason)
            for held in list(held_by(event.executor_id, event.incarnation)):
                yield held, lost
        case _:
            pass


@dataclass(slots=True)
class Attempt:
    """An attempt of a task, from its launch to its end in the log."""

    lane: int
    """The index of its executor in `IntervalReader.places`."""
    row: int
    stage_id: int
    stage_attempt: int
    partition: int
    number: int
    incarnation: str
    work: StageWork
    from_ms: int
    log_from_ms: int
    position: int
    """Of the log, where it changed last."""
    is_second: bool = False
    to_ms: int | None = None
    log_to_ms: int | None = None
    outcome: Outcome = Outcome.RUNNING
    kind: str = ""
    message: str = ""
    metrics: TaskMetrics | None = None
    fused_stage: int = 0
    """The stage that this attempt of planning ran as well; 0: none."""
    is_repeat: bool = False
    """Whether its partition had succeeded before, and the output was lost."""
    is_cut: bool = False
    """Whether it still ran when the job ended, or when a gap in the history began."""

    @property
    def key(self) -> AttemptKey:
        """Return its identity within the job."""
        return self.stage_id, self.stage_attempt, self.partition, self.number


@dataclass(slots=True)
class StageRun:
    """One attempt of a stage."""

    spec: StageSpec
    attempt: int
    from_ms: int
    to_ms: int | None = None
    outcome: Outcome = Outcome.RUNNING
    log_from_ms: int = 0
    log_to_ms: int | None = None


@dataclass(slots=True)
class Place:
    """An executor, and the rows in which its attempts lie: those of one row do not overlap."""

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


class Step(NamedTuple):
    """One event of the log, or successes that follow each other, and what they changed."""

    events: Sequence[Event]
    ended: Sequence[Attempt]
    before: ExecutionGraph | None
    """None after a gap; so is *after*."""
    after: ExecutionGraph | None

    @property
    def at_ms(self) -> int:
        """Return the time of the last event."""
        return self.events[-1].at_ms


class IntervalReader:
    """The intervals of a job, from its first batch to the last one that was read.

    Times are wall-clock milliseconds of the schedulers in the log, whose clocks may differ. `now_ms` and times named
    *log* are by a clock that never goes back: the latest time in the log so far.
    """

    def __init__(self, job: ExecutionGraph) -> None:
        """Begin with the submission of *job*, given as it is now. Of its stages, only a script's steps are taken."""
        self.graph: ExecutionGraph | None = _as_submitted(job)
        """The job at `position`; None after a gap and after the end."""
        self.position = 0
        self.submitted_ms = self.now_ms = self._at_ms = job.submitted_ms
        self.is_partial = self.is_over = False
        self.attempts: list[Attempt] = []
        self.ended: list[Attempt] = []
        """Of `attempts`, as they ended."""
        self.outcomes: Counter[Outcome] = Counter()
        """Theirs."""
        self.stage_runs: list[StageRun] = []
        self.places: list[Place] = []
        self.idle: list[tuple[int, Idle]] = [(job.submitted_ms, Idle.NOTHING_TO_LAUNCH)]
        """Since when there was which reason, in order of time; says nothing of times when an executor had a task."""
        self._place_of: dict[str, int] = {}
        self._open: dict[int, dict[int, list[Attempt]]] = {}
        """Attempts that go on, by stage and partition."""
        self._stage_open: dict[int, StageRun] = {}
        self._works = {stage.spec.stage_id: stage.spec.work for stage in self.graph.stages}
        self._follow_stages((), self.graph.stages)

    def read(self, position: int, batch: EventBatch | None) -> Sequence[Step]:
        """Go on with the batch at *position*, which follows the last one; None: it was not kept, nor those before."""
        self.position = position
        if batch is None:
            self._begin_gap()
            return ()
        steps = []
        for is_success, found in groupby(batch.events, lambda event: isinstance(event, TaskSucceeded)):
            events = [*found]
            steps += [self._step(some) for some in ([events] if is_success else [[event] for event in events])]
        return steps

    def end_as(self, job: ExecutionGraph) -> None:
        """Take the end of *job*, whose log was read to its end, from its graph."""
        self._at_ms = job.ended_ms or self.now_ms
        self.now_ms = max(self.now_ms, self._at_ms)
        self._end()

    def in_hand(self) -> Iterator[Attempt]:
        """Yield the attempts that executors hold."""
        return (attempt for stage in self._open.values() for attempts in stage.values() for attempt in attempts)

    @property
    def in_hand_count(self) -> int:
        """Return how many these are."""
        return len(self.attempts) - len(self.ended)

    def _step(self, events: Sequence[Event]) -> Step:
        count, before = len(self.ended), self.graph
        after = None if before is None else apply_all(before, events)
        for event in events if not self.is_over else ():
            self.now_ms, self._at_ms = max(self.now_ms, event.at_ms), event.at_ms
            self._follow(event, is_stale=before is not None and after is before)
        if before is not None and after is not None and after is not before:
            self.graph = after
            self._follow_stages(before.stages, after.stages)
            if not after.is_active:
                self._end()
        self._note_idle()
        return Step(events, self.ended[count:], before, after)

    def _follow(self, event: Event, *, is_stale: bool) -> None:
        """Begin and end the attempts that *event* names."""
        fused_stage = 1 if isinstance(event, JobPlanned) and event.fused_output is not None else 0
        for key, ending in endings(event, self._held_by):
            self._end_named(key, ending, fused_stage)
        if isinstance(event, TasksLaunched | TasksSpeculated):
            if not is_stale:
                self._launch(event)
        elif isinstance(event, JobPlanned | StageReplanned):
            self._works.update((spec.stage_id, spec.work) for spec in event.stages)
        elif isinstance(event, ReplanBegun):
            self._works[event.replan_id] = StageWork.REPLAN

    def _launch(self, event: TasksLaunched | TasksSpeculated) -> None:
        lane = self._lane(event.executor_id)
        stage = self._open.setdefault(event.stage_id, {})
        for partition, number in event.tasks:
            attempt = Attempt(
                lane=lane,
                row=self.places[lane].take(),
                stage_id=event.stage_id,
                stage_attempt=event.stage_attempt,
                partition=partition,
                number=number,
                incarnation=event.incarnation,
                work=self._works.get(event.stage_id, StageWork.QUERY),
                from_ms=event.at_ms,
                log_from_ms=self.now_ms,
                position=self.position,
                is_second=isinstance(event, TasksSpeculated),
            )
            self.attempts.append(attempt)
            stage.setdefault(partition, []).append(attempt)

    def _lane(self, executor_id: str) -> int:
        lane = self._place_of.setdefault(executor_id, len(self.places))
        if lane == len(self.places):
            self.places.append(Place(executor_id))
        return lane

    def _held_by(self, executor_id: str, incarnation: str) -> Iterator[AttemptKey]:
        lane = self._lane(executor_id)
        return (each.key for each in self.in_hand() if each.lane == lane and each.incarnation == incarnation)

    def _end_named(self, key: AttemptKey, ending: Ending, fused_stage: int) -> None:
        stage_id, stage_attempt, partition, number = key
        held = self._open.get(stage_id, {}).get(partition, ())
        for attempt in held:
            if attempt.number == number and stage_attempt in (None, attempt.stage_attempt):
                break
        else:
            return
        if ending.outcome is Outcome.SUCCESSFUL:
            if self.graph is not None and stage_id and stage_id < len(self.graph.stages):
                attempt.is_repeat = partition in self.graph.stages[stage_id].ledger.successes
            for other in [each for each in held if each is not attempt]:
                self._close(other, _BEATEN)
        attempt.fused_stage = fused_stage
        self._close(attempt, ending)

    def _close(self, attempt: Attempt, ending: Ending) -> None:
        attempt.to_ms, attempt.log_to_ms = max(self._at_ms, attempt.from_ms), self.now_ms
        attempt.position = self.position
        attempt.outcome, attempt.kind, attempt.metrics = ending.outcome, ending.kind, ending.metrics
        if ending.message:
            attempt.message = shown_text(ending.message)[:_MESSAGE_CHARS]
        self.ended.append(attempt)
        self.outcomes[ending.outcome] += 1
        self.places[attempt.lane].give(attempt.row)
        stage = self._open[attempt.stage_id]
        stage[attempt.partition].remove(attempt)
        if not stage[attempt.partition]:
            del stage[attempt.partition]

    # ---------------------------------------------------------------- what follows

    def _follow_stages(self, before: Sequence[Stage], after: Sequence[Stage]) -> None:
        for stage_id in range(len(after), len(before)):
            self._leave_stage(stage_id)  # the job is planned again
        for stage_id, stage in enumerate(after):
            if stage_id >= len(before) or before[stage_id] is not stage:
                self._follow_stage(stage_id, stage)

    def _follow_stage(self, stage_id: int, stage: Stage) -> None:
        run = self._stage_open.get(stage_id)
        if isinstance(stage, RunningStage):
            if run is None or run.attempt != stage.attempt:
                self._leave_stage(stage_id)
                self._begin_stage(stage)
        elif isinstance(stage, SuccessfulStage):
            if run is None or run.attempt != stage.attempt:
                known = next((r for r in reversed(self.stage_runs) if r.spec.stage_id == stage_id), None)
                if known is not None and known.attempt == stage.attempt and known.outcome is Outcome.SUCCESSFUL:
                    return
                self._begin_stage(stage)
            self._leave_stage(stage_id, Outcome.SUCCESSFUL)
        else:
            is_failed = stage.state == "failed"
            self._leave_stage(stage_id, Outcome.FAILED if is_failed else Outcome.STOPPED, is_cut=is_failed)

    def _begin_stage(self, stage: RunningStage | SuccessfulStage) -> None:
        run = self._stage_open[stage.spec.stage_id] = StageRun(
            stage.spec, stage.attempt, stage.started_ms, log_from_ms=self.now_ms
        )
        self.stage_runs.append(run)

    def _leave_stage(self, stage_id: int, outcome: Outcome = Outcome.STOPPED, *, is_cut: bool = False) -> None:
        run = self._stage_open.pop(stage_id, None)
        if run is not None:
            run.to_ms, run.log_to_ms, run.outcome = self._at_ms, self.now_ms, outcome
        for attempt in [each for attempts in self._open.get(stage_id, {}).values() for each in attempts]:
            attempt.is_cut = is_cut
            self._close(attempt, _STOPPED)

    def _end(self) -> None:
        self.is_over, self.graph = True, None
        for stage_id in [*self._open]:
            self._leave_stage(stage_id, is_cut=True)

    def _begin_gap(self) -> None:
        self.graph, self.is_partial, self._at_ms = None, True, self.now_ms
        for stage_id in [*self._open, *self._stage_open]:
            self._leave_stage(stage_id, is_cut=True)
        self._note_idle(Idle.UNKNOWN)

    def _note_idle(self, reason: Idle = Idle.NOTHING_TO_LAUNCH) -> None:
        """Note why nothing is launched now; *reason*: if the graph does not tell."""
        if self.in_hand_count:
            return
        while self.idle[-1][0] > self.now_ms:
            self.idle.pop()  # a pause that was expected to end
        running = [] if self.graph is None else [each for each in self.graph.stages if isinstance(each, RunningStage)]
        until_ms = [pause.until_ms for stage in running for pause in stage.paused.values()]
        paused = [each for each in until_ms if each > self.now_ms]
        if sum(stage.pending_count for stage in running) > len(paused):
            reason = Idle.WAITING
        elif paused:
            reason = Idle.RETRY_PAUSE
        if self.idle[-1][1] is not reason:
            self.idle.append((self.now_ms, reason))
        if reason is Idle.RETRY_PAUSE:
            self.idle.append((min(paused), Idle.WAITING))


def _as_submitted(graph: ExecutionGraph) -> ExecutionGraph:
    """Return the graph with which a job began."""
    submitted = submit(
        job_id=graph.job_id,
        name=graph.name,
        client_id=graph.client_id,
        spec_digest=graph.spec_digest,
        at_ms=graph.submitted_ms,
        limits=graph.limits,
        speculation=graph.speculation,
        streaming=None if graph.streaming is None else Streaming(),
    )
    if not was_planned_at_once(graph):
        return submitted
    return planned_at_once(submitted, [stage.spec for stage in graph.stages[1:]], graph.submitted_ms)
