"""Scripts of SQL (BEGIN … END) that clients give to `spark.sql`: programs that run in the client's session."""

import base64
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from onager.errors import JobNotFoundError, NotFoundError
from onager.execution_graph import Failed
from onager.ids import BlobDigest, JobId
from onager.program_errors import EXIT_CLASS
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.protocol.spark_connect import ExecutePlanRequest, ExecutePlanResponse
from onager.protocol.sql_commands import statement_in
from onager.scheduler.api.job_queries import JobQueries
from onager.scheduler.api.program_queries import ProgramQueries
from onager.scheduler.connect.failures import ConnectError, decoded, failed, from_job
from onager.scheduler.connect.program_calls import ProgramCalls, place_of
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_specs import decode_spec
from onager.scheduler.program_records import ProgramKey
from onager.scheduler.programs import Programs


@dataclass(frozen=True, slots=True)
class ConnectScripts:
    """Makes programs of scripts, and answers of what came of these."""

    programs: Programs
    calls: ProgramCalls
    of_programs: ProgramQueries
    queries: JobQueries
    hosts: Callable[[], Collection[str]]
    """Returns the executors that run programs."""

    def program(self, request: Any, session: pb.ConnectSession) -> pb.ProgramSpec:
        """Return the program that the script in *request* is."""
        statement = statement_in(request.plan.command.sql_command)
        return pb.ProgramSpec(
            file_name="script.sql",
            source=statement.text.encode(),
            user=session.user,
            script=pb.GivenScript(session_id=session.session_id, relation=statement.relation),
        )

    def check_hosts(self) -> None:
        """Raise `ConnectError` while no executor runs programs."""
        if not self.hosts():
            why = (
                "No executor runs programs, and a script of SQL (BEGIN … END) is one: start an executor with "
                "--program-slots above 0, or try again if one is being started."
            )
            raise failed("CONNECT_NO_PROGRAM_SLOTS", "53000", why)

    async def responses(self, job: StoredJob) -> list[bytes]:
        """Return the response with what a script gave, whose *job* has succeeded: rows as a client sends them."""
        response = ExecutePlanResponse()
        response.sql_command_result.relation = await self._relation(JobId(job.graph.job_id))
        return [response.SerializeToString()]

    async def _relation(self, job_id: JobId) -> bytes:
        made_by = await self.of_programs.result_job(job_id)
        try:
            made = await self.queries.fresh(made_by)
            content = await self.queries.blobs.get(BlobDigest(made.graph.spec_digest))
        except (JobNotFoundError, NotFoundError) as error:
            why = "The script has ended, and what it gave is not known any more."
            raise failed("INVALID_HANDLE.OPERATION_ABANDONED", "HY000", why) from error
        spec = await apart(len(content), decode_spec, content)
        return bytes(ExecutePlanRequest.FromString(spec.connect.request).plan.root)

    async def error(self, job: StoredJob, operation_id: str) -> ConnectError:
        """Return the error of a script whose *job* has failed: that of its statement with all that Spark reported."""
        assert isinstance(job.graph.outcome, Failed)
        error = from_job(job.graph.outcome.failure, operation_id)
        key = ProgramKey(job.header.principal, job.header.program_id or job.graph.job_id)
        record, _ = await self.programs.read(key)
        if record is None or record.failed is None:
            return error
        _, place = place_of(record, record.failed.task, record.failed.number)
        call = await self.calls.as_recorded(place)
        if call is None or not call.record.error:
            return error
        own = decoded(base64.b64decode(call.record.error))
        own.error_id = error.error_id
        return own if error.error_class in (own.error_class, EXIT_CLASS) else error
