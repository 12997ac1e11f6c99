"""The routes of jobs."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Request
from google.protobuf import json_format
from starlette.responses import Response

from onager.errors import InvalidRequestError, NotFoundError
from onager.ids import new_job_id
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.protocol.limits import PROTOCOL_VERSION
from onager.protocol.plain import plain
from onager.scheduler.api.timeline.model import Timeline
from onager.scheduler.api.timeline.picture import STYLE_HASH
from onager.scheduler.http import cursors, encoding, models
from onager.scheduler.http.access import Caller
from onager.scheduler.http.bodies import read_json
from onager.scheduler.http.problems import RESPONSES, mistaken
from onager.scheduler.http.routing import By, Here, JobId, Server

router: Final = APIRouter(tags=["jobs"], responses=RESPONSES)

_STREAMED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {encoding.SSE: {}}},
}
_EVENTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {
            encoding.SSE: {},
            encoding.NDJSON: {"schema": {"type": "string"}},
        }
    },
    204: {"description": "Server-sent events only: the job has ended, and there are no more."},
}
_PICTURE: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}}}
_LINES: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {encoding.NDJSON: {"schema": {"type": "string"}}}}}
_PICTURE_POLICY: Final = f"default-src 'none'; style-src '{STYLE_HASH}'; sandbox"
"""A picture that is opened by itself brings its own style."""
_POSITION_DIGITS: Final = 18
Stage = Annotated[int, Path(ge=0, lt=2**31, description="The stage's id.", examples=[0])]


@router.get("/jobs", response_model=models.Jobs)
async def list_jobs(here: Here, by: By, query: Annotated[models.JobsQuery, Query()]) -> Response:
    """Jobs, newest first."""
    request = pb.ListJobsRequest(**query.model_dump(exclude={"labels", "cursor"}, exclude_none=True))
    request.labels.update(_labels(query.labels))
    request.cursor = cursors.read("jobs", query.cursor)
    return encoding.answer(await here.calls.answer(by, "ListJobs", request, cursors.page_of("jobs", "jobs")))


def _labels(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidRequestError(f"label {text[:80]!r} is no KEY=VALUE")
        found[key] = value
    return found


@router.post("/jobs", response_model=models.Submitted, status_code=201, openapi_extra=models.body(models.SubmitJob))
async def submit_job(here: Here, by: By, request: Request) -> Response:
    """Submit a job. It is stored when this returns, and runs once, however often it is sent with the same `job_id`."""
    here.calls.check(by, "SubmitJob")
    body = await read_json(request)
    job_id = new_job_id(here.clock)
    submission = await apart(size_of(request), _submission, body, job_id)
    return stored(await here.calls.call(by, "SubmitJob", submission))


def stored(answer: Any, where: str = "jobs") -> Response:
    """Return the answer about a job that is stored, and can be looked at below *where*."""
    response = encoding.answer(encoding.message(answer), status=200 if answer.existed else 201)
    response.headers["location"] = f"/api/v1/{where}/{answer.job_id}"
    return response


@router.get("/jobs/{job_id}", response_model=models.JobDetail)
async def get_job(here: Here, by: By, job_id: JobId) -> Response:
    """A job, with its stages; their tasks have pages of their own."""
    return encoding.answer(
        await here.calls.answer(by, "GetJob", pb.GetJobRequest(job_id=job_id, limit=1), encoding.job)
    )


@router.get("/jobs/{job_id}/stages/{stage_id}/tasks", response_model=models.Tasks)
async def list_tasks(
    here: Here, by: By, job_id: JobId, stage_id: Stage, query: Annotated[models.TasksQuery, Query()]
) -> Response:
    """The tasks of a stage, by partition."""
    listing = f"tasks {job_id} {stage_id}"
    first = cursors.read_number(listing, query.cursor)
    request = pb.GetJobRequest(job_id=job_id, stage_id=stage_id, partition=first, limit=query.limit)

    def page(detail: pb.JobDetail) -> bytes:
        stage = next((s for s in detail.progress.stages if s.stage_id == stage_id), None)
        if stage is None:
            last = detail.progress.stages[-1].stage_id if detail.progress.stages else "none"
            raise NotFoundError(f"job {job_id} has no stage {stage_id}: the last one is {last}")
        more = detail.HasField("next") and detail.next.stage_id == stage_id
        return encoding.page(stage.tasks, cursors.make(listing, str(detail.next.partition)) if more else None)

    return encoding.answer(await here.calls.answer(by, "GetJob", request, page, form="tasks"))


@router.get("/jobs/{job_id}/events", response_model=models.Events, responses=_EVENTS)
async def list_events(
    here: Here,
    by: By,
    request: Request,
    job_id: JobId,
    query: Annotated[models.EventsQuery, Query()],
    last_event_id: Annotated[str | None, Header(description="As browsers send it: in place of `after`.")] = None,
) -> Response:
    """What happened to a job, in the order of its log.

    As JSON, a page. With `Accept: application/x-ndjson`, all up to now, an object a line. With
    `Accept: text/event-stream`, all up to the job's end as it happens: messages `events`, whose data is a list and
    whose id is a position of the log, and at last a message `end`. Any scheduler goes on after the id of any other.
    """
    here.calls.check(by, "WatchEvents")
    after = _position(last_event_id) if last_event_id else query.after
    job = await here.calls.standing(job_id)
    if after > job.position:
        where = "header.last-event-id" if last_event_id else "query.after"
        raise _beyond(where, job_id, after, job.position)
    match wanted(request.headers.get("accept", "")):
        case encoding.SSE:
            if after == job.position and job.is_over:
                return Response(status_code=204)  # browsers do not come again
            return here.streams.events(by.address, _event_messages(here, job_id, after), still(here, request))
        case encoding.NDJSON:
            return here.streams.file(by.address, _event_lines(here, job_id, after))
        case _:
            return encoding.answer(await _event_page(here, job_id, after, query.limit, is_over=job.is_over))


@router.get("/jobs/{job_id}/timeline", response_model=Timeline)
async def get_timeline(here: Here, by: By, job_id: JobId, query: Annotated[models.TimelineQuery, Query()]) -> Response:
    """What a job did when and where: attempts by executor, and marks. What is empty, 0 or false is left out."""
    here.calls.check(by, "ExportJob")
    if query.after and query.after > (job := await here.calls.standing(job_id)).position:
        raise _beyond("query.after", job_id, query.after, job.position)
    request = pb.ExportJobRequest(job_id=job_id, format="timeline", after=query.after, soon=query.soon)

    async def look() -> bytes:
        async with aclosing(here.calls.stream(by, "ExportJob", request)) as chunks:
            return b"".join([chunk.content async for chunk in chunks])

    return encoding.answer(await here.calls.shared(("timeline", job_id, query.after, query.soon), look))


@router.get("/jobs/{job_id}/timeline.svg", response_class=Response, responses=_PICTURE)
async def draw_timeline(here: Here, by: By, job_id: JobId) -> Response:
    """The timeline of a job as a picture."""
    response = await _file(here, by, pb.ExportJobRequest(job_id=job_id, format="timeline-svg"), "image/svg+xml")
    response.headers["content-security-policy"] = _PICTURE_POLICY
    return response


@router.get("/jobs/{job_id}/spark-event-log", response_class=Response, responses=_LINES)
async def get_spark_event_log(here: Here, by: By, job_id: JobId) -> Response:
    """A job as an event log for Spark's History Server."""
    return await _file(here, by, pb.ExportJobRequest(job_id=job_id, format="spark-event-log"), encoding.NDJSON)


async def _file(here: Server, by: Caller, request: pb.ExportJobRequest, media_type: str) -> Response:
    """Return what is derived from a job's history; errors that come before its first piece are reported as such."""
    chunks = here.calls.stream(by, "ExportJob", request)
    first = await anext(chunks, None)

    async def contents() -> AsyncGenerator[bytes, None]:
        async with aclosing(chunks):
            if first is not None:
                yield first.content
            async for chunk in chunks:
                yield chunk.content

    return here.streams.export(by.address, contents(), media_type)


@router.get("/jobs/{job_id}/plan", response_model=models.Plan)
async def get_plan(here: Here, by: By, job_id: JobId, query: Annotated[models.PlanQuery, Query()]) -> Response:
    """A job's plan as it ran, or as it runs: stages, operators, and what these measured."""
    listing = f"plan {job_id}"
    first = cursors.read_number(listing, query.cursor)
    request = pb.GetFinalPlanRequest(job_id=job_id, stage_id=first)

    def page(plan: pb.FinalPlan) -> bytes:
        content = plain(plan)
        stages, after = content.pop("stages"), content.pop("next")
        return encoding.encoded(
            {**content, "items": stages, "next": cursors.make(listing, str(after)) if after else None}
        )

    return encoding.answer(await here.calls.answer(by, "GetFinalPlan", request, page))


@router.get("/jobs/{job_id}/progress", responses=_STREAMED, response_class=Response)
async def watch_progress(here: Here, by: By, request: Request, job_id: JobId) -> Response:
    """A job's progress as server-sent events.

    A message `progress` at once and at each change, as in a list of jobs with their stages; and at the job's end a
    message `end`. Who reads slowly gets the latest.
    """
    here.calls.check(by, "WatchJob")
    await here.calls.standing(job_id)
    return here.streams.events(by.address, _progress_messages(here, job_id), still(here, request))


@router.post(
    "/jobs/{job_id}/cancel",
    response_model=models.Cancelled,
    openapi_extra=models.body(models.CancelJob, is_needed=False),
)
async def cancel_job(here: Here, by: By, request: Request, job_id: JobId) -> Response:
    """End a job; one that has ended stays as it is."""
    here.calls.check(by, "CancelJob")
    given = models.parsed(models.CancelJob, await read_json(request))
    answer = await here.calls.call(by, "CancelJob", pb.CancelJobRequest(job_id=job_id, reason=given.reason))
    return encoding.answer(encoding.message(answer))


@router.post(
    "/jobs/{job_id}/retry",
    response_model=models.Retried,
    status_code=201,
    openapi_extra=models.body(models.RetryJob, is_needed=False),
)
async def retry_job(here: Here, by: By, request: Request, job_id: JobId) -> Response:
    """Submit a job that has ended once more, as a new job: sent again with the same `new_job_id`, it runs once."""
    here.calls.check(by, "RetryJob")
    given = models.parsed(models.RetryJob, await read_json(request))
    order = pb.RetryJobRequest(
        job_id=job_id, new_job_id=given.new_job_id or new_job_id(here.clock), protocol_version=PROTOCOL_VERSION
    )
    if given.mended is not None:
        order.mended.file_name, order.mended.keep = given.mended.file_name, given.mended.keep
        order.mended.source = encoded_text("body.mended.source", given.mended.source)
    return stored(await here.calls.call(by, "RetryJob", order))


def encoded_text(where: str, text: str) -> bytes:
    """Return a text of a request as bytes; the error of the field *where* for what is none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise mistaken(where, f"this is no text: {error}") from None


@router.get("/jobs/{job_id}/logs", response_model=models.Logs)
async def get_logs(here: Here, by: By, job_id: JobId, query: Annotated[models.LogsQuery, Query()]) -> Response:
    """What attempts of a job's tasks logged: from executors while they live, else what was kept with a failure."""
    request = pb.FetchLogsRequest(job_id=job_id, **query.model_dump(exclude_none=True))
    async with aclosing(here.calls.stream(by, "FetchLogs", request)) as attempts:
        logs: list[pb.AttemptLog] = [attempt async for attempt in attempts]
    size = sum(len(log.text) for log in logs)
    return encoding.answer(await apart(size, _page_of_logs, logs))


def _page_of_logs(logs: list[pb.AttemptLog]) -> bytes:
    items = [{**plain(log), "text": log.text.decode(errors="replace")} for log in logs]
    return encoding.encoded({"items": items, "next": None})


def still(here: Server, request: Request) -> Callable[[], None]:
    """Return what raises once the caller may not look any more: its token has gone, or its cookie is too old."""
    return lambda: here.calls.check(here.access.identify(request), "WatchJob")


def _submission(body: Any, job_id: str) -> pb.SubmitJobRequest:
    """Return the request in *body*; `InvalidRequestError` for what is none."""
    if not isinstance(body, dict):
        raise InvalidRequestError('the body is no JSON object: give {"spec": {"sql": {"text": "SELECT 1"}}}')
    for name in body:
        if name not in ("job_id", "spec", "client_id"):
            raise mistaken(f"body.{name[:80]}", "there is no such field")
    request = submission(body, "job")
    if not request.job_id:
        request.job_id = job_id
    return request


def submission(fields: dict[str, Any], what: str) -> pb.SubmitJobRequest:
    """Return the request with *fields*; `InvalidRequestError` if they are those of none."""
    request = pb.SubmitJobRequest(protocol_version=PROTOCOL_VERSION)
    try:
        json_format.ParseDict(fields, request)
    except (json_format.ParseError, RecursionError, ValueError, TypeError, AttributeError) as error:
        raise InvalidRequestError(f"the body is no {what}: {error}") from None
    return request


def size_of(request: Request) -> int:
    """Return how large the body of a request is, about."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 2**20


def _position(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _POSITION_DIGITS):
        raise mistaken("header.last-event-id", f"{text[:40]!r} is no position of a job's log")
    return int(text)


def _beyond(where: str, job_id: str, position: int, last: int) -> Exception:
    return mistaken(where, f"the log of job {job_id} ends at {last}: {position} is of another job, or another cluster")


def wanted(accept: str) -> str:
    """Return the form of an answer that the caller names first."""
    for part in accept.split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in (encoding.SSE, encoding.NDJSON, encoding.JSON):
            return kind
    return encoding.JSON


async def _event_messages(here: Server, job_id: str, after: int) -> AsyncGenerator[bytes, None]:
    async with aclosing(here.feeds.events(job_id, after)) as batches:
        async for batch in batches:
            yield encoding.sse(b"[" + b",".join(batch.events) + b"]", kind="events", position=batch.position)
    yield encoding.sse(encoding.encoded({"job_id": job_id}), kind="end")


async def _progress_messages(here: Server, job_id: str) -> AsyncGenerator[bytes, None]:
    async with aclosing(here.feeds.progress(job_id)) as messages:
        async for message in messages:
            yield encoding.sse(message, kind="progress")
    yield encoding.sse(encoding.encoded({"job_id": job_id}), kind="end")


async def _event_lines(here: Server, job_id: str, after: int) -> AsyncGenerator[bytes, None]:
    async with aclosing(here.feeds.history(job_id, after)) as batches:
        async for batch in batches:
            yield b"".join(event + b"\n" for event in batch.events)


async def _event_page(here: Server, job_id: str, after: int, limit: int, *, is_over: bool) -> bytes:
    events: list[bytes] = []
    more: int | None = None
    async with aclosing(here.feeds.history(job_id, after)) as batches:
        async for batch in batches:
            events += batch.events
            after = batch.position
            if len(events) >= limit:
                more = after
                break
    if more is None and not is_over:
        more = after
    return b'{"items":[' + b",".join(events) + b'],"next":' + encoding.encoded(more) + b"}"
