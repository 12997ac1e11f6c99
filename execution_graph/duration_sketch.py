"""How durations are distributed, in a few hundred bytes: a sketch that tells quantiles to a relative error.

A DDSketch counts durations in buckets whose bounds grow by a constant factor. Here the bounds are whole milliseconds,
made by integer arithmetic: every scheduler that replays a log gets the same sketch, whatever its processor. A sketch
that would take too much room merges neighbouring buckets, all of them, so that the error of every quantile about
doubles. How often that was done follows from the durations alone: in whatever order, and in whatever portions, sketches
are merged, the result is the same.

Source: Masson, Rim and Lee, "DDSketch", PVLDB 12 (2019); Epicoco et al., "UDDSketch", IEEE Access 8 (2020). The library
of the first authors computes with floating-point logarithms, which differ between C libraries, and has no limit that
keeps the error of all quantiles.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Self

from immutables import Map

from onager.execution_graph.record import Record

RELATIVE_ERROR: Final = 0.02
"""Of a sketch whose buckets were never merged; durations themselves are whole milliseconds."""
_GROWTH: Final = (51, 49)
"""The factor between the bounds of a bucket: (1 + `RELATIVE_ERROR`) / (1 - `RELATIVE_ERROR`)."""
_MAX_MS: Final = 10**10
"""Longer durations, of more than 115 days, share the last bucket."""


def _bounds() -> tuple[int, ...]:
    """Return the largest duration of each bucket; the first one is of 0 alone."""
    most, least = _GROWTH
    bounds = [0]
    while bounds[-1] < _MAX_MS:
        bounds.append((bounds[-1] + 1) * most // least)
    return tuple(bounds)


_BOUNDS: Final = _bounds()
_LAST: Final = len(_BOUNDS) - 1
_SMALL_MS: Final = 1 << 14
_OF_SMALL: Final = tuple(
    bucket
    for bucket, bound in enumerate(_BOUNDS)
    for _ in range(min(bound, _SMALL_MS) - (_BOUNDS[bucket - 1] if bucket else -1))
)
"""The bucket of each duration that is not long: looked up in a fraction of the time."""


class LatencyMetric(Record, frozen=True):
    """The distribution of some durations in milliseconds; `merge` is associative, commutative, and loses no count."""

    max_buckets: ClassVar[int] = 48

    level: int = 0
    """How often neighbouring buckets were merged."""
    counts: Map[int, int] = Map()
    """How many durations are in each bucket, above 0."""
    max_ms: int = 0

    @classmethod
    def of(cls, durations_ms: Iterable[int]) -> Self:
        """Return the distribution of *durations_ms*, each 0 or more."""
        durations_ms = list(durations_ms)
        if not durations_ms:
            return cls()
        longest = max(durations_ms)
        counts: dict[int, int]
        if not longest:
            counts = {0: len(durations_ms)}
        elif longest < _SMALL_MS:
            counts = Counter([_OF_SMALL[ms] for ms in durations_ms])
        else:
            counts = Counter([min(bisect_left(_BOUNDS, ms), _LAST) for ms in durations_ms])
        return cls(*_fitted(cls.max_buckets, 0, counts), longest)

    def __bool__(self) -> bool:
        """Return whether there is any duration."""
        return bool(self.counts)

    def merge(self, other: Self) -> Self:
        """Return the distribution of the durations of both."""
        if not self.counts:
            return other
        level = max(self.level, other.level)
        counts = dict(self.counts) if level == self.level else _coarser(self.counts, level - self.level)
        shift = level - other.level
        for bucket, count in other.counts.items():
            merged = bucket >> shift
            counts[merged] = counts.get(merged, 0) + count
        return type(self)(*_fitted(self.max_buckets, level, counts), max(other.max_ms, self.max_ms))

    @property
    def count(self) -> int:
        """Return the number of durations."""
        return sum(self.counts.values())

    @property
    def relative_error(self) -> float:
        """Return by how much a quantile may be off, as a part of it; below `2 ** (level + 5)` ms, by 2 ** level ms."""
        growth = (_GROWTH[0] / _GROWTH[1]) ** (1 << self.level)
        return (growth - 1) / (growth + 1)

    def quantiles_ms(self, *percents: int) -> list[int]:
        """Return the shortest durations that *percents*, ascending, of all do not exceed; `ValueError` without any."""
        if not self.counts:
            raise ValueError("a distribution of nothing has no quantiles")
        ranks = [max(0, -(-self.count * percent // 100) - 1) for percent in percents]
        found: list[int] = []
        seen = 0
        for bucket, count in sorted(self.counts.items()):
            seen += count
            while len(found) < len(ranks) and ranks[len(found)] < seen:
                found.append(min(self._middle_ms(bucket), self.max_ms))
        return found

    def _middle_ms(self, bucket: int) -> int:
        """Return the duration from which both ends of a bucket differ by the same part of theirs."""
        first, last = bucket << self.level, min(((bucket + 1) << self.level) - 1, _LAST)
        low, high = _BOUNDS[first - 1] + 1 if first else 0, _BOUNDS[last]
        return (4 * low * high + low + high) // (2 * (low + high)) if low else (high + 1) // 2

    @property
    def is_sound(self) -> bool:
        """Return whether there are such buckets and counts; a damaged record may say otherwise."""
        if not 0 <= self.level <= _LAST.bit_length() or self.max_ms < 0:
            return False
        return all(0 <= bucket <= _LAST >> self.level and count > 0 for bucket, count in self.counts.items())


class WideLatencyMetric(LatencyMetric, frozen=True):
    """One with more room: less often does it merge buckets."""

    max_buckets: ClassVar[int] = 96


def _coarser(counts: Mapping[int, int], levels: int) -> dict[int, int]:
    merged: dict[int, int] = {}
    for bucket, count in counts.items():
        merged[bucket >> levels] = merged.get(bucket >> levels, 0) + count
    return merged


def _fitted(max_buckets: int, level: int, counts: dict[int, int]) -> tuple[int, Map[int, int]]:
    """Return *counts* at the lowest level from *level* on that has no more than *max_buckets*.

    Some of the durations never need more buckets than all of them, so all of them end at the same level, in whatever
    order and portions they come.
    """
    while len(counts) > max_buckets:
        level, counts = level + 1, _coarser(counts, 1)
    return level, Map(counts)
