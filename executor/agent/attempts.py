"""Every task attempt that this executor was given, from launch to acknowledged report: no I/O, one thread."""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from onager.clock import Clock
from onager.executor.work import part_of
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key, task_keys

_REMEMBERED_S = 60.0
"""For so long at least, and twice as long at most, acknowledged attempts are remembered: a launch that comes once more
has been under way since before, and no call to an executor, and none of its polls, takes longer."""
_REMEMBERED = 200_000
"""That many at most."""


class AttemptState(Enum):
    """How far an attempt is."""

    QUEUED = auto()
    """Waits for a slot of ours."""
    PREPARING = auto()
    """Holds a slot; what it needs is being fetched."""
    RUNNING = auto()
    """The worker has it."""
    FINISHED = auto()
    """Its report is not acknowledged yet."""


@dataclass(slots=True)
class _Attempt:
    state: AttemptState
    report: pb.TaskReport | None = None
    reply_to: str = ""
    """Where its report goes first; empty for any scheduler."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What `AttemptTable.accept` made of a launch."""

    accepted: tuple[TaskKey, ...] = ()
    refused: tuple[TaskKey, ...] = ()
    """Not to be run. They are held, and the caller finishes them with a failure."""
    known: tuple[TaskKey, ...] = ()
    """Held already, or acknowledged before: nothing runs twice."""


class AttemptTable:
    """Decides which attempts run, so that a launch that comes twice runs once and *slots* are never exceeded.

    An attempt is *held* from its launch until its report is acknowledged: held attempts make up the list of running
    work that the scheduler reconciles with, and a slot counts as free only when its attempt is held no more.
    Acknowledged attempts are remembered for a while.
    """

    def __init__(self, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._held: dict[TaskKey, _Attempt] = {}
        self._queue: deque[tuple[TaskKey, pb.TaskSet]] = deque()
        self._active = 0
        self._lately: set[TaskKey] = set()
        """Acknowledged since `_since_s`."""
        self._before: set[TaskKey] = set()
        self._since_s = clock.monotonic_s()

    @property
    def free_slots(self) -> int:
        """Return how many more tasks the scheduler may hand out to us."""
        return max(0, self._slots - len(self._held))

    def freed_by(self, count: int) -> int:
        """Return how many more slots are free once *count* held attempts are acknowledged."""
        return max(0, self._slots - len(self._held) + count) - self.free_slots

    @property
    def active(self) -> int:
        """Return how many attempts are being prepared or run."""
        return self._active

    @property
    def _unfinished(self) -> int:
        return sum(attempt.state is not AttemptState.FINISHED for attempt in self._held.values())

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is held."""
        return not self._held

    def held(self) -> list[TaskKey]:
        """Return every held attempt, in order."""
        return sorted(self._held)

    def accept(self, task_set: pb.TaskSet, *, refuses_all: bool = False) -> Launch:
        """Hold the tasks of *task_set* that are new, and queue them.

        They are refused when more than two tasks a slot would be held, or where they stream when there is no slot,
        because what holds the slots may wait for them. The report of a task that is here already goes to who sent it
        last.
        """
        accepted, refused, known = [], [], []
        room = self._slots - self._unfinished if task_set.pipelined else 2 * self._slots - len(self._held)
        for key in task_keys(task_set):
            held = self._held.get(key)
            if held is not None:
                known.append(key)
                held.reply_to = task_set.reply_to or held.reply_to
            elif key in self._lately or key in self._before:
                known.append(key)
            else:
                self._held[key] = _Attempt(AttemptState.QUEUED, reply_to=task_set.reply_to)
                if refuses_all or room <= 0:
                    refused.append(key)
                    continue
                self._queue.append((key, task_set))
                accepted.append(key)
                room -= 1
        return Launch(tuple(accepted), tuple(refused), tuple(known))

    def take_startable(self) -> list[pb.TaskSet]:
        """Return the queued tasks that have a slot now, oldest first, those of one launch together."""
        taken: list[tuple[pb.TaskSet, list[TaskKey]]] = []
        while self._queue and self._active < self._slots:
            key, task_set = self._queue.popleft()
            attempt = self._held.get(key)
            if attempt is None or attempt.state is not AttemptState.QUEUED:
                continue  # it was cancelled while it waited
            attempt.state = AttemptState.PREPARING
            self._active += 1
            if taken and taken[-1][0] is task_set:
                taken[-1][1].append(key)
            else:
                taken.append((task_set, [key]))
        return [part_of(task_set, keys) for task_set, keys in taken]

    def mark_running(self, keys: Iterable[TaskKey]) -> list[TaskKey]:
        """Note that the worker gets those of *keys* that nobody cancelled meanwhile, and return them."""
        running = []
        for key in keys:
            attempt = self._held.get(key)
            if attempt is not None and attempt.state is AttemptState.PREPARING:
                attempt.state = AttemptState.RUNNING
                running.append(key)
        return running

    def in_state(self, keys: Collection[TaskKey], *states: AttemptState) -> list[TaskKey]:
        """Return those of *keys* that are held and in one of *states*."""
        return [key for key in keys if key in self._held and self._held[key].state in states]

    def finish(self, report: pb.TaskReport) -> bool:
        """Keep *report* until it is acknowledged; return false when its attempt is not held or had finished before."""
        attempt = self._held.get(task_key(report.task))
        if attempt is None or attempt.state is AttemptState.FINISHED:
            return False
        if attempt.state is not AttemptState.QUEUED:
            self._active -= 1
        attempt.state = AttemptState.FINISHED
        attempt.report = report
        return True

    def reports(self) -> list[tuple[TaskKey, pb.TaskReport, str]]:
        """Return every report that is not acknowledged, and where it goes first, in the order of the launches."""
        return [(key, a.report, a.reply_to) for key, a in self._held.items() if a.report is not None]

    def acknowledge(self, keys: Iterable[TaskKey]) -> None:
        """Let go of the finished attempts *keys*, and remember that they were here."""
        for key in keys:
            attempt = self._held.get(key)
            if attempt is None or attempt.state is not AttemptState.FINISHED:
                continue
            del self._held[key]
            self._lately.add(key)
        now_s = self._clock.monotonic_s()
        if now_s - self._since_s >= _REMEMBERED_S or len(self._lately) >= _REMEMBERED // 2:
            self._before, self._lately, self._since_s = self._lately, set(), now_s
