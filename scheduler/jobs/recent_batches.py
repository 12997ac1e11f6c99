"""The last batches of jobs that somebody reads, as this scheduler committed or read them.

Who follows a job reads each batch a moment after its commit, and several may follow it: a page, its timeline, a log.
They find it here, and ask the store only for what is older.
"""

from collections import OrderedDict, deque
from typing import Final

from onager.clock import Clock
from onager.execution_graph import EventBatch
from onager.ids import JobId

_MAX_EVENTS: Final = 60_000
"""Of all jobs together, some 60 MB; at the highest rate of tasks, those of five seconds."""
_READ_WITHIN_S: Final = 5.0
"""A job that nobody has read for longer keeps none."""


class _Job:
    """The batches of a job, without gaps."""

    def __init__(self) -> None:
        self.batches: deque[EventBatch] = deque()
        self.first = 0
        """The position of the first one."""
        self.read_s = 0.0


class RecentBatches:
    """Batches by job and position."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: OrderedDict[JobId, _Job] = OrderedDict()
        """The job that was read longest ago comes first."""
        self._events = 0

    def add(self, job_id: JobId, position: int, batch: EventBatch) -> None:
        """Keep the batch at *position* if the job is being read."""
        self._forget_unread()
        job = self._jobs.get(job_id)
        if job is None:
            return
        if job.first + len(job.batches) != position:
            self._drop(job, len(job.batches))
            job.first = position
        job.batches.append(batch)
        self._events += len(batch.events)
        while self._events > _MAX_EVENTS:
            oldest = next(each for each in self._jobs.values() if each.batches)
            self._drop(oldest, 1)

    def after(self, job_id: JobId, position: int, limit: int) -> list[tuple[int, EventBatch]]:
        """Return batches that follow *position*, with about *limit* events; none if the first of them is not here.

        From now on those of the job are kept.
        """
        self._forget_unread()
        job = self._jobs.setdefault(job_id, _Job())
        self._jobs.move_to_end(job_id)
        job.read_s = self._clock.monotonic_s()
        found: list[tuple[int, EventBatch]] = []
        events = 0
        skipped = position + 1 - job.first
        if skipped < 0:
            return found
        for i in range(skipped, len(job.batches)):
            if events >= limit:
                break
            found.append((job.first + i, job.batches[i]))
            events += len(job.batches[i].events)
        return found

    def forget(self, job_id: JobId) -> None:
        """Drop a job: it is gone, or another scheduler has changed it."""
        job = self._jobs.pop(job_id, None)
        if job is not None:
            self._drop(job, len(job.batches))

    def _forget_unread(self) -> None:
        earliest_s = self._clock.monotonic_s() - _READ_WITHIN_S
        while self._jobs and next(iter(self._jobs.values())).read_s < earliest_s:
            self.forget(next(iter(self._jobs)))

    def _drop(self, job: _Job, count: int) -> None:
        for _ in range(count):
            self._events -= len(job.batches.popleft().events)
            job.first += 1
