"""The routes of programs: handing one in, how it stands, its calls, and what it prints."""

import base64
import codecs
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response

from onager.ids import new_job_id
from onager.job_settings import DEADLINE
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.scheduler.http import cursors, encoding, jobs, models
from onager.scheduler.http.bodies import read_json
from onager.scheduler.http.problems import RESPONSES, mistaken
from onager.scheduler.http.routing import By, Here

router: Final = APIRouter(tags=["programs"], responses=RESPONSES)

_OUTPUT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {encoding.TEXT: {"schema": {"type": "string"}}, encoding.SSE: {}}},
}
_POSITION: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,18})")
_STDERR: Final = 2
ProgramId = Annotated[
    str, Path(description="The program's id, which is that of its job.", max_length=256, examples=["nightly-7"])
]


@router.post(
    "/programs", response_model=models.Submitted, status_code=201, openapi_extra=models.body(models.SubmitProgram)
)
async def submit_program(here: Here, by: By, request: Request) -> Response:
    """Hand in a program of PySpark, as a job. Sent again with the same `id`, it is the same program."""
    here.calls.check(by, "SubmitJob")
    body = await read_json(request)
    drawn = new_job_id(here.clock)
    submission = await apart(jobs.size_of(request), _submission, body, drawn)
    return jobs.stored(await here.calls.call(by, "SubmitJob", submission), "programs")


def _submission(body: Any, drawn: str) -> pb.SubmitJobRequest:
    """Return the request in *body*; `InvalidRequestError` for what is none."""
    given = models.parsed(models.SubmitProgram, body).model_dump(exclude_none=True)
    deadline = {DEADLINE: given["deadline"]} if "deadline" in given else {}
    program = {name: given[name] for name in ("arguments", "files", "environment", "user")}
    _check_contents(given)
    source = base64.b64encode(given["source"].encode()).decode()
    spec = {
        "program": {"file_name": given["file_name"], "source": source, **program},
        "name": given.get("name", given["file_name"]),
        "labels": given["labels"],
        "conf": given["conf"] | deadline,
    }
    return jobs.submission({"job_id": given.get("id", drawn), "spec": spec}, "program")


def _check_contents(given: dict[str, Any]) -> None:
    """Raise the error of a field with a content that is no text, or no base64."""
    jobs.encoded_text("body.source", given["source"])
    for number, file in enumerate(given["files"]):
        try:
            base64.b64decode(file.get("content", ""), validate=True)
        except ValueError as error:
            raise mistaken(f"body.files.{number}.content", f"this is no base64: {error}") from None


@router.get("/programs/{program_id}", response_model=models.ProgramInfo)
async def get_program(here: Here, by: By, program_id: ProgramId) -> Response:
    """How a program stands: its attempts, whether it has ended, and its exit code. Its job tells the rest."""
    request = pb.GetProgramRequest(program_id=program_id)
    return encoding.answer(await here.calls.answer(by, "GetProgram", request, encoding.message))


@router.get("/programs/{program_id}/calls", response_model=models.ProgramCalls)
async def list_calls(
    here: Here, by: By, program_id: ProgramId, query: Annotated[models.ProgramCallsQuery, Query()]
) -> Response:
    """The calls of a program that are recorded, by task and number."""
    listing = f"calls {program_id}"
    request = pb.ListProgramCallsRequest(
        program_id=program_id, after=cursors.read(listing, query.cursor), limit=query.limit
    )
    return encoding.answer(await here.calls.answer(by, "ListProgramCalls", request, cursors.page_of(listing, "calls")))


@router.get("/programs/{program_id}/output", response_class=Response, responses=_OUTPUT)
async def get_output(
    here: Here,
    by: By,
    request: Request,
    program_id: ProgramId,
    query: Annotated[models.OutputQuery, Query()],
    last_event_id: Annotated[str | None, Header(description="As browsers send it: in place of `after`.")] = None,
) -> Response:
    """What a program printed: as text, all up to now, and with `follow` also what it prints until it ends.

    With `Accept: text/event-stream`, all up to its end as it is printed: messages `output`, whose data is a list and
    whose id is a position, and at last a message `end`. Any scheduler goes on after the id of any other.
    """
    here.calls.check(by, "WatchOutput")
    is_sse = jobs.wanted(request.headers.get("accept", "")) == encoding.SSE
    asked = pb.WatchOutputRequest(program_id=program_id, follow=query.follow or is_sse)
    if after := last_event_id or query.after:
        asked.attempt, asked.position = _position(after, "header.last-event-id" if last_event_id else "query.after")
    await here.calls.check_program(program_id)
    printed = here.calls.stream(by, "WatchOutput", asked)
    if is_sse:
        return here.streams.events(by.address, _messages(printed, program_id), jobs.still(here, request))
    if asked.follow:
        return here.streams.followed(by.address, _texts(printed), jobs.still(here, request), encoding.TEXT)
    return here.streams.file(by.address, _texts(printed), encoding.TEXT)


def _position(text: str, where: str) -> tuple[int, int]:
    found = _POSITION.fullmatch(text)
    if found is None:
        raise mistaken(where, f"{text[:40]!r} is no position in the output of a program: give the id of a message")
    return int(found[1]), int(found[2])


async def _texts(printed: AsyncGenerator[pb.ProgramOutput, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(printed):
        async for each in printed:
            if each.left_out:
                yield b"[%d bytes were not kept]\n" % each.left_out
            yield each.content


async def _messages(printed: AsyncGenerator[pb.ProgramOutput, None], program_id: str) -> AsyncGenerator[bytes, None]:
    """Yield a message for all that is printed up to a position."""
    decode = codecs.getincrementaldecoder("utf-8")
    decoders = {1: decode("replace"), _STDERR: decode("replace")}
    data: list[dict[str, object]] = []
    async with aclosing(printed):
        async for each in printed:
            data.append(
                {
                    "text": decoders[each.stream].decode(each.content),
                    "is_error": each.stream == _STDERR,
                    "attempt": each.attempt,
                    "left_out": each.left_out,
                }
            )
            if each.position:
                yield encoding.sse(encoding.encoded(data), kind="output", position=f"{each.attempt}.{each.position}")
                data = []
    yield encoding.sse(encoding.encoded({"program_id": program_id}), kind="end")
