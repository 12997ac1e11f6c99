"""Which executors' free slots are of use to which jobs: no slot is reserved for a task that it could not take.

What waits may be a second attempt, which runs on no executor that has the first, or a task that is left to executors on
which it has not failed. Of jobs that this replica acts on, the graph says so; of others, what became of slots.
"""

from collections.abc import Callable, Collection
from functools import cache

from onager.clock import Clock
from onager.execution_graph import ExecutorSlot, has_task_for
from onager.ids import ExecutorId, JobId
from onager.scheduler import timing
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.jobs.job_store import JobStore

Fits = Callable[[JobId, ExecutorId], bool]


class Fitness:
    """What is known of jobs whose tasks wait, and of executors with free slots."""

    def __init__(
        self,
        jobs: JobStore,
        ownership: Ownership,
        loads: JobLoads,
        clock: Clock,
        executors: Callable[[], Collection[str]],
        streaming: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """Make it; *executors* tells which take work, *streaming* which of those can stream."""
        self._jobs = jobs
        self._ownership = ownership
        self._loads = loads
        self._clock = clock
        self._executors = executors
        self._streaming = streaming
        self._nothing: dict[tuple[JobId, ExecutorId], tuple[tuple[int, int], float]] = {}
        """Where a job of another replica's had nothing for a slot: as of which position, and until when that counts."""

    def as_of_now(self) -> Fits:
        """Return what says whether a slot of an executor is likely to be of use to a job; it looks once for each."""
        executors, streaming = cache(self._executors), cache(self._streaming)
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        self._nothing = {where: known for where, known in self._nothing.items() if known[1] > now_s}

        @cache
        def fits(job_id: JobId, executor_id: ExecutorId) -> bool:
            if self._ownership.follows(job_id):
                job = self._jobs.cached(job_id)
                slot = ExecutorSlot(executor_id, "", 0, can_stream=executor_id in streaming())
                return job is None or has_task_for(job.graph, slot, now_ms, executors())
            known = self._nothing.get((job_id, executor_id))
            return known is None or known[0] != self._loads.position(job_id)

        return fits

    def found_nothing(self, job_id: JobId, executor_id: ExecutorId) -> None:
        """Note that a slot of the executor was of no use to the job."""
        if not self._ownership.follows(job_id):
            until_s = self._clock.monotonic_s() + timing.NOTHING_FIT_S
            self._nothing[job_id, executor_id] = self._loads.position(job_id), until_s
