"""Metrics of the scheduler's process itself: its event loop, its lease, its certificates, its version."""

import asyncio
import base64
import calendar
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client.registry import CollectorRegistry

from onager.clock import Clock
from onager.metric import Metric
from onager.scheduler.app import Replica
from onager.scheduler.metrics import catalog
from onager.scheduler.metrics.tallies import Distribution, Labelled
from onager.scheduler.settings import SchedulerSettings
from onager.version import __version__

LAG_LOOK_S: Final = 0.25
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_LONG: Final = 0x80


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

    def __init__(self, replica: Replica, settings: SchedulerSettings, clock: Clock) -> None:
        self._members = replica.members
        self._clock = clock
        self._was_listed = False
        peer = settings.peer_security.tls_cert
        files = {"server": settings.tls_cert, "peer": None if peer == settings.tls_cert else peer}
        self._certificates = {use: file for use, file in files.items() if file is not None}

    def __call__(self) -> Iterator[tuple[Metric, Labelled]]:
        """Return the values of all gauges of the process."""
        lease = self._members.lease
        left_s = 0.0 if lease is None or lease.is_lost else max(0.0, lease.until_s - self._clock.monotonic_s())
        self._was_listed = self._was_listed or left_s > 0
        yield catalog.LEASE_REMAINING, {(): left_s} if self._was_listed else {}
        ends: Labelled = {
            (use,): expiry for use, file in self._certificates.items() if (expiry := expiry_of(file)) is not None
        }
        yield catalog.CERTIFICATE_EXPIRY, ends
        yield catalog.BUILD_INFO, {(__version__, platform.python_version()): 1}


def expiry_of(file: Path) -> int | None:
    """Return when the first certificate in a PEM file expires, in seconds since 1970; None if that cannot be told."""
    try:
        found = _PEM.search(file.read_bytes())
        return None if found is None else not_after(base64.b64decode(found[1]))
    except (OSError, ValueError, IndexError):
        return None  # it is being replaced


def not_after(certificate: bytes) -> int:
    """Return when a certificate (DER) expires, in seconds since 1970.

    `ValueError` or `IndexError` when it is none. Source: RFC 5280, 4.1: a sequence of a sequence of version, serial
    number, algorithm, issuer, validity, and so on; the validity is a sequence of two times.
    """
    _, start, _ = _element(certificate, 0)
    _, at, _ = _element(certificate, start)
    if certificate[at] == _VERSION:
        at = _element(certificate, at)[2]
    for _ in ("serial number", "algorithm", "issuer"):
        at = _element(certificate, at)[2]
    tag, validity, _ = _element(certificate, at)
    if tag != _SEQUENCE:
        raise ValueError("there is no validity where it should be")
    tag, start, end = _element(certificate, _element(certificate, validity)[2])
    text = certificate[start:end].decode("ascii")
    # Two digits of a year are of 1950 to 2049; strptime takes 1969 to 2068.
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return calendar.timegm(time.strptime(text, form))


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of the DER element at *at*, where its content begins, and where it ends."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length & _LONG:
        size = length & ~_LONG
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    if start + length > len(data):
        raise ValueError("it is cut off")
    return tag, start, start + length
