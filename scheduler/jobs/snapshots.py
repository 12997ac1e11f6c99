"""Snapshots: graphs written whole, at a job's submission, when its log is too large, and at its end."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from onager.execution_graph import ExecutionGraph
from onager.scheduler.jobs import job_log
from onager.scheduler.jobs.job_heads import JobTerms
from onager.scheduler.jobs.job_log import JobHeader, StoredJob
from onager.scheduler.loops import in_portions
from onager.state_backend import ABSENT, DeleteRange, Keyspace, Move, Op, Put


@dataclass(frozen=True, slots=True)
class GraphSnapshot:
    """A graph, and the header that names it."""

    graph: ExecutionGraph
    header: JobHeader
    chunks: Sequence[Op]

    def stored(self, revision: int) -> StoredJob:
        """Return the job as it is once the snapshot is committed, at *revision*."""
        return StoredJob(
            graph=self.graph,
            seq=self.header.seq,
            header=self.header,
            header_revision=revision,
            keyspace=job_log.end_keyspace(self.graph),
            log=() if self.header.generation == 0 else None,
        )

    def replacing(self, job: StoredJob) -> tuple[list[Op], dict[tuple[Keyspace, str], int]]:
        """Return what makes this the record of *job*, instead of its snapshot and log so far, and what that expects."""
        old, keyspace = job.header, job_log.end_keyspace(self.graph)
        tip = job_log.log_key(old.job_id, old.generation, job.seq + 1)
        expect = {(Keyspace.ActiveJobs, old.job_id): job.header_revision, (Keyspace.JobLog, tip): ABSENT}
        ops: list[Op] = [DeleteRange(Keyspace.GraphChunks, job_log.snapshot_prefix(old.job_id, old.snapshot))]
        if keyspace is Keyspace.ActiveJobs:
            ops.append(Put(keyspace, old.job_id, self.header.encoded()))
            # The previous generation stays for schedulers that have to settle a write of unknown outcome in it.
            if old.generation > 0:
                ops.append(DeleteRange(Keyspace.JobLog, job_log.log_prefix(old.job_id, old.generation - 1)))
        else:
            ops.append(Move(Keyspace.ActiveJobs, old.job_id, keyspace, self.header.encoded()))
            ops.append(DeleteRange(Keyspace.JobLog, f"{old.job_id}/"))
            expect[keyspace, old.job_id] = ABSENT
        return ops, expect


async def first_snapshot(graph: ExecutionGraph, terms: JobTerms) -> GraphSnapshot:
    """Return the snapshot of a job that is submitted under *terms*."""
    snapshot = _snapshot_name(0)
    chunks, size = await in_portions(job_log.snapshot_ops(graph.job_id, snapshot, graph))
    header = JobHeader(
        job_id=graph.job_id,
        seq=0,
        generation=0,
        snapshot=snapshot,
        chunks=len(chunks),
        snapshot_bytes=size,
        batch_id=secrets.token_hex(8),
        **terms.model_dump(),
    )
    return GraphSnapshot(graph, header, chunks)


async def next_snapshot(job: StoredJob, graph: ExecutionGraph, batch_id: str) -> GraphSnapshot:
    """Return the snapshot of the *graph* to which the batch *batch_id* leads *job*."""
    generation = job.header.generation + 1
    snapshot = _snapshot_name(generation)
    chunks, size = await in_portions(job_log.snapshot_ops(job.header.job_id, snapshot, graph))
    header = job.header.model_copy(
        update={
            "seq": job.seq + 1,
            "generation": generation,
            "snapshot": snapshot,
            "chunks": len(chunks),
            "snapshot_bytes": size,
            "batch_id": batch_id,
        }
    )
    return GraphSnapshot(graph, header, chunks)


def _snapshot_name(generation: int) -> str:
    """Draw a name that no other writer of a snapshot of the same generation has."""
    return f"{generation:08d}-{secrets.token_hex(4)}"
