"""Submissions: what makes a job."""

from dataclasses import dataclass

import structlog

from onager.errors import InvalidRequestError
from onager.ids import JobId
from onager.programs.scripting.arguments import begins_script, check_size, value_of
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.protocol.security import caller, principal
from onager.scheduler.engine.new_jobs import NewJobs
from onager.scheduler.jobs.audit_notes import SUBMIT, AuditNotes
from onager.scheduler.jobs.job_specs import Submission, check_spec, checked
from onager.scheduler.jobs.places import check_place_apart
from onager.scheduler.jobs.script_specs import check_script, spec_of_step
from onager.scheduler.records import NOTHING_MORE, Extra
from onager.scheduler.settings import SchedulerSettings

log = structlog.get_logger(__name__)


@dataclass(eq=False, repr=False)
class Submissions:
    """Stores jobs."""

    settings: SchedulerSettings
    new_jobs: NewJobs
    notes: AuditNotes

    async def submit(
        self,
        request: pb.SubmitJobRequest,
        retry_of: str = "",
        extra: Extra = NOTHING_MORE,
        program_id: str = "",
    ) -> bool:
        """Store a job, which is durable when this returns, and return whether it existed.

        *retry_of* is the job that it repeats, *program_id* the program that it goes on with. *extra* is written with
        the job. `InvalidRequestError` for what is no job, `JobConflictError` when another job has its id, `BusyError`
        when what *extra* expects does not hold.
        """
        if await apart(request.ByteSize(), begins_script, request.spec.sql.text):
            request = _as_program(request)
        submission = await apart(request.ByteSize(), checked_submission, request, self.settings.session_max_tasks)
        spec = request.spec
        for sink in (spec.sink, *(step.sink for step in spec.script.steps)):
            if sink.path:
                await check_place_apart(sink.path, self.settings.private)
        job_id = JobId(request.job_id)
        terms = submission.terms.model_copy(
            update={"principal": principal(), "retry_of": retry_of, "program_id": program_id}
        )
        existed = await self.new_jobs.store(job_id, request.client_id, spec, submission, terms, extra)
        if not existed:
            self.notes.note(caller(), SUBMIT, job_id, f"retry of {retry_of}" if retry_of else "")
            log.info(
                "job_submitted",
                job_id=job_id,
                client_id=request.client_id,
                principal=principal(),
                bytes=len(submission.content),
                **({"retry_of": retry_of} if retry_of else {}),
            )
        return existed


def _as_program(request: pb.SubmitJobRequest) -> pb.SubmitJobRequest:
    """Return *request* with the program that its script of SQL with control flow is; `InvalidRequestError`."""
    made = pb.SubmitJobRequest()
    made.CopyFrom(request)
    given, spec = request.spec.sql, made.spec
    if spec.views or spec.HasField("sink") or spec.py_files:
        raise InvalidRequestError(
            "a script with control flow (BEGIN … END) has no views, output and Python files of its job: read files by "
            "their paths, such as parquet.`/data/orders`, and write in the script"
        )
    if any(not each.name for each in given.parameters):
        raise InvalidRequestError("the values of a script with control flow have names: write :NAME, not ?")
    try:
        check_size(given.text)
        for each in given.parameters:
            value_of(each.name, each.type, each.value)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error
    script = pb.GivenScript(parameters=given.parameters)
    program = pb.ProgramSpec(file_name="script.sql", source=given.text.encode(), user=request.client_id, script=script)
    spec.program.CopyFrom(program)
    return made


def checked_submission(request: pb.SubmitJobRequest, session_max_tasks: int) -> Submission:
    """Return what to store of a submission, or raise if it, or a step of it, is invalid."""
    submission = checked(request, session_max_tasks)
    if request.spec.HasField("script"):
        check_script(request.spec.script)
        for step in request.spec.script.steps:
            check_spec(spec_of_step(step, request.spec))
    return submission
