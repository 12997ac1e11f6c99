"""Metrics of jobs that this scheduler begins to drive in another's place."""

from collections.abc import Iterable
from typing import Final

from prometheus_client.registry import CollectorRegistry

from onager.clock import Clock
from onager.ids import JobId
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.engine.adoption import AdoptionObserver
from onager.scheduler.metrics import catalog
from onager.scheduler.metrics.tallies import Distribution, Tally

START: Final = "start"
GONE: Final = "gone"
JOINED: Final = "joined"


class TakeoverMetrics(AdoptionObserver):
    """Counts take-overs, when they are done, by why there was one."""

    def __init__(self, registry: CollectorRegistry, ownership: Ownership, clock: Clock) -> None:
        self._ownership = ownership
        self._clock = clock
        self._count = Tally(catalog.JOB_TAKEOVERS, [(reason,) for reason in (START, GONE, JOINED)])
        self._seconds = Distribution(catalog.TAKEOVER)
        self._begun: dict[JobId, tuple[str, float]] = {}
        registry.register(self._count)
        registry.register(self._seconds)

    def begins(self, jobs: Iterable[JobId]) -> None:
        """Note why these jobs are to be taken over, and when that became known."""
        now_s, known = self._clock.monotonic_s(), self._begun
        # Those that are missing in *jobs* were read, or have ended.
        self._begun = {job_id: known.get(job_id) or (self._reason(job_id), now_s) for job_id in jobs}

    def done(self, jobs: Iterable[JobId]) -> None:
        """Count those of *jobs* that are driven here now; the others have ended, or cannot be read."""
        for job_id in jobs:
            begun = self._begun.pop(job_id, None)
            if begun is not None and self._ownership.follows(job_id):
                reason, since_s = begun
                self._count.add(reason)
                self._seconds.observe(self._clock.monotonic_s() - since_s)

    def _reason(self, job_id: JobId) -> str:
        before = self._ownership.driver_before(job_id)
        if before is None:
            return START
        return JOINED if before in self._ownership.others else GONE
