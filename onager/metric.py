"""How a metric is declared, before anything keeps or serves it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Whose(StrEnum):
    """Whose figure it is that one scheduler of several tells, and so how theirs are put together."""

    CLUSTER = "cluster"
    """Every scheduler tells the same of the whole cluster, give or take a moment: take the largest."""
    PART = "part"
    """Each scheduler tells what it did itself, and nobody else counts that: add them up."""
    PROCESS = "process"
    """Each tells of itself alone: look at one by one."""


class Kind(StrEnum):
    """The types of Prometheus that are in use."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as it is served."""

    name: str
    """As it is queried: with its unit, and a counter with ``_total``."""
    kind: Kind
    whose: Whose
    about: str
    """One sentence: what it is, and of what."""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """The upper bounds of a histogram, ascending, without infinity."""

    @property
    def samples(self) -> tuple[str, ...]:
        """Return the names under which it can be queried."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Return what the classes of `prometheus_client` are made with."""
        buckets = {"buckets": self.buckets} if self.buckets else {}
        return {"name": self.name, "documentation": self.about, "labelnames": self.labels, **buckets}


def gauge(name: str, whose: Whose, about: str, *labels: str) -> Metric:
    """Declare a value that goes up and down."""
    return Metric(name, Kind.GAUGE, whose, about, labels)


def counter(name: str, about: str, *labels: str) -> Metric:
    """Declare a number that only grows; each scheduler counts its own part."""
    return Metric(name, Kind.COUNTER, Whose.PART, about, labels)


def histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str, whose: Whose = Whose.PART) -> Metric:
    """Declare a distribution."""
    return Metric(name, Kind.HISTOGRAM, whose, about, labels, buckets)


CALL_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""For what should take milliseconds."""
WORK_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""For what may take an hour."""
