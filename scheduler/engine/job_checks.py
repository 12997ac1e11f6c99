"""Checks jobs for what no event announces: stragglers, re-plans past their time, streams that no executor can run."""

from collections.abc import Callable

import structlog

from onager.errors import OnagerError
from onager.ids import JobId
from onager.scheduler.engine.bundles import ClusterView, Env, Store
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.jobs.job_heads import JobHead
from onager.scheduler.jobs.job_log import StoredJob

log = structlog.get_logger(__name__)


class JobChecks:
    """The jobs that this scheduler drives."""

    def __init__(
        self, env: Env, store: Store, view: ClusterView, local: LocalDriver, on_abandoned: Callable[[JobId], None]
    ) -> None:
        """Make it; *on_abandoned* is called once for each job that was seen streaming and no longer streams."""
        self._env = env
        self._store = store
        self._view = view
        self._local = local
        self._on_abandoned = on_abandoned
        self._streaming: set[JobId] = set()
        self.abandoned = 0
        """A count for metrics: jobs of this scheduler that ran again over the durable exchange."""

    async def check_all(self) -> None:
        """Check each job once, as far as possible without asking the store."""
        known = [(job_id, self._store.jobs.cached(job_id)) for job_id in self._view.ownership.followed]
        checked = [(j, job.graph) for j, job in known if job is not None and _needs_checks(job)]
        if not checked:
            return
        executors, streaming = self._view.executors.taking_work(), self._view.executors.streaming()
        for job_id, graph in checked:
            coordinator = self._local.coordinator(job_id)
            try:
                if coordinator.overdue(graph, executors, streaming):
                    await coordinator.record_overdue(executors, streaming)
            except OnagerError as error:
                log.warning("job_not_checked", job_id=job_id, error=str(error))

    def on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """Forget a job that has ended."""
        if head is None or not head.is_active:
            self._streaming.discard(job_id)  # another scheduler may drive it by now, so that no commit is seen here

    def on_commit(self, job: StoredJob, head: JobHead) -> None:
        """Take in whether the job streams."""
        job_id, graph = JobId(head.job_id), job.graph
        if graph.is_active and graph.is_streaming:
            self._streaming.add(job_id)
        elif job_id in self._streaming:
            self._streaming.discard(job_id)
            if graph.streaming is not None and graph.streaming.reason:
                log.info("streaming_abandoned", job_id=job_id, reason=graph.streaming.reason)
                self.abandoned += self._view.ownership.follows(job_id)
                self._on_abandoned(job_id)


def _needs_checks(job: StoredJob) -> bool:
    graph = job.graph
    return graph.replan is not None or graph.speculation is not None or graph.is_streaming
