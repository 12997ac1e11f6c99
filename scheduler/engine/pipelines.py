"""Looks after pipelined jobs: has those give up that nobody can run, and what is stopped then that was given up."""

from collections.abc import Callable, Collection, Iterator

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
    """The jobs whose stages run together, as far as this scheduler acts on them."""

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
        """Make it; *executors* tells which take work, *streaming* which of those can stream.

        *on_abandoned* is called once with each job that was seen streaming, and streams no more.
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
        """Jobs of this scheduler that were run again over the durable exchange, for the figures."""
        jobs.listen(self._on_commit)
        jobs.heads.listen(self._on_head)

    async def run(self) -> None:
        """Look for as long as the scheduler lives."""
        await every(self._interval_s, self.look)

    async def look(self) -> None:
        """Look once for jobs of which no task can be handed out."""
        executors, streaming = self._executors(), self._streaming()
        for job_id in list(self._stuck(executors, streaming)):
            try:
                await self._local.coordinator(job_id).abandon_pipeline(executors, streaming)
            except OnagerError as error:
                log.warning("pipeline_not_abandoned", job_id=job_id, error=str(error))

    def _stuck(self, executors: Collection[str], streaming: Collection[str]) -> Iterator[JobId]:
        """Yield the jobs that nobody can run as they are, as far as this scheduler knows without asking the store."""
        for job_id in self._ownership.followed:
            job = self._jobs.cached(job_id)
            if job is not None and find_abandonment(job.graph, executors, streaming, self._clock.now_ms()) is not None:
                yield job_id

    def _on_head(self, job_id: JobId, head: JobHead | None) -> None:
        if head is None or not head.is_active:
            self._at_work.discard(job_id)  # it may be another scheduler's by now, and no commit be seen here

    def _on_commit(self, job: StoredJob, head: JobHead) -> None:
        job_id, graph = JobId(head.job_id), job.graph
        if graph.is_active and graph.is_pipelined:
            self._at_work.add(job_id)
        elif job_id in self._at_work:
            self._at_work.discard(job_id)
            if graph.pipeline is not None and graph.pipeline.reason:
                log.info("pipeline_abandoned", job_id=job_id, reason=graph.pipeline.reason)
                self.abandoned += self._ownership.follows(job_id)
                self._on_abandoned(job_id)
