"""Begin to drive jobs: new ones, those of a scheduler that is gone, and those that another scheduler changed."""

import asyncio
from collections.abc import Iterable
from typing import Final

from onager.execution_graph import JobState
from onager.ids import JobId
from onager.scheduler import timing
from onager.scheduler.engine.bundles import ClusterView, Store
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.jobs.job_heads import JobHead, shows
from onager.scheduler.loops import whenever

_AT_ONCE: Final = 16


class AdoptionObserver:
    """Called with the jobs that this scheduler begins to drive: other schedulers have come or gone, or it starts."""

    def begins(self, jobs: Iterable[JobId]) -> None:
        """Note that these are to be read."""

    def done(self, jobs: Iterable[JobId]) -> None:
        """Note that these were read, for whatever reason, or cannot be."""


class Adoption:
    """The jobs that this scheduler drives, and still has to read as they are stored."""

    observer = AdoptionObserver()
    """Observes which jobs change hands; set where metrics are kept."""

    def __init__(
        self,
        store: Store,
        view: ClusterView,
        local: LocalDriver,
    ) -> None:
        self._store = store
        self._view = view
        self._local = local
        self.waiting: dict[JobId, None] = {}
        """The jobs that the loop takes next."""
        self._later: set[JobId] = set()
        self._wake = asyncio.Event()

    def look_at(self, job_id: JobId, head: JobHead) -> None:
        """Adopt the job if this scheduler drives it and *head* differs from what is known here.

        The scheduler that took in a new job first has a moment to assign its planning task. The head of our own write
        may be seen before the store has acknowledged the write; then there is nothing to read.
        """
        cached = self._store.jobs.cached(job_id)
        if not self._view.ownership.is_mine(job_id) or (cached is not None and shows(head, cached.graph)):
            return
        is_new = cached is None and head.state is JobState.QUEUED
        if not is_new and not self._store.writers.is_writing(job_id):
            self._adopt(job_id)
        elif job_id not in self._later:
            self._later.add(job_id)
            asyncio.get_running_loop().call_later(timing.NEW_JOB_MOMENT_S, self._adopt_if_behind, job_id)

    def look_again(self) -> None:
        """Adopt the jobs that this scheduler has begun to drive."""
        self._take(self._not_followed())
        self._wake.set()

    async def begin(self) -> None:
        """Adopt the jobs to drive from the start."""
        self._take(self._not_followed())
        await self._work_off()

    def _take(self, jobs: list[JobId]) -> None:
        self.observer.begins(jobs)
        self.waiting |= dict.fromkeys(jobs)

    async def adopt_all(self) -> None:
        """Read all jobs that this scheduler drives and does not follow yet."""
        self.waiting |= dict.fromkeys(self._not_followed())
        await self._work_off()

    async def run(self) -> None:
        """Adopt for as long as the scheduler lives."""
        await whenever(self._wake, self._work_off)

    def _not_followed(self) -> list[JobId]:
        active = (JobId(head.job_id) for head in self._store.heads.active())
        return [
            job_id
            for job_id in active
            if self._view.ownership.is_mine(job_id) and not self._view.ownership.follows(job_id)
        ]

    def _adopt_if_behind(self, job_id: JobId) -> None:
        self._later.discard(job_id)
        head, cached = self._store.heads.get(job_id), self._store.jobs.cached(job_id)
        is_known = head is not None and cached is not None and shows(head, cached.graph)
        if not (is_known and self._view.ownership.follows(job_id)):
            self._adopt(job_id)

    def _adopt(self, job_id: JobId) -> None:
        head = self._store.heads.get(job_id)
        if head is not None and head.is_active:
            self.waiting[job_id] = None
            self._wake.set()

    async def _work_off(self) -> None:
        while self.waiting:
            some = list(self.waiting)[:_AT_ONCE]
            for job_id in some:
                del self.waiting[job_id]
            try:
                await asyncio.gather(*(self._local.adopt(job_id) for job_id in some))
                for lost in self._view.executors.recent_losses():
                    await self._local.lose_executor(lost, jobs=some)
            except Exception:
                self.waiting |= dict.fromkeys(some)  # nothing of it is harmful twice
                raise
            self.observer.done(some)
