"""Has the parts of a scheduler observed; without that they keep no metrics, and pay nothing for them."""

from collections.abc import Mapping

from prometheus_client.registry import CollectorRegistry

from onager.clock import Clock
from onager.scheduler.app import Replica
from onager.scheduler.metrics import catalog
from onager.scheduler.metrics.cluster import ClusterLook
from onager.scheduler.metrics.commits import CommitMetrics
from onager.scheduler.metrics.executors import CallMetrics, LossMetrics
from onager.scheduler.metrics.process import EventLoopLag, ProcessLook
from onager.scheduler.metrics.takeovers import TakeoverMetrics
from onager.scheduler.metrics.tallies import Counted, Gauges, Labelled


def observe(replica: Replica, registry: CollectorRegistry, clock: Clock, refusals: Mapping[str, int]) -> EventLoopLag:
    """Keep the metrics of *replica* in *registry*, but for those of its store; to be called before it starts.

    *refusals* are the calls that its server refused, by reason. What is returned has to run beside the scheduler.
    """
    replica.jobs.observer = CommitMetrics(registry)
    replica.calls.observer = CallMetrics(registry)
    replica.executors.observe(LossMetrics(registry))
    replica.adoption.observer = TakeoverMetrics(registry, replica.ownership, clock)
    registry.register(Gauges(ClusterLook(replica, clock)))
    registry.register(Gauges(ProcessLook(replica, replica.settings, clock)))
    registry.register(Counted(catalog.LOG_APPEND_CONFLICTS, lambda: _alone(replica.writers.conflicts)))
    registry.register(Counted(catalog.PIPELINES_ABANDONED, lambda: _alone(replica.checks.abandoned)))
    registry.register(Counted(catalog.AUTH_REFUSALS, lambda: {(why,): n for why, n in dict(refusals).items()}))
    registry.register(Counted(catalog.HTTP_REQUESTS, lambda: {(c,): n for c, n in dict(replica.http_requests).items()}))
    return EventLoopLag(registry, clock)


def _alone(count: int) -> Labelled:
    return {(): count}
