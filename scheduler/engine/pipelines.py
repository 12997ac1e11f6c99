"""Looks after pipelined jobs: gives up streaming where no executor can run it, and stops the tasks of such jobs."""

from collections.abc import Callable, Collection

import structlog

from onager.clock import Clock
from onager.errors import OnagerError
from onager.execution_graph import find_abandonment
from onager.ids import JobId
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.jobs.job_heads import JobHead
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.loops import every

log = structlog.get_logger(__name__)


class Pipelines:
    """The jobs whose stages run together, of those that this scheduler drives."""

    def __init__(
        self,
        jobs: JobStore,
        local: LocalDriver,
        ownership: Ownership,
        clock: Clock,
        *,
        interval_s: float,
        executors: Callable[[], Collection[str]],
        streaming: Callable[[], Collection[str]],
        on_abandoned: Callable[[JobId], None],
    ) -> None:
        """Make it; *executors* returns those that take work, *streaming* those of them that can stream.

        *on_abandoned* is called once for each job that was seen streaming and no longer streams.
        """
        self._jobs = jobs
        self._local = local
        self._ownership = ownership
        self._clock = clock
        self._interval_s = interval_s
        self._executors = executors
        self._streaming = streaming
        self._on_abandoned = on_abandoned
        self._at_work: set[JobId] = set()
        self.abandoned = 0
        """A count for metrics: jobs of this scheduler that ran again over the durable exchange."""

    async def run(self) -> None:
        """Look for as long as the scheduler lives."""
        await every(self._interval_s, self.look)

    async def look(self) -> None:
        """Look once for jobs none of whose tasks can be launched."""
        known = [(job_id, self._jobs.cached(job_id)) for job_id in self._ownership.followed]
        streams = [(job_id, job) for job_id, job in known if job is not None and job.graph.is_pipelined]
        if not streams:
            return
        executors, streaming, now_ms = self._executors(), self._streaming(), self._clock.now_ms()
        for job_id, job in streams:
            # As far as is known without asking the store.
            if find_abandonment(job.graph, executors, streaming, now_ms) is None:
                continue
            try:
                await self._local.coordinator(job_id).abandon_pipeline(executors, streaming)
            except OnagerError as error:
                log.warning("pipeline_not_abandoned", job_id=job_id, error=str(error))

    def on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """Forget a job that has ended."""
        if head is None or not head.is_active:
            self._at_work.discard(job_id)  # another scheduler may drive it by now, so that no commit is seen here

    def on_commit(self, job: StoredJob, head: JobHead) -> None:
        """Take in whether the job streams."""
        job_id, graph = JobId(head.job_id), job.graph
        if graph.is_active and graph.is_pipelined:
            self._at_work.add(job_id)
        elif job_id in self._at_work:
            self._at_work.discard(job_id)
            if graph.pipeline is not None and graph.pipeline.reason:
                log.info("pipeline_abandoned", job_id=job_id, reason=graph.pipeline.reason)
                self.abandoned += self._ownership.follows(job_id)
                self._on_abandoned(job_id)
