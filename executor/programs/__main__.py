"""The process that runs programs beside an executor.

    python -m onager.executor.programs FD

The file descriptor FD gives the executor's settings, as a line of JSON. When it says more, or is closed, the executor
leaves or is gone: then this process kills the programs, which go on elsewhere, and leaves.
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from importlib.metadata import version

import structlog
import uvloop

from onager.clock import SystemClock
from onager.errors import OnagerError
from onager.executor.agent.agent import Agent
from onager.executor.agent.gateway import SchedulerGateway
from onager.executor.agent.registration import Identity
from onager.executor.attempt_logs import AttemptLogs, keep_line
from onager.executor.exchange.seen_places import SeenPlaces
from onager.executor.programs.worker import ProgramWorker
from onager.executor.settings import ExecutorSettings
from onager.ids import new_incarnation
from onager.logs import configure_logging
from onager.place_files import EXCHANGE
from onager.private_process import hide_process
from onager.protocol.security import ClientAccess, Role

log = structlog.get_logger()


def main(descriptor: int) -> int:
    """Run programs until the executor leaves, or is drained; return the exit code: 0 then."""
    hide_process()
    for number in (signal.SIGINT, signal.SIGTERM):  # the executor says when to leave; programs do not inherit a handler
        signal.signal(number, lambda *_: None)
    os.set_inheritable(descriptor, False)  # no program shall have it: uvloop closes nothing in a child
    with os.fdopen(descriptor, "rb", buffering=0) as given:
        settings = ExecutorSettings.model_validate_json(_line(descriptor))
        configure_logging(settings.log_level, settings.log_format, keep_line)
        try:
            has_left = uvloop.run(_serve(settings, given.fileno()))
        except OnagerError as error:
            log.error("programs_not_run", error=str(error))  # noqa: TRY400 - the message says it all
            return 1
    return 0 if has_left else 1


def _line(descriptor: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        if not (more := os.read(descriptor, 1)):
            sys.exit(0)
        line += more
    return line


async def _serve(settings: ExecutorSettings, descriptor: int) -> bool:
    """Run programs; return whether it ended because it was to leave."""
    incarnation, clock, logs = new_incarnation(), SystemClock(), AttemptLogs()
    access = ClientAccess(settings.client_security, settings.scheduler_addresses, [Role.EXECUTOR])
    places = SeenPlaces({EXCHANGE: settings.exchange_dir}, incarnation, clock)
    places.look()
    worker = ProgramWorker(settings, incarnation, access, clock, logs)
    identity = Identity(
        incarnation=incarnation,
        pid=os.getpid(),
        spark_version=version("pyspark"),
        python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
        runs_programs=True,
    )
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(SchedulerGateway(settings.scheduler_addresses, access))
        agent = Agent(settings, identity, worker, gateway, clock, logs=logs, places=places)
        loop = asyncio.get_running_loop()

        def leave() -> None:
            loop.remove_reader(descriptor)
            agent.request_drain()

        loop.add_reader(descriptor, leave)
        outcome = await agent.run()
    log.info("programs_ended", reason=outcome.message)
    await worker.end_attempts()
    await asyncio.to_thread(worker.close)
    return outcome.was_leaving


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
