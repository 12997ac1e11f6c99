"""How durations are distributed, in some dozen bytes: a sketch that tells quantiles to a relative error.

A DDSketch counts durations in buckets whose bounds grow by a constant factor. Here the bounds are whole milliseconds,
made by integer arithmetic: every scheduler that replays a log gets the same sketch, whatever its processor. A sketch
that would take too much room merges neighbouring buckets, all of them, so that the error of every quantile about
doubles. How often that was done follows from the durations alone: in whatever order, and in whatever portions, sketches
are merged, the result is the same.

Source: Masson, Rim and Lee, "DDSketch", PVLDB 12 (2019); Epicoco et al., "UDDSketch", IEEE Access 8 (2020). The library
of the first authors computes with floating-point logarithms, which differ between C libraries, and has no limit that
keeps the error of all quantiles.
"""

import base64
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from immutables import Map

from onager.execution_graph.stored import StoredAs

RELATIVE_ERROR: Final = 0.02
"""Of a sketch whose buckets were never merged; durations themselves are whole milliseconds."""
_GROWTH: Final = (51, 49)
"""The factor between the bounds of a bucket: (1 + `RELATIVE_ERROR`) / (1 - `RELATIVE_ERROR`)."""
_MOST_MS: Final = 10**10
"""Longer durations, of more than 115 days, share the last bucket."""
_FORMAT: Final = 0
_HEADER_BITS: Final = 4 + 4 + 10 + 4 + 6
"""Format, level, the first bucket, how counts are written, and how many bits the maximum has."""
_ORDERS: Final = (0, 2, 4, 6, 8, 10, 12)
"""How counts may be written: the orders of Golomb's exponential code."""


def _bounds() -> tuple[int, ...]:
    """Return the largest duration of each bucket; the first one is of 0 alone."""
    most, least = _GROWTH
    bounds = [0]
    while bounds[-1] < _MOST_MS:
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


@dataclass(frozen=True, slots=True)
class LatencyMetric(StoredAs):
    """The distribution of some durations in milliseconds; `merge` is associative, commutative, and loses no count."""

    record_type: ClassVar[Any] = str
    most_bytes: ClassVar[int] = 34
    """What a sketch may take, packed: as Base85, the text is a quarter longer."""

    level: int = 0
    """How often neighbouring buckets were merged."""
    counts: Map[int, int] = field(default_factory=Map)
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
        return cls(*_fitted(cls.most_bytes, 0, counts, longest), longest)

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
        longest = max(other.max_ms, self.max_ms)
        return type(self)(*_fitted(self.most_bytes, level, counts, longest), longest)

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

    # ---------------------------------------------------------------- as text

    def to_record(self) -> str:
        """Return the sketch as Base85; equal sketches give equal text, an empty one none."""
        if not self.counts:
            return ""
        first, last = min(self.counts), max(self.counts)
        order = min(_ORDERS, key=lambda order: _bits_of(self.counts, order))
        longest = f"{self.max_ms:b}" if self.max_ms else ""
        bits = [f"{_FORMAT:04b}{self.level:04b}{first:010b}{order:04b}{len(longest):06b}{longest}"]
        for bucket in range(first, last + 1):
            high = (self.counts.get(bucket, 0) >> order) + 1
            low = self.counts.get(bucket, 0) & ((1 << order) - 1)
            bits.append(f"{'0' * (high.bit_length() - 1)}{high:b}{f'{low:0{order}b}' if order else ''}")
        packed = "".join(bits)
        packed += "0" * (-len(packed) % 8)
        return base64.b85encode(int(packed, 2).to_bytes(len(packed) // 8, "big")).decode()

    @classmethod
    def of_record(cls, record: str) -> Self:
        """Return the sketch that `to_record` wrote; `ValueError` for anything else, as what a later version writes."""
        if not record:
            return cls()
        data = base64.b85decode(record)
        if len(data) > cls.most_bytes:
            raise ValueError(f"a sketch of durations has {len(data)} bytes, more than {cls.most_bytes}")
        bits = _Bits(f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}")
        if (kind := bits.number(4)) != _FORMAT:
            raise ValueError(f"a sketch of durations has the format {kind}, which is not known")
        level, first, order = bits.number(4), bits.number(10), bits.number(4)
        longest = bits.number(bits.number(6))
        counts = dict(bits.counts(first, order))
        if not counts or max(counts) > _LAST >> level or longest > 1 << 62:
            raise ValueError("a sketch of durations has no bucket, or one that there is not")
        return cls(level, Map(counts), longest)


class WideLatencyMetric(LatencyMetric):
    """One with more room: less often does it merge buckets."""

    most_bytes: ClassVar[int] = 86


def _coarser(counts: Map[int, int] | dict[int, int], levels: int) -> dict[int, int]:
    merged: dict[int, int] = {}
    for bucket, count in counts.items():
        merged[bucket >> levels] = merged.get(bucket >> levels, 0) + count
    return merged


def _fitted(most_bytes: int, level: int, counts: dict[int, int], longest: int) -> tuple[int, Map[int, int]]:
    """Return *counts* at the lowest level from *level* on that fits.

    Some of the durations never need more room than all of them, so all of them end at the same level, in whatever order
    and portions they come.
    """
    room = 8 * most_bytes - _HEADER_BITS - longest.bit_length()
    while counts and not _fits(counts, room):
        level, counts = level + 1, _coarser(counts, 1)
    return level, Map(counts)


def _fits(counts: dict[int, int], room: int) -> bool:
    likely = max(1, sum(counts.values()) // (max(counts) - min(counts) + 1)).bit_length() - 1
    return _bits_of(counts, min(likely & ~1, _ORDERS[-1])) <= room or any(
        _bits_of(counts, order) <= room for order in _ORDERS
    )


def _bits_of(counts: Map[int, int] | dict[int, int], order: int) -> int:
    """Return the bits that counts take: for each, Golomb's exponential code; for an empty bucket between, the least."""
    span = max(counts) - min(counts) + 1
    highs = [(count >> order) + 1 for count in counts.values()]
    return span * (order + 1) + 2 * (sum(map(int.bit_length, highs)) - len(highs))


class _Bits:
    """Reads numbers from a text of 0 and 1."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def number(self, length: int) -> int:
        """Return the number of the next *length* bits; `ValueError` when there are fewer."""
        found = self._text[self._at : self._at + length]
        if len(found) < length:
            raise ValueError("a sketch of durations is cut off")
        self._at += length
        return int(found, 2) if found else 0

    def counts(self, first: int, order: int) -> Iterator[tuple[int, int]]:
        """Yield the counts above 0, and their buckets from *first* on; what is left of the last byte is less than one.

        The last bucket of a sketch is never empty.
        """
        bucket = first
        while (one := self._text.find("1", self._at)) >= 0:
            length = one - self._at
            self._at = one
            if count := (self.number(length + 1) - 1 << order) + self.number(order):
                yield bucket, count
            bucket += 1
