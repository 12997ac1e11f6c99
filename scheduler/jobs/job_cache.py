"""One scheduler's cache of jobs' graphs, and what is kept beside them."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from onager.clock import Clock
from onager.execution_graph import EventBatch
from onager.ids import JobId
from onager.scheduler.jobs.exchange_sizes import ExchangeSizes
from onager.scheduler.jobs.held_tasks import HeldTasks
from onager.scheduler.jobs.job_heads import JobHead, JobHeads
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.recent_batches import RecentBatches
from onager.state_backend import Keyspace

_ENDED_IN_CACHE: Final = 64

CommitListener = Callable[[StoredJob, JobHead], None]


class JobCache:
    """Active jobs, and some that have ended, as this scheduler last saw them."""

    def __init__(self, heads: JobHeads, clock: Clock) -> None:
        self.heads = heads
        self._active: dict[JobId, StoredJob] = {}
        self._ended: OrderedDict[JobId, StoredJob] = OrderedDict()
        self.held = HeldTasks()
        self.sizes = ExchangeSizes()
        """Sizes of the active jobs in the cache, like `held`."""
        self._listeners: list[CommitListener] = []
        self.recent = RecentBatches(clock)

    def listen(self, listener: CommitListener) -> None:
        """Call *listener* after every change of a job that this scheduler learns of: `SchedulerApp._on_commit`."""
        self._listeners.append(listener)

    def cached(self, job_id: JobId) -> StoredJob | None:
        """Return the job as this scheduler last saw it, without asking the store."""
        return self._active.get(job_id) or self._ended.get(job_id)

    def _learn(
        self, job: StoredJob, head: JobHead, head_revision: int | None, batches: Sequence[EventBatch] = ()
    ) -> None:
        """Cache a state of a job, unless a later one is cached; *batches*, if they are known, led to it.

        Listeners may learn of a job here before its head is known.
        """
        job_id = JobId(job.header.job_id)
        known = self.cached(job_id)
        if known is not None and (known.seq > job.seq or known.header.generation > job.header.generation):
            return
        follows = bool(batches) and known is not None and known.seq == job.seq - len(batches)
        before = known.graph if follows and known is not None else None
        events = [event for batch in batches for event in batch.events]
        if known is None or known.graph.submitted_ms != job.graph.submitted_ms:
            self.recent.forget(job_id)  # what is there may be of another job, which had the id before
        self.held.learn(job_id, job.graph, None if before is None else events)
        self.sizes.learn(job_id, before, job.graph, events)
        for position, batch in enumerate(batches, job.seq - len(batches) + 1):
            self.recent.add(job_id, position, batch)
        if job.keyspace is Keyspace.ActiveJobs:
            self._active[job_id] = job
        else:
            self._active.pop(job_id, None)
            self._ended[job_id] = job
            self._ended.move_to_end(job_id)
            while len(self._ended) > _ENDED_IN_CACHE:
                self._ended.popitem(last=False)
        if head_revision is not None:
            self.heads.seen(head, head_revision)
        for listener in self._listeners:
            listener(job, head)

    def forget(self, job_id: JobId) -> None:
        """Drop the job from the cache: it is gone, or another scheduler has changed it."""
        self.held.forget(job_id)
        self.sizes.forget(job_id)
        self.recent.forget(job_id)
        self._active.pop(job_id, None)
        self._ended.pop(job_id, None)
