"""The check of jobs: heads, headers, snapshots, logs, and the graphs that they yield."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from onager.execution_graph import (
    EventBatch,
    ExecutionGraph,
    apply_all,
    decode_graph,
    lives_at_work,
    violations,
)
from onager.scheduler.jobs.history import read_part
from onager.scheduler.jobs.job_heads import JobHead, head_of
from onager.scheduler.jobs.job_log import (
    HEADER_KEYSPACES,
    JobHeader,
    end_keyspace,
    log_key,
    log_prefix,
    read_batch,
    snapshot_prefix,
)
from onager.scheduler.records import unpack
from onager.state_admin.contents import StoreContents
from onager.state_admin.findings import Findings
from onager.state_backend import Keyspace, KeyValue

_NOT_OF_THE_GRAPH: Final = {"clean_up", "has_result", "reusable", "has_history", "broken", "schema_version"}
"""Fields of a head that housekeeping changes on its own, or that heads written by an earlier release lack."""


@dataclass(slots=True, kw_only=True)
class Job:
    """A job, as far as it could be read."""

    job_id: str
    keyspace: Keyspace
    head: JobHead | None = None
    graph: ExecutionGraph | None = None
    lives: set[tuple[str, str]] = field(default_factory=set)
    """The executors, by id and incarnation, that hold its tasks."""


def check_jobs(store: StoreContents, found: Findings) -> list[Job]:
    """Add the errors of jobs to *found*; return the jobs that have a header."""
    of_jobs = (Keyspace.GraphChunks, Keyspace.JobLog, Keyspace.History)
    parts = {keyspace: _by_job(store.records[keyspace].values()) for keyspace in of_jobs}
    heads = {key: _read_head(item, found) for key, item in store.records[Keyspace.JobHeads].items()}
    jobs: list[Job] = []
    headed = dict.fromkeys(key for keyspace in HEADER_KEYSPACES for key in store.records[keyspace])
    for job_id in headed:
        places = [keyspace for keyspace in HEADER_KEYSPACES if job_id in store.records[keyspace]]
        for other in places[1:]:
            found.error("inconsistent", other, job_id, f"the job is in {places[0]}, too: it has two headers")
        job = Job(job_id=job_id, keyspace=places[0], head=heads.get(job_id))
        jobs.append(job)
        check = _JobCheck(job, found, parts[Keyspace.GraphChunks][job_id], parts[Keyspace.JobLog][job_id])
        try:
            check.run(store.records[places[0]][job_id])
        except Exception as error:  # noqa: BLE001 - damage can take any shape, and must not end the check of the rest
            found.error("undecodable", job.keyspace, job_id, f"the job cannot be checked: {error!r}")
        _check_history(parts[Keyspace.History][job_id], found)
        if job_id not in heads:
            found.error("missing", Keyspace.JobHeads, job_id, "the job has no head: no scheduler works on it")
    for job_id in heads:
        if job_id not in headed:
            message = f"is the head of a job that is in none of {', '.join(HEADER_KEYSPACES)}"
            found.error("missing", Keyspace.JobHeads, job_id, message)
    for keyspace, by_job in parts.items():
        for job_id, items in by_job.items():
            if items and job_id not in headed:
                found.warn("orphan", keyspace, f"{job_id}/", f"{len(items)} records of a job that has no header")
    return jobs


def _by_job(items: Iterable[KeyValue]) -> defaultdict[str, list[KeyValue]]:
    result: defaultdict[str, list[KeyValue]] = defaultdict(list)
    for item in items:
        result[item.key.partition("/")[0]].append(item)
    return result


def _read_head(item: KeyValue, found: Findings) -> JobHead | None:
    head = found.read(Keyspace.JobHeads, item.key, lambda: JobHead.decoded(item.value, f"the head of job {item.key}"))
    if head is not None and head.job_id != item.key:
        found.error("misplaced", Keyspace.JobHeads, item.key, f"is the head of job {head.job_id}")
    if head is not None and head.broken is not None:
        found.error("marked", Keyspace.JobHeads, item.key, f"a scheduler found the job's record damaged: {head.broken}")
    return head


def _check_history(parts: Sequence[KeyValue], found: Findings) -> None:
    position = 0
    for part in parts:
        entries = found.read(Keyspace.History, part.key, partial(read_part, part))
        if entries is not None and entries[0].position > position + 1 and position:
            message = f"positions {position + 1} to {entries[0].position - 1} were not kept"
            found.warn("gap", Keyspace.History, part.key, message)
        position = entries[-1].position if entries else 0


class _JobCheck:
    """The check of one job that has a header."""

    def __init__(self, job: Job, found: Findings, chunks: Sequence[KeyValue], entries: Sequence[KeyValue]) -> None:
        self._job = job
        self._found = found
        self._chunks = chunks
        self._entries = entries

    def run(self, stored: KeyValue) -> None:
        job, found = self._job, self._found
        header = found.read(
            job.keyspace, job.job_id, lambda: JobHeader.decoded(stored.value, f"the header of {job.job_id}")
        )
        if header is None:
            for entry in self._entries:
                self._read_batch(entry)
            return
        if header.job_id != job.job_id:
            found.error("misplaced", job.keyspace, job.job_id, f"is the header of job {header.job_id}")
            return
        graph = self._snapshot(header)
        graph = self._replay(header, graph)
        if graph is None:
            return
        job.graph = graph
        self._check_graph(graph, header)

    def _snapshot(self, header: JobHeader) -> ExecutionGraph | None:
        job, found = self._job, self._found
        prefix = snapshot_prefix(job.job_id, header.snapshot)
        named = [f"{prefix}{n:04d}" for n in range(header.chunks)]
        present = {item.key: item.value for item in self._chunks}
        for key in sorted(present.keys() - set(named)):
            found.warn("orphan", Keyspace.GraphChunks, key, "belongs to no snapshot that the job's header names")
        missing = [key for key in named if key not in present]
        for key in missing:
            message = f"the header names a snapshot of {header.chunks} chunks, and this one is not there"
            found.error("missing", Keyspace.GraphChunks, key, message)
        if missing:
            return None

        def decode() -> ExecutionGraph:
            return decode_graph(unpack(b"".join(present[key] for key in named), f"the snapshot of job {job.job_id}"))

        graph = found.read(Keyspace.GraphChunks, named[0] if len(named) == 1 else prefix, decode)
        if graph is not None and graph.job_id != job.job_id:
            found.error("misplaced", Keyspace.GraphChunks, prefix, f"is the graph of job {graph.job_id}")
            return None
        return graph

    def _replay(self, header: JobHeader, graph: ExecutionGraph | None) -> ExecutionGraph | None:
        """Return *graph* after its log; None when a batch cannot be read or a position is missing."""
        prefix = log_prefix(header.job_id, header.generation)
        seq = header.seq
        for entry in self._entries:
            batch = self._read_batch(entry)
            if not entry.key.startswith(prefix):
                self._check_left_over(header, entry)
                continue
            expected = log_key(header.job_id, header.generation, seq + 1)
            if entry.key < expected:
                self._found.error("misplaced", Keyspace.JobLog, entry.key, f"is no position after {header.seq}")
                continue
            if entry.key > expected:
                message = f"the log goes from position {seq} to {entry.key.rpartition('/')[2].lstrip('0')}"
                self._found.error("gap", Keyspace.JobLog, expected, message)
                graph = None
            graph = None if graph is None or batch is None else apply_all(graph, batch.events)
            seq = _position(entry.key, seq)
        return graph

    def _check_left_over(self, header: JobHeader, entry: KeyValue) -> None:
        before = log_prefix(header.job_id, header.generation - 1) if header.generation > 0 else None
        is_active = self._job.keyspace is Keyspace.ActiveJobs
        if is_active and before is not None and entry.key.startswith(before):
            return  # the previous generation stays until the next snapshot
        self._found.warn("orphan", Keyspace.JobLog, entry.key, "belongs to no generation of the log that is in use")

    def _read_batch(self, entry: KeyValue) -> EventBatch | None:
        return self._found.read(Keyspace.JobLog, entry.key, lambda: read_batch(entry))

    def _check_graph(self, graph: ExecutionGraph, header: JobHeader) -> None:
        job, found = self._job, self._found
        for violation in violations(graph):
            found.error("invariant", job.keyspace, job.job_id, violation)
        belongs = end_keyspace(graph)
        if belongs is not job.keyspace:
            found.error("misplaced", job.keyspace, job.job_id, f"the job is {graph.state}, and belongs into {belongs}")
        if job.head is not None and job.head.job_id == job.job_id:
            self._check_head(job.head, head_of(graph, header))
        if graph.is_active:
            job.lives |= lives_at_work(graph)

    def _check_head(self, head: JobHead, due: JobHead) -> None:
        if head.broken is not None:
            return  # reported already
        said, is_so = head.model_dump(), due.model_dump()
        differs = [name for name in is_so if name not in _NOT_OF_THE_GRAPH and said[name] != is_so[name]]
        for name in differs:
            message = f"says {name} {said[name]!s:.80}, but the graph says {is_so[name]!s:.80}"
            self._found.error("inconsistent", Keyspace.JobHeads, head.job_id, message)


def _position(key: str, otherwise: int) -> int:
    """Return the position in a log key; *otherwise* if there is none, as in a key that was put by hand."""
    text = key.rpartition("/")[2]
    return int(text) if text.isdecimal() else otherwise
