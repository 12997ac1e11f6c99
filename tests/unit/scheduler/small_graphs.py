"""Small graphs, events and stores for the tests of the scheduler."""

from onager.execution_graph import (
    ExecutorSlot,
    Failure,
    FailureKind,
    JobPlanned,
    OutputLayout,
    PlanSummary,
    StageSpec,
    StageWork,
    TaskFailed,
    TaskMetrics,
    TaskOutput,
    TaskSucceeded,
    apply_all,
    pop_next_tasks,
    revive,
    submit,
)
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.executors.records import ExecutorRecord, ExecutorSession
from onager.scheduler.jobs import job_store
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_store import JobStore
from onager.state_backend import Committed, Delete, Keyspace, OutcomeUnknown
from onager.state_backend.memory import MemoryBackend

SLOT = ExecutorSlot("e1", "life", 1)


def graph(job_id="job-1", digest="d" * 64, at_ms=1):
    return submit(job_id=job_id, name=job_id, client_id="c", spec_digest=digest, at_ms=at_ms)


def planned(tasks, at_ms=5):
    spec = StageSpec(
        stage_id=1,
        name="one",
        work=StageWork.QUERY,
        plan_digest="p",
        partitions=tasks,
        inputs=(),
        output=OutputLayout("result"),
    )
    summary = PlanSummary(
        arrow_schema="", schema_json="", explain_digest=None, sink=None, result_stage_id=1, is_fused=False
    )
    return JobPlanned(
        task_attempt=0,
        executor_id="e1",
        stages=(spec,),
        summary=summary,
        fused_output=None,
        metrics=TaskMetrics(),
        at_ms=at_ms,
    )


def succeeded(stage_id, partition, at_ms=9, attempt=0):
    return TaskSucceeded(
        stage_id=stage_id,
        stage_attempt=0,
        partition=partition,
        task_attempt=attempt,
        executor_id="e1",
        output=TaskOutput(nonce=f"n{partition}", is_shared=True, rows=1, bytes=1),
        metrics=TaskMetrics(run_ms=1),
        at_ms=at_ms,
    )


def failed(partition, at_ms, message="no space left"):
    """Return a counted failure of the first attempt of a task of stage 1."""
    return TaskFailed(
        stage_id=1,
        stage_attempt=0,
        partition=partition,
        task_attempt=0,
        executor_id="e1",
        failure=Failure(kind=FailureKind.IO_ERROR, message=message),
        at_ms=at_ms,
    )


def session_of(executor_id="e1", state="alive", *, list_number=0):
    """Return a scheduler's session with an executor of four slots."""
    record = ExecutorRecord(
        executor_id=executor_id,
        incarnation="life",
        host="h",
        pid=0,
        slots=4,
        spark_version="4.3.0",
        python_version="3.11",
        exchange_dir="/x",
        registered_ms=0,
        lease_id=1,
        state=state,
    )
    return ExecutorSession(record=record, seen_s=0, seen_ms=0, renewed_s=0, asked_s=0, list_number=list_number)


def store(backend, clock, writer=""):
    heads = JobHeads(backend, clock, interval_ms=500)
    return JobStore(backend, heads, clock, writer)


def acting_alone(backend, clock):
    return Ownership(LiveSchedulers(backend, clock, scheduler_id="s1", address="127.0.0.1:1", lease_ttl_s=4))


async def keys(backend, *keyspaces):
    return {
        f"{keyspace}/{key}"
        for keyspace in keyspaces or Keyspace
        for key in await backend.scan_keys(keyspace, limit=10_000)
    }


class UnsureBackend(MemoryBackend):
    """Now and then does not know what became of a commit: `script` says "lost" or "done" for each to come."""

    def __init__(self, store):
        super().__init__(store)
        self.script = []
        self.before_answer = None

    async def _commit(self, ops, expect):
        what = self.script.pop(0) if self.script else "ok"
        if what == "lost":
            if self.before_answer is not None:
                await self.before_answer()
            return OutcomeUnknown("the answer did not come")
        result = await super()._commit(ops, expect)
        if what == "done" and isinstance(result, Committed):
            if self.before_answer is not None:
                await self.before_answer()
            return OutcomeUnknown("the answer did not come")
        return result


async def append(jobs, job, events):
    """Commit what of *events* changes the job; return what became of it."""
    graph, kept = job.graph, []
    for event in events:
        after = apply_all(graph, [event])
        if after is not graph:
            kept.append(event)
            graph = after
    return await jobs.commit(job, tuple(kept), graph) if kept else job_store.Committed(job)


async def forget(backend, job_id="job-1"):
    """Remove all that is stored of a job."""
    for keyspace in Keyspace:
        gone = await backend.scan_keys(keyspace, limit=10_000)
        found = [Delete(keyspace, key) for key in gone if job_id in key.split("/")]
        if found:
            await backend.put_txn(found)


def launches(found, limit=1):
    """Return the events that launch the next tasks."""
    started = revive(found, 2)
    events = [started] if started else []
    launched = pop_next_tasks(apply_all(found, events), SLOT, limit, 3)
    return [*events, launched]


async def step(jobs, job, events):
    """Commit *events*; return the job with them."""
    result = await append(jobs, job, events)
    assert isinstance(result, job_store.Committed)
    return result.job


async def running(jobs, tasks=3):
    """Return a job whose *tasks* are all in the executor's hands."""
    job, _ = await jobs.submit(graph())
    job = await step(jobs, job, launches(job.graph))
    job = await step(jobs, job, [planned(tasks)])
    return await step(jobs, job, launches(job.graph, tasks))
