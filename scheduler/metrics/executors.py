"""Metrics of executors: calls to them in push mode, and losses."""

from prometheus_client import Counter, Histogram
from prometheus_client.registry import CollectorRegistry

from onager.scheduler.executors.executor_calls import CallObserver
from onager.scheduler.executors.losses import LossObserver
from onager.scheduler.executors.records import Loss
from onager.scheduler.metrics import catalog
from onager.scheduler.metrics.tallies import Tally


class CallMetrics(CallObserver):
    """Calls to executors in push mode: the duration of answered ones, and the number of failed ones."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(**catalog.EXECUTOR_CALLS.arguments, registry=registry)
        self._failures = Counter(**catalog.EXECUTOR_CALL_FAILURES.arguments, registry=registry)

    def answered(self, took_s: float) -> None:
        """Observe the duration."""
        self._seconds.observe(took_s)

    def failed(self) -> None:
        """Count a failed call."""
        self._failures.inc()


class LossMetrics(LossObserver):
    """Ended lives of executors, by how this scheduler learned of the end; another one does not count them, too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lost = Tally(catalog.EXECUTOR_LOST, [(how.value,) for how in Loss])
        registry.register(self._lost)

    def lost(self, how: Loss) -> None:
        """Count a life."""
        self._lost.add(how.value)
