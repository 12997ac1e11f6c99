"""Counters and distributions that cost a task next to nothing: plain numbers, made into samples when they are fetched.

The event loop alone writes them; the thread that serves metrics reads them. A fetch may see an event's first number
and not yet its second one.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from onager.metric import Kind, Metric

Labelled = Mapping[tuple[str, ...], float]
"""Values by the labels of their metric, in its order."""


class Tally(Collector):
    """A counter, by labels."""

    def __init__(self, metric: Metric, expected: Iterable[tuple[str, ...]] = ()) -> None:
        """Count *metric*, from 0 for *expected* labels: Prometheus sees no increase to a first value."""
        self._metric = metric
        self._counts: dict[tuple[str, ...], float] = dict.fromkeys(expected if metric.labels else [()], 0)

    def add(self, *labels: str, n: float = 1) -> None:
        """Count *n* more."""
        self._counts[labels] = self._counts.get(labels, 0) + n

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Yield the counter."""
        return Looked(lambda: [(self._metric, self._counts.copy())]).collect()


class Distribution(Collector):
    """A histogram without labels."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._bounds = metric.buckets
        self._counts = [0] * (len(metric.buckets) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count *value* where it belongs; a negative one, of clocks that differ, as 0."""
        self.observe_all((max(value, 0.0),))

    def observe_all(self, values: Sequence[float]) -> None:
        """Count *values*, none of which is negative."""
        counts, bounds = self._counts, self._bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Yield the histogram."""
        counts, total, so_far = self._counts.copy(), self._sum, 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            so_far += count
            buckets.append((bound, so_far))
        family = HistogramMetricFamily(self._metric.name, self._metric.about)
        family.add_metric((), buckets, total)
        yield family


class Looked(Collector):
    """Counters and gauges that something else keeps; they are looked up when they are fetched."""

    def __init__(self, look: Callable[[], Iterable[tuple[Metric, Labelled]]]) -> None:
        """Take the values from *look*, which the thread that serves metrics calls."""
        self._look = look

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Yield the metrics."""
        for metric, values in self._look():
            make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = make(metric.name, metric.about, labels=metric.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family
