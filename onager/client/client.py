"""The client of a cluster: submits queries and functions, lists jobs and executors."""

import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from onager.client import large_files
from onager.client.audit import AuditEntry, list_audit
from onager.client.catalog import CatalogEntry, get_entry, list_catalog, list_partitions
from onager.client.connection import Connection
from onager.client.job import JobHandle
from onager.client.program import ProgramHandle, given_program
from onager.client.progress import JobProgress
from onager.client.results import ResultReader
from onager.client.script import Script
from onager.client.spec import View, job_spec, python_message, sink_message
from onager.client.state import ClusterState
from onager.clock import SystemClock
from onager.errors import InvalidRequestError
from onager.ids import new_job_id
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_JOBS_A_PAGE
from onager.protocol.limits import DEFAULT_ADDRESS, PROTOCOL_VERSION
from onager.protocol.security import ClientSecurity
from onager.redaction import shown_script, words_of

ADDRESS_VARIABLE = "ONAGER_SCHEDULER"
"""The variable with the schedulers' addresses, used when none are given."""

PathLike = str | os.PathLike[str]


def default_addresses() -> str:
    """Return the schedulers' addresses from ``ONAGER_SCHEDULER``, else the default address on this machine."""
    return os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS


def connect(
    addresses: str | Sequence[str] | None = None,
    *,
    connect_timeout_s: float = 3.0,
    retry_timeout_s: float = 60.0,
    security: ClientSecurity | None = None,
) -> "OnagerClient":
    """Return a client of the cluster at *addresses*, ``"host:port"`` or several, separated by commas.

    It connects at the first call. Calls raise `SchedulerUnreachableError` after *connect_timeout_s* if no scheduler has
    ever answered, and after *retry_timeout_s* if one has, so that they survive a restart. *security* names certificates
    and the token; by default, the variables ``ONAGER_TLS_CA``, ``ONAGER_TLS_CERT``, ``ONAGER_TLS_KEY``,
    ``ONAGER_AUTH_TOKEN_FILE`` and ``ONAGER_INSECURE`` do. Raises `InvalidSettingError` for files that cannot be used,
    and for a scheduler on another machine without TLS, unless *security* allows plaintext.
    """
    connection = Connection(
        addresses or default_addresses(),
        ClientSecurity.from_environment() if security is None else security,
        connect_timeout_s=connect_timeout_s,
        retry_timeout_s=retry_timeout_s,
    )
    return OnagerClient(connection)


class OnagerClient:
    """A client of a cluster; thread-safe, and a context manager that closes its connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._clock = SystemClock()
        self._client_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; jobs continue."""
        self._connection.close()

    def sql(
        self,
        text: str,
        *,
        views: Mapping[str, View | PathLike] | None = None,
        conf: Mapping[str, object] | None = None,
        name: str | None = None,
        output: PathLike | None = None,
        format: str = "parquet",  # noqa: A002 - Spark's own word for it
        mode: str = "error",
        py_files: Sequence[PathLike] = (),
        output_options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        params: Mapping[str, object] | Sequence[object] | None = None,
        labels: Mapping[str, str] | None = None,
        deadline: str | None = None,
        job_id: str | None = None,
    ) -> JobHandle:
        """Submit a script of SQL statements, the last of which is the query, and return the job.

        *views* gives names to datasets. With *output*, the result is written there as a dataset of *format* (parquet,
        csv, json, orc, text, xml); *mode* says what to do if one exists (error, overwrite, append); *partition_by*
        names columns that become directories, as in Hive (``k=1/d=2026-01-31``). *params* are values that Spark binds:
        of ``:name``, by name, or of ``?``, in order. *labels* find the job in lists. After the *deadline*, such as
        ``"90s"`` or ``"2h"``, the job fails if it has not ended. A repeated call with the same *job_id* returns the
        same job; see `submit`.

        A script with several statements that write becomes steps: its statements run as jobs, one after the other, and
        what is written stays written if a later one fails. `JobHandle.retry` goes on where it failed.
        """
        spec = job_spec(
            sql=text,
            name=_title(text, words_of({key: str(value) for key, value in (conf or {}).items()}))
            if name is None
            else name,
            views=views or {},
            conf=conf or {},
            py_files=py_files,
            sink=None if output is None else sink_message(output, format, mode, output_options or {}, partition_by),
            params=params,
            labels=labels,
            deadline=deadline,
        )
        return self.submit(spec, job_id)

    def python(
        self,
        function: PathLike | Callable[..., Any],
        *,
        args: Mapping[str, Any] | None = None,
        py_files: Sequence[PathLike] = (),
        views: Mapping[str, View | PathLike] | None = None,
        conf: Mapping[str, object] | None = None,
        name: str | None = None,
        output: PathLike | None = None,
        format: str = "parquet",  # noqa: A002 - Spark's own word for it
        mode: str = "error",
        output_options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        deadline: str | None = None,
        job_id: str | None = None,
    ) -> JobHandle:
        """Submit a function that takes the session, and *args* by keyword, and returns a DataFrame.

        *function* is ``"job.py:function"`` (by default ``main``) or the function itself. *py_files* are modules that it
        imports, as ``NAME.py`` or ``.zip``. An executor calls the function to plan the job, possibly more than once: it
        may build DataFrames, but not write anything. The other parameters are those of `sql`.
        """
        message, title = python_message(function, args or {})
        spec = job_spec(
            python=message,
            name=title if name is None else name,
            views=views or {},
            conf=conf or {},
            py_files=py_files,
            sink=None if output is None else sink_message(output, format, mode, output_options or {}, partition_by),
            labels=labels,
            deadline=deadline,
        )
        return self.submit(spec, job_id)

    def script(
        self,
        *,
        name: str = "",
        views: Mapping[str, View | PathLike] | None = None,
        conf: Mapping[str, object] | None = None,
        labels: Mapping[str, str] | None = None,
        deadline: str | None = None,
    ) -> Script:
        """Begin a script, several jobs that wait for each other and are submitted as one; its steps are added later.

        *views* and *conf* are those of every step; a step's own come before them.
        """
        options = {"views": views or {}, "conf": conf or {}, "labels": labels, "deadline": deadline}
        return Script(self.submit, name, options)

    def run(
        self,
        path: PathLike,
        *,
        args: Sequence[str] = (),
        py_files: Sequence[PathLike] = (),
        files: Sequence[PathLike] = (),
        archives: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        conf: Mapping[str, object] | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        deadline: str | None = None,
        program_id: str | None = None,
    ) -> ProgramHandle:
        """Have the cluster run the program of PySpark in the file *path* with *args*, and return once it is stored.

        It goes on, whichever process dies. *py_files* (``.py``, ``.zip``) can be imported, also by its functions;
        *files* lie in its working directory; *archives*, as ``PATH#FOLDER``, are unpacked there. *conf* are settings of
        its sessions, and of Onager. The other parameters are those of `sql`; the same *program_id* is the same program.
        """
        given = given_program(path, args, py_files=py_files, files=files, archives=archives, environment=environment)
        spec = job_spec(
            program=given.spec,
            name=Path(path).name if name is None else name,
            views={},
            conf=conf or {},
            labels=labels,
            deadline=deadline,
        )
        if given.large:
            large_files.send(self._connection, given.large, given.spec.user)
        return ProgramHandle(self._connection, self.submit(spec, program_id))

    def program(self, program_id: str) -> ProgramHandle:
        """Return the program of that id, whoever submitted it."""
        return ProgramHandle(self._connection, self.job(program_id))

    def submit(self, spec: pb.JobSpec, job_id: str | None = None) -> JobHandle:
        """Submit *spec*, and return once the job is stored durably.

        A repeated call with the same *job_id* returns the same job; with another specification it raises
        `JobConflictError`.
        """
        request = pb.SubmitJobRequest(
            job_id=job_id or new_job_id(self._clock),
            spec=spec,
            client_id=self._client_id,
            protocol_version=PROTOCOL_VERSION,
        )
        answer: pb.SubmitJobResponse = self._connection.call("SubmitJob", request)
        return JobHandle(self._connection, answer.job_id)

    def job(self, job_id: str) -> JobHandle:
        """Return the job with that id, whoever submitted it; its first use fails if no such job exists."""
        if not job_id:
            raise InvalidRequestError("a job id must be given; onager jobs lists them")
        return JobHandle(self._connection, job_id)

    def results(self, job_id: str) -> ResultReader:
        """Return a reader of a successful job's result; `JobHandle.batches` waits for the job first."""
        return ResultReader(self._connection, job_id)

    def jobs(
        self,
        limit: int = 100,
        state: str = "",
        *,
        name: str = "",
        session: str = "",
        since_ms: int = 0,
        until_ms: int = 0,
        principal: str = "",
        labels: Mapping[str, str] | None = None,
        steps: bool = False,
    ) -> list[JobProgress]:
        """Return up to *limit* jobs, newest first and without their stages.

        *state*, *session* and *principal* (who submitted it) select jobs that have exactly these, *name* those whose
        name contains it, ignoring case. *since_ms* and *until_ms* (not included; 0: no limit) are milliseconds since
        the Unix epoch, between which a job was submitted. *labels* selects jobs that have all of these. With *steps*,
        the jobs of scripts' steps and of programs' calls are listed, too.
        """
        request = pb.ListJobsRequest(
            limit=limit,
            state=state,
            name=name,
            session=session,
            since_ms=since_ms,
            until_ms=until_ms,
            principal=principal,
            labels=labels,
            steps=steps,
        )
        return [JobProgress.from_message(job) for job in self.list_jobs(request)]

    def list_jobs(self, request: pb.ListJobsRequest) -> Iterator[pb.JobProgress]:
        """Yield the same as `jobs`, as protocol messages, page by page."""
        left = request.limit
        page = pb.ListJobsRequest()
        page.CopyFrom(request)
        while left > 0:
            page.limit = min(left, MAX_JOBS_A_PAGE)
            answer: pb.ListJobsResponse = self._connection.call("ListJobs", page)
            yield from answer.jobs
            left -= len(answer.jobs)
            page.cursor = answer.next
            if not answer.next:
                return

    def begin_program(
        self, program_id: str, secret: str, user: str, digest: str, arguments: Sequence[str]
    ) -> pb.BeginProgramResponse:
        """Begin an attempt of a program, whose calls show *secret*: earlier attempts have no effect any more.

        *user* is whose sessions it has, unless a token says it. *digest*, of its file, and *arguments* are the same for
        each attempt; else `InvalidRequestError`. The same call again is the same attempt.
        """
        given = json.dumps(list(arguments))
        request = pb.BeginProgramRequest(
            program_id=program_id, secret=secret, user=user, digest=digest, arguments=given
        )
        answer: pb.BeginProgramResponse = self._connection.call("BeginProgram", request)
        return answer

    def end_program(self, program_id: str, attempt: int, secret: str, exit_code: int) -> None:
        """Say that a program has ended by itself; `AttemptSupersededError` if another attempt counts."""
        request = pb.EndProgramRequest(program_id=program_id, attempt=attempt, secret=secret, exit_code=exit_code)
        self._connection.call("EndProgram", request)

    def drain_executor(self, executor_id: str, reason: str = "") -> pb.DrainExecutorResponse:
        """Have an executor take no more work, finish what it runs, and leave; for operators. Returns at once.

        This cannot be taken back: after a mistake, start the executor again. A repeated call changes nothing. Raises
        `NotFoundError` for an unknown executor, and `InvalidRequestError` for one that is gone.
        """
        request = pb.DrainExecutorRequest(executor_id=executor_id, reason=reason)
        answer: pb.DrainExecutorResponse = self._connection.call("DrainExecutor", request)
        return answer

    def executors(self) -> list[pb.ExecutorInfo]:
        """Return the executors that the scheduler knows, including lost ones."""
        return list(self.list_executors().executors)

    def list_executors(self, *, limit: int = 0, after: str = "", state: str = "") -> pb.ListExecutorsResponse:
        """Return at most *limit* executors (0: all) by id, and how many there are of each state.

        They begin after the one with the id *after*; only those of one *state*, if that is given.
        """
        request = pb.ListExecutorsRequest(limit=limit, after=after, state=state)
        answer: pb.ListExecutorsResponse = self._connection.call("ListExecutors", request)
        return answer

    def schedulers(self) -> list[pb.SchedulerInfo]:
        """Return the schedulers of the cluster; `answering` marks the one that answered."""
        return list(self.list_schedulers().schedulers)

    def list_schedulers(self) -> pb.ListSchedulersResponse:
        """Return the schedulers of the cluster, and the time with which theirs are compared."""
        answer: pb.ListSchedulersResponse = self._connection.call("ListSchedulers", pb.ListSchedulersRequest())
        return answer

    def audit(
        self, *, since_ms: int = 0, until_ms: int = 0, action: str = "", target: str = "", principal: str = ""
    ) -> Iterator[AuditEntry]:
        """Yield who changed what, other than by submitting jobs, oldest first; for admins.

        *since_ms* and *until_ms* (not included; 0: no limit) are milliseconds since the Unix epoch. *action*, *target*
        and *principal* select entries that have exactly these.
        """
        request = pb.ListAuditRequest(
            since_ms=since_ms, until_ms=until_ms, action=action, target=target, principal=principal, limit=500
        )
        return list_audit(self._connection, request)

    def catalog(self, database: str = "") -> Iterator[CatalogEntry]:
        """Yield the databases of the catalog, or the tables, views and functions of one."""
        return list_catalog(self._connection, database)

    def catalog_entry(self, database: str, name: str) -> CatalogEntry:
        """Return a table, view or function with its record; `NotFoundError` when there is none."""
        return get_entry(self._connection, database, name)

    def partitions(self, database: str, table: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the partitions of a table: the path of each (``day=2026-03-01``), and what the store has of it."""
        return list_partitions(self._connection, database, table)

    @property
    def state(self) -> ClusterState:
        """The cluster's state store, for administration."""
        return ClusterState(self._connection)


def _title(text: str, secret_words: frozenset[str], limit: int = 60) -> str:
    """Return a short name for a query: its first words, without leading comments and without secrets."""
    lines = (line.strip() for line in shown_script(text[:4096], secret_words).splitlines())
    words = " ".join(" ".join(line for line in lines if line and not line.startswith("--")).split())
    return words if len(words) <= limit else words[: limit - 1] + "…"
