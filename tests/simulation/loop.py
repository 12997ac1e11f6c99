"""An event loop with virtual time, which jumps to the next timer when nothing is ready to run.

Whatever runs belongs to a `Process`, by a context variable that tasks and callbacks inherit. Inside a process the
order is asyncio's own; between processes the seed decides. A process that is paused runs nothing until it goes on,
and one that is killed never runs again: not even its ``finally`` blocks.
"""

import asyncio
import heapq
import random  # noqa: TID251 seeded
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

EPOCH_MS = 1_800_000_000_000
"""Wall time when a simulation begins."""

STEPS_OF_A_MOMENT = 100_000
"""More steps than this without progress of time are an endless loop."""


class Process:
    """One life of a process: what it has to run, and whether it may."""

    def __init__(self, name: str, number: int, *, is_old: bool = False) -> None:
        self.name = name
        self.number = number
        self.is_old = is_old
        """Whether the program is of the older release."""
        self.ready: deque[events.Handle] = deque()
        self.is_alive = True
        self.is_paused = False
        self.tasks: list[asyncio.Task[Any]] = []
        """All that were ever started, so that those of a dead process are not collected while others run."""
        self.context = copy_context()
        self.context.run(_CURRENT.set, self)

    def __repr__(self) -> str:
        return self.name


_CURRENT: ContextVar[Process] = ContextVar("process")


def current() -> Process:
    """Return the process that is running."""
    return _CURRENT.get()


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs processes, without sockets and threads."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._now_s = 0.0
        self._order = random.Random(f"order {seed}")
        self._timers: list[tuple[float, int, events.TimerHandle, Process]] = []
        self._count = 0
        self.steps = 0
        self._moment_began = 0
        self.problems: list[str] = []
        self.world = Process("world", 0)
        self.processes: list[Process] = [self.world]
        """Those alive, in the order of their making."""
        self._everybody: list[Process] = [self.world]
        self.set_exception_handler(self._note_problem)
        self.set_task_factory(self._make_task)

    # ---------------------------------------------------------------- processes

    def start_process(self, name: str, *, is_old: bool = False) -> Process:
        self._count += 1
        process = Process(name, self._count, is_old=is_old)
        self.processes.append(process)
        self._everybody.append(process)
        return process

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run *work* in *process*."""
        return self.create_task(work, context=process.context.copy())

    def kill(self, process: Process) -> None:
        """End *process* where it stands."""
        process.is_alive = False
        if process in self.processes:
            self.processes.remove(process)

    def reap_tasks(self) -> int:
        """End every task there ever was, those of dead processes too; return how many would not end."""
        self.processes = list(self._everybody)
        for process in self.processes:
            process.is_alive, process.is_paused = True, False
        for _ in range(50):
            # As they were made: asyncio tells them in the order of their addresses.
            left = [t for process in self.processes for t in process.tasks if not t.done()]
            left += asyncio.all_tasks(self).difference(left)
            if not left:
                return 0
            for task in left:
                task.cancel()
            self._moment_began = self.steps
            self.world.context.copy().run(self.run_until_complete, self._spin())
        return len(left)

    async def _spin(self) -> None:
        for _ in range(20 * len(self.processes)):
            await asyncio.sleep(0)

    @staticmethod
    def _make_task(
        loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None, **more: Any
    ) -> asyncio.Task[Any]:
        process = (copy_context() if context is None else context).get(_CURRENT)
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context, **more)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        if process is not None:
            process.tasks.append(task)
            if len(process.tasks) > 2_000:
                process.tasks = [t for t in process.tasks if not t.done()]
        return task

    def _note_problem(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    # ---------------------------------------------------------------- time and order

    def time(self) -> float:
        return self._now_s

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = events.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer, self._owner(timer)))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = events.Handle(callback, args, self, context)
        self._owner(handle).ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def _owner(self, handle: events.Handle) -> Process:
        owner: Process = handle._context.get(_CURRENT, self.world)  # type: ignore[attr-defined]
        return owner

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        pass  # skipped when it is due

    def _run_once(self) -> None:
        able = [p for p in self.processes if p.ready and not p.is_paused]
        if not able:
            self._jump()
            return
        process = able[int(self._order.random() * len(able))] if len(able) > 1 else able[0]
        if self.steps - self._moment_began > STEPS_OF_A_MOMENT:
            raise RuntimeError(f"{process} goes round in circles: time stands still")
        # A process runs everything that is ready before others see its effects, so its own order is fixed.
        for _ in range(len(process.ready)):
            if not process.ready or process.is_paused or not process.is_alive:
                return
            handle = process.ready.popleft()
            self.steps += 1
            if not handle._cancelled:  # type: ignore[attr-defined]
                handle._run()  # type: ignore[attr-defined]

    def _jump(self) -> None:
        while self._timers and self._timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(self._timers)
        if not self._timers:
            raise RuntimeError("nothing is left that could ever happen")
        if self._timers[0][0] > self._now_s:
            self._now_s = self._timers[0][0]
            self._moment_began = self.steps
        while self._timers and self._timers[0][0] <= self._now_s:
            _, _, timer, owner = heapq.heappop(self._timers)
            if owner.is_alive and not timer._cancelled:  # type: ignore[attr-defined]
                owner.ready.append(timer)

    # ---------------------------------------------------------------- what there is not

    def run_in_executor(self, _: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Do it here and now: there are no threads."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except StopIteration as error:
            done.set_exception(RuntimeError(f"StopIteration: {error}"))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits
            done.set_exception(error)
        return done

    def _process_events(self, _: Any) -> None:
        # asyncio's I/O is left out on purpose: code that uses a socket leaves the simulation.
        raise NotImplementedError("no sockets here")

    def _write_to_self(self) -> None:
        pass


class VirtualClock:
    """The clock of a machine: the loop's time, and a wall clock that may be wrong."""

    def __init__(self, loop: VirtualLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000) + self.skew_ms

    def monotonic_s(self) -> float:
        return self._loop.time()
