"""Jobs of very many tasks, put into a store through the job store, without anybody who runs them."""

from collections.abc import Sequence

from onager.clock import SystemClock
from onager.execution_graph import Event, ExecutorSlot, JobCancelled, apply_all, pop_next_tasks, revive, submit
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_specs import checked
from onager.scheduler.jobs.job_store import Committed, JobStore
from onager.state_backend import StateBackendClient
from tests.unit.execution_graph.builder import Job, stage

EXECUTORS = 40
_SESSION_TASKS = 1_000_000


class LargeJob:
    """A job whose batches are written as a scheduler writes them when executors report."""

    def __init__(self, jobs: JobStore, stored: StoredJob, now_ms: int) -> None:
        self._jobs = jobs
        self.stored = stored
        self._now_ms = now_ms

    @classmethod
    async def submitted(cls, backend: StateBackendClient, job_id: str, *partitions: int) -> "LargeJob":
        """Store a job, planned as stages of *partitions*, of which each reads the one before."""
        clock = SystemClock()
        jobs = JobStore(backend, JobHeads(backend, clock, interval_ms=500), clock, "s0")
        spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"), name=job_id)
        request = pb.SubmitJobRequest(job_id=job_id, spec=spec, client_id="c")
        terms, content, digest = checked(request, _SESSION_TASKS)
        await BlobStore(backend).put(JobId(job_id), [content])
        now_ms = clock.now_ms() - 3_600_000
        graph = submit(job_id=job_id, name=job_id, client_id="c", spec_digest=digest, at_ms=now_ms)
        stored, _ = await jobs.submit(graph, terms)
        job = cls(jobs, stored, now_ms)
        await job.launch(0, 1)
        planned = Job(graph=job.stored.graph, now_ms=now_ms)
        stages = [stage(n, many, reads=(n - 1,) if n > 1 else ()) for n, many in enumerate(partitions, 1)]
        await job.commit([planned.plan(*stages)])
        return job

    async def commit(self, events: Sequence[Event]) -> None:
        """Write a batch; what is resolved starts with it."""
        graph = apply_all(self.stored.graph, events)
        assert graph is not self.stored.graph
        if (started := revive(graph, self._now_ms)) is not None:
            events, graph = [*events, started], apply_all(graph, [started])
        committed = await self._jobs.commit(self.stored, tuple(events), graph)
        assert isinstance(committed, Committed)
        self.stored = committed.job

    def launching(self, executor: int, tasks: int) -> Event:
        """Return the launch of the next tasks on an executor."""
        self._now_ms += 3
        slot = ExecutorSlot(f"executor-{executor}", f"life-{executor}", 0, can_stream=True)
        event = pop_next_tasks(self.stored.graph, slot, tasks, self._now_ms)
        assert event is not None
        return event

    async def launch(self, executor: int, tasks: int) -> None:
        """Write the launch of the next tasks on an executor."""
        started = revive(self.stored.graph, self._now_ms)
        if started is not None:
            await self.commit([started])
        await self.commit([self.launching(executor, tasks)])

    async def run(self, tasks: int, *, a_batch: int) -> None:
        """Let the next *tasks* succeed, which all have to be of one stage, in batches of *a_batch* events."""
        for start in range(0, tasks, a_batch):
            some = min(a_batch, tasks - start)
            launched = self.launching(start // a_batch % EXECUTORS, some)
            await self.commit([launched])
            job = Job(graph=self.stored.graph, now_ms=self._now_ms)
            await self.commit([job.success(launched.stage_id, partition) for partition, _ in launched.tasks])

    async def cancel(self) -> None:
        """End the job."""
        await self.commit([JobCancelled(reason="enough", principal="", at_ms=self._now_ms)])
