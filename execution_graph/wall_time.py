"""Where every second of a job went: its wall time, divided into shares that add up to it.

At each moment between submission and end, the job's time is given to the furthest that any of its tasks has got:

1. While executors work on tasks, to what they do there. If they do different things for several tasks, each gets its
   part: of a second in which three tasks compute and one fetches, a quarter is fetching.
2. Else, while tasks are on their way to executors, wait there, or their reports are on their way back: to launching.
3. Else to the reason why no executor has a task: all that could run wait for their retries, or for a slot; or there is
   nothing to launch, because a stage, or what follows from the last one, has yet to be begun.

It is computed from the job's events alone, so that any scheduler tells the same, also of a job that several drove.
Durations within a task are its executor's own, laid out backwards from its report; of tasks that still run, only the
launch is known.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from onager.execution_graph.events import (
    Event,
    ExecutorLost,
    FeedEnded,
    FeedEvent,
    JobPlanned,
    PartitionsAdded,
    PipelineAbandoned,
    ReplanBegun,
    ReplanGivenUp,
    StageLaidOut,
    StageReplanned,
    StagesStarted,
    StepEnded,
    TaskFailed,
    TasksLaunched,
    TasksLost,
    TasksSpeculated,
    TaskSucceeded,
)
from onager.execution_graph.failures import UNCOUNTED, UNCOUNTED_PAUSE_MS, Failure, FailureKind, RetryLimits
from onager.execution_graph.stages import NO_METRICS, StageSpec, StageWork, TaskMetrics


class TimeUse(StrEnum):
    """What a part of a job's wall time was used for."""

    WAITING = "waiting"
    """For a free slot of an executor."""
    PLANNING = "planning"
    FUNCTION = "function"
    """The job's Python function."""
    SCHEDULING = "scheduling"
    """Between tasks: nothing is left to launch of the stages that have begun."""
    LAUNCHING = "launching"
    """Tasks on their way to executors or in their queues, and reports on their way back into the log."""
    BINDING = "binding"
    """Making the plan of a stage executable, its broadcasts included."""
    CODE_GENERATION = "code_generation"
    """The part of that in which Spark generates and compiles code."""
    RUNNING = "running"
    """Reading sources, and computing."""
    FETCHING = "fetching"
    """Waiting for rows of other stages."""
    WRITING = "writing"
    """From a task's last row to its output under its final name."""
    WASTED = "wasted"
    """On attempts that failed, were lost or were beaten by another one, and on outputs made again."""
    RETRY_PAUSE = "retry_pause"
    """Before failed tasks were tried again."""
    PUBLISHING = "publishing"
    """Making the written files a dataset."""
    UNKNOWN = "unknown"
    """What happened then is not in the store any more."""


class TimeShare(NamedTuple):
    """A part of a job's wall time."""

    use: TimeUse
    ms: int


_USES: Final = tuple(TimeUse)
_INDEX: Final = {use: index for index, use in enumerate(_USES)}
_SHIFT: Final = 4
_WHOLE: Final = 1024
"""The weight of one task: a whole number, so that sums of weights are exact."""
_RUNNING: Final = {
    StageWork.PLAN: TimeUse.PLANNING,
    StageWork.REPLAN: TimeUse.PLANNING,
    StageWork.FEED: TimeUse.PLANNING,
    StageWork.QUERY: TimeUse.RUNNING,
    StageWork.STEP: TimeUse.RUNNING,
}


@dataclass(slots=True)
class _Launch:
    at_ms: int
    work: StageWork
    executor_id: str
    incarnation: str

    @property
    def use(self) -> TimeUse:
        """What its time is taken for while nobody has reported."""
        return _RUNNING.get(self.work, TimeUse.PUBLISHING)


@dataclass(slots=True)
class _Stage:
    work: StageWork
    partitions: int
    attempt: int = 0
    done: set[int] = field(default_factory=set)
    done_before: set[int] = field(default_factory=set)
    """Those that succeeded before their output was lost."""
    live: Counter[int] = field(default_factory=Counter)
    failures: Counter[int] = field(default_factory=Counter)
    inputs: frozenset[int] = frozenset()
    feed: int = 0
    """The stage that finds its partitions; 0: it does not grow."""
    has_begun: bool = False
    is_unread: bool = False
    """Whether it ended before its tasks, because all of its readers were done."""

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for more of it."""
        return self.is_unread or len(self.done) >= self.partitions

    @property
    def waiting(self) -> int:
        """How many tasks are neither done nor with an executor."""
        return max(0, self.partitions - len(self.done) - len(self.live))


_Key = tuple[int, int, int, int]
"""Stage, stage attempt, partition, task attempt."""


class WallTime:
    """Follows a job's events, one by one in the order of its log, and divides the time so far."""

    def __init__(
        self, submitted_ms: int, limits: RetryLimits, *, is_streaming: bool = False, steps: Iterable[StageSpec] = ()
    ) -> None:
        """Follow a job of that submission; *is_streaming*: its stages run together (`pipelined`).

        *steps*: those that were given with the job, so that no event tells them.
        """
        self._submitted_ms = self._now_ms = submitted_ms
        self._limits = limits
        self._is_streaming = is_streaming
        self._stages = {0: _Stage(StageWork.PLAN, 1)}
        self._open: set[int] = set()
        """The stages that have begun and are not done."""
        self._live: dict[_Key, _Launch] = {}
        self._pauses: dict[tuple[int, int], int] = {}
        """Until when partitions wait for their retries."""
        self._steps: defaultdict[int, int] = defaultdict(int)
        """By how much weights change: by moment and use, as one number."""
        self._idle: list[tuple[int, TimeUse]] = [(submitted_ms, TimeUse.SCHEDULING)]
        """Since when there was which reason to launch nothing; in order."""
        self._is_lacking = False
        for spec in steps:
            self._stages[0].partitions = 0
            self._stages[spec.stage_id] = _Stage(spec.work, 1)
            if not spec.inputs:
                self._begin(spec.stage_id)

    # ---------------------------------------------------------------- what happened

    def add(self, event: Event) -> None:  # noqa: C901, PLR0912 - one case an event
        """Follow an event; one that says nothing new, or that nobody expects, changes nothing."""
        self._pass_pauses(max(self._now_ms, event.at_ms))
        self._is_lacking = False
        match event:
            case StagesStarted():
                for stage_id in event.stage_ids:
                    self._begin(stage_id)
            case StageLaidOut():
                self._stage(event.stage_id).partitions = len(event.reads) or 1
                for stage_id in event.fused:
                    self._stage(stage_id).partitions = 0
            case TasksLaunched() | TasksSpeculated():
                self._launched(event)
            case TaskSucceeded():
                self._succeeded(event)
            case JobPlanned():
                self._planned(event)
            case ReplanBegun():
                self._stages[event.replan_id] = _Stage(StageWork.REPLAN, 1)
                self._begin(event.replan_id)
            case StageReplanned():
                self._replanned(event)
            case ReplanGivenUp():
                self._supersede((event.replan_id,))
            case PartitionsAdded() | FeedEnded():
                self._fed(event)
            case StepEnded():
                self._step_ended(event.stage_id)
            case TaskFailed():
                self._is_streaming = False
                self._failed(event)
            case TasksLost():
                self._is_streaming = False
                for partition, attempt in event.tasks:
                    self._waste((event.stage_id, event.stage_attempt, partition, attempt))
            case ExecutorLost():
                life = (event.executor_id, event.incarnation)
                gone = [k for k, each in self._live.items() if (each.executor_id, each.incarnation) == life]
                self._is_streaming = self._is_streaming and not gone
                self._waste_all(gone)
            case PipelineAbandoned():
                self._is_streaming = False
                self._waste_all(self._live)
            case _:
                pass
        self._note_reason()

    def lack(self) -> None:
        """Note that what happened from the last event to the next one is not known, nor, from then on, who waits."""
        for key, launch in list(self._live.items()):
            self._ended(key)
            self._add(launch.use, launch.at_ms, self._now_ms)
        for stage in self._stages.values():
            stage.partitions = 0  # any of its tasks may be done
        self._open.clear()
        self._pauses.clear()
        self._is_lacking = True
        self._note_reason()

    def _stage(self, stage_id: int) -> _Stage:
        found = self._stages.get(stage_id)
        if found is None:  # its plan is not known any more
            found = self._stages[stage_id] = _Stage(StageWork.QUERY, 0)
        return found

    def _begin(self, stage_id: int) -> None:
        stage = self._stage(stage_id)
        stage.has_begun = True
        if len(stage.done) < stage.partitions:
            self._open.add(stage_id)
            if stage.work is StageWork.STEP and not stage.live:  # nobody launches it: its job begins at once
                self._live[stage_id, 0, 0, 0] = _Launch(self._now_ms, stage.work, "", "")
                stage.live[0] += 1

    def _step_ended(self, stage_id: int) -> None:
        launch = self._ended((stage_id, 0, 0, 0))
        if launch is not None:
            self._add(launch.use, launch.at_ms, self._now_ms)
            self._is_done(stage_id, self._stage(stage_id), 0)

    def _launched(self, event: TasksLaunched | TasksSpeculated) -> None:
        stage = self._stage(event.stage_id)
        if event.stage_attempt > stage.attempt:
            stage.attempt = event.stage_attempt
            self._waste_all([k for k in self._live if k[0] == event.stage_id and k[1] < event.stage_attempt])
        self._begin(event.stage_id)
        for partition, attempt in event.tasks:
            key = (event.stage_id, event.stage_attempt, partition, attempt)
            if key not in self._live:
                self._live[key] = _Launch(self._now_ms, stage.work, event.executor_id, event.incarnation)
                stage.live[partition] += 1
            if partition in stage.done:  # its output was lost
                stage.done.discard(partition)
                stage.done_before.add(partition)
                self._open.add(event.stage_id)
            self._pauses.pop((event.stage_id, partition), None)

    def _fed(self, event: FeedEvent) -> None:
        if (event.stage_id, event.stage_attempt, event.partition, event.task_attempt) not in self._live:
            return
        feeding = self._stage(event.stage_id)
        feeding.partitions += isinstance(event, PartitionsAdded)
        for stage_id, stage in self._stages.items():
            if stage.feed == event.stage_id:
                stage.partitions += event.added
                if stage.has_begun:
                    self._begin(stage_id)
        self._succeeded(event)

    def _succeeded(self, event: TaskSucceeded | FeedEvent) -> None:
        key = (event.stage_id, event.stage_attempt, event.partition, event.task_attempt)
        launch = self._ended(key)
        if launch is None:
            return
        stage = self._stage(event.stage_id)
        if event.partition in stage.done_before:
            self._lay_wasted(launch, event.metrics)
        else:
            self._lay(launch, event.metrics)
        if stage.live.get(event.partition):  # another attempt was beaten
            self._waste_all([k for k in self._live if (k[0], k[2]) == (event.stage_id, event.partition)])
        self._is_done(event.stage_id, stage, event.partition)

    def _planned(self, event: JobPlanned) -> None:
        key = next((k for k in self._live if k[0] == 0 and k[3] == event.task_attempt), None)
        launch = None if key is None else self._ended(key)
        if key is None or launch is None:
            return
        self._lay(launch, event.metrics, has_run=event.fused_output is not None)
        self._is_done(0, self._stages[0], 0)
        for spec in event.stages:
            inputs = frozenset(source.stage_id for source in spec.inputs)
            feed = spec.feed.stage_id if spec.feed is not None else 0
            self._stages[spec.stage_id] = _Stage(spec.work, spec.partitions, key[1], inputs=inputs, feed=feed)
        if event.fused_output is not None:
            self._is_done(1, self._stages[1], 0)

    def _replanned(self, event: StageReplanned) -> None:
        launch = self._ended((event.replan_id, 0, 0, event.task_attempt))
        if launch is not None:
            self._lay(launch, event.metrics)
        self._supersede((event.replan_id, *event.dropped))
        for spec in event.stages:
            inputs = frozenset(source.stage_id for source in spec.inputs)
            self._stages[spec.stage_id] = _Stage(spec.work, spec.partitions, inputs=inputs)

    def _supersede(self, stage_ids: Iterable[int]) -> None:
        """Note that nobody waits for these stages any more."""
        for stage_id in stage_ids:
            self._stage(stage_id).partitions = 0
            self._open.discard(stage_id)
            self._waste_all([key for key in self._live if key[0] == stage_id])

    def _failed(self, event: TaskFailed) -> None:
        launch = self._ended((event.stage_id, event.stage_attempt, event.partition, event.task_attempt))
        if launch is None:
            return
        self._lay_wasted(launch, event.metrics)
        stage = self._stage(event.stage_id)
        if stage.work is StageWork.REPLAN:
            self._supersede((event.stage_id,))
        elif event.failure.kind is FailureKind.FETCH_FAILED:  # the stage begins again, after its input
            self._waste_all([k for k in self._live if k[0] == event.stage_id])
            self._open.discard(event.stage_id)
        elif pause_ms := self._pause_ms(stage, event.partition, event.failure):
            self._pauses[event.stage_id, event.partition] = self._now_ms + pause_ms

    def _pause_ms(self, stage: _Stage, partition: int, failure: Failure) -> int:
        if failure.cause in UNCOUNTED:
            return UNCOUNTED_PAUSE_MS
        if not failure.kind.is_counted or stage.live.get(partition):
            return 0
        stage.failures[partition] += 1
        return self._limits.pause_after(stage.failures[partition])

    def _is_done(self, stage_id: int, stage: _Stage, partition: int) -> None:
        stage.done.add(partition)
        stage.failures.pop(partition, None)
        if len(stage.done) >= stage.partitions:
            self._open.discard(stage_id)
            if self._is_streaming:
                self._end_what_nobody_reads()

    def _end_what_nobody_reads(self) -> None:
        for stage_id in sorted(self._open, reverse=True):  # readers have higher ids
            readers = [each for each in self._stages.values() if stage_id in each.inputs]
            if readers and all(each.is_over for each in readers):
                self._stages[stage_id].is_unread = True
                self._open.discard(stage_id)
                self._waste_all([key for key in self._live if key[0] == stage_id])

    # ---------------------------------------------------------------- attempts

    def _ended(self, key: _Key) -> _Launch | None:
        launch = self._live.pop(key, None)
        if launch is not None:
            live = self._stage(key[0]).live
            live[key[2]] -= 1
            if live[key[2]] <= 0:
                del live[key[2]]
        return launch

    def _waste(self, key: _Key) -> None:
        launch = self._ended(key)
        if launch is not None:
            self._lay_wasted(launch, NO_METRICS)

    def _waste_all(self, keys: Iterable[_Key]) -> None:
        for key in list(keys):
            self._waste(key)

    def _lay_wasted(self, launch: _Launch, cost: TaskMetrics) -> None:
        """Lay out an attempt that did not count; one of which nothing is known was wasted all the time."""
        total_ms = self._now_ms - launch.at_ms
        worked_ms = min(total_ms, cost.plan_ms + cost.run_ms + cost.bind_ms) if cost else total_ms
        self._add(TimeUse.LAUNCHING, launch.at_ms, self._now_ms - worked_ms)
        self._add(TimeUse.WASTED, self._now_ms - worked_ms, self._now_ms)

    def _lay(self, launch: _Launch, cost: TaskMetrics, *, has_run: bool = False) -> None:
        """Lay out an attempt backwards from its report; *has_run*: it planned a query, and ran it at once."""
        end_ms = self._now_ms

        def back(use: TimeUse, ms: int) -> None:
            nonlocal end_ms
            begin_ms = max(launch.at_ms, end_ms - max(0, ms))
            self._add(use, begin_ms, end_ms)
            end_ms = begin_ms

        if has_run or launch.work is StageWork.QUERY:
            back(TimeUse.WRITING, min(cost.commit_ms, cost.run_ms))
            begin_ms = max(launch.at_ms, end_ms - max(0, cost.run_ms - cost.commit_ms))
            self._add_run(begin_ms, end_ms, cost.fetch_ms)
            end_ms = begin_ms
        if has_run:
            plan_ms = cost.plan_ms or end_ms - launch.at_ms - cost.queued_ms  # before 1.6 nobody told
            back(TimeUse.PLANNING, plan_ms - cost.function_ms)
            back(TimeUse.FUNCTION, min(plan_ms, cost.function_ms))
        elif launch.work in (StageWork.PLAN, StageWork.REPLAN, StageWork.FEED):
            back(TimeUse.PLANNING, cost.run_ms - cost.function_ms)
            back(TimeUse.FUNCTION, min(cost.run_ms, cost.function_ms))
        elif launch.work is not StageWork.QUERY:
            back(TimeUse.PUBLISHING, cost.run_ms)
        back(TimeUse.CODE_GENERATION, min(cost.codegen_ms, cost.bind_ms))
        back(TimeUse.BINDING, cost.bind_ms - cost.codegen_ms)
        self._add(TimeUse.LAUNCHING, launch.at_ms, end_ms)

    def _add_run(self, begin_ms: int, end_ms: int, fetch_ms: int) -> None:
        """Add a time in which a task computed and fetched by turns."""
        if end_ms > begin_ms:
            fetched = min(_WHOLE, _WHOLE * fetch_ms // (end_ms - begin_ms))
            self._add(TimeUse.FETCHING, begin_ms, end_ms, fetched)
            self._add(TimeUse.RUNNING, begin_ms, end_ms, _WHOLE - fetched)

    def _add(self, use: TimeUse, begin_ms: int, end_ms: int, weight: int = _WHOLE) -> None:
        if end_ms > begin_ms and weight:
            index = _INDEX[use]
            self._steps[begin_ms << _SHIFT | index] += weight
            self._steps[end_ms << _SHIFT | index] -= weight

    # ---------------------------------------------------------------- why nothing was launched

    def _pass_pauses(self, now_ms: int) -> None:
        """Let time pass: when a pause ends, what waited for it waits for a slot."""
        self._now_ms = now_ms
        over = [(until_ms, key) for key, until_ms in self._pauses.items() if until_ms <= now_ms]
        for until_ms, key in sorted(over):
            del self._pauses[key]
            self._note_reason(until_ms)

    def _note_reason(self, at_ms: int | None = None) -> None:
        if self._live:
            return
        reason = self._reason()
        if reason is not self._idle[-1][1]:
            self._idle.append((self._now_ms if at_ms is None else at_ms, reason))

    def _reason(self) -> TimeUse:
        if self._is_lacking:
            return TimeUse.UNKNOWN
        waiting = sum(self._stages[stage_id].waiting for stage_id in self._open)
        if waiting > len(self._pauses):
            return TimeUse.WAITING
        return TimeUse.RETRY_PAUSE if waiting and self._pauses else TimeUse.SCHEDULING

    # ---------------------------------------------------------------- the sum

    @property
    def size(self) -> int:
        """Return how much work it is to divide the time: about a microsecond each."""
        return len(self._steps)

    def shares(self, until_ms: int) -> tuple[TimeShare, ...]:
        """Return the shares of the time from submission to *until_ms*: whole milliseconds, above 0, in a fixed order.

        They add up to that time. What executors still hold is taken for being worked on since its launch.
        """
        until_ms = max(until_ms, self._submitted_ms)
        spent: defaultdict[TimeUse, float] = defaultdict(float)
        reasons = [*self._reasons(until_ms), (until_ms, TimeUse.SCHEDULING)]
        place = 0
        for begin_ms, end_ms, weights in self._intervals(until_ms):
            if weights:
                total = sum(weights.values())
                for index, weight in weights.items():
                    spent[_USES[index]] += (end_ms - begin_ms) * weight / total
                continue
            at_ms = begin_ms
            while at_ms < end_ms:
                while place + 1 < len(reasons) and reasons[place + 1][0] <= at_ms:
                    place += 1
                next_ms = min(end_ms, reasons[place + 1][0]) if place + 1 < len(reasons) else end_ms
                spent[reasons[place][1]] += next_ms - at_ms
                at_ms = next_ms
        return _rounded(spent, until_ms - self._submitted_ms)

    def _reasons(self, until_ms: int) -> list[tuple[int, TimeUse]]:
        """Return the reasons for idleness, those included that follow from pauses that end before *until_ms*."""
        reasons = list(self._idle)
        if reasons[-1][1] is TimeUse.RETRY_PAUSE and self._pauses and (first := min(self._pauses.values())) < until_ms:
            reasons.append((max(first, reasons[-1][0]), TimeUse.WAITING))
        return reasons

    def _intervals(self, until_ms: int) -> Iterator[tuple[int, int, dict[int, int]]]:
        """Yield begin, end and the weights of what was done, without gaps; launching counts where nothing else does."""
        steps = dict(self._steps)
        for launch in self._live.values():
            index = _INDEX[launch.use]
            for at_ms, weight in ((launch.at_ms, _WHOLE), (until_ms, -_WHOLE)):
                steps[at_ms << _SHIFT | index] = steps.get(at_ms << _SHIFT | index, 0) + weight
        launching = _INDEX[TimeUse.LAUNCHING]
        weights: dict[int, int] = {}
        on_the_way = 0
        since_ms = self._submitted_ms
        for step in sorted(steps):
            at_ms, index = min(until_ms, step >> _SHIFT), step & ((1 << _SHIFT) - 1)
            if at_ms > since_ms:
                yield since_ms, at_ms, weights or ({launching: 1} if on_the_way else {})
                since_ms = at_ms
            if index == launching:
                on_the_way += steps[step]
            elif left := weights.get(index, 0) + steps[step]:
                weights[index] = left
            else:
                weights.pop(index, None)
        if until_ms > since_ms:
            yield since_ms, until_ms, {}


def _rounded(spent: dict[TimeUse, float], total_ms: int) -> tuple[TimeShare, ...]:
    """Return *spent* in whole milliseconds that add up to *total_ms*: what is cut off goes where most was."""
    whole = {use: int(ms) for use, ms in spent.items()}
    rest = total_ms - sum(whole.values())
    for use in sorted(spent, key=lambda use: (whole[use] - spent[use], use))[:rest]:
        whole[use] += 1
    return tuple(TimeShare(use, whole[use]) for use in _USES if whole.get(use))
