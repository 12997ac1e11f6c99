"""How much work each active job of the cluster has: from commits here, from heads, from other schedulers.

Of a job that another scheduler drives, this one knows the load that it received last, and the job's head. The head says
whether there is anything to run at all, and is written whenever that changes. So a job without work, by its driver's
word, is asked for again as soon as its head is newer, or some scheduler reports more work.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from onager.clock import Clock
from onager.execution_graph import (
    ExecutionGraph,
    ResolvedStage,
    available_tasks,
    held_tasks,
    paused_tasks,
    running_count,
)
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_LOADS
from onager.scheduler import timing
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.jobs.job_heads import JobHead, JobHeads
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.slots_wanted import SlotClaim

UNKNOWN_TASKS: Final = 64
"""The number of tasks assumed for a planned job that has work, when its load is not known."""
_SEQ_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class JobLoad:
    """The running and waiting tasks of a job, as of a position of its log and a revision of its head."""

    running: int
    available: int
    seq: int
    head_revision: int
    is_counted: bool = False
    """Whether this scheduler counted it, in the job's graph."""
    is_assumed: bool = False
    """Whether nobody has reported yet how many tasks wait: `available` is a guess, so that somebody is asked."""


class JobLoads:
    """Keeps the queues up to date, and collects the loads to tell other schedulers."""

    def __init__(
        self, queue: FairQueue, programs: FairQueue, heads: JobHeads, ownership: Ownership, clock: Clock
    ) -> None:
        """Jobs wait in *queue* for slots of tasks, or in *programs* for slots of programs."""
        self._queue = queue
        self._programs = programs
        self._heads = heads
        self._ownership = ownership
        self._clock = clock
        self._pausing: dict[JobId, asyncio.TimerHandle] = {}
        """Jobs with failed tasks that pause before a retry, or stages that wait for a re-plan: looked at again when the
        first of these is over."""
        self._known: dict[JobId, JobLoad] = {}
        self._resting: dict[JobId, asyncio.TimerHandle] = {}
        self._changes: dict[JobId, int] = {}
        """The numbers of the latest changes of jobs that this scheduler drives, in ascending order."""
        self._change = 0
        self._listeners: list[Callable[[JobId], None]] = []

    def listen(self, listener: Callable[[JobId], None]) -> None:
        """Call *listener*, which is `SchedulerApp._on_load`, after every change."""
        self._listeners.append(listener)

    # ---------------------------------------------------------------- learning

    def on_commit(self, job: StoredJob, head: JobHead) -> None:
        """Take in a job as it is stored."""
        job_id = JobId(head.job_id)
        if not head.is_active:
            self._forget(job_id)
            return
        now_ms = self._clock.now_ms()
        paused = paused_tasks(job.graph, now_ms)
        held, held_until_ms = held_tasks(job.graph, now_ms)
        running, available = running_count(job.graph), max(0, available_in(job.graph) - len(paused) - held)
        load = JobLoad(running, available, job.seq, self._heads.revision(job_id), is_counted=True)
        self._stop_pausing(job_id)
        if paused or held:
            until_ms = min([task.until_ms for task in paused[:1]] + [held_until_ms] * (held > 0))
            pause_s = max(0, until_ms - now_ms) / 1000
            self._pausing[job_id] = asyncio.get_running_loop().call_later(pause_s, self._look_again, job, head)
        if self._ownership.is_mine(job_id):
            self._note_change(job_id)
        self._take(job_id, load, head)

    def adopted(self, job_id: JobId) -> None:
        """Take in that this scheduler drives a job from now on whose load it knew before.

        The others are notified: what they know is from the driver before, who may not have seen the end of a pause.
        """
        if job_id in self._known:
            self._note_change(job_id)

    def _note_change(self, job_id: JobId) -> None:
        self._change += 1
        self._changes.pop(job_id, None)
        self._changes[job_id] = self._change

    def _look_again(self, job: StoredJob, head: JobHead) -> None:
        """Count tasks whose pause or wait is over, unless something newer than *job* is known."""
        job_id = JobId(head.job_id)
        del self._pausing[job_id]
        known = self._known.get(job_id)
        if known is not None and known.seq == job.seq:
            self.on_commit(job, head)

    def _stop_pausing(self, job_id: JobId) -> None:
        if job_id in self._pausing:
            self._pausing.pop(job_id).cancel()

    def on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """Take in a head: a job that this scheduler does not follow may have more or less work than it knew."""
        if head is None or not head.is_active:
            self._forget(job_id)
            return
        if self._ownership.follows(job_id) and job_id in self._known:
            return
        known = self._known.get(job_id, JobLoad(0, 0, _SEQ_UNKNOWN, 0))
        revision = self._heads.revision(job_id)
        if revision <= known.head_revision:
            return
        available, is_assumed = known.available, known.is_assumed
        if not head.has_runnable_work:
            available, is_assumed = 0, False
        elif not available:
            available, is_assumed = UNKNOWN_TASKS if head.stages > 1 and not head.is_program else 1, True
        self._known[job_id] = replace(
            known, available=available, head_revision=revision, is_counted=False, is_assumed=is_assumed
        )
        self._feed(job_id, head)

    def take_loads(self, loads: Iterable[pb.JobLoad]) -> None:
        """Take in loads from another scheduler; one that is older than what is known changes nothing."""
        for load in loads:
            job_id = JobId(load.job_id)
            head = self._heads.get(job_id)
            if head is not None and head.is_active and not self._ownership.follows(job_id):
                self._take(
                    job_id,
                    JobLoad(load.running, load.available, load.log_seq, load.head_revision),
                    head,
                )

    def rest_job(self, job_id: JobId) -> None:
        """Give the job no slots for a moment: it had less to do than it seemed, or cannot be worked on."""
        if job_id not in self._resting and (self._queue.knows(job_id) or self._programs.knows(job_id)):
            self._resting[job_id] = asyncio.get_running_loop().call_later(timing.JOB_RESTS_S, self._go_on, job_id)
            self._refeed(job_id)

    def _go_on(self, job_id: JobId) -> None:
        del self._resting[job_id]
        self._refeed(job_id)

    def _take(self, job_id: JobId, load: JobLoad, head: JobHead) -> None:
        known = self._known.get(job_id)
        if known is not None and load.seq < known.seq:
            return
        if known is not None and load.seq == known.seq:
            # The end of a pause is no event, so the sender may not have seen it yet; and schedulers may know one head
            # by different revisions.
            if known.is_counted and not load.is_counted and load.available < known.available:
                return
            load = replace(load, head_revision=max(load.head_revision, known.head_revision))
        if load == known:
            return  # no news: the others would ask again for tasks that fit none of our slots
        self._known[job_id] = load
        if known is not None and load.seq > known.seq and job_id in self._resting:
            self._resting.pop(job_id).cancel()
        self._feed(job_id, head)

    def _refeed(self, job_id: JobId) -> None:
        head = self._heads.get(job_id)
        if head is not None and head.is_active and job_id in self._known:
            self._feed(job_id, head)

    def _feed(self, job_id: JobId, head: JobHead) -> None:
        load = self._known[job_id]
        (self._programs if head.is_program else self._queue).update(
            job_id,
            submitted_ms=head.submitted_ms,
            weight=head.weight,
            running=load.running,
            available=0 if job_id in self._resting else load.available,
            principal=head.principal,
            session=head.session,
            session_max_tasks=head.session_max_tasks,
        )
        for listener in self._listeners:
            listener(job_id)

    def _forget(self, job_id: JobId) -> None:
        self._queue.remove(job_id)
        self._programs.remove(job_id)
        self._known.pop(job_id, None)
        self._changes.pop(job_id, None)
        self._stop_pausing(job_id)
        if job_id in self._resting:
            self._resting.pop(job_id).cancel()

    # ---------------------------------------------------------------- of the whole cluster, for any thread

    def tasks(self) -> tuple[int, int]:
        """Return how many tasks run and wait, of all active jobs; an assumed number counts as one task.

        Programs are no tasks.
        """
        loads = [load for job_id, load in list(self._known.items()) if not self._programs.knows(job_id)]
        return sum(load.running for load in loads), sum(map(_waiting, loads))

    def claims(self) -> list[SlotClaim]:
        """Return what each active job could use of the slots for tasks."""
        found = []
        for head in self._heads.active():
            if head.is_program:
                continue
            load = self._known.get(JobId(head.job_id))
            tasks = 0 if load is None else load.running + _waiting(load)
            found.append(SlotClaim(tasks, head.session, head.session_max_tasks))
        return found

    # ---------------------------------------------------------------- telling

    @property
    def latest_change(self) -> int:
        """Return the number of the latest change of a job that this scheduler drives."""
        return self._change

    def of(self, job_ids: Iterable[JobId]) -> list[pb.JobLoad]:
        """Return the known loads of the jobs; a job of which only the head was seen is left out."""
        known = {j: self._known[j] for j in dict.fromkeys(job_ids) if j in self._known}
        return [_message(job_id, load) for job_id, load in known.items() if load.seq != _SEQ_UNKNOWN]

    def position(self, job_id: JobId) -> tuple[int, int]:
        """Return the log position, and the head's revision, of what is known of the job."""
        known = self._known.get(job_id)
        return (_SEQ_UNKNOWN, 0) if known is None else (known.seq, known.head_revision)

    def changed_since(self, change: int) -> tuple[list[pb.JobLoad], int]:
        """Return loads of this scheduler's jobs changed after number *change*, and the number of the last one returned.

        As many as a call may carry, the oldest changes first.
        """
        found: list[JobId] = []
        for job_id in reversed(self._changes):
            if self._changes[job_id] <= change:
                break
            found.append(job_id)
        answered = found[-MAX_LOADS:]
        last = self._changes[answered[0]] if len(answered) < len(found) else self._change
        return self.of(j for j in answered if self._ownership.follows(j)), last


def _waiting(load: JobLoad) -> int:
    return min(load.available, 1) if load.is_assumed else load.available


def available_in(graph: ExecutionGraph) -> int:
    """Return how many tasks wait, including paused ones and those of stages about to start."""
    if not graph.is_active:
        return 0
    resolved = (s for s in graph.stages if isinstance(s, ResolvedStage))
    return available_tasks(graph) + sum(s.spec.partitions - len(s.ledger.outputs) for s in resolved)


def _message(job_id: JobId, load: JobLoad) -> pb.JobLoad:
    return pb.JobLoad(
        job_id=job_id,
        running=load.running,
        available=load.available,
        log_seq=load.seq,
        head_revision=load.head_revision,
    )
