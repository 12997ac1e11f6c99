"""Submitting the stored specification of a job that has ended once more, as a new job."""

from dataclasses import dataclass
from pathlib import Path

from onager.errors import (
    BusyError,
    InvalidRequestError,
    JobConflictError,
    JobNotEndedError,
    JobNotFoundError,
    NotFoundError,
    StateCorruptError,
)
from onager.ids import BlobDigest, JobId, may_be_drawn
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.protocol.security import Caller
from onager.scheduler.api.hosted_programs import HostedPrograms
from onager.scheduler.api.job_queries import asked_job_id
from onager.scheduler.api.submitting import Submissions
from onager.scheduler.jobs.audit import Audit
from onager.scheduler.jobs.blobs import BlobStore, digest_of
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_specs import decode_spec, encode_spec
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.program_records import Mended
from onager.scheduler.records import NOTHING_MORE


@dataclass(eq=False, repr=False)
class Retries:
    """Retries jobs for clients."""

    jobs: JobStore
    blobs: BlobStore
    audit: Audit
    submissions: Submissions
    programs: HostedPrograms

    async def retry(self, request: pb.RetryJobRequest, caller: Caller) -> pb.RetryJobResponse:
        """Store the retry; it is durable when this returns. Repeating the call finds it, and changes nothing.

        The retry of a program goes on with what that has recorded (`HostedPrograms.retried`).
        `JobNotEndedError` while the job goes on, `JobConflictError` when another job has the new id, `NotFoundError`
        when the specification is not stored any more.
        """
        job_id, new = asked_job_id(request.job_id), JobId(request.new_job_id)
        if not may_be_drawn(new) or new == job_id:
            raise InvalidRequestError(
                f"the retry needs an id of its own, not {request.new_job_id[:80]!r}: 1 to 63 of a-z, 0-9 and '-', not "
                "starting with '-'"
            )
        if await self._is_retried(job_id, new):
            return pb.RetryJobResponse(job_id=new, existed=True)
        job = await self.jobs.fresh(job_id)
        if job.graph.is_active:
            raise JobNotEndedError(job_id, job.graph.state.value)
        spec, mended = await self._spec(job, request.mended if request.HasField("mended") else None)
        submission = pb.SubmitJobRequest(
            job_id=new,
            spec=spec,
            client_id=request.client_id or job.graph.client_id,
            protocol_version=request.protocol_version,
        )
        async with self.audit.act(caller, "retry", job_id, f"as {new}") as act:
            program_id, extra = "", NOTHING_MORE
            if job.graph.is_program:
                program_id, extra = await self.programs.retried(job, new, mended)
            try:
                existed = await self.submissions.submit(submission, job_id, extra, program_id)
            except BusyError:
                if job.graph.is_program:
                    await self.programs.retried(job, new)  # says which retry was first, if one was
                raise
            if existed:
                act.outcome = "it was done before"
        return pb.RetryJobResponse(job_id=new, existed=existed)

    async def _spec(self, job: StoredJob, given: pb.MendedProgram | None) -> tuple[pb.JobSpec, Mended | None]:
        """Return the specification of the retry, and the program that goes on, if that is not the one recorded.

        Of a program, what counts is the text of which its calls were recorded, whatever job of it is retried.
        """
        job_id, digest = JobId(job.graph.job_id), job.graph.spec_digest
        if given is not None and not job.graph.is_program:
            raise InvalidRequestError(f"job {job_id} is no program: only a program is gone on with by a mended one")
        record = None
        if job.graph.is_program:
            _, record = await self.programs.ended(job)
            digest = digest if record is None else record.digest
        content = await self._content(job_id, digest)
        spec = await apart(len(content), decode_spec, content)
        if given is None:
            return spec, None
        if Path(given.file_name).suffix.lower() != Path(spec.program.file_name).suffix.lower():
            raise InvalidRequestError(
                f"{given.file_name[:80]!r} cannot go on with what {spec.program.file_name!r} has recorded: give a file "
                "of the same kind"
            )
        spec.program.file_name, spec.program.source = given.file_name, given.source
        changed = await apart(len(content), encode_spec, spec)
        is_other = record is not None and digest_of(changed) != digest
        return spec, Mended(digest_of(changed), given.keep) if is_other else None

    async def _is_retried(self, job_id: JobId, new: JobId) -> bool:
        """Return whether the retry is stored already, even if the job that it repeats is gone by now."""
        try:
            found = await self.jobs.fresh(new)
        except JobNotFoundError:
            return False
        if found.header.retry_of != job_id:
            raise JobConflictError(new)
        return True

    async def _content(self, job_id: JobId, digest: str) -> bytes:
        try:
            return await self.blobs.get(BlobDigest(digest))
        except (NotFoundError, StateCorruptError) as error:
            raise NotFoundError(
                f"the specification of job {job_id} cannot be read any more ({error}): submit the query again"
            ) from error
