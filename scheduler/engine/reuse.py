"""Outputs that jobs take of others instead of computing the same again: who offers them, and who may take them.

A job that has ended says in its head which stages' outputs are kept for others, and a job that takes one commits that
expecting the head to be as it was seen here. So either the files are withdrawn first, and nothing is taken, or all
schedulers know of the reader before the files go.
"""

from collections.abc import Mapping, Sequence

import structlog

from onager.caches import cache_of
from onager.execution_graph import (
    Event,
    ExecutionGraph,
    FetchFailure,
    JobPlanned,
    OutputsTaken,
    StageSpec,
    TakenOutput,
    TaskFailed,
    TaskOutput,
    outputs_to_take,
    taken_in,
    worth_taking,
)
from onager.ids import JobId, script_of
from onager.scheduler.engine.caches import made_first
from onager.scheduler.jobs.job_heads import JobHead
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_store import JobStore

log = structlog.get_logger(__name__)


class Reuse:
    """What jobs offer, by the heads as last seen."""

    def __init__(self, jobs: JobStore, *, has_users: bool) -> None:
        """Make it.

        If the cluster *has_users*, a job without a name of one may be anybody's: it only takes from its own script.
        """
        self._jobs = jobs
        self._heads = jobs.heads
        self._has_users = has_users
        self._offers: dict[str, dict[JobId, int]] = {}
        """The jobs that offer the output of a fingerprint, with their stages."""
        self._offered: dict[JobId, Mapping[str, int]] = {}

    def on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """Take in what a job offers."""
        now: Mapping[str, int] = {} if head is None else head.reusable
        before = self._offered.get(job_id, {})
        if now == before:
            return
        for fingerprint in before:
            self._offers[fingerprint].pop(job_id, None)
            if not self._offers[fingerprint]:
                del self._offers[fingerprint]
        for fingerprint, stage_id in now.items():
            self._offers.setdefault(fingerprint, {})[job_id] = stage_id
        if now:
            self._offered[job_id] = now
        else:
            self._offered.pop(job_id, None)

    def is_offered(self, event: OutputsTaken) -> bool:
        """Return whether all outputs that *event* takes are still offered."""
        return all(each.of_stage_id in self._offered.get(JobId(each.job_id), {}).values() for each in event.taken)

    async def take_outputs(self, job: StoredJob, events: Sequence[Event]) -> list[Event]:
        """Return *events* of *job*, and after its plan what its stages take.

        A job whose output could not be read offers nothing any more.
        """
        found: list[Event] = []
        for event in events:
            found.append(event)
            if isinstance(event, JobPlanned) and (taken := await self._taken(job, event)) is not None:
                found.append(taken)
            elif isinstance(event, TaskFailed) and event.failure.fetch is not None:
                await self._withdraw(_taken_and_missing(job.graph, event.failure.fetch))
        return found

    async def _taken(self, job: StoredJob, event: JobPlanned) -> OutputsTaken | None:
        """Return what the stages of a new plan take, None for nothing."""
        if event.fused_output is not None or job.graph.streaming is not None:
            return None
        if any(cache_of(spec.fingerprint) for spec in event.stages):
            await self._heads.catch_up(JobId(job.header.job_id))  # else rows could be made again that are there
        head = self._heads.get(JobId(job.header.job_id))
        sources: dict[int, JobId] = {}

        def offered(spec: StageSpec) -> bool:
            source = None if head is None else self._source(head, spec.fingerprint)
            if source is not None:
                sources[spec.stage_id] = source
            return source is not None

        chosen = worth_taking(event.stages, event.summary.result_stage_id, offered)
        if not chosen:
            return None
        given = await self._jobs.as_stored(sorted(set(sources.values())), _given)
        specs = {spec.stage_id: spec for spec in event.stages}
        taken: list[TakenOutput] = []
        for stage_id in chosen:
            spec, source = specs[stage_id], sources[stage_id]
            of_stage_id, outputs = (given.get(source) or {}).get(spec.fingerprint, (0, ()))
            if outputs:
                taken.append(
                    TakenOutput(
                        stage_id=stage_id,
                        job_id=source,
                        of_stage_id=of_stage_id,
                        fingerprint=spec.fingerprint,
                        outputs=outputs,
                    )
                )
        if not taken:
            return None
        log.info(
            "outputs_taken", job_id=job.header.job_id, stages=len(taken), of=sorted({each.job_id for each in taken})
        )
        return OutputsTaken(taken=tuple(taken), at_ms=event.at_ms)

    def _source(self, head: JobHead, fingerprint: str) -> JobId | None:
        """Return the latest job of which the one of *head* may take the output of *fingerprint*.

        Of cached rows it is the first one: each time that they are made they may be others, and all jobs see the same.
        """
        offers = self._offers.get(fingerprint, {})
        found = [other for job_id in offers if (other := self._heads.get(job_id)) is not None]
        if cache_of(fingerprint):  # an id that was drawn, and which no other session has
            allowed = [other for other in found if other.broken is None and other.principal == head.principal]
            return JobId(min(allowed, key=made_first).job_id) if allowed else None
        allowed = [other for other in found if other.broken is None and self._may_take(head, other)]
        return JobId(max(allowed, key=lambda other: (other.ended_ms or 0, other.job_id)).job_id) if allowed else None

    def _may_take(self, head: JobHead, other: JobHead) -> bool:
        """Return whether a job may take what *other* offers: of a script's steps, or of the same user's job."""
        if head.reuse == "off" or other.reuse == "off" or head.principal != other.principal:
            return False
        if (script := script_of(head.job_id)) is not None and script == script_of(other.job_id):
            return True
        is_known = bool(head.principal) or not self._has_users
        return is_known and head.reuse == "cluster" and other.reuse == "cluster"

    async def _withdraw(self, job_ids: set[str]) -> None:
        heads = [self._heads.get(JobId(job_id)) for job_id in sorted(job_ids)]
        withdrawn = [head.withdrawn() for head in heads if head is not None and head.reusable]
        for head in withdrawn:
            log.warning("outputs_withdrawn", job_id=head.job_id, why="one of them could not be read")
        await self._heads.put(withdrawn)


def _taken_and_missing(graph: ExecutionGraph, fetch: FetchFailure) -> set[str]:
    """Return the job that gave the output which *fetch* says is missing, if the graph still counts on it."""
    if fetch.stage_id >= len(graph.stages):
        return set()  # of an earlier plan
    output = graph.stages[fetch.stage_id].ledger.outputs.get(fetch.partition)
    is_current = output is not None and output.nonce == fetch.nonce
    return taken_in(graph, [fetch.stage_id]) if is_current else set()


def _given(graph: ExecutionGraph) -> dict[str, tuple[int, tuple[TaskOutput, ...]]]:
    """Return what a job's stages give, by their fingerprints."""
    given = ((stage, outputs_to_take(stage)) for stage in graph.stages if stage.spec.fingerprint)
    return {stage.spec.fingerprint: (stage.spec.stage_id, outputs) for stage, outputs in given if outputs}
