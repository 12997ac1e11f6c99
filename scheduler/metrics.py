"""Metrics of a scheduler, served over HTTP for Prometheus to fetch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, start_http_server

from onager.protocol.ports import unusable_address

log = structlog.get_logger(__name__)

_JOIN_S: Final = 2.0


@contextmanager
def serving_metrics(listen: str) -> Iterator[CollectorRegistry]:
    """Serve what is registered with the yielded registry at ``http://{listen}/metrics`` inside the block.

    A thread of its own answers, so that a busy event loop is seen as such. `InvalidSettingError` when the
    address cannot be used.
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
        thread.join(_JOIN_S)
