"""What stands out in a plan that has run: wrong estimates, skew, spill, waiting."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from onager.client.amounts import seconds, size
from onager.client.final_plan import FinalPlan, FinalStage
from onager.client.task_costs import TaskCost

ESTIMATE_FACTOR: Final = 10
SKEW_FACTOR: Final = 3
WAITING_SHARE: Final = 0.3
_WORTH_MS: Final = 200
"""A skew, or a wait, of less than this in all is not worth a word."""
_WORTH_BYTES: Final = 1024 * 1024
_WORTH_ROWS: Final = 1000
"""An estimate that is off by less than this does not change a plan."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Something about a stage that is worth a look."""

    stage_id: int
    kind: str
    """``estimate``, ``skew``, ``spill``, ``waiting``."""
    text: str


def plan_hints(plan: FinalPlan, tasks: Mapping[int, Sequence[TaskCost]]) -> list[Hint]:
    """Return what stands out in *plan*; without the *tasks* of a stage, a skew of bytes in it cannot be seen."""
    found: list[Hint] = []
    for stage in plan.stages:
        stage_id = stage.progress.stage_id
        some = tasks.get(stage_id, ())
        found += [Hint(stage_id, "estimate", text) for text in _estimate(stage)]
        found += [Hint(stage_id, "skew", text) for text in (*_skew_in_time(stage, some), *_skew_in_bytes(some))]
        found += [Hint(stage_id, "spill", text) for text in _spill(stage)]
        found += [Hint(stage_id, "waiting", text) for text in _waiting(stage)]
    return found


def _estimate(stage: FinalStage) -> Iterator[str]:
    progress = stage.progress
    expected, found = stage.estimated_rows, progress.rows_out
    if expected is None or progress.successful < progress.partitions or abs(expected - found) < _WORTH_ROWS:
        return
    low, high = sorted((max(expected, 1), max(found, 1)))
    if high >= ESTIMATE_FACTOR * low:
        way = "fewer" if found < expected else "more"
        times = f"{found:,} rows, {high / low:,.0f} times {way}"
        yield f"{times} than the {expected:,} that Spark expected when it chose the joins"


def _skew_in_time(stage: FinalStage, tasks: Sequence[TaskCost]) -> Iterator[str]:
    who, most_ms, usual_ms = "the slowest task", float(stage.longest_run_ms), float(stage.median_run_ms)
    if tasks:
        slowest = max(tasks, key=lambda task: task.run_ms)
        who, most_ms = f"task {slowest.partition} on {slowest.executor_id}", slowest.run_ms
        usual_ms = median(task.run_ms for task in tasks)
    if most_ms >= SKEW_FACTOR * usual_ms and most_ms - usual_ms >= _WORTH_MS:
        yield f"{who} took {seconds(most_ms)}, the median is {seconds(usual_ms)}"


def _skew_in_bytes(tasks: Sequence[TaskCost]) -> Iterator[str]:
    for what, amounts in (
        ("read", [(task.bytes_in, task.partition) for task in tasks]),
        ("wrote", [(task.bytes, task.partition) for task in tasks]),
    ):
        if len(amounts) < 2:  # noqa: PLR2004 - as above
            return
        most, partition = max(amounts)
        usual = median(amount for amount, _ in amounts)
        if most >= SKEW_FACTOR * usual and most - usual >= _WORTH_BYTES:
            yield f"task {partition} {what} {size(most)}, the median is {size(round(usual))}: few keys have most rows"


def _spill(stage: FinalStage) -> Iterator[str]:
    if stage.spill_bytes:
        finding = f"tasks wrote {size(stage.spill_bytes)} to disk for want of memory"
        yield f"{finding}: give executors more memory, or fewer slots"


def _waiting(stage: FinalStage) -> Iterator[str]:
    progress = stage.progress
    queued, run, fetch = progress.queued_ms, progress.run_ms, progress.fetch_ms
    if queued >= _WORTH_MS and queued > WAITING_SHARE * (queued + run):
        finding = f"tasks ran {seconds(run)}, and before that waited {seconds(queued)} on their executors"
        yield f"{finding}: for the stage's plan to be compiled, for broadcasts, for slots of Spark"
    if fetch >= _WORTH_MS and fetch > WAITING_SHARE * run:
        yield f"tasks ran {seconds(run)}, of which they waited {seconds(fetch)} for rows of other stages"
