"""Which job gets a free slot: the one with the fewest running tasks for its weight, then the longest waiting.

Where jobs of several principals have an equal claim, the principals take turns, however many jobs each has.
The queue holds all active jobs of the cluster, whichever scheduler drives them. A job whose session is at its limit of
running tasks waits for one of them to end.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from onager.ids import JobId

_TURN: Final = 4
"""How many tasks are launched while a job with an equal claim waits: a slot that changes jobs costs another append."""


def _fits_all(_: JobId) -> bool:
    return True


_Entry = tuple[tuple[float, int, int, str], int, JobId]
"""A job's claim, the version of the share that it was computed from, and the job."""


@dataclass(slots=True)
class _Session:
    slots: int = 0
    """The tasks that its jobs have running, or were granted."""
    jobs: int = 0
    barred: dict[tuple[int, str], list[_Entry]] = field(default_factory=dict)
    """Jobs that wait until the session has fewer running tasks than the key says, by principal, best claim on top."""


@dataclass(slots=True, eq=False)
class _Principal:
    name: str
    turn: int
    """When a job of its was last given a slot, or when its first one joined, counted in such turns."""
    jobs: int = 0
    heap: list[_Entry] = field(default_factory=list)
    """Its jobs that wait, the best claim on top."""


@dataclass(slots=True)
class _Share:
    job_id: JobId
    submitted_ms: int
    weight: float
    running: int
    available: int
    principal: _Principal
    planned: int = 0
    """Slots granted to it and not committed yet."""
    version: int = 0
    waiting: int = 0
    """Its part of the waiting tasks of all jobs."""
    session: str = ""
    session_max_tasks: int = 0
    """How many tasks its session may have running for it to get another one; 0 for any number."""
    counted: int = 0
    """Its part of the session's slots."""
    is_passed_over: bool = False
    granted: int = 0
    """How many tasks of all jobs had been granted when it last got one, or joined."""

    @property
    def load(self) -> float:
        return (self.running + self.planned) / self.weight

    @property
    def key(self) -> tuple[float, int, int, str]:
        return (self.load, self.granted, self.submitted_ms, self.job_id)

    @property
    def claim(self) -> tuple[float, int, int, int, str]:
        """Return its claim among jobs of all principals."""
        return (self.load, self.principal.turn, self.granted, self.submitted_ms, self.job_id)


class FairQueue:
    """The active jobs that this scheduler knows, by their claim to the next slot, in O(principals + log jobs)."""

    def __init__(self) -> None:
        self._shares: dict[JobId, _Share] = {}
        self._principals: dict[str, _Principal] = {}
        self._turns = 0
        self._has_admitted = False
        self._waiting = 0
        self._granted = 0
        self._passed_over: list[_Share] = []
        self._sessions: dict[str, _Session] = {}

    def update(
        self,
        job_id: JobId,
        *,
        submitted_ms: int,
        weight: float,
        running: int,
        available: int,
        principal: str = "",
        session: str = "",
        session_max_tasks: int = 0,
    ) -> None:
        """Update how many tasks of a job of *principal* run and wait."""
        share = self._shares.get(job_id)
        if share is None:
            mine = self._principals.setdefault(principal, _Principal(principal, self._turns))
            mine.jobs += 1
            share = _Share(job_id, submitted_ms, max(weight, 1e-3), running, available, mine)
            share.session, share.session_max_tasks = session, session_max_tasks
            share.granted = self._granted
            self._shares[job_id] = share
            self._sessions.setdefault(session, _Session()).jobs += 1
        elif (share.running, share.available) == (running, available):
            return
        else:
            share.running, share.available = running, available
        self._push(share)

    def remove(self, job_id: JobId) -> None:
        """Forget a job that has ended."""
        share = self._shares.pop(job_id, None)
        if share is None:
            return
        self._waiting -= share.waiting
        share.principal.jobs -= 1
        if not share.principal.jobs:
            del self._principals[share.principal.name]
        session = self._sessions[share.session]
        session.jobs -= 1
        self._count(share, 0)
        if not session.jobs:
            del self._sessions[share.session]

    def knows(self, job_id: JobId) -> bool:
        """Return whether the job is here."""
        return job_id in self._shares

    def take_job(self, prefer: JobId | None = None, fits: Callable[[JobId], bool] = _fits_all) -> JobId | None:
        """Give a slot to a job that it *fits* and return the job; None when no task waits for the slot.

        The job to *prefer* gets it unless another job has a better claim than this one would have with a task less: a
        slot stays with its job as long as that is fair. A job with an equal claim waits for a few tasks, and no longer.
        """
        best = self._best(fits)
        if best is None:
            return None
        share = self._shares.get(prefer) if prefer is not None else None
        if share is not None and self._is_runnable(share) and fits(share.job_id):
            is_patient = share.load == best.load and self._has_patience(best)
            best = share if share.load < best.load or is_patient else best
        best.planned += 1
        self._turns += 1
        best.principal.turn = self._turns
        self._push(best)
        return best.job_id

    def claims(self, slots: int) -> list[JobId]:
        """Return the jobs that would get the next *slots* slots, in order."""
        found: list[JobId] = []
        turns = [(principal, principal.turn) for principal in self._principals.values()]
        while len(found) < slots and (job_id := self.take_job()) is not None:
            found.append(job_id)
        for job_id, taken in Counter(found).items():
            self.give_back_slots(job_id, taken)
        for principal, turn in turns:
            principal.turn = turn
        return found

    def plan_slots(self, job_id: JobId, slots: int) -> None:
        """Count additional *slots* that the job may be given, until they are given back."""
        share = self._shares.get(job_id)
        if share is not None and slots:
            share.planned += slots
            self._push(share)

    def room(self, job_id: JobId) -> float:
        """Return how many running tasks the session's limit allows the job; infinite without a limit."""
        share = self._shares.get(job_id)
        if share is None or not share.session_max_tasks:
            return float("inf")
        return share.session_max_tasks - (self._sessions[share.session].slots - share.counted)

    def give_back_slots(self, job_id: JobId, slots: int) -> None:
        """Take back *slots* that were given by `take`.

        They are committed, and counted as running, or were not used.
        """
        share = self._shares.get(job_id)
        if share is not None and slots:
            share.planned = max(0, share.planned - slots)
            self._push(share)

    def pass_over(self, job_id: JobId) -> None:
        """Give no more slots to a job that cannot use the free ones (its tasks may need another executor)."""
        share = self._shares.get(job_id)
        if share is not None:
            share.is_passed_over = True
            self._passed_over.append(share)

    def reconsider(self) -> None:
        """Give slots again to the jobs that were passed over."""
        for share in self._passed_over:
            share.is_passed_over = False
            if self._shares.get(share.job_id) is share:
                self._push(share)
        self._passed_over.clear()

    @property
    def jobs(self) -> int:
        """Return how many jobs are here."""
        return len(self._shares)

    @property
    def available(self) -> int:
        """Return how many tasks wait, over all jobs."""
        return self._waiting

    @property
    def has_runnable(self) -> bool:
        """Return whether any task waits."""
        return self._best() is not None

    def running(self, job_id: JobId) -> int:
        """Return how many tasks of a job executors hold."""
        share = self._shares.get(job_id)
        return 0 if share is None else share.running

    def weight(self, job_id: JobId) -> float:
        """Return a job's weight."""
        share = self._shares.get(job_id)
        return 1.0 if share is None else share.weight

    def note_granted(self, job_id: JobId, tasks: int) -> None:
        """Note that the job was given *tasks*: among jobs with an equal claim it now comes last."""
        self._granted += tasks
        share = self._shares.get(job_id)
        if share is not None and tasks:
            share.granted = self._granted
            self._turns += 1
            share.principal.turn = self._turns
            self._push(share)

    def allowance(self, job_id: JobId) -> float:
        """Return how many tasks the job may have running if it keeps a slot that one of its own tasks has left.

        It may have as many for its weight as the other job with the best claim, or one more while that job has not
        waited long; any number when no other job waits.
        """
        other = self._best_besides(job_id)
        if other is None:
            return math.inf
        fair = other.load * self.weight(job_id)
        return math.floor(fair) + 1 if self._has_patience(other) else math.ceil(fair)

    def _best_besides(self, job_id: JobId) -> _Share | None:
        best = self._best()
        if best is None or best.job_id != job_id:
            return best
        # Its own entry is on top: the next best of its principal is somewhere behind it.
        heap = best.principal.heap
        entry = heapq.heappop(heap)
        other = self._best()
        heapq.heappush(heap, entry)
        return other

    def _has_patience(self, share: _Share) -> bool:
        return self._granted - share.granted < _TURN

    def busiest(self, limit: int) -> list[tuple[JobId, int]]:
        """Return the jobs with the most running tasks."""
        found = [(s.running, s.job_id) for s in self._shares.values() if s.running]
        return [(job_id, running) for running, job_id in heapq.nlargest(limit, found)]

    def _is_runnable(self, share: _Share) -> bool:
        return share.available > share.planned and not share.is_passed_over and not self._is_full(share)

    def _is_full(self, share: _Share) -> bool:
        """Return whether the job's session is at the limit for this job to get another task."""
        return bool(share.session_max_tasks) and self._sessions[share.session].slots >= share.session_max_tasks

    def _push(self, share: _Share) -> None:
        waiting = max(0, share.available - share.planned)
        self._waiting += waiting - share.waiting
        share.waiting = waiting
        self._count(share, share.running + share.planned)
        self._enter(share)
        heap = share.principal.heap
        if len(heap) > 64 + 4 * share.principal.jobs:
            heap[:] = set(filter(self._is_current, heap))
            heapq.heapify(heap)

    def _enter(self, share: _Share) -> None:
        share.version += 1
        if share.available > share.planned:
            heapq.heappush(share.principal.heap, (share.key, share.version, share.job_id))

    def _count(self, share: _Share, slots: int) -> None:
        """Count *slots* of the job in its session; the next barred job may go on if there is room now."""
        session = self._sessions[share.session]
        session.slots += slots - share.counted
        share.counted = slots
        self._admit(session)

    def _admit(self, session: _Session) -> None:
        """Let the barred job with the best claim, of each principal, go on while its session has room.

        The next one follows when that job has got a slot, or has no use for the free ones. So a freed slot costs the
        same, however many jobs of the session wait.
        """
        for (most, principal), barred in list(session.barred.items()):
            while barred and session.slots < most:
                entry = heapq.heappop(barred)
                if self._is_current(entry):
                    heapq.heappush(self._principals[principal].heap, entry)
                    self._has_admitted = True
                    break
            if not barred:
                del session.barred[most, principal]

    def _bar(self, share: _Share, entry: _Entry) -> None:
        session = self._sessions[share.session]
        barred = session.barred.setdefault((share.session_max_tasks, share.principal.name), [])
        heapq.heappush(barred, entry)
        if len(barred) > 64 + 4 * session.jobs:
            barred[:] = set(filter(self._is_current, barred))
            heapq.heapify(barred)

    def _is_current(self, entry: _Entry) -> bool:
        _, version, job_id = entry
        share = self._shares.get(job_id)
        return share is not None and share.version == version and share.available > share.planned

    def _best(self, fits: Callable[[JobId], bool] = _fits_all) -> _Share | None:
        while True:
            found = None
            self._has_admitted = False
            for principal in self._principals.values():
                share = self._best_of(principal.heap, fits)
                if found is None or (share is not None and share.claim < found.claim):
                    found = share
            # A principal that was looked at before may have another job that can go on.
            if not self._has_admitted or len(self._principals) == 1:
                return found

    def _best_of(self, heap: list[_Entry], fits: Callable[[JobId], bool]) -> _Share | None:
        unfit: list[_Entry] = []
        best = None
        while heap:
            entry = heap[0]
            if not self._is_current(entry):
                heapq.heappop(heap)
                continue
            share = self._shares[entry[2]]
            if self._is_runnable(share) and fits(share.job_id):
                best = share
                break
            heapq.heappop(heap)
            if self._is_full(share):
                self._bar(share, entry)
                continue
            if not share.is_passed_over:
                unfit.append(entry)
            self._admit(self._sessions[share.session])  # another job of its session may be able to use the slot
        for entry in unfit:
            heapq.heappush(heap, entry)
        return best
