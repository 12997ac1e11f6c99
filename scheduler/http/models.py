"""The bodies of requests and answers; messages of the protocol have its names, as ``-o json`` prints them.

This is the contract: `docs/rest.md` describes it, and ``/openapi.json`` is made of it.
"""

from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from onager.execution_graph import JobState
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import (
    MAX_AUDIT_A_PAGE,
    MAX_CALLS_A_PAGE,
    MAX_CATALOG_A_PAGE,
    MAX_JOBS_A_PAGE,
    MAX_LOG_BYTES,
    MAX_REASON_CHARS,
    MAX_TASKS_A_PAGE,
    MAX_TIME_MS,
)
from onager.scheduler.http.messages import answer_of, fields_of, request_of

MAX_EVENTS: Final = 10_000

Cursor = Annotated[str, Field(max_length=1_024, description="`next` of the page before.")]
TimeMs = Annotated[int, Field(ge=0, le=MAX_TIME_MS, description="Milliseconds since 1970, UTC.")]
Next = Annotated[
    str | None, Field(description="The `cursor` of the next page; null: there is none. A page may be short, or empty.")
]


class Answer(BaseModel):
    """The base of answers."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class Request(BaseModel):
    """The base of bodies and of parameters: a name that is not known is an error, because it is a mistake."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


def _page(name: str, item: type[BaseModel], about: str) -> type[BaseModel]:
    """Return the model of a page of a listing."""
    return create_model(name, __base__=Answer, __doc__=about, items=(list[item], ...), next=(Next, ...))  # type: ignore[valid-type]


# ---------------------------------------------------------------- jobs

JobProgress = answer_of(pb.JobProgress)
TaskInfo = answer_of(pb.TaskInfo)
JobDetail = create_model(
    "Job",
    __base__=Answer,
    __doc__="A job: its progress, what was submitted (without code and secrets), its plan, and its result's schema.",
    **fields_of(pb.JobProgress),
    **fields_of(pb.JobDetail, without=("progress", "schema_json", "next")),
    schema_=(
        dict[str, Any] | None,
        Field(alias="schema", description="Of the result, as Spark's JSON; null while it is not known."),
    ),
)


Jobs = _page("Jobs", JobProgress, "A page of jobs, newest first; stages are left out.")


Tasks = _page("Tasks", TaskInfo, "A page of the tasks of a stage, by partition.")


class JobEvent(BaseModel):
    """Something that happened to a job. What else is in it depends on the type."""

    model_config = ConfigDict(extra="allow")

    position: Annotated[int, Field(ge=1, description="Of its batch in the job's log; a batch was committed at once.")]
    at_ms: Annotated[int, Field(ge=0, description="By the clock of the scheduler that decided it; 0: not_kept.")]
    scheduler_id: Annotated[str, Field(description="Which scheduler committed it: another one took the job over.")]
    type: Annotated[
        str,
        Field(description="task_succeeded, executor_lost, …; not_kept: all up to here is not in the store any more."),
    ]


class Events(Answer):
    """A page of what happened to a job, in the order of its log; whole batches."""

    items: list[JobEvent]
    next: Annotated[
        int | None,
        Field(description="The position to ask `after` for the next page; null: the job has ended, and this is all."),
    ]


class JobsQuery(Request):
    """Which jobs. The names are those of `pb.ListJobsRequest`."""

    state: Annotated[JobState | None, Field(description="Only those in this state.")] = None
    name: Annotated[
        str, Field(alias="q", max_length=1_024, description="Only those with this in their name, in any case.")
    ] = ""
    session: Annotated[str, Field(max_length=1_024, description="Only those of this session.")] = ""
    principal: Annotated[
        str, Field(max_length=128, description="Only those submitted with the token of this name.")
    ] = ""
    labels: Annotated[
        list[str], Field(alias="label", max_length=64, description="Only those with all of these, each KEY=VALUE.")
    ] = []
    steps: Annotated[bool, Field(description="Also the jobs of scripts' steps, and of programs' calls.")] = False
    since_ms: Annotated[TimeMs, Field(alias="since", description="Submitted then or later.")] = 0
    until_ms: Annotated[TimeMs, Field(alias="until", description="Submitted before; 0: up to now.")] = 0
    cursor: Cursor = ""
    limit: Annotated[int, Field(ge=1, le=MAX_JOBS_A_PAGE)] = 100


class TasksQuery(Request):
    """Which tasks."""

    cursor: Cursor = ""
    limit: Annotated[int, Field(ge=1, le=MAX_TASKS_A_PAGE)] = 1_000


class EventsQuery(Request):
    """Which events."""

    after: Annotated[int, Field(ge=0, lt=2**63, description="Only those after this position of the job's log.")] = 0
    limit: Annotated[
        int, Field(ge=1, le=MAX_EVENTS, description="About so many in a page: batches are never cut; JSON only.")
    ] = 1_000


FinalStage = answer_of(pb.FinalStage)


class Plan(Answer):
    """A page of a job's plan as it ran, or as it runs: its stages in order, with what their operators measured."""

    job_id: str
    state: str
    items: list[FinalStage]  # type: ignore[valid-type]
    next: Next


class PlanQuery(Request):
    """Where a page of stages begins."""

    cursor: Cursor = ""


class TimelineQuery(Request):
    """What is new."""

    after: Annotated[
        int, Field(ge=0, lt=2**63, description="`position` of the answer before: only bars and marks that are new.")
    ] = 0
    soon: Annotated[
        bool, Field(description="Answer soon: of a long log only the beginning; `is_early` says so, and to ask again.")
    ] = False


SubmitJob = create_model(
    "SubmitJob",
    __base__=Request,
    __doc__="A job to run. Sent again with the same `job_id`, it does not run twice.",
    job_id=(str | None, Field(None, description="1 to 63 of a-z, 0-9 and '-'; made by the scheduler if left out.")),
    spec=(request_of(pb.JobSpec), Field(description="What to run: `sql` or `python`.")),
    client_id=(str | None, Field(None, description="The default of the job's session.")),
)
Submitted = answer_of(pb.SubmitJobResponse)


class CancelJob(Request):
    """Why a job is cancelled."""

    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS, description="For people.")] = ""


Cancelled = answer_of(pb.CancelJobResponse)


class MendedProgram(Request):
    """A mended program, whose calls are matched with what is recorded before it writes."""

    file_name: Annotated[str, Field(description="Of the program, without a folder.")] = "app.py"
    source: Annotated[str, Field(description="The content of that file.")]
    keep: Annotated[bool, Field(description="What is written stands, also where this program differs.")] = False


class RetryJob(Request):
    """The id of the new job, and what goes on with a program. With an id the request can be sent again."""

    new_job_id: Annotated[str | None, Field(description="Made by the scheduler if left out.")] = None
    mended: Annotated[MendedProgram | None, Field(description="Goes on instead of the program that has failed.")] = None


Retried = answer_of(pb.RetryJobResponse)


# ---------------------------------------------------------------- programs


class SubmitProgram(Request):
    """A program of PySpark that the cluster runs, as a job. Sent again with the same `id`, it is the same program."""

    id: Annotated[str | None, Field(description="1 to 63 of a-z, 0-9 and '-'; made by the scheduler if left out.")] = (
        None
    )
    file_name: Annotated[str, Field(description="Of the program, without a folder.")] = "app.py"
    source: Annotated[str, Field(description="The content of that file.")]
    arguments: list[str] = []
    files: list[request_of(pb.ProgramFile)] = []  # type: ignore[valid-type]
    environment: Annotated[dict[str, str], Field(description="Variables of its environment.")] = {}
    user: Annotated[str, Field(description="Whose sessions it has, unless a token says it.")] = "anonymous"
    conf: Annotated[dict[str, str], Field(description="Settings of its sessions, and of Onager.")] = {}
    name: Annotated[str | None, Field(description="Of its job; its file's if left out.")] = None
    labels: dict[str, str] = {}
    deadline: Annotated[str | None, Field(description="How long after that it fails, such as `2h`.")] = None


ProgramInfo = answer_of(pb.ProgramInfo)
ProgramCall = answer_of(pb.ProgramCall)
ProgramCalls = _page("ProgramCalls", ProgramCall, "A page of the calls of a program, by task and number.")


class ProgramCallsQuery(Request):
    """Which calls."""

    cursor: Annotated[str, Field(max_length=8_192, description="`next` of the page before.")] = ""
    limit: Annotated[int, Field(ge=1, le=MAX_CALLS_A_PAGE)] = MAX_CALLS_A_PAGE


class OutputQuery(Request):
    """Which output."""

    follow: Annotated[bool, Field(description="Go on until the program has ended.")] = False
    after: Annotated[str, Field(max_length=64, description="The id of a message: only what was printed after it.")] = ""


# ---------------------------------------------------------------- logs

AttemptLog = create_model(
    "AttemptLog",
    __base__=answer_of(pb.AttemptLog),
    __doc__="Some of what one attempt of a task logged. One without a task holds only a note.",
    text=(str, Field(description="Whole lines.")),
)
Logs = _page("Logs", AttemptLog, "What attempts of a job's tasks logged.")


class LogsQuery(Request):
    """Which attempts. The names are those of `pb.FetchLogsRequest`."""

    stage_id: Annotated[int | None, Field(alias="stage", ge=0, lt=2**31, description="None: all stages.")] = None
    partition: Annotated[int | None, Field(alias="part", ge=0, lt=2**31, description="The partition; none: all.")] = (
        None
    )
    attempt: Annotated[int | None, Field(ge=0, lt=2**31, description="From 0 on; none: all.")] = None
    tail_bytes: Annotated[
        int, Field(alias="tail", ge=1, le=MAX_LOG_BYTES, description="Of each attempt, the last so many bytes.")
    ] = 65_536


class DrainExecutor(Request):
    """Why an executor shall leave."""

    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS, description="For people.")] = ""


Drained = answer_of(pb.DrainExecutorResponse)

# ---------------------------------------------------------------- the cluster

ExecutorInfo = answer_of(pb.ExecutorInfo)
SchedulerInfo = answer_of(pb.SchedulerInfo)
AuditEntry = answer_of(pb.AuditEntry)


Executors = _page("Executors", ExecutorInfo, "All executors, those lost lately included, by id.")


Schedulers = _page("Schedulers", SchedulerInfo, "All live schedulers.")


CatalogEntry = answer_of(pb.CatalogEntry)
CatalogPartition = answer_of(pb.CatalogPartition)


Catalog = _page("Catalog", CatalogEntry, "A page of databases, or of what is in one.")


CatalogPartitions = _page("CatalogPartitions", CatalogPartition, "A page of the partitions of a table.")


class CatalogQuery(Request):
    """Which page."""

    cursor: Annotated[str, Field(max_length=8_192, description="`next` of the page before.")] = ""
    limit: Annotated[int, Field(ge=1, le=MAX_CATALOG_A_PAGE)] = 100


Audit = _page("Audit", AuditEntry, "A page of who changed what, other than by submitting jobs, oldest first.")


class AuditQuery(Request):
    """Which acts. The names are those of `pb.ListAuditRequest`."""

    since_ms: Annotated[TimeMs, Field(alias="since")] = 0
    until_ms: Annotated[TimeMs, Field(alias="until", description="Not included; 0: to the newest.")] = 0
    action: Annotated[str, Field(max_length=64, description="Only this; empty: any, as for the next two.")] = ""
    target: Annotated[str, Field(max_length=4_096)] = ""
    principal: Annotated[str, Field(max_length=256)] = ""
    cursor: Cursor = ""
    limit: Annotated[int, Field(ge=1, le=MAX_AUDIT_A_PAGE)] = 100


class Warning(Answer):  # noqa: A001 - the field's word
    """Something that an operator should look at."""

    kind: Literal[
        "no_executors",
        "executor_quarantined",
        "executor_no_space",
        "executor_no_place",
        "executor_lost",
        "job_damaged",
    ]
    target: Annotated[str, Field(description="The executor or job.")]
    message: str


class Cluster(Answer):
    """The cluster at a glance; all schedulers tell the same."""

    version: Annotated[str, Field(description="Of the scheduler that answers.")]
    store: Annotated[str, Field(description="Where the state is, without credentials.")]
    exchange_dir: str
    jobs: Annotated[dict[str, int], Field(description="How many jobs are known, by state.")]
    executors: Annotated[dict[str, int], Field(description="How many executors are known, by state.")]
    slots: Annotated[int, Field(ge=0, description="Of the executors that take work.")]
    running: Annotated[int, Field(ge=0, description="Task attempts that these hold, as they said last.")]
    schedulers: Annotated[int, Field(ge=1)]
    warnings: list[Warning]


# ---------------------------------------------------------------- who calls


class Login(Request):
    """A line of the schedulers' token file, or its token alone."""

    token: Annotated[str, Field(min_length=1, max_length=8_192)]


class WhoAmI(Answer):
    """Who calls, and what it may do."""

    principal: Annotated[str, Field(description="The name of the token; empty: it has none, or none is needed.")]
    role: Annotated[
        Literal["viewer", "operator", "client", "executor", "scheduler", "admin"] | None,
        Field(description="Of the token; null: it may do everything."),
    ]
    by: Annotated[
        Literal["nobody", "token", "cookie"], Field(description="How the caller showed who it is; nobody: no need to.")
    ]
    expires_ms: Annotated[int | None, Field(description="When the cookie ends.")]
    may: Annotated[
        list[Literal["look", "submit", "cancel", "retry", "fetch", "drain", "audit"]],
        Field(description="What the caller may do."),
    ]
    scheduler_id: Annotated[str, Field(description="The scheduler that answers.")]
    version: str


class Ready(Answer):
    """Whether the scheduler serves."""

    is_ready: bool
    scheduler_id: str


class Mistake(Answer):
    """A part of a request that is wrong."""

    where: Annotated[str, Field(description="Such as `query limit` or `body spec.sql.text`.")]
    what: str


class Problem(Answer):
    """Why a request was refused, after RFC 9457 (``application/problem+json``)."""

    type: Annotated[str, Field(description="`urn:onager:error:` and the class of the error.")]
    title: str
    status: int
    detail: Annotated[str, Field(description="What, where, and what to do.")]
    instance: Annotated[str, Field(description="The request's method and path.")]
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later.")]
    mistakes: list[Mistake]
    fields: Annotated[dict[str, Any], Field(description="The error's own fields, such as `job_id`.")]


BODIES: Final[tuple[type[BaseModel], ...]] = (
    SubmitJob,
    SubmitProgram,
    CancelJob,
    RetryJob,
    DrainExecutor,
    Login,
    Problem,
)
"""Models that routes read or write by themselves; the OpenAPI document has them all the same."""

B = TypeVar("B", bound=BaseModel)


def body(model: type[BaseModel], *, is_needed: bool = True) -> dict[str, Any]:
    """Return what the OpenAPI document says of a body that a route reads by itself."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": is_needed, "content": {"application/json": {"schema": schema}}}}


def parsed(model: type[B], value: Any) -> B:
    """Return a body as *model*; an error of the request, which names the fields, for what is none."""
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_input=False, include_context=False)
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in mistakes]) from None
