"""New jobs: what of a specification becomes a graph, stored with it."""

from typing import Final

import structlog

from onager.clock import Clock
from onager.errors import JobConflictError, SchemaVersionError, StateCorruptError
from onager.execution_graph import (
    ExecutionGraph,
    OutputLayout,
    RetryLimits,
    StageInput,
    StageSpec,
    StageWork,
    planned_at_once,
    submit,
)
from onager.ids import BlobDigest, JobId
from onager.job_settings import deadline_ms_of
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.redaction import shown_name, words_of
from onager.scheduler.jobs.blobs import BlobStore, digest_of
from onager.scheduler.jobs.job_adaptive import adaptive_of
from onager.scheduler.jobs.job_exchange import streaming_of
from onager.scheduler.jobs.job_heads import JobTerms
from onager.scheduler.jobs.job_specs import Submission
from onager.scheduler.jobs.job_speculation import speculation_of
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.script_specs import encoded_steps
from onager.scheduler.records import NOTHING_MORE, Extra
from onager.scheduler.settings import SchedulerSettings

log = structlog.get_logger(__name__)

_CONTROL: Final = OutputLayout("control")


class NewJobs:
    """Stores jobs."""

    def __init__(self, settings: SchedulerSettings, jobs: JobStore, blobs: BlobStore, clock: Clock) -> None:
        self._settings = settings
        self._jobs = jobs
        self._blobs = blobs
        self._clock = clock

    async def store(
        self,
        job_id: JobId,
        client_id: str,
        spec: pb.JobSpec,
        submission: Submission,
        terms: JobTerms,
        extra: Extra = NOTHING_MORE,
    ) -> bool:
        """Store a job with its specification, durable when this returns, and *extra*; return whether it existed.

        `JobConflictError` when another job has its id, `BusyError` when what *extra* expects does not hold.
        """
        content, digest = submission.content, submission.digest
        now_ms = self._clock.now_ms()
        if within_ms := deadline_ms_of(spec.conf):
            terms = terms.model_copy(update={"deadline_ms": now_ms + within_ms})
        blob = self._blobs.writes(job_id, content)
        if blob is None:
            await self._blobs.put(job_id, [content])
        graph = submit(
            job_id=job_id,
            name=shown_name(spec.name, words_of(spec.conf)),
            client_id=client_id,
            spec_digest=digest,
            at_ms=now_ms,
            limits=RetryLimits(
                task_max_failures=self._settings.task_max_failures,
                stage_max_failures=self._settings.stage_max_failures,
                retry_pauses_ms=self._settings.retry_pauses_ms,
            ),
            speculation=speculation_of(spec),
            streaming=streaming_of(spec),
            adaptive=adaptive_of(spec),
        )
        steps: list[bytes] = []
        if spec.HasField("script"):
            steps = await apart(len(content), encoded_steps, spec)
            await self._blobs.put(job_id, steps)
            graph = _script(graph, spec, [digest_of(step) for step in steps], now_ms)
        elif spec.HasField("program"):
            graph = _program(graph, now_ms)
        try:
            _, existed = await self._jobs.submit(graph, terms, blob, extra)
        except JobConflictError:
            await self._blobs.release(job_id, [digest, *(digest_of(step) for step in steps)])
            raise
        except (StateCorruptError, SchemaVersionError):
            existed = True  # it is stored, and GetJob says what is wrong with its record
        return existed


def _program(graph: ExecutionGraph, at_ms: int) -> ExecutionGraph:
    """Return the graph of a program: one task, of which the job's specification says everything."""
    task = StageSpec(
        stage_id=1,
        name="program",
        work=StageWork.PROGRAM,
        plan_digest=None,
        partitions=1,
        inputs=(),
        output=_CONTROL,
    )
    return planned_at_once(graph, [task], at_ms)


def _script(graph: ExecutionGraph, spec: pb.JobSpec, steps: list[BlobDigest], at_ms: int) -> ExecutionGraph:
    """Return the graph of a script, planned, since its steps were given."""
    specs = [
        StageSpec(
            stage_id=number,
            name=shown_name(step.name, words_of(spec.conf) | words_of(step.conf)) or f"step {number}",
            work=StageWork.STEP,
            plan_digest=digest,
            partitions=1,
            inputs=tuple(StageInput(before, "all") for before in sorted(set(step.after))),
            output=_CONTROL,
        )
        for number, (step, digest) in enumerate(zip(spec.script.steps, steps, strict=True), start=1)
    ]
    return planned_at_once(graph, specs, at_ms)
