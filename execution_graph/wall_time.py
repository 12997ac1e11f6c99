"""Where every second of a job went: its wall time, divided into shares that add up to it.

At each moment between submission and end, the job's time is given to the furthest that any of its tasks has got:

1. While executors work on tasks, to what they do there. If they do different things for several tasks, each gets its
   part: of a second in which three tasks compute and one fetches, a quarter is fetching.
2. Else, while tasks are on their way to executors, wait there, or their reports are on their way back: to launching.
3. Else to the reason why no executor has a task: all that could run wait for their retries, or for a slot; or there is
   nothing to launch, because a stage, or what follows from the last one, has yet to be begun.

It follows from the job's intervals alone (`intervals`), so that any scheduler tells the same, also of a job that
several drove. Durations within a task are its executor's own, laid out backwards from its report; of tasks that still
run, only the launch is known.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from onager.execution_graph.intervals import Attempt, IntervalReader, Outcome
from onager.execution_graph.stages import StageWork
from onager.execution_graph.task_metrics import NO_METRICS


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
_WORK: Final = {
    StageWork.PLAN: TimeUse.PLANNING,
    StageWork.REPLAN: TimeUse.PLANNING,
    StageWork.FEED: TimeUse.PLANNING,
    StageWork.QUERY: TimeUse.RUNNING,
    StageWork.STEP: TimeUse.RUNNING,
    StageWork.PROGRAM: TimeUse.RUNNING,
    StageWork.PUBLISH_PLAN: TimeUse.PUBLISHING,
    StageWork.PUBLISH: TimeUse.PUBLISHING,
}
"""What a task's time counts for as long as only its launch is known."""


class WallTime:
    """Divides the time of a job whose log *log* reads; what has ended is laid out once."""

    def __init__(self, log: IntervalReader) -> None:
        self.log = log
        self._laid = 0
        """How many of the attempts that have ended are in `_steps`."""
        self._steps: defaultdict[int, int] = defaultdict(int)
        """By how much weights change: by moment and use, as one number."""

    @property
    def size(self) -> int:
        """Return how much work it is to divide the time: about a microsecond each."""
        return len(self._steps) + 10 * (len(self.log.attempts) - self._laid)

    def shares(self, until_ms: int) -> tuple[TimeShare, ...]:
        """Return the shares of the time from submission to *until_ms*: whole milliseconds, above 0, in a fixed order.

        They add up to that time. What executors still hold is taken for being worked on since its launch.
        """
        log = self.log
        until_ms = max(until_ms, log.submitted_ms)
        spent: defaultdict[TimeUse, float] = defaultdict(float)
        reasons = [*((at_ms, TimeUse(reason)) for at_ms, reason in log.idle), (until_ms, TimeUse.SCHEDULING)]
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
        return _rounded(spent, until_ms - log.submitted_ms)

    def _intervals(self, until_ms: int) -> Iterator[tuple[int, int, Mapping[int, int]]]:
        """Yield begin, end and the weights of what was done, without gaps; launching counts where nothing else does."""
        for attempt in self.log.ended[self._laid :]:
            self._lay(attempt)
        self._laid = len(self.log.ended)
        steps = self._steps.copy()
        for held in self.log.in_hand():
            _add(steps, _WORK[held.work], held.log_from_ms, until_ms)
        for run in self.log.stage_runs:
            if run.spec.work is StageWork.STEP:  # a job of its own works on it, and no executor
                _add(steps, TimeUse.RUNNING, run.log_from_ms, until_ms if run.log_to_ms is None else run.log_to_ms)
        launching = _INDEX[TimeUse.LAUNCHING]
        weights: dict[int, int] = {}
        on_the_way = 0
        since_ms = self.log.submitted_ms
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

    def _lay(self, attempt: Attempt) -> None:
        """Lay out an attempt; one that ended without success was wasted, as far as it worked at all."""
        begin_ms, end_ms, steps = attempt.log_from_ms, attempt.log_to_ms or 0, self._steps
        if attempt.is_cut:
            _add(steps, _WORK[attempt.work], begin_ms, end_ms)
        elif attempt.outcome is Outcome.SUCCESSFUL and not attempt.is_repeat:
            self._lay_success(attempt, end_ms)
        else:
            cost, total_ms = attempt.metrics or NO_METRICS, end_ms - begin_ms
            worked_ms = min(total_ms, cost.plan_ms + cost.run_ms + cost.bind_ms) if cost else total_ms
            _add(steps, TimeUse.LAUNCHING, begin_ms, end_ms - worked_ms)
            _add(steps, TimeUse.WASTED, end_ms - worked_ms, end_ms)

    def _lay_success(self, attempt: Attempt, end_ms: int) -> None:
        """Lay out a success backwards from its report."""
        cost, launch_ms, work = attempt.metrics or NO_METRICS, attempt.log_from_ms, _WORK[attempt.work]
        has_run = bool(attempt.fused_stage)  # it planned a query, and ran it at once

        def back(use: TimeUse, ms: int) -> None:
            nonlocal end_ms
            begin_ms = max(launch_ms, end_ms - max(0, ms))
            _add(self._steps, use, begin_ms, end_ms)
            end_ms = begin_ms

        if has_run or work is TimeUse.RUNNING:
            back(TimeUse.WRITING, min(cost.commit_ms, cost.run_ms))
            begin_ms = max(launch_ms, end_ms - max(0, cost.run_ms - cost.commit_ms))
            self._add_run(begin_ms, end_ms, cost.fetch_ms)
            end_ms = begin_ms
        if has_run:
            back(TimeUse.PLANNING, cost.plan_ms - cost.function_ms)
            back(TimeUse.FUNCTION, min(cost.plan_ms, cost.function_ms))
        elif work is TimeUse.PLANNING:
            back(TimeUse.PLANNING, cost.run_ms - cost.function_ms)
            back(TimeUse.FUNCTION, min(cost.run_ms, cost.function_ms))
        elif work is TimeUse.PUBLISHING:
            back(TimeUse.PUBLISHING, cost.run_ms)
        back(TimeUse.CODE_GENERATION, min(cost.codegen_ms, cost.bind_ms))
        back(TimeUse.BINDING, cost.bind_ms - cost.codegen_ms)
        _add(self._steps, TimeUse.LAUNCHING, launch_ms, end_ms)

    def _add_run(self, begin_ms: int, end_ms: int, fetch_ms: int) -> None:
        """Add a time in which a task computed and fetched by turns."""
        if end_ms > begin_ms:
            fetched = min(_WHOLE, _WHOLE * fetch_ms // (end_ms - begin_ms))
            _add(self._steps, TimeUse.FETCHING, begin_ms, end_ms, fetched)
            _add(self._steps, TimeUse.RUNNING, begin_ms, end_ms, _WHOLE - fetched)


def _add(steps: defaultdict[int, int], use: TimeUse, begin_ms: int, end_ms: int, weight: int = _WHOLE) -> None:
    if end_ms > begin_ms and weight:
        index = _INDEX[use]
        steps[begin_ms << _SHIFT | index] += weight
        steps[end_ms << _SHIFT | index] -= weight


def _rounded(spent: dict[TimeUse, float], total_ms: int) -> tuple[TimeShare, ...]:
    """Return *spent* in whole milliseconds that add up to *total_ms*: what is cut off goes where most was."""
    whole = {use: int(ms) for use, ms in spent.items()}
    rest = total_ms - sum(whole.values())
    for use in sorted(spent, key=lambda use: (whole[use] - spent[use], use))[:rest]:
        whole[use] += 1
    return tuple(TimeShare(use, whole[use]) for use in _USES if whole.get(use))
