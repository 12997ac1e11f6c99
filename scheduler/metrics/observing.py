"""Has the parts of a scheduler observed; without that they keep no metrics, and pay nothing for them."""

from collections.abc import Iterator, Mapping
from functools import partial

from prometheus_client.registry import CollectorRegistry

from onager.clock import Clock
from onager.metric import Metric
from onager.scheduler.app import Replica
from onager.scheduler.metrics import catalog
from onager.scheduler.metrics.cluster import cluster_gauges
from onager.scheduler.metrics.commits import CommitMetrics
from onager.scheduler.metrics.executors import CallMetrics, LossMetrics
from onager.scheduler.metrics.process import EventLoopLag, ProcessLook
from onager.scheduler.metrics.takeovers import TakeoverMetrics
from onager.scheduler.metrics.tallies import Labelled, Looked


def observe(replica: Replica, registry: CollectorRegistry, clock: Clock, refusals: Mapping[str, int]) -> EventLoopLag:
    """Keep the metrics of *replica* in *registry*, but for those of its store; to be called before it starts.

    *refusals* are the calls that its server refused, by reason. What is returned has to run beside the scheduler.
    """
    replica.jobs.observer = CommitMetrics(registry)
    replica.calls.observer = CallMetrics(registry)
    replica.executors.observe(LossMetrics(registry))
    replica.adoption.observer = TakeoverMetrics(registry, replica.ownership, clock)
    registry.register(Looked(partial(cluster_gauges, replica, clock)))
    registry.register(Looked(ProcessLook(replica, replica.settings, clock)))
    registry.register(Looked(partial(_counters, replica, refusals)))
    return EventLoopLag(registry, clock)


def _counters(replica: Replica, refusals: Mapping[str, int]) -> Iterator[tuple[Metric, Labelled]]:
    """Yield the counters that parts of *replica* keep themselves."""
    yield catalog.LOG_APPEND_CONFLICTS, {(): replica.writers.conflicts}
    yield catalog.PIPELINES_ABANDONED, {(): replica.checks.abandoned}
    yield catalog.AUTH_REFUSALS, {(why,): n for why, n in dict(refusals).items()}
    yield catalog.HTTP_REQUESTS, {(code,): n for code, n in dict(replica.http_requests).items()}
