"""How long the tasks of a stage took, from launch to success: the distributions of four parts of that time."""

from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from onager.execution_graph.duration_sketch import LatencyMetric, WideLatencyMetric
from onager.execution_graph.record import Record

_MAX_RECENT: Final = 256
"""Tasks whose times are merged together: much cheaper than one by one, at 0.2 KiB of memory each until then."""


class TaskTimes(NamedTuple):
    """Where the time of one task went, from the launch to the success that counts; milliseconds."""

    queued_ms: int
    run_ms: int
    fetch_ms: int
    """Part of `run_ms`."""
    delivery_ms: int
    """The rest: the launch on its way to the executor, and the report on its way back and into the log."""


class StageLatencies(Record, frozen=True):
    """The distributions; in a record, all of them take less than 4 KB, and mostly a few hundred bytes."""

    queued: LatencyMetric = LatencyMetric()
    run: WideLatencyMetric = WideLatencyMetric()
    fetch: LatencyMetric = LatencyMetric()
    delivery: LatencyMetric = LatencyMetric()

    @classmethod
    def of(cls, times: Iterable[TaskTimes]) -> Self:
        """Return the distributions of the *times* of tasks."""
        queued, run, fetch, delivery = zip(*times, strict=True)
        return cls(
            queued=LatencyMetric.of(queued),
            run=WideLatencyMetric.of(run),
            fetch=LatencyMetric.of(fetch),
            delivery=LatencyMetric.of(delivery),
        )

    def merge(self, other: Self) -> "StageLatencies":
        """Return the distributions of the tasks of both."""
        return StageLatencies(
            queued=self.queued.merge(other.queued),
            run=self.run.merge(other.run),
            fetch=self.fetch.merge(other.fetch),
            delivery=self.delivery.merge(other.delivery),
        )


class Latencies:
    """The distributions of a stage that runs; those that came last are merged in portions, which nobody can tell."""

    __slots__ = ("_known", "_recent")

    def __init__(self, known: StageLatencies | None = None, recent: tuple[TaskTimes, ...] = ()) -> None:
        self._known = known or StageLatencies()
        self._recent = recent

    def with_times(self, times: Iterable[TaskTimes], *, are_last: bool = False) -> "Latencies":
        """Return the latencies with those of further tasks; *are_last*: no more are to be expected."""
        recent = (*self._recent, *times)
        if len(recent) < _MAX_RECENT and not are_last:
            return Latencies(self._known, recent)
        return Latencies(Latencies(self._known, recent).distributions())

    def distributions(self) -> StageLatencies:
        """Return the distributions."""
        return self._known.merge(StageLatencies.of(self._recent)) if self._recent else self._known

    def __bool__(self) -> bool:
        """Return whether there is any task."""
        return bool(self._recent) or bool(self._known.run)

    def __eq__(self, other: object) -> bool:
        """Return whether the distributions are equal."""
        return isinstance(other, Latencies) and self.distributions() == other.distributions()

    def __hash__(self) -> int:
        """Return a hash of the distributions."""
        return hash(self.distributions())

    def __repr__(self) -> str:
        """Return the distributions as text."""
        return f"Latencies({self.distributions()!r})"


NO_LATENCIES: Final = Latencies()
