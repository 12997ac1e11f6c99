"""How an agent ends, how it learns of the end of its JVM, and what it tells of it."""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import structlog

from onager.executor.agent.attempts import AttemptTable
from onager.executor.agent.threads import Threads
from onager.executor.work import Worker, WorkerEnd
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id

_CHECK_S: Final = 0.5

log = structlog.get_logger()


class Ending(Enum):
    """Why the agent stopped."""

    DRAINED = auto()
    """On request, with every report delivered."""
    STOPPED = auto()
    """On request, with tasks stopped."""
    WORKER_DIED = auto()
    """The worker cannot run anything any more: the process has to start again."""
    WORKER_GIVEN_UP = auto()
    """The worker goes on with what it was to stop: its process has to be ended, and to start again."""
    REFUSED = auto()
    """No scheduler will ever take this executor."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the agent ended."""

    ending: Ending
    message: str = ""
    was_leaving: bool = False
    """Whether it took no more work by then."""


async def until_over(worker: Worker, threads: Threads) -> str:
    """Return once *worker* is dead, or has to be ended: then what does not stop in it, else nothing."""
    while True:
        end = await threads.liveness(_end, worker)
        if end is not None:
            return end
        await asyncio.sleep(_CHECK_S)


def _end(worker: Worker) -> str | None:
    """Return what does not stop in the worker, nothing if it is dead; None while it goes on."""
    return worker.enforce_deadlines() or None if worker.is_alive() else ""


def describe_death(
    request: pb.DeregisterExecutorRequest, end: WorkerEnd, attempts: AttemptTable, *, is_quiet: bool
) -> None:
    """Add to *request* how the JVM ended, and which of *attempts* were running there; *is_quiet*: nothing else was."""
    running = attempts.running()
    was_alone = attempts.runs_lone and is_quiet
    tasks = "1 task was" if len(running) == 1 else f"{len(running)} tasks were"
    request.reason = f"its JVM ended {end.how}; {tasks} running in it" + (", alone" if was_alone else "")
    request.death.memory, request.death.alone = end.is_memory, was_alone
    request.death.running.extend(task_id(key) for key in running)
    names = [str(key) for key in running]
    log.warning("jvm_ended", executor_id=request.executor_id, how=end.how, is_memory=end.is_memory, running=names)
