"""Calls to disks that other machines may hold: in threads of their own, with a deadline, and with one kind of error.

A file system that is gone answers no call, and a call cannot be cancelled. On the event loop such a call would stop the
whole scheduler; in asyncio's shared threads it would stop everything else that uses them. So this is how a scheduler
calls the exchange directory, the directory of histories and the places of outputs, and there is no other way: a test
looks for calls beside it.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, cast

import structlog

from onager.daemon_threads import DaemonThreads
from onager.errors import DiskError
from onager.scheduler import timing

log = structlog.get_logger(__name__)

_R = TypeVar("_R")
_Args = TypeVarTuple("_Args")


class Disk:
    """The threads that call one disk, or disks of one kind."""

    def __init__(self, what: str, threads: int, *, is_one: bool = False) -> None:
        """Make it; errors call it *what*. At most *threads* calls wait for it at a time. *is_one*: it is one disk."""
        self._is_one = is_one
        self._what = what
        self._most = threads
        self._threads = DaemonThreads("disk", threads)
        self._running = _Running()

    async def call(
        self,
        work: Callable[[*_Args], _R],
        *args: *_Args,
        within_s: float | None = None,
        late: Callable[[_R], object] | None = None,
    ) -> _R:
        """Return the result of *work*, run in a thread; `DiskError` for any `OSError`, and when it takes too long.

        The limit is *within_s*, by default `timing.DISK_S`, and at most `timing.DISK_HANGS_S` while the one disk hangs.
        Work that has begun goes on after it. When it ends at last, *late* gets its result, in the same thread.
        """
        loop = asyncio.get_running_loop()
        within_s = timing.DISK_S if within_s is None else within_s
        if self._is_one and self.hangs:
            within_s = min(within_s, timing.DISK_HANGS_S)
        if self._running.since(loop.time() - timing.DISK_S) >= self._most:
            raise self._hangs(f"{self._most} earlier calls have not returned yet")
        call = _Call(work, args, late, self._running, loop.time)
        done = loop.run_in_executor(self._threads, call)
        is_begun = has_waited = False
        try:
            await asyncio.wait([done], timeout=within_s)
            has_waited = True
        finally:
            if not done.done():
                done.cancel()
                is_begun = call.give_up(is_overdue=has_waited)
        if done.cancelled():
            raise self._hangs(f"no answer within {within_s:g} s", is_begun=is_begun)
        try:
            return cast("_R", done.result())
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise DiskError(f"{self._what} cannot be used: {error.strerror or error}{where}") from error

    @property
    def hangs(self) -> bool:
        """Whether a call runs that nobody waits for any more, because it took too long."""
        return self._running.has_overdue()

    def post(self, work: Callable[[*_Args], object], *args: *_Args) -> None:
        """Run *work* in a thread some time later; nobody waits for it, and its failure is only logged."""

        def quietly() -> None:
            try:
                work(*args)
            except (OSError, ValueError) as error:  # `ValueError`: a generator that an abandoned call still runs
                log.debug("disk_call_failed", disk=self._what, error=str(error))

        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._threads, _Call(quietly, (), None, self._running, loop.time))

    def _hangs(self, why: str, *, is_begun: bool = False) -> DiskError:
        return DiskError(f"{self._what} does not answer: {why}", hangs=True, is_begun=is_begun)


class _Running:
    """When each of the calls that run has begun."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begun_s: dict[_Call[Any], float] = {}

    def since(self, before_s: float) -> int:
        """Return how many have run since *before_s*."""
        with self.lock:
            return sum(begun_s <= before_s for begun_s in self.begun_s.values())

    def has_overdue(self) -> bool:
        """Return whether one of them has taken longer than its caller has waited."""
        with self.lock:
            return any(call.is_overdue for call in self.begun_s)


class _Call(Generic[_R]):
    """A call that its caller may abandon."""

    def __init__(
        self,
        work: Callable[..., _R],
        args: tuple[Any, ...],
        late: Callable[[_R], object] | None,
        running: _Running,
        time: Callable[[], float],
    ) -> None:
        self._work = work
        self._args = args
        self._late = late
        self._running = running
        self._time = time
        self._is_begun = self._is_abandoned = self.is_overdue = False

    def __call__(self) -> _R | None:
        running = self._running
        with running.lock:
            if self._is_abandoned:
                return None
            self._is_begun = True
            running.begun_s[self] = self._time()
        try:
            result = self._work(*self._args)
        finally:
            with running.lock:
                del running.begun_s[self]
        if self._is_abandoned and self._late is not None:
            self._late(result)
        return result

    def give_up(self, *, is_overdue: bool) -> bool:
        """Abandon the call; return whether it had begun."""
        with self._running.lock:
            self._is_abandoned, self.is_overdue = True, is_overdue
            return self._is_begun


EXCHANGE: Final = Disk("the exchange directory", 16, is_one=True)
OUTPUTS: Final = Disk("the directory of an output", 16)
HISTORIES: Final = Disk("the directory of histories (ONAGER_SCHEDULER_HISTORY_DIR)", 2, is_one=True)
