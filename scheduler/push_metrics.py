"""What push mode does, as Prometheus metrics of one scheduler.

``onager_push_slots{executor_id,holder}``
    Slots of push executors: held by this scheduler (``self``), by ``others``, or ``free``; as the store and this
    scheduler's books have them.
``onager_push_launches_total``, ``onager_push_refusals_total``, ``onager_push_given_up_total``
    Tasks that were handed out here; that executors refused, or could not be reached with, and that wait again; and that
    were sent no more because their executor seemed to be lost.
``onager_push_sent_again_total``
    Tasks in nobody's books that this scheduler has sent again, most of them left by one that died.
``onager_push_call_failures_total``
    Calls to executors that failed; each is made again.
``onager_push_wait_seconds``, ``onager_push_delivery_seconds``
    From the moment that a task's stage could run to its being handed out, of jobs that this scheduler acts on; and
    from there until the executor has it.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from onager.ids import ExecutorId, Incarnation
from onager.scheduler.engine.push_observer import PushObserver
from onager.scheduler.executors.slots import SlotPool

WAIT_BUCKETS_S: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
DELIVERY_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class PushMetrics(PushObserver):
    """The metrics of a scheduler's push mode, registered once with *registry*."""

    def __init__(self, registry: CollectorRegistry, pool: SlotPool) -> None:
        registry.register(_Slots(pool))
        self._launches = _counter(registry, "launches", "Tasks handed out to push executors.")
        self._refusals = _counter(registry, "refusals", "Tasks that executors refused, or were not reached with.")
        self._given_up = _counter(registry, "given_up", "Tasks sent no more because their executor seemed lost.")
        self._sent_again = _counter(registry, "sent_again", "Tasks in nobody's books that were sent again.")
        self._failures = _counter(registry, "call_failures", "Calls to push executors that failed.")
        self._waits = Histogram(
            "onager_push_wait_seconds",
            "From the moment that a task's stage could run to its being handed out.",
            registry=registry,
            buckets=WAIT_BUCKETS_S,
        )
        self._deliveries = Histogram(
            "onager_push_delivery_seconds",
            "From a task's being handed out to its being in the executor's hands.",
            registry=registry,
            buckets=DELIVERY_BUCKETS_S,
        )

    def launched(self, tasks: int, waited_s: float | None) -> None:
        """Count *tasks*."""
        self._launches.inc(tasks)
        if waited_s is not None:
            for _ in range(tasks):
                self._waits.observe(waited_s)

    def taken(self, took_s: float) -> None:
        """Note how long it took."""
        self._deliveries.observe(took_s)

    def refused(self, tasks: int) -> None:
        """Count *tasks*."""
        self._refusals.inc(tasks)

    def failed(self) -> None:
        """Count a call."""
        self._failures.inc()

    def given_up(self, tasks: int) -> None:
        """Count *tasks*."""
        self._given_up.inc(tasks)

    def sent_again(self, tasks: int) -> None:
        """Count *tasks*."""
        self._sent_again.inc(tasks)


class _Slots(Collector):
    """Looks at slots when it is asked, in the thread that serves metrics: it only reads what one step copies."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "onager_push_slots", "Slots of push executors, by who holds them.", labels=("executor_id", "holder")
        )
        for record in self._pool:
            free = self._pool.free(ExecutorId(record.executor_id), Incarnation(record.incarnation))
            held = self._pool.held(record)
            others = sum(slots for holder, slots in record.holders.items() if holder != self._pool.holder)
            for holder, slots in (("self", held), ("others", others), ("free", free)):
                family.add_metric((record.executor_id, holder), slots)
        yield family


def _counter(registry: CollectorRegistry, name: str, what: str) -> Counter:
    return Counter(f"onager_push_{name}", what, registry=registry)
