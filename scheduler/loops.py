"""Loops that survive errors of what they run."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

import structlog

from onager.errors import OnagerError, StateBackendError, WatchCompactedError
from onager.scheduler import timing

log = structlog.get_logger(__name__)

_Result = TypeVar("_Result")


async def whenever(wake: asyncio.Event, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Call *act* each time that *wake* was set, and once more a while after an `OnagerError` or an `OSError`."""
    while True:
        await wake.wait()
        wake.clear()
        try:
            await act()
        except (OnagerError, OSError) as error:
            log.warning("step_failed", step=act.__qualname__, error=str(error))
            await asyncio.sleep(timing.STORE_AGAIN_S)
            wake.set()


async def watching(watch: Callable[[], Coroutine[Any, Any, None]], *, again_s: float = timing.STORE_AGAIN_S) -> None:
    """Run *watch*, and again whenever it has ended; it begins by reading what it may have missed."""
    while True:
        try:
            await watch()
        except WatchCompactedError:
            continue
        except StateBackendError as error:
            log.warning("watch_failed", watch=watch.__qualname__, error=str(error))
            await asyncio.sleep(again_s)


async def every(interval_s: float, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Call *act*, and again *interval_s* after each return; an `OnagerError` or an `OSError` costs a round."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            await act()
        except (OnagerError, OSError) as error:
            log.warning("step_failed", step=act.__qualname__, error=str(error))


async def a_few_at_once(work: Sequence[Coroutine[Any, Any, _Result]], most: int = 64) -> list[_Result]:
    """Return the results of all of *work*, in its order, with no more than *most* running at a time.

    For little work it is `asyncio.gather`. An exception of any of them is raised.
    """
    if len(work) <= most:
        return await asyncio.gather(*work)
    found: dict[int, _Result] = {}
    waiting = iter(enumerate(work))

    async def some() -> None:
        for number, each in waiting:
            found[number] = await each

    await asyncio.gather(*(some() for _ in range(most)))
    return [found[number] for number in range(len(work))]


async def in_portions(work: Generator[None, None, _Result]) -> _Result:
    """Run *work*, letting the event loop do other work between its portions; return its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: _Result = done.value
            return result
        await asyncio.sleep(0)
