"""Work in the JVM that has to end in time: what takes too long is stopped, and what does not stop costs the JVM."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import structlog

from onager.clock import Clock
from onager.ids import TaskKey

log = structlog.get_logger()


@dataclass(slots=True)
class _Work:
    stop: Callable[[], None]
    on_stuck: Callable[[], None]
    over_s: float = inf
    """When it has to be stopped."""
    stuck_s: float = inf
    """When it has to have ended; set once it was stopped."""


class Deadlines:
    """What runs in the JVM and may have to be stopped, by name; thread-safe.

    Spark is asked to stop work, by interrupts and flags, and looks at them where it pleases: between rows, but not
    within an expression, and hardly ever in its optimizer. No thread of a JVM can be ended by force, so the JVM is.
    """

    def __init__(self, clock: Clock, grace_s: float) -> None:
        """*grace_s*: how long what was stopped may go on."""
        self._clock = clock
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._works: dict[str, _Work] = {}

    def begin(self, name: str, stop: Callable[[], None], on_stuck: Callable[[], None]) -> None:
        """Note that *name* has begun; *stop* stops it, and *on_stuck* is called if it does not stop in time."""
        with self._lock:
            self._works[name] = _Work(stop, on_stuck)

    def limit(self, name: str, limit_s: float) -> None:
        """Stop *name* in *limit_s* from now; `inf`: not at all."""
        with self._lock:
            if (work := self._works.get(name)) is not None:
                work.over_s = self._clock.monotonic_s() + limit_s

    def stopped(self, name: str) -> None:
        """Note that *name* was asked to stop, perhaps not for the first time: its grace begins."""
        with self._lock:
            work = self._works.setdefault(name, _Work(_nothing, _nothing))
            work.stuck_s = min(work.stuck_s, self._clock.monotonic_s() + self._grace_s)

    def end(self, name: str) -> None:
        """Note that *name* has ended."""
        with self._lock:
            self._works.pop(name, None)

    def enforce(self) -> str:
        """Stop what has taken too long; return what did not stop in time, for which the JVM has to end, or nothing."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            over = [(name, work) for name, work in self._works.items() if work.over_s <= now_s and work.stuck_s == inf]
            stuck = [(name, work) for name, work in self._works.items() if work.stuck_s <= now_s]
        for name, work in over:
            log.warning("work_takes_too_long", work=name)
            self.stopped(name)
            work.stop()
        for _, work in stuck:
            work.on_stuck()
        if not stuck:
            return ""
        names = sorted(name for name, _ in stuck)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return f"{names[0]}{more} did not stop within {self._grace_s:g} s of being cancelled"


def name_of(task: TaskKey) -> str:
    """Return the name of *task* among the deadlines."""
    return f"task {task}"


def _nothing() -> None:
    pass
