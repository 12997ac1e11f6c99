"""What runs in the background of a process: none of it ends in silence.

A *loop* goes on for as long as its owner. However it ends, but for its owner's cancelling it, that is a defect. An
*errand* ends by itself, and nobody waits for it: an exception of it is a defect. The first defect is logged with the
name of what has ended, and ends the owner by a `LoopEndedError`, which goes up from owner to owner until the process
ends with an exit code other than 0, so that whoever looks after processes starts it anew.

A cancellation that nobody asked the task for is a defect, too: gRPC's calls end by one when their channel is closed,
and `asyncio.TaskGroup` takes a task that has ended so for one that is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar

import structlog

log = structlog.get_logger(__name__)

T = TypeVar("T")
EXIT_FAILED: Final = 1
"""The exit code of a process of which a part has ended that must not."""


class LoopEndedError(Exception):
    """Something in the background has ended that must not: its owner cannot go on without it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} has ended: {why}")
        self.name = name


def is_cancelled() -> bool:
    """Return whether somebody asked the current task to end; without that a `CancelledError` is of a call's own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def unless_cut(call: Awaitable[T], error: Exception) -> T:
    """Return what *call* gives; raise *error* when the call was cancelled and its caller was not.

    That is what becomes of a call under way when its channel is closed.
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
    """Run a loop that may begin anew at any time; return when it returns, and begin anew *again_s* after a defect."""
    while True:
        try:
            await _guarded(name, loop())
        except LoopEndedError:
            await asyncio.sleep(again_s)
        else:
            return


class Background:
    """The loops and errands of one owner, who awaits `run` for as long as it lives."""

    def __init__(self, on_defect: Callable[[LoopEndedError], None] = lambda _: None) -> None:
        """Make it; *on_defect* is called with the first defect, and any later one."""
        self._on_defect = on_defect
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._has_failed = asyncio.Event()
        self._defect: LoopEndedError | None = None

    def keep(self, name: str, loop: Coroutine[Any, Any, object]) -> "asyncio.Task[None]":
        """Run a loop, that ends by being cancelled and in no other way."""
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
        """Raise the first defect, for an owner whose errands outlive its loops: who calls `join` or `close` later."""
        await self._has_failed.wait()
        raise self._defect or LoopEndedError("a loop", "of unknown reason")

    async def join(self) -> None:
        """Wait for what runs."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Cancel what runs, and wait for its end."""
        for task in list(self._tasks):
            task.cancel()
        await self.join()

    def _begin(
        self, name: str, guarded: Coroutine[Any, Any, None], work: Coroutine[Any, Any, object]
    ) -> "asyncio.Task[None]":
        task = asyncio.create_task(guarded, name=name)
        self._tasks[task] = None
        task.add_done_callback(lambda _: work.close())  # one that was cancelled at once has not begun with it
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
    raise _told(name, "it returned", None)


async def _guarded(name: str, work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except LoopEndedError:
        raise  # told where it was found
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise _told(name, "it was cancelled, and nobody had asked for that", error) from error
    except Exception as error:
        raise _told(name, repr(error), error) from error


def _told(name: str, why: str, cause: BaseException | None) -> LoopEndedError:
    log.critical("loop_ended", loop=name, why=why, exc_info=cause)
    return LoopEndedError(name, why)
