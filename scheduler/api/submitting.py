"""Submissions: what makes a job."""

import structlog

from onager.clock import Clock
from onager.errors import JobConflictError, SchemaVersionError, StateCorruptError
from onager.execution_graph import RetryLimits, submit
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.protocol.security import principal
from onager.scheduler.cluster.members import Members
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.job_adaptive import adaptive_of
from onager.scheduler.jobs.job_exchange import pipeline_of
from onager.scheduler.jobs.job_specs import checked
from onager.scheduler.jobs.job_speculation import speculation_of
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.places import check_place_apart
from onager.scheduler.settings import SchedulerSettings

log = structlog.get_logger(__name__)


class Submissions:
    """Stores jobs."""

    def __init__(
        self, settings: SchedulerSettings, jobs: JobStore, blobs: BlobStore, members: Members, clock: Clock
    ) -> None:
        self._settings = settings
        self._jobs = jobs
        self._blobs = blobs
        self._members = members
        self._clock = clock

    async def submit(self, request: pb.SubmitJobRequest, retry_of: str = "") -> bool:
        """Store a job, which is durable when this returns, and return whether it existed.

        *retry_of* is the job that it repeats. `InvalidRequestError` for what is no job, `JobConflictError` when another
        job has its id.
        """
        terms, content, digest = await apart(request.ByteSize(), checked, request, self._settings.session_max_tasks)
        if request.spec.HasField("sink"):
            await check_place_apart(request.spec.sink.path, self._settings.private)
        job_id = JobId(request.job_id)
        blob = self._blobs.writes(job_id, content)
        if blob is None:
            await self._blobs.put(job_id, [content])
        graph = submit(
            job_id=job_id,
            name=request.spec.name,
            client_id=request.client_id,
            spec_digest=digest,
            at_ms=self._clock.now_ms(),
            limits=RetryLimits(
                task_max_failures=self._settings.task_max_failures,
                stage_max_failures=self._settings.stage_max_failures,
                retry_pauses_ms=self._settings.retry_pauses_ms,
            ),
            speculation=speculation_of(request.spec),
            pipeline=pipeline_of(request.spec, self._members.writes_major, self._clock.now_ms()),
            adaptive=adaptive_of(request.spec, self._members.writes_major),
        )
        try:
            submitted = terms.model_copy(update={"principal": principal(), "retry_of": retry_of})
            _, existed = await self._jobs.submit(graph, submitted, blob)
        except JobConflictError:
            await self._blobs.release(job_id, [digest])
            raise
        except (StateCorruptError, SchemaVersionError):
            existed = True  # it is stored, and GetJob says what is wrong with its record
        if not existed:
            log.info(
                "job_submitted",
                job_id=job_id,
                client_id=request.client_id,
                principal=principal(),
                bytes=len(content),
                **({"retry_of": retry_of} if retry_of else {}),
            )
        return existed
