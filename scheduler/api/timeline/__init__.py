"""What a job did when and where, derived from its history: attempts of tasks by executor, and what happened to them."""

from onager.execution_graph.intervals import Outcome
from onager.scheduler.api.timeline.model import MarkKind, Timeline
from onager.scheduler.api.timeline.picture import STYLE_HASH
from onager.scheduler.api.timeline.reading import Timelines
from onager.scheduler.api.timeline.story import MOST_BARS, Story
from onager.scheduler.api.timeline.telling import timeline_of

__all__ = [
    "MOST_BARS",
    "STYLE_HASH",
    "MarkKind",
    "Outcome",
    "Story",
    "Timeline",
    "Timelines",
    "timeline_of",
]
