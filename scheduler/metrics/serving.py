"""Metrics over HTTP, for Prometheus to fetch."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, start_http_server

from onager.protocol.ports import unusable_address
from onager.scheduler import timing

log = structlog.get_logger(__name__)


def process_registry() -> CollectorRegistry:
    """Return a registry with the metrics of this process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


@contextmanager
def serving_metrics(listen: str, registry: CollectorRegistry) -> Iterator[None]:
    """Serve *registry* at ``http://{listen}/metrics`` inside the block.

    A thread of its own answers, so that a busy event loop shows up as such. `InvalidSettingError` when the address
    cannot be used.
    """
    host, _, port = listen.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host, registry)
    except OSError as error:
        raise unusable_address("--metrics-listen", listen) from error
    log.info("metrics_ready", address=f"http://{host}:{server.server_port}/metrics")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timing.METRICS_JOIN_S)
