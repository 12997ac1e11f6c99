"""Supervision of a process's background tasks: none of them ends in silence.

A *loop* runs as long as its owner. Any end of a loop is a defect, unless its owner cancelled it. An *errand* ends by
itself, and nothing waits for it: an exception of it is a defect. The first defect is logged with the name of what has
ended, and ends the owner by a `LoopEndedError`. That passes from owner to owner until the process ends with an exit
code other than 0, so that the process supervisor restarts it.

A cancellation that the task's owner did not request is a defect, too: gRPC's calls end by one when their channel is
closed, and `asyncio.TaskGroup` takes a task that has ended so for one that is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar

from onager.lazy_logger import LazyLogger

log = LazyLogger()

T = TypeVar("T")
EXIT_FAILED: Final = 1
"""The exit code of a process after a part of it has ended that must not."""


class LoopEndedError(Exception):
    """A background task has ended that must not: its owner cannot go on without it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} has ended: {why}")
        self.name = name


def is_cancelled() -> bool:
    """Return whether the current task was asked to end; if not, a `CancelledError` comes from a call of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def unless_cut(call: Awaitable[T], error: Exception) -> T:
    """Return the result of *call*; raise *error* when the call was cancelled and its caller was not.

    That happens to a call in flight when its channel is closed.
    """
    try:
        return await call
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise error from None


async def run_loops(**loops: Coroutine[Any, Any, object]) -> NoReturn:
    """Run *loops*, by their names, until cancelled; `LoopEndedError` as soon as one has ended."""
    await Background().run(**loops)


async def restarted(name: str, loop: Callable[[], Coroutine[Any, Any, None]], *, again_s: float) -> None:
    """Run a loop that may be restarted at any time; return when it returns, restart it *again_s* after a defect."""
    while True:
        try:
            await _guarded(name, loop())
        except LoopEndedError:
            await asyncio.sleep(again_s)
        else:
            return


class Background:
    """The loops and errands of one owner, which awaits `run` for as long as it lives."""

    def __init__(self, on_defect: Callable[[LoopEndedError], None] = lambda _: None) -> None:
        """Make it; *on_defect* is called with every defect."""
        self._on_defect = on_defect
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._has_failed = asyncio.Event()
        self._defect: LoopEndedError | None = None

    def keep(self, name: str, loop: Coroutine[Any, Any, object]) -> "asyncio.Task[None]":
        """Run a loop that must end only by being cancelled."""
        return self._begin(name, _kept(name, loop), loop)

    def start(self, name: str, errand: Coroutine[Any, Any, object]) -> "asyncio.Task[None]":
        """Run an errand."""
        return self._begin(name, _guarded(name, errand), errand)

    async def run(self, **loops: Coroutine[Any, Any, object]) -> NoReturn:
        """Run *loops*, by their names, until cancelled, and then end all that runs; raise the first defect."""
        for name, loop in loops.items():
            self.keep(name, loop)
        try:
            await self.until_defect()
        finally:
            await self.close()

    async def until_defect(self) -> NoReturn:
        """Raise the first defect, for owners whose errands outlive their loops: they call `join` or `close` later."""
        await self._has_failed.wait()
        raise self._defect or LoopEndedError("a loop", "of unknown reason")

    async def join(self) -> None:
        """Wait for all that runs."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Cancel all that runs, and wait for its end."""
        for task in list(self._tasks):
            task.cancel()
        await self.join()

    def _begin(
        self, name: str, guarded: Coroutine[Any, Any, None], work: Coroutine[Any, Any, object]
    ) -> "asyncio.Task[None]":
        task = asyncio.create_task(guarded, name=name)
        self._tasks[task] = None
        task.add_done_callback(lambda _: work.close())  # a task that was cancelled at once has not begun its coroutine
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and isinstance(defect := task.exception(), LoopEndedError):
            self._defect = self._defect or defect
            self._has_failed.set()
            self._on_defect(defect)


async def _kept(name: str, loop: Coroutine[Any, Any, object]) -> None:
    await _guarded(name, loop)
    raise _logged(name, "it returned", None)


async def _guarded(name: str, work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except LoopEndedError:
        raise  # logged where it was found
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise _logged(name, "it was cancelled, and nobody had asked for that", error) from error
    except Exception as error:
        raise _logged(name, repr(error), error) from error


def _logged(name: str, why: str, cause: BaseException | None) -> LoopEndedError:
    log.critical("loop_ended", loop=name, why=why, exc_info=cause)
    return LoopEndedError(name, why)
