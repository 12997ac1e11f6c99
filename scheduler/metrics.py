"""Metrics of a scheduler, served over HTTP for Prometheus to fetch."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from onager.protocol.ports import unusable_address
from onager.scheduler import timing
from onager.scheduler.executors.executor_calls import CallObserver
from onager.scheduler.executors.records import ExecutorSession

log = structlog.get_logger(__name__)

_CALL_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class ExchangeMetrics(Collector):
    """The exchange directory as each executor last saw it: bytes and files in it, and the free space."""

    def __init__(self, sessions: Callable[[], Iterable[ExecutorSession]]) -> None:
        """Collect from *sessions*, which is called by the thread that serves metrics."""
        self._sessions = sessions

    def collect(self) -> Iterator[Metric]:
        """Yield gauges of bytes, files and free bytes, by executor."""
        seen = [(session.executor_id, session.exchange) for session in self._sessions()]
        for name, about, value in (
            ("bytes", "Bytes in the exchange directory.", lambda use: use.bytes),
            ("files", "Files in the exchange directory.", lambda use: use.files),
            ("free_bytes", "Free space where the exchange directory lies, in bytes.", lambda use: use.free_bytes),
        ):
            gauge = Metric(f"onager_exchange_{name}", about, "gauge")
            for executor_id, use in seen:
                if use is not None:
                    gauge.add_sample(gauge.name, {"executor_id": executor_id}, value(use))  # type: ignore[no-untyped-call]
            yield gauge


class PipelineMetrics(Collector):
    """The number of this scheduler's jobs that were to stream and ran again over the durable exchange."""

    def __init__(self, abandoned: Callable[[], int]) -> None:
        """Collect what *abandoned* returns, which is called by the thread that serves metrics."""
        self._abandoned = abandoned

    def collect(self) -> Iterator[Metric]:
        """Yield the counter."""
        about = "Jobs that were to stream, and were run again over the durable exchange."
        yield CounterMetricFamily("onager_pipelines_abandoned", about, self._abandoned())


class CallMetrics(CallObserver):
    """Calls to executors in push mode: the duration of answered ones, and the number of failed ones."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "onager_executor_call_seconds",
            "From a call to an executor in push mode until it was answered.",
            registry=registry,
            buckets=_CALL_BUCKETS_S,
        )
        self._failures = Counter(
            "onager_executor_call_failures",
            "Calls to executors in push mode that failed; what they held goes with the next poll.",
            registry=registry,
        )

    def answered(self, took_s: float) -> None:
        """Observe the duration."""
        self._seconds.observe(took_s)

    def failed(self) -> None:
        """Count a failed call."""
        self._failures.inc()


@contextmanager
def serving_metrics(listen: str) -> Iterator[CollectorRegistry]:
    """Serve the yielded registry at ``http://{listen}/metrics`` inside the block.

    A thread of its own answers, so that a busy event loop shows up as such. `InvalidSettingError` when the address
    cannot be used.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    host, _, port = listen.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host, registry)
    except OSError as error:
        raise unusable_address("--metrics-listen", listen) from error
    log.info("metrics_ready", address=f"http://{host}:{server.server_port}/metrics")
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timing.METRICS_JOIN_S)
