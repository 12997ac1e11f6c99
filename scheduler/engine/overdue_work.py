"""Looks regularly for what takes too long in the jobs that this scheduler drives: stragglers, and re-plans."""

from collections.abc import Callable, Collection

import structlog

from onager.clock import Clock
from onager.errors import OnagerError
from onager.execution_graph import find_replan, find_stragglers
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.loops import every

log = structlog.get_logger(__name__)


class OverdueWork:
    """Records in the log which tasks shall run twice, and which re-plans are not waited for any longer.

    Slots then find the second attempts, and the stages that waited, like other tasks.
    """

    def __init__(
        self,
        jobs: JobStore,
        local: LocalDriver,
        ownership: Ownership,
        clock: Clock,
        *,
        interval_s: float,
        executors: Callable[[], Collection[str]],
    ) -> None:
        """Make it; *executors* returns those that take work."""
        self._jobs = jobs
        self._local = local
        self._ownership = ownership
        self._clock = clock
        self._interval_s = interval_s
        self._executors = executors

    async def run(self) -> None:
        """Look for as long as the scheduler lives."""
        await every(self._interval_s, self.look)

    async def look(self) -> None:
        """Look once."""
        await self._give_up_re_plans()
        known = [(job_id, self._jobs.cached(job_id)) for job_id in self._ownership.followed]
        wanting = [(job_id, job) for job_id, job in known if job is not None and job.graph.speculation is not None]
        if not wanting:
            return
        executors, now_ms = self._executors(), self._clock.now_ms()
        for job_id, job in wanting:
            if not find_stragglers(job.graph, executors, now_ms):
                continue
            try:
                await self._local.coordinator(job_id).speculate(executors)
            except OnagerError as error:
                log.warning("stragglers_not_noted", job_id=job_id, error=str(error))

    async def _give_up_re_plans(self) -> None:
        """End re-plans that have had their time: their tasks may hold the only slots in which anything is decided."""
        now_ms = self._clock.now_ms()
        for job_id in list(self._ownership.followed):
            job = self._jobs.cached(job_id)
            if job is None or job.graph.replan is None or find_replan(job.graph, now_ms) is None:
                continue
            try:
                await self._local.coordinator(job_id).revive()
            except OnagerError as error:
                log.warning("re_plan_not_given_up", job_id=job_id, error=str(error))
