"""From a job's story to its timeline: bars while they are few, else counts by executor and time."""

from collections.abc import Sequence
from typing import Final

from onager.execution_graph import ExecutionGraph
from onager.execution_graph.intervals import Place
from onager.scheduler.api.timeline.model import Bar, Lane, Mark, StageTimes, Timeline
from onager.scheduler.api.timeline.story import Story

_MAX_BUCKETS: Final = 3_000
_MAX_LANES: Final = 150
_MAX_STAGES: Final = 500
_LENGTHS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
_MINUTE_MS: Final = 60_000
OTHERS: Final = "(others)"


def timeline_of(story: Story, job: ExecutionGraph, after: int = 0, *, is_early: bool = False) -> Timeline:
    """Return the timeline of *job*, as far as *story* goes; what was sent up to the position *after* is left out.

    A long job has buckets. Their length changes a few times in a job's life. Then all attempts are counted anew (a
    tenth of a second for 100,000), else only the attempts that have ended since.
    """
    is_short, log = not story.is_long, story.log
    places = log.places if is_short else _few(log.places)
    bars = [Bar.model_validate(each) for each in log.attempts if each.position > after] if is_short else []
    bucket_ms = 0 if is_short else _length_ms(log.now_ms - log.submitted_ms, len(places))
    return Timeline(
        job_id=job.job_id,
        name=job.name,
        state=job.state.value,
        submitted_ms=log.submitted_ms,
        to_ms=log.now_ms,
        position=log.position,
        is_over=log.is_over,
        is_early=is_early,
        is_partial=log.is_partial,
        attempts=len(log.attempts),
        outcomes=dict(sorted(story.outcomes().items())),
        lanes=tuple(map(Lane.model_validate, places)),
        stages=tuple(map(StageTimes.model_validate, log.stage_runs[-_MAX_STAGES:])),
        bars=tuple(bars),
        bucket_ms=bucket_ms,
        buckets=() if is_short else tuple(story.buckets(bucket_ms, len(places))),
        marks=tuple(Mark.model_validate(each) for each in story.moments if each.position > after or not after),
    )


def _few(places: Sequence[Place]) -> Sequence[Place]:
    """Return the first of *places*, and one that stands for all others."""
    if len(places) <= _MAX_LANES:
        return places
    others = places[_MAX_LANES - 1 :]
    return [*places[: _MAX_LANES - 1], Place(OTHERS, sum(place.rows for place in others))]


def _length_ms(span_ms: int, lanes: int) -> int:
    """Return a round length such that there are at most `_MAX_BUCKETS`."""
    least_ms = (span_ms + 1) / max(1, _MAX_BUCKETS // max(1, lanes))
    for length_ms in _LENGTHS_MS:
        if length_ms >= least_ms:
            return length_ms
    return _MINUTE_MS * -int(-least_ms // _MINUTE_MS)
