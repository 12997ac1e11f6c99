"""The executor process: checks its environment, starts Spark, runs the agent, and restarts when the JVM dies."""

import asyncio
import itertools
import math
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import structlog
import uvloop

from onager.clock import SystemClock
from onager.errors import ExchangeFullError, InvalidSettingError, OnagerError
from onager.exchange_layout import check_local, local_path
from onager.executor.agent.agent import Agent
from onager.executor.agent.endings import Ending, Outcome
from onager.executor.agent.gateway import SchedulerGateway
from onager.executor.agent.push import Port
from onager.executor.agent.registration import Identity
from onager.executor.attempt_logs import AttemptLogs, keep_line
from onager.executor.exchange import check_exchange_dir
from onager.executor.exchange.seen_places import SeenPlaces
from onager.executor.programs.beside import ProgramHost
from onager.executor.settings import ExecutorSettings
from onager.executor.work import ClusterAwayError, Worker, WorkerDiedError
from onager.ids import Incarnation, new_incarnation
from onager.logs import configure_logging
from onager.private_files import warn_of_others
from onager.protocol.ports import check_address
from onager.protocol.security import ClientAccess, Role, ServerAccess
from onager.supervision import EXIT_FAILED, LoopEndedError

EXIT_OK = 0
EXIT_REFUSED = 2
"""A setting or the exchange directory is invalid, or the schedulers refuse this executor; restarting does not help."""

_ID_VARIABLE = "ONAGER_EXECUTOR_EXECUTOR_ID"
_DEATHS_VARIABLE = "ONAGER_JVM_DEATHS"
"""How often in a row the JVM died soon after its start; the process passes it on when it replaces itself."""
_OWN_DIRECTORY = "jobs can read what lies beside it: give tokens and keys a directory of their own"
_LONG_LIFE_S = 60.0
_LONGEST_PAUSE_S = 30.0

StartWorker = Callable[[ExecutorSettings, Incarnation, AttemptLogs, SeenPlaces], tuple[Worker, str]]
"""Returns the worker of this incarnation of the executor, and its version of Spark. The worker keeps its tasks' logs in
the given `AttemptLogs`, and works in places that it sees."""


def run(settings: ExecutorSettings, start_worker: StartWorker | None = None) -> int:
    """Run an executor until SIGTERM or SIGINT, and return the exit code of the process.

    When the JVM dies, even while it starts, the process replaces itself with a new one that has the same command line
    and executor id. *start_worker* starts the worker, by default Spark.
    """
    settings = settings.identified()
    configure_logging(settings.log_level, settings.log_format, keep_line)
    logs = AttemptLogs()
    log = structlog.get_logger().bind(executor_id=settings.executor_id)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave_at_once)
    began_s = time.monotonic()
    try:
        access = ClientAccess(settings.client_security, settings.scheduler_addresses, [Role.EXECUTOR])
        served = ServerAccess(settings.server_security, settings.listen) if settings.mode == "push" else None
        if served is not None:
            check_address("--listen", settings.listen)
        settings.check_stream_port()
        check_local("--exchange-dir", settings.exchange_dir)
        check_local("--warehouse", settings.warehouse)
        await_exchange_dir(settings.exchange_dir, log)
        _warn_of_places(settings, log)
        incarnation = new_incarnation()
        places = SeenPlaces(settings.places, incarnation, SystemClock())
        places.look()
        worker, spark_version = (start_worker or _start_spark)(settings, incarnation, logs, places)
    except (OnagerError, ClusterAwayError) as e:
        if isinstance(e, ClusterAwayError) and _DEATHS_VARIABLE in os.environ:
            log.warning("cluster_away", error=str(e))  # the cluster was there once
            _start_again(settings, lived_s=0.0)
        log.error("executor_not_started", error=str(e))  # noqa: TRY400 - the message says it all
        sys.stderr.write(f"{e}\n")
        return EXIT_REFUSED
    except WorkerDiedError as e:
        log.warning("spark_died_while_starting", error=str(e))
        _start_again(settings, lived_s=0.0)
    programs = ProgramHost(settings) if settings.program_slots else None
    log.info("spark_started", seconds=round(time.monotonic() - began_s, 1), spark_version=spark_version)
    try:
        outcome = uvloop.run(_serve(settings, incarnation, access, served, worker, spark_version, logs, places))
    except InvalidSettingError as e:
        log.error("executor_not_started", error=str(e))  # noqa: TRY400 - the message says it all
        sys.stderr.write(f"{e}\n")
        _close(worker, programs)
        return EXIT_REFUSED
    except LoopEndedError as e:
        log.error("executor_failed", error=str(e))  # noqa: TRY400 - logged with its traceback where it was found
        sys.stderr.write(f"onager executor: {e}\n")
        _close(worker, programs)
        return EXIT_FAILED
    log.info("executor_ended", ending=outcome.ending.name.lower(), reason=outcome.message)
    return _end(settings, worker, programs, outcome, began_s)


def _close(worker: Worker, programs: ProgramHost | None) -> None:
    worker.close()
    if programs is not None:
        programs.close()


def _end(
    settings: ExecutorSettings, worker: Worker, programs: ProgramHost | None, outcome: Outcome, began_s: float
) -> int:
    """Release everything, and return the exit code of the process or, if its JVM is no more, start it again."""
    is_given_up = outcome.ending is Ending.WORKER_GIVEN_UP
    if is_given_up:
        worker.kill()
    if (is_given_up or outcome.ending is Ending.WORKER_DIED) and not outcome.was_leaving:
        worker.close()
        if programs is not None:
            programs.hand_over()
        # One that was given up did not die early: it was ended.
        _start_again(settings, lived_s=math.inf if is_given_up else time.monotonic() - began_s)
    _close(worker, programs)
    if outcome.ending is Ending.REFUSED:
        sys.stderr.write(f"{outcome.message}\n")
        return EXIT_REFUSED
    return EXIT_OK


def await_exchange_dir(path: str, log: Any, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until the exchange directory at *path* is writable: a full disk may soon have space again.

    Raises `ExchangeNotWritableError` when waiting cannot help.
    """
    for tries in itertools.count(2):
        try:
            check_exchange_dir(path)
        except ExchangeFullError as e:
            log.warning("exchange_full", error=str(e), next_try_s=pause_s(tries))
            sleep(pause_s(tries))
        else:
            return


def _warn_of_places(settings: ExecutorSettings, log: Any) -> None:
    warn_of_others(Path(local_path(settings.exchange_dir)), settings.exchange_access)
    for file in (settings.auth_token_file, settings.tls_key):
        if file is not None and os.path.realpath(file) in settings.private.paths:
            log.warning("secrets_beside_other_files", file=str(file), advice=_OWN_DIRECTORY)


def _start_spark(
    settings: ExecutorSettings, incarnation: Incarnation, logs: AttemptLogs, places: SeenPlaces
) -> tuple[Worker, str]:
    # Imported late, so that a refused setting does not wait for Spark.
    from onager.executor.spark.running.streams import StreamSettings
    from onager.executor.spark.worker import SparkWorker, WorkerSettings

    worker = SparkWorker(
        WorkerSettings(
            slots=settings.slots,
            conf={**settings.spark_conf, "spark.onager.exchangeAccess": settings.exchange_access},
            exchange_dir=settings.exchange_dir,
            exchange_shared=settings.exchange_shared,
            warehouse=settings.warehouse_dir,
            incarnation=incarnation,
            executor_id=settings.executor_id,
            planning_timeout_s=settings.planning_timeout_ms / 1000,
            cancel_grace_s=settings.cancel_grace_ms / 1000,
            private=settings.private,
            allow=settings.allow,
        ),
        SystemClock(),
        logs=logs,
        catalogs=settings.foreign_catalogs,
        places=places,
        streams=StreamSettings(
            listen=settings.stream_listen,
            advertise=settings.stream_advertise or "",
            token_file=settings.auth_token_file,
            insecure=settings.insecure,
        ),
    )
    return worker, worker.spark_version


async def _serve(
    settings: ExecutorSettings,
    incarnation: Incarnation,
    access: ClientAccess,
    served: ServerAccess | None,
    worker: Worker,
    spark_version: str,
    logs: AttemptLogs,
    places: SeenPlaces,
) -> Outcome:
    identity = Identity(
        incarnation=incarnation,
        pid=os.getpid(),
        spark_version=spark_version,
        python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
        stream_address=worker.stream_address if settings.is_stream_reached else "",
    )
    first = zlib.crc32(settings.executor_id.encode())
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(SchedulerGateway(settings.scheduler_addresses, access, first=first))
        port = None if served is None else Port(settings, served)
        agent = Agent(
            settings,
            identity,
            worker,
            gateway,
            SystemClock(),
            address="" if port is None else port.address,
            logs=logs,
            places=places,
        )
        if port is not None:
            await stack.enter_async_context(port.serving(agent))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, agent.request_drain)
        try:
            return await agent.run()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
                signal.signal(number, _leave_at_once)


def _start_again(settings: ExecutorSettings, lived_s: float) -> NoReturn:
    deaths = 1 if lived_s > _LONG_LIFE_S else int(os.environ.get(_DEATHS_VARIABLE, "0")) + 1
    os.environ[_DEATHS_VARIABLE] = str(deaths)
    os.environ[_ID_VARIABLE] = settings.executor_id
    time.sleep(pause_s(deaths))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the command line is our own


def pause_s(deaths: int) -> float:
    """Return the pause in seconds before the restart after *deaths* early deaths in a row: 0 at first, at most 30."""
    return 0.0 if deaths <= 1 else min(_LONGEST_PAUSE_S, 0.5 * 2.0 ** (deaths - 2))


def _leave_at_once(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise SystemExit(EXIT_OK)
