"""Metrics of the scheduler's process itself: its event loop, its lease, its certificates, its version."""

import asyncio
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cryptography.x509 import load_pem_x509_certificate
from prometheus_client.registry import CollectorRegistry

from onager.clock import Clock
from onager.metric import Metric
from onager.scheduler.app import SchedulerApp
from onager.scheduler.metrics import catalog
from onager.scheduler.metrics.tallies import Distribution, Labelled
from onager.scheduler.settings import SchedulerSettings
from onager.version import __version__

LAG_LOOK_S: Final = 0.25


class EventLoopLag:
    """Sees how late the event loop runs what is due."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._lag = Distribution(catalog.EVENT_LOOP_LAG)
        registry.register(self._lag)

    async def run(self) -> None:
        """Look for as long as the scheduler lives."""
        while True:
            due_s = self._clock.monotonic_s() + LAG_LOOK_S
            await asyncio.sleep(LAG_LOOK_S)
            self._lag.observe(self._clock.monotonic_s() - due_s)


class ProcessLook:
    """Looks at one scheduler's process; the thread that serves metrics does that."""

    def __init__(self, scheduler: SchedulerApp, settings: SchedulerSettings, clock: Clock) -> None:
        self._schedulers = scheduler.schedulers
        self._clock = clock
        self._was_listed = False
        outgoing = settings.outgoing_security.tls_cert
        files = {"server": settings.tls_cert, "outgoing": None if outgoing == settings.tls_cert else outgoing}
        self._certificates = {use: file for use, file in files.items() if file is not None}

    def __call__(self) -> Iterator[tuple[Metric, Labelled]]:
        """Return the values of all gauges of the process."""
        lease = self._schedulers.lease
        left_s = 0.0 if lease is None or lease.is_lost else max(0.0, lease.until_s - self._clock.monotonic_s())
        self._was_listed = self._was_listed or left_s > 0
        yield catalog.LEASE_REMAINING, {(): left_s} if self._was_listed else {}
        yield catalog.CLOCK_AHEAD, {(): self._schedulers.clock.ahead_ms / 1000}
        ends: Labelled = {
            (use,): expiry for use, file in self._certificates.items() if (expiry := expiry_of(file)) is not None
        }
        yield catalog.CERTIFICATE_EXPIRY, ends
        yield catalog.BUILD_INFO, {(__version__, platform.python_version()): 1}


def expiry_of(file: Path) -> int | None:
    """Return when the first certificate in a PEM file expires, in seconds since 1970; None if that is not known."""
    try:
        return int(load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp())
    except (OSError, ValueError):
        return None  # it is being replaced
