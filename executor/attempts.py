"""Every task attempt that this executor was given, from launch to acknowledged report: no I/O, one thread."""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from executor.work import part_of
from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key, task_keys

_REMEMBERED = 200_000
"""Acknowledged attempts that are remembered at most; a job's clean-up makes room long before, normally."""


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


@dataclass(frozen=True, slots=True)
class Launch:
    """What `AttemptTable.accept` made of a launch."""

    accepted: tuple[TaskKey, ...] = ()
    refused: tuple[TaskKey, ...] = ()
    """Held, but not to be run: the caller finishes them with a failure."""
    known: tuple[TaskKey, ...] = ()
    """Held already, or acknowledged before: nothing runs twice."""


class AttemptTable:
    """Decides which attempts run, so that a launch that comes twice runs once and *slots* are never exceeded.

    An attempt is *held* from its launch until its report is acknowledged: held attempts make up the list of running
    work that the scheduler reconciles with, and a slot counts as free only when its attempt is held no more.
    Acknowledged attempts are remembered until their job is cleaned up.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._held: dict[TaskKey, _Attempt] = {}
        self._queue: deque[tuple[TaskKey, pb.TaskSet]] = deque()
        self._active = 0
        self._acknowledged: OrderedDict[JobId, set[TaskKey]] = OrderedDict()
        self._remembered = 0

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
    def is_empty(self) -> bool:
        """Return whether nothing is held."""
        return not self._held

    def held(self) -> list[TaskKey]:
        """Return every held attempt, in order."""
        return sorted(self._held)

    def accept(self, task_set: pb.TaskSet, *, refuses_all: bool = False) -> Launch:
        """Hold the tasks of *task_set* that are new, and queue them unless more than two tasks a slot are held then."""
        accepted, refused, known = [], [], []
        for key in task_keys(task_set):
            if key in self._held or key in self._acknowledged.get(key.job_id, ()):
                known.append(key)
            elif refuses_all or len(self._held) >= 2 * self._slots:
                self._held[key] = _Attempt(AttemptState.QUEUED)
                refused.append(key)
            else:
                self._held[key] = _Attempt(AttemptState.QUEUED)
                self._queue.append((key, task_set))
                accepted.append(key)
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

    def reports(self) -> list[pb.TaskReport]:
        """Return every report that is not acknowledged, in the order of the launches."""
        return [attempt.report for attempt in self._held.values() if attempt.report is not None]

    def acknowledge(self, keys: Iterable[TaskKey]) -> None:
        """Let go of the finished attempts *keys*, and remember that they were here."""
        for key in keys:
            attempt = self._held.get(key)
            if attempt is None or attempt.state is not AttemptState.FINISHED:
                continue
            del self._held[key]
            self._acknowledged.setdefault(key.job_id, set()).add(key)
            self._remembered += 1
        while self._remembered > _REMEMBERED and len(self._acknowledged) > 1:
            _, oldest = self._acknowledged.popitem(last=False)
            self._remembered -= len(oldest)

    def forget(self, job_id: JobId) -> None:
        """Drop what is remembered of a job that has ended; attempts still held stay until they are acknowledged."""
        self._remembered -= len(self._acknowledged.pop(job_id, ()))
