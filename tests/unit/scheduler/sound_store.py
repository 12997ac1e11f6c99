"""A store such as schedulers leave it: a job in the middle, ended ones, an executor, blobs and results."""

import base64
import json

import pyarrow as pa

from onager.execution_graph import (
    JobPlanned,
    OutputLayout,
    PlanSummary,
    StageSpec,
    StagesStarted,
    StageWork,
    TaskMetrics,
    TaskOutput,
    TasksLaunched,
    TaskSucceeded,
    submit,
)
from onager.execution_graph.events import JobCancelled
from onager.ids import JobId
from onager.scheduler.executors.records import ExecutorRecord
from onager.scheduler.jobs.blobs import BlobStore, digest_of
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.results import InlineResult, ResultStore
from onager.state_backend import Keyspace, Put
from tests.unit.scheduler.small_graphs import append

SCHEMA = pa.schema([("n", pa.int64())])
LIFE = "life-1"
EXECUTOR = "e1"


def result_stream(values):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA))
    return sink.getvalue().to_pybytes()


def spec_of(job_id):
    return json.dumps({"name": job_id, "sql": {"text": "SELECT 1"}}).encode()


def plan_of(job_id):
    return b"\x00\xff the encoded plan of " + job_id.encode()


def planned(job_id, partitions, at_ms):
    spec = StageSpec(
        stage_id=1,
        name="one",
        work=StageWork.QUERY,
        plan_digest=digest_of(plan_of(job_id)),
        partitions=partitions,
        inputs=(),
        output=OutputLayout("result"),
    )
    summary = PlanSummary(
        arrow_schema=base64.b64encode(SCHEMA.serialize().to_pybytes()).decode(),
        schema_json="{}",
        explain_digest=None,
        sink=None,
        result_stage_id=1,
        is_fused=False,
    )
    return JobPlanned(
        task_attempt=0,
        executor_id=EXECUTOR,
        stages=(spec,),
        summary=summary,
        fused_output=None,
        metrics=TaskMetrics(),
        at_ms=at_ms,
    )


def launched(stage_id, partitions, at_ms):
    return TasksLaunched(
        stage_id=stage_id,
        stage_attempt=0,
        executor_id=EXECUTOR,
        incarnation=LIFE,
        list_number=1,
        tasks=tuple((p, 0) for p in partitions),
        at_ms=at_ms,
    )


def succeeded(partition, at_ms):
    return TaskSucceeded(
        stage_id=1,
        stage_attempt=0,
        partition=partition,
        task_attempt=0,
        executor_id=EXECUTOR,
        output=TaskOutput(nonce=f"n{partition}", is_shared=True, is_inline=True, rows=1, bytes=8),
        metrics=TaskMetrics(run_ms=1),
        at_ms=at_ms,
    )


class SoundStore:
    """Fills a store through the scheduler's own parts."""

    def __init__(self, backend, clock):
        self.backend = backend
        self.clock = clock
        self.blobs = BlobStore(backend)
        self.results = ResultStore(backend)
        self.jobs = JobStore(backend, JobHeads(backend, clock, interval_ms=500), clock)

    async def fill(self):
        lease = await self.backend.lease(60)
        record = ExecutorRecord(
            executor_id=EXECUTOR,
            incarnation=LIFE,
            host="h",
            pid=1,
            slots=2,
            spark_version="4.3.0",
            python_version="3.11",
            exchange_dir="/tmp",
            registered_ms=1,
            lease_id=lease.id,
        )
        await self.backend.put_txn(
            [
                Put(Keyspace.Executors, EXECUTOR, record.encoded()),
                Put(Keyspace.Heartbeats, EXECUTOR, LIFE.encode(), lease=lease.id),
            ]
        )
        await self.job("active", partitions=3, done=2)
        await self.job("done", partitions=2, done=2)
        await self.job("cancelled", partitions=2, done=1, is_cancelled=True)

    async def job(self, job_id, *, partitions, done, is_cancelled=False):
        spec = spec_of(job_id)
        await self.blobs.put(JobId(job_id), [spec])
        graph = submit(job_id=job_id, name=job_id, client_id="c", spec_digest=digest_of(spec), at_ms=1)
        job, _ = await self.jobs.submit(graph)
        job = await self.append(job, StagesStarted(stage_ids=(0,), at_ms=2), launched(0, [0], 2))
        await self.blobs.put(JobId(job_id), [plan_of(job_id)])
        job = await self.append(job, planned(job_id, partitions, 3), StagesStarted(stage_ids=(1,), at_ms=3))
        job = await self.append(job, launched(1, range(partitions), 4))
        for partition in range(done):
            content = result_stream([partition])
            await self.results.put([InlineResult(JobId(job_id), partition, f"n{partition}", content)])
            job = await self.append(job, succeeded(partition, 5 + partition))
        if is_cancelled:
            job = await self.append(job, JobCancelled(reason="enough", at_ms=9))
        return job

    async def append(self, job, *events):
        return (await append(self.jobs, job, events)).job
