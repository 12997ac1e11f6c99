"""Which executors' free slots suit which jobs, so that no slot is reserved for a task that cannot run there.

The waiting task may be a second attempt, which must not run on the executor of the first, or a task that is kept from
the executors on which it failed. For jobs that this scheduler drives, the graph tells; for others, what became of
earlier slots.
"""

from collections.abc import Callable
from functools import cache

from onager.execution_graph import ExecutorSlot, has_task_for
from onager.ids import ExecutorId, JobId
from onager.scheduler import timing
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.engine.bundles import ClusterView, Env, Store

Fits = Callable[[JobId, ExecutorId], bool]


class Feasibility:
    """What is known of jobs with waiting tasks, and of executors with free slots."""

    def __init__(self, env: Env, store: Store, view: ClusterView, loads: JobLoads) -> None:
        self._env = env
        self._store = store
        self._view = view
        self._loads = loads
        self._nothing: dict[tuple[JobId, ExecutorId], tuple[tuple[int, int], float]] = {}
        """Slots for which another scheduler's job had no task: as of which position, and until when that counts."""

    def as_of_now(self) -> Fits:
        """Return a function that says whether an executor's slot is likely to suit a job, looking once per pair."""
        executors, streaming = cache(self._view.executors.taking_work), cache(self._view.executors.streaming)
        now_s, now_ms = self._env.clock.monotonic_s(), self._env.clock.now_ms()
        self._nothing = {where: known for where, known in self._nothing.items() if known[1] > now_s}

        @cache
        def fits(job_id: JobId, executor_id: ExecutorId) -> bool:
            if self._view.ownership.follows(job_id):
                job = self._store.jobs.cached(job_id)
                slot = ExecutorSlot(executor_id, "", 0, can_stream=executor_id in streaming())
                return job is None or has_task_for(job.graph, slot, now_ms, executors(programs=job.graph.is_program))
            known = self._nothing.get((job_id, executor_id))
            return known is None or known[0] != self._loads.position(job_id)

        return fits

    def found_nothing(self, job_id: JobId, executor_id: ExecutorId, position: tuple[int, int]) -> None:
        """Note that the job had no task for a slot of the executor.

        *position* is that of what was known of the job when the slot was offered: what has come since is news.
        """
        if not self._view.ownership.follows(job_id):
            until_s = self._env.clock.monotonic_s() + timing.NOTHING_FIT_S
            self._nothing[job_id, executor_id] = position, until_s
