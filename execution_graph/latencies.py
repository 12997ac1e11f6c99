"""How long the tasks of a stage took, from launch to success: the distributions of four parts of that time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self

from onager.execution_graph.latency import LatencyMetric, WideLatencyMetric
from onager.execution_graph.maps import SPARSE
from onager.execution_graph.merging import SKETCH, merging
from onager.execution_graph.stored import StoredAs

_MOST_RECENT: Final = 256
"""Tasks whose times are merged together: much cheaper than one by one, at 0.2 KiB of memory each until then."""


class TaskTimes(NamedTuple):
    """Where the time of one task went, from the launch to the success that counts; milliseconds."""

    queued_ms: int
    run_ms: int
    fetch_ms: int
    """Part of `run_ms`."""
    delivery_ms: int
    """The rest: the launch on its way to the executor, and the report on its way back and into the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLatencies:
    """The distributions; in a record, all of them take less than 300 bytes."""

    queued: Annotated[LatencyMetric, SPARSE, SKETCH] = LatencyMetric()  # noqa: RUF009 - immutable
    run: Annotated[WideLatencyMetric, SPARSE, SKETCH] = WideLatencyMetric()  # noqa: RUF009
    fetch: Annotated[LatencyMetric, SPARSE, SKETCH] = LatencyMetric()  # noqa: RUF009
    delivery: Annotated[LatencyMetric, SPARSE, SKETCH] = LatencyMetric()  # noqa: RUF009

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


_merged = merging(StageLatencies)


class Latencies(StoredAs):
    """The distributions of a stage that runs; those that came last are merged in portions, which nobody can tell."""

    __slots__ = ("_known", "_recent")
    record_type: ClassVar[Any] = StageLatencies

    def __init__(self, known: StageLatencies | None = None, recent: tuple[TaskTimes, ...] = ()) -> None:
        self._known = known or StageLatencies()
        self._recent = recent

    def with_times(self, times: Iterable[TaskTimes], *, are_last: bool = False) -> "Latencies":
        """Return the latencies with those of further tasks; *are_last*: no more are to be expected."""
        recent = (*self._recent, *times)
        if len(recent) < _MOST_RECENT and not are_last:
            return Latencies(self._known, recent)
        return Latencies(Latencies(self._known, recent).to_record())

    def to_record(self) -> StageLatencies:
        """Return the distributions."""
        return _merged(self._known, (StageLatencies.of(self._recent),)) if self._recent else self._known

    @classmethod
    def of_record(cls, record: StageLatencies) -> Self:
        """Return what goes on from distributions."""
        return cls(record)

    def __bool__(self) -> bool:
        """Return whether there is any task."""
        return bool(self._recent) or bool(self._known.run)

    def __eq__(self, other: object) -> bool:
        """Return whether the distributions are equal."""
        return isinstance(other, Latencies) and self.to_record() == other.to_record()

    def __hash__(self) -> int:
        """Return a hash of the distributions."""
        return hash(self.to_record())

    def __repr__(self) -> str:
        """Return the distributions as text."""
        return f"Latencies({self.to_record()!r})"


NO_LATENCIES: Final = Latencies()
