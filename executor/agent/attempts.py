"""Every task attempt of this executor, from launch to acknowledged report: no I/O, one thread."""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from onager.clock import Clock
from onager.executor.work import part_of
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key, task_keys

_REMEMBERED_S = 60.0
"""Acknowledged attempts are remembered this long at least, and twice as long at most: a launch that arrives again was
sent before, and no call to an executor, and no poll, takes longer."""
_REMEMBERED = 200_000
"""Most attempts that are remembered."""


class AttemptState(Enum):
    """The state of an attempt."""

    QUEUED = auto()
    """Waits for a free slot here."""
    PREPARING = auto()
    """Holds a slot; its blobs are being fetched."""
    RUNNING = auto()
    """The worker has it."""
    FINISHED = auto()
    """Its report is not acknowledged yet."""


@dataclass(slots=True)
class _Attempt:
    state: AttemptState
    accepted_ms: int
    report: pb.TaskReport | None = None
    reply_to: str = ""
    """The address to which its report goes first; empty for any scheduler."""
    is_alone: bool = False
    """Whether nothing else may run here meanwhile."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The result of `AttemptTable.accept`."""

    accepted: tuple[TaskKey, ...] = ()
    refused: tuple[TaskKey, ...] = ()
    """Must not run: they are held, and the caller finishes them with a failure."""
    known: tuple[TaskKey, ...] = ()
    """Already held, or acknowledged before: nothing runs twice."""


class AttemptTable:
    """Decides which attempts run, so that a repeated launch runs once and *slots* are never exceeded.

    An attempt is *held* from its launch until its report is acknowledged. Held attempts make up the running list with
    which the scheduler reconciles, and a slot counts as free only when its attempt is no longer held. Acknowledged
    attempts are remembered for a while.

    An attempt that shall run alone starts once all before it have ended. Until it has ended itself, no slot is free.
    """

    def __init__(self, slots: int, clock: Clock, rss_bytes: Callable[[TaskKey], int] = lambda _: 0) -> None:
        """Make it; *rss_bytes* returns the memory in use, if it is to be reported with a task."""
        self._rss_bytes = rss_bytes
        self._slots = slots
        self._clock = clock
        self._held: dict[TaskKey, _Attempt] = {}
        self._queue: deque[tuple[TaskKey, pb.TaskSet]] = deque()
        self._active = 0
        self._lone: TaskKey | None = None
        """The latest attempt that shall run alone, even if it is over."""
        self._lately: set[TaskKey] = set()
        """Acknowledged since `_since_s`."""
        self._before: set[TaskKey] = set()
        self._since_s = clock.monotonic_s()

    @property
    def free_slots(self) -> int:
        """Return how many more tasks the scheduler may launch here."""
        return 0 if self.has_lone else max(0, self._slots - len(self._held))

    @property
    def has_lone(self) -> bool:
        """Return whether an attempt that shall run alone waits or runs."""
        return self._lone is not None and self._lone in self._held and not self._is_finished(self._lone)

    @property
    def runs_lone(self) -> bool:
        """Return whether an attempt that shall run alone is all that the worker has."""
        return self.running() == [self._lone]

    def _is_finished(self, key: TaskKey) -> bool:
        return self._held[key].state is AttemptState.FINISHED

    def running(self) -> list[TaskKey]:
        """Return the attempts that the worker has, in order."""
        return sorted(key for key, attempt in self._held.items() if attempt.state is AttemptState.RUNNING)

    def freed_by(self, count: int) -> int:
        """Return how many more slots are free once *count* held attempts are acknowledged."""
        return 0 if self.has_lone else max(0, self._slots - len(self._held) + count) - self.free_slots

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

        They are refused if more than two tasks per slot would be held, or if they stream and no slot is free, because
        the tasks in the slots may wait for them; and while an attempt that shall run alone waits or runs. The report of
        a task that is already held goes to the scheduler that sent it last.
        """
        accepted, refused, known = [], [], []
        now_ms = self._clock.now_ms()
        lone = {task.partition for task in task_set.tasks if task.alone}
        room = self._slots - self._unfinished if task_set.streaming else 2 * self._slots - len(self._held)
        for key in task_keys(task_set):
            held = self._held.get(key)
            if held is not None:
                known.append(key)
                held.reply_to = task_set.reply_to or held.reply_to
            elif key in self._lately or key in self._before:
                known.append(key)
            else:
                is_alone = key.partition in lone
                is_refused = refuses_all or room <= 0 or self.has_lone
                self._held[key] = _Attempt(AttemptState.QUEUED, now_ms, reply_to=task_set.reply_to, is_alone=is_alone)
                if is_refused:
                    refused.append(key)
                    continue
                self._lone = key if is_alone else self._lone
                self._queue.append((key, task_set))
                accepted.append(key)
                room -= 1
        return Launch(tuple(accepted), tuple(refused), tuple(known))

    def take_startable(self, *, is_quiet: bool = True) -> list[pb.TaskSet]:
        """Return the queued tasks that have a slot now, oldest first, those of one launch together.

        One that shall run alone has to wait unless *is_quiet*: nothing but tasks is done here.
        """
        taken: list[tuple[pb.TaskSet, list[TaskKey]]] = []
        while self._queue and self._active < self._slots:
            key, task_set = self._queue[0]
            attempt = self._held.get(key)
            if attempt is None or attempt.state is not AttemptState.QUEUED:
                self._queue.popleft()  # it was cancelled while it waited
                continue
            if attempt.is_alone and (self._active or not is_quiet):
                break
            self._queue.popleft()
            attempt.state = AttemptState.PREPARING
            self._active += 1
            if taken and taken[-1][0] is task_set:
                taken[-1][1].append(key)
            else:
                taken.append((task_set, [key]))
        return [part_of(task_set, keys) for task_set, keys in taken]

    def mark_running(self, keys: Iterable[TaskKey]) -> list[TaskKey]:
        """Note that the worker gets those of *keys* that were not cancelled meanwhile, and return them."""
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
        """Keep *report* until it is acknowledged; return false when its attempt is not held or had already finished.

        The report gets how long the attempt waited here before it began, and how long a failed one ran.
        """
        key = task_key(report.task)
        attempt = self._held.get(key)
        if attempt is None or attempt.state is AttemptState.FINISHED:
            return False
        if attempt.state is not AttemptState.QUEUED:
            self._active -= 1
        attempt.state = AttemptState.FINISHED
        attempt.report = report
        self._note_cost(key, attempt, report)
        return True

    def _note_cost(self, key: TaskKey, attempt: _Attempt, report: pb.TaskReport) -> None:
        if report.HasField("failure"):
            metrics = report.failed_metrics
            metrics.run_ms = metrics.run_ms or max(0, report.ended_ms - report.started_ms)
        elif report.success.plan.HasField("fused_output"):
            metrics = report.success.plan.fused_metrics
        else:
            metrics = report.success.metrics
        # The task may have run by another machine's clock, so it is at most the time that was spent here.
        metrics.queued_ms = max(0, min(report.started_ms, self._clock.now_ms()) - attempt.accepted_ms)
        metrics.bind_ms = min(metrics.bind_ms, metrics.queued_ms)
        metrics.codegen_ms = min(metrics.codegen_ms, metrics.bind_ms)
        if rss_bytes := self._rss_bytes(key):
            metrics.executor_rss_bytes = rss_bytes

    def reports(self) -> list[tuple[TaskKey, pb.TaskReport, str]]:
        """Return every report that is not acknowledged, and where it is sent first, in the order of the launches."""
        return [(key, a.report, a.reply_to) for key, a in self._held.items() if a.report is not None]

    def send_report_to(self, key: TaskKey, reply_to: str) -> None:
        """Have the report of a task sent to the scheduler at *reply_to*."""
        if key in self._held:
            self._held[key].reply_to = reply_to

    def acknowledge(self, keys: Iterable[TaskKey]) -> None:
        """Release the finished attempts *keys*, and remember that they were here."""
        for key in keys:
            attempt = self._held.get(key)
            if attempt is None or attempt.state is not AttemptState.FINISHED:
                continue
            del self._held[key]
            self._lately.add(key)
        now_s = self._clock.monotonic_s()
        if now_s - self._since_s >= _REMEMBERED_S or len(self._lately) >= _REMEMBERED // 2:
            self._before, self._lately, self._since_s = self._lately, set(), now_s
