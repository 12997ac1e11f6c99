"""The scheduler process."""

import asyncio
import ctypes
import gc
import importlib
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import structlog
import uvloop
from grpc_health.v1._async import HealthServicer

from onager import place_files
from onager.clock import Clock, SystemClock
from onager.errors import ExchangeNotWritableError, InvalidSettingError, OnagerError
from onager.exchange_layout import check_local, local_path
from onager.logs import configure_logging
from onager.private_files import make_private_directory
from onager.protocol.security import ServerAccess
from onager.scheduler import timing
from onager.scheduler.app import SchedulerApp
from onager.scheduler.disk import EXCHANGE
from onager.scheduler.executors.own_exchange import OwnExchange
from onager.scheduler.health import serving_health, tell_health
from onager.scheduler.server import SERVICES, serve
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace, StateBackendClient, open_backend
from onager.state_backend.urls import FORMS
from onager.supervision import EXIT_FAILED, LoopEndedError, run_loops

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from onager.scheduler.metrics.process import EventLoopLag

log = structlog.get_logger(__name__)

EXIT_OK: Final = 0
EXIT_CANNOT_START: Final = 2
_MALLOC: Final = {-3: 256 * 1024, -1: 1024 * 1024, -8: 2}
"""Source: malloc.h: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX."""
_SWITCH_S: Final = 0.0005
"""The thread switch interval: how long a thread with a large request keeps the event loop waiting each time."""
GC_THRESHOLDS: Final = (10_000, 10, 50)
"""Garbage collection runs after this many new objects, and after this many such runs for the older generations.

A graph of 100,000 tasks is a million objects without a cycle among them. With Python's own thresholds, scanning them
again and again took a fifth of this process's time. Objects that do form cycles (mostly errors with their tracebacks)
die young.
"""


def run(settings: SchedulerSettings) -> int:
    """Run a scheduler until SIGTERM or SIGINT; return the process's exit code.

    0 after a clean end. 2, with one message on standard error, when it cannot start: a port in use, a state directory
    that is locked, not writable, damaged or of another release, an exchange directory that cannot be used. 1 when a
    part has ended that must not, so that the process supervisor restarts it.
    """
    configure_logging(settings.log_level, settings.log_format)
    _give_memory_back()
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()  # loaded modules stay for the life of the process
    try:
        return uvloop.run(_run(settings))
    except OnagerError as error:
        sys.stderr.write(f"onager scheduler: {error}\n")
        return EXIT_CANNOT_START
    except LoopEndedError as error:
        sys.stderr.write(f"onager scheduler: {error}\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_OK


def _give_memory_back() -> None:
    """Make the C library return the memory of large requests to the system as soon as it is free.

    By default each thread's arena keeps as much as the largest requests have ever taken.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # another C library, with its own ways
    for parameter, value in _MALLOC.items():
        mallopt(parameter, value)


async def _run(settings: SchedulerSettings) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    timing.check(settings.forward_timeout_ms)
    access = ServerAccess(settings.server_security, settings.listen)
    check_local("--exchange-dir", settings.exchange_dir)
    if settings.backend.startswith("memory:"):
        log.warning("jobs_are_lost_with_this_process", advice=f"keep them: --backend {FORMS}")
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(await open_backend(settings.backend, clock=clock))
        registry = None
        if settings.metrics_listen is not None or settings.http_listen is not None:
            # The metrics server takes a while to load: import it only where it is wanted.
            from onager.scheduler.metrics import observe, process_registry, serving_metrics
            from onager.state_backend.observed import ObservedBackend, StateMetrics

            registry = process_registry()
            if settings.metrics_listen is not None:
                stack.enter_context(serving_metrics(settings.metrics_listen, registry))
            backend = ObservedBackend(backend, StateMetrics(registry), clock)
        scheduler = await _made(settings, backend, clock)
        lag = None if registry is None else observe(scheduler, registry, scheduler.clock, access.refusals)
        await scheduler.start()
        checks = HealthServicer()
        await stack.enter_async_context(serving_health(checks, settings.health_listen))
        if settings.scaler_listen is not None:
            from onager.scheduler.scaler import serving_scaler

            await stack.enter_async_context(serving_scaler(scheduler, settings, settings.scaler_listen))
        await stack.enter_async_context(_serving_http(scheduler, scheduler.clock, registry, access.refusals))
        server, port = await serve(scheduler, settings.listen, access, checks)
        host = settings.listen.rpartition(":")[0]
        loops = asyncio.create_task(_loops(scheduler, checks, lag))
        log.info("scheduler_ready", address=f"{host}:{port}", backend=settings.backend, jobs=len(scheduler.heads))
        sys.stdout.write(f"listening on {host}:{port}\n")
        sys.stdout.flush()
        stopping = asyncio.create_task(stop.wait())
        # Reading results needs Arrow, which takes a quarter of a second to load: do that before a caller waits for it.
        warming = asyncio.create_task(asyncio.to_thread(importlib.import_module, "onager.result_files"))
        try:
            await asyncio.wait([loops, stopping], return_when=asyncio.FIRST_COMPLETED)
            is_failed = loops.done()
        finally:
            stopping.cancel()
            warming.cancel()
            await checks.enter_graceful_shutdown()
            await _drain(scheduler, server, loops)
        if is_failed:
            defect = None if loops.cancelled() else loops.exception()
            log.error("scheduler_failed", error=repr(defect))
            raise defect or LoopEndedError("the scheduler", "nobody had asked for that")
        log.info("scheduler_stopped")
    return EXIT_OK


async def _loops(scheduler: SchedulerApp, checks: HealthServicer, lag: "EventLoopLag | None") -> None:
    health = tell_health(checks, SERVICES, lambda: scheduler.places.own.is_seen_better_elsewhere)
    await run_loops(scheduler=scheduler.run(), health=health, **({} if lag is None else {"lag": lag.run()}))


@asynccontextmanager
async def _serving_http(
    scheduler: SchedulerApp, clock: Clock, registry: "CollectorRegistry | None", refusals: Counter[str]
) -> AsyncIterator[None]:
    """Serve REST and the page inside the block, if that is asked for; say where."""
    if scheduler.settings.http_listen is None:
        yield
        return
    # What it needs takes a while to load.
    try:
        from onager.scheduler.http.server import serving_http
    except ModuleNotFoundError as error:
        raise InvalidSettingError(
            "--http-listen",
            scheduler.settings.http_listen,
            f"the module {error.name} is not installed: pip install 'onager[http]'",
        ) from error

    async with serving_http(scheduler, scheduler.settings.http_listen, clock, registry, refusals) as url:
        sys.stdout.write(f"page at {url}\n")
        yield


async def _drain(scheduler: SchedulerApp, server: grpc.aio.Server, loops: "asyncio.Task[None]") -> None:
    """Leave within a second, however slow the store is: the other schedulers can read all that is stored.

    New calls are refused. Calls that wait are answered, so that their callers turn elsewhere. Writes in flight are
    finished.
    """
    scheduler.stopping.set()
    stopping = asyncio.create_task(server.stop(timing.STOP_GRACE_S))
    await asyncio.sleep(timing.STOP_REFUSING_S)
    scheduler.release_polls()
    await asyncio.gather(stopping, scheduler.schedulers.leave(timing.STOP_LEAVE_S))
    loops.cancel()
    await asyncio.wait([loops], timeout=timing.STOP_LEAVE_S)
    try:
        async with asyncio.timeout(timing.STOP_WRITE_S):
            await scheduler.close()
    except TimeoutError:
        # Reports that were not acknowledged are sent to another scheduler.
        log.warning("scheduler_left_writes_behind")


async def _made(settings: SchedulerSettings, backend: StateBackendClient, clock: Clock) -> SchedulerApp:
    """Make the scheduler, and the exchange directory.

    The latter only if the cluster has none yet: else the volume that holds it may not be mounted here.
    """
    path, access = settings.exchange_dir, settings.exchange_access
    is_there = await EXCHANGE.call(Path(local_path(path)).exists)
    if is_there or await backend.get(Keyspace.Places, place_files.EXCHANGE) is None:
        await EXCHANGE.call(make_exchange_dir, path, access)
    scheduler = SchedulerApp(settings, backend, clock)
    scheduler.places.own = OwnExchange(
        path, backend, scheduler.schedulers, scheduler.places, clock, partial(make_exchange_dir, path, access)
    )
    return scheduler


def make_exchange_dir(exchange_dir: str, access: str = "owner") -> None:
    """Make the exchange directory; `ExchangeNotWritableError` if nothing can be written there."""
    path = Path(local_path(exchange_dir))
    try:
        make_private_directory(path, access)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ExchangeNotWritableError(
            f"the exchange directory {path} cannot be written ({os.strerror(error.errno or 0)}): "
            "give --exchange-dir a directory that this user may write"
        ) from error
