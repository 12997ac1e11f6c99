"""Has the parts of a scheduler observed; without that they keep no metrics, and pay nothing for them."""

from collections.abc import Iterator, Mapping
from functools import partial

from prometheus_client.registry import CollectorRegistry

from onager.clock import Clock
from onager.metric import Metric
from onager.scheduler.app import SchedulerApp
from onager.scheduler.metrics import catalog
from onager.scheduler.metrics.cluster import cluster_gauges
from onager.scheduler.metrics.commits import CommitMetrics
from onager.scheduler.metrics.executors import CallMetrics, LossMetrics
from onager.scheduler.metrics.process import EventLoopLag, ProcessLook
from onager.scheduler.metrics.takeovers import TakeoverMetrics
from onager.scheduler.metrics.tallies import Labelled, Looked


def observe(
    scheduler: SchedulerApp, registry: CollectorRegistry, clock: Clock, refusals: Mapping[str, int]
) -> EventLoopLag:
    """Keep the metrics of *scheduler* in *registry*, but for those of its store; to be called before it starts.

    *refusals* are the calls that its server refused, by reason. What is returned has to run beside the scheduler.
    """
    scheduler.jobs.observer = CommitMetrics(registry)
    scheduler.calls.observer = CallMetrics(registry)
    scheduler.executors.observe(LossMetrics(registry))
    scheduler.adoption.observer = TakeoverMetrics(registry, scheduler.ownership, clock)
    registry.register(Looked(partial(cluster_gauges, scheduler, clock)))
    registry.register(Looked(ProcessLook(scheduler, scheduler.settings, clock)))
    registry.register(Looked(partial(_counters, scheduler, refusals)))
    return EventLoopLag(registry, clock)


def _counters(scheduler: SchedulerApp, refusals: Mapping[str, int]) -> Iterator[tuple[Metric, Labelled]]:
    """Yield the counters that parts of *scheduler* keep themselves."""
    yield catalog.LOG_APPEND_CONFLICTS, {(): scheduler.writers.conflicts}
    yield catalog.STREAMING_ABANDONED, {(): scheduler.checks.abandoned}
    yield catalog.AUTH_REFUSALS, {(why,): n for why, n in dict(refusals).items()}
    yield catalog.HTTP_REQUESTS, {(code,): n for code, n in dict(scheduler.http_requests).items()}
