"""Programs over REST: handing one in, how it stands, and what it printed."""

import base64
import json

import pytest

from onager.clock import SystemClock
from onager.exchange_layout import program_output
from onager.program_output import STDERR, STDOUT, Frame, OutputFolder
from onager.protocol import onager_pb2 as pb
from onager.scheduler.program_records import ProgramKey
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.support.http import JSON, http_scheduler, stream
from tests.support.waiting import eventually

PROGRAM = {"id": "nightly", "source": "print(1)\n"}


@pytest.fixture
async def served(tmp_path):
    async with http_scheduler(MemoryBackend(MemoryStore(SystemClock())), tmp_path) as one:
        yield one


async def hand_in(served, **more):
    return await served.http.post("/api/v1/programs", json={**PROGRAM, **more})


async def begin(served):
    """Begin an attempt, as the executor that runs the program does."""
    request = pb.BeginProgramRequest(program_id="nightly", secret="5" * 32, user="ann", digest="d", arguments="[]")
    return await served.app.programs.begin("", request)


async def printing(served, tmp_path, attempt=1):
    if attempt == 1:
        await begin(served)
    folder = await served.app.programs.folder(ProgramKey("", "nightly"))
    return OutputFolder(tmp_path / program_output(folder), attempt)


async def text_of(served, **query):
    answer = await served.http.get("/api/v1/programs/nightly/output", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return answer.text


async def test_a_program_is_handed_in_once_and_is_a_job(served):
    module = {"name": "own.py", "content": base64.b64encode(b"x = 1").decode(), "use": "python"}
    given = {
        "file_name": "nightly.py",
        "arguments": ["2026-11-30", "--flag"],
        "files": [module],
        "environment": {"TOKEN": "xyzzy"},
        "conf": {"spark.sql.shuffle.partitions": "4"},
        "labels": {"team": "sales"},
        "deadline": "2h",
    }
    answer = await hand_in(served, **given)
    assert (answer.status_code, answer.headers["location"]) == (201, "/api/v1/programs/nightly")
    assert answer.json() == {"job_id": "nightly", "existed": False}
    again = await hand_in(served, **given)
    assert (again.status_code, again.json()["existed"]) == (200, True)
    assert (await hand_in(served, source="print(2)")).status_code == 409

    job = await served.get("/jobs/nightly")
    assert (job["name"], job["labels"], job["stages"][-1]["work"]) == ("nightly.py", {"team": "sales"}, "program")
    assert job["deadline_ms"] - job["submitted_ms"] == 2 * 3_600_000
    program = job["spec"]["program"]
    assert (program["arguments"], program["environment"]) == (["2026-11-30", "--flag"], {"TOKEN": "***"})
    assert "own.py" in str(program["files"])


async def test_a_program_without_an_id_gets_one(served):
    answer = await served.http.post("/api/v1/programs", json={"source": "print(1)"})
    assert answer.status_code == 201
    assert (await served.get(f"/programs/{answer.json()['job_id']}"))["attempt"] == 0


async def test_it_stands_at_its_attempt_and_ends(served):
    await hand_in(served)
    waiting = await served.get("/programs/nightly")
    assert (waiting["program_id"], waiting["attempt"], waiting["ended"]) == ("nightly", 0, False)
    assert await served.get("/programs/nightly/calls") == {"items": [], "next": None}
    await begin(served)
    assert (await served.get("/programs/nightly"))["attempt"] == 1
    await served.http.post("/api/v1/jobs/nightly/cancel", json={"reason": "enough"})
    ended = await served.get("/programs/nightly")
    assert (ended["ended"], ended["why_ended"]) == (True, "enough")


async def test_its_output_is_a_text_and_goes_on(served, tmp_path):
    await hand_in(served)
    assert await text_of(served) == ""
    out = await printing(served, tmp_path)
    out.add(Frame(STDOUT, 0, "0", "begun ä\n".encode()))
    out.add(Frame(STDERR, 0, "0", b"warning\n"))
    assert await text_of(served) == "begun ä\nwarning\n"
    params = {"follow": "true"}
    async with served.http.stream("GET", "/api/v1/programs/nightly/output", params=params) as followed:
        parts = followed.aiter_text()
        assert await anext(parts) == "begun ä\n"
        (await printing(served, tmp_path, 2)).add(Frame(STDOUT, 3, "0", b"gone on\n"))
        await served.http.post("/api/v1/jobs/nightly/cancel")
        assert "".join([part async for part in parts]) == "warning\ngone on\n"


async def test_a_stream_of_its_output_goes_on_behind_any_message(served, tmp_path):
    await hand_in(served)
    out = await printing(served, tmp_path)
    whole = "half ä\n".encode()
    out.add(Frame(STDOUT, 0, "0", whole[:6]))
    out.add(Frame(STDOUT, 0, "0", whole[6:]))
    async with stream(served, "/programs/nightly/output") as messages:
        first = await anext(messages)
        assert (first.kind, "".join(part["text"] for part in first.data)) == ("output", "half ä\n")
        assert {(part["attempt"], part["is_error"], part["left_out"]) for part in first.data} == {(1, False, 0)}
        (await printing(served, tmp_path, 2)).add(Frame(STDERR, 3, "0", b"gone on\n"))
        second = await anext(messages)
        await served.http.post("/api/v1/jobs/nightly/cancel")
        assert [message.kind async for message in messages] == ["end"]
    async with stream(served, "/programs/nightly/output", last_event_id=first.id) as messages:
        later = [message async for message in messages]
    assert [message.kind for message in later] == ["output", "end"]
    assert later[0] == second
    assert second.data == [{"text": "gone on\n", "is_error": True, "attempt": 2, "left_out": 0}]
    assert await text_of(served, after=first.id) == "gone on\n"


@pytest.mark.parametrize(
    ("path", "status", "error", "says"),
    [
        ("/programs/nothing", 404, "JobNotFoundError", "job nothing is not known"),
        ("/programs/No_Id/output", 404, "JobNotFoundError", "No_Id"),
        ("/programs/..%2F..", 404, "HTTPException", "Not Found"),
        ("/programs/nothing/calls", 404, "JobNotFoundError", "nothing"),
        ("/programs/nothing/output", 404, "JobNotFoundError", "nothing"),
        ("/programs/nothing/output?follow=true", 404, "JobNotFoundError", "nothing"),
        ("/programs/job-1", 404, "NotFoundError", "job job-1 is no program"),
        ("/programs/job-1/calls", 404, "NotFoundError", "job job-1 is no program"),
        ("/programs/job-1/output", 404, "NotFoundError", "job job-1 is no program"),
        ("/programs/nightly/calls?limit=501", 400, "InvalidRequestError", "query limit"),
        ("/programs/nightly/calls?cursor=AAAA", 400, "InvalidRequestError", "not `next` of a page"),
        ("/programs/nightly/output?after=7", 400, "InvalidRequestError", "no position in the output of a program"),
        ("/programs/nightly/output?folow=true", 400, "InvalidRequestError", "no such parameter"),
    ],
)
async def test_answers_to_bad_requests_say_what_is_wrong(served, path, status, error, says):
    await served.submit("job-1")
    await hand_in(served)
    answer = await served.http.get(f"/api/v1{path}")
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert says in f"{problem['title']} {problem['detail']}"
    assert problem["type"] in (f"urn:onager:error:{error}", "about:blank")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "body source"),
        ({"source": 7}, "body source"),
        ({"source": " "}, "the program is empty"),
        ({"source": "x", "sorce": "y"}, "body sorce"),
        ({"source": "x", "id": "No_Id"}, "not a job id"),
        ({"source": "x", "file_name": "a/b.py"}, "has no slash"),
        ({"source": "x", "files": [{"name": "a.txt", "content": "%"}]}, "body files.0.content"),
        ({"source": "x", "files": [{"name": "a.txt", "use": "jar"}]}, "no use of a program's file"),
        ({"source": "x", "environment": {"A=B": "c"}}, "variable of the program's environment"),
        ({"source": "x", "deadline": "soon"}, "soon"),
        ({"source": "\ud800"}, "body source"),
    ],
)
async def test_what_is_no_program_is_refused_by_name(served, body, says):
    answer = await served.http.post("/api/v1/programs", content=json.dumps(body), headers=JSON)
    assert answer.status_code == 400, answer.text
    assert says in answer.json()["detail"]
    assert (await served.get("/jobs"))["items"] == []


async def test_followers_leave_with_the_scheduler(served, tmp_path):
    await hand_in(served)
    (await printing(served, tmp_path)).add(Frame(STDOUT, 0, "0", b"begun\n"))
    params = {"follow": "true"}
    async with served.http.stream("GET", "/api/v1/programs/nightly/output", params=params) as followed:
        parts = followed.aiter_text()
        assert await anext(parts) == "begun\n"
        served.app.stopping.set()
        assert [part async for part in parts] == []


async def test_jobs_of_its_calls_are_listed_when_they_are_asked_for(served):
    await hand_in(served)
    for number, program in enumerate(["%/nightly", "%/local"]):
        await served.submit(f"call-{number}", labels={"connect.program": program})

    async def are_there():
        return len((await served.get("/jobs", steps=True))["items"]) == 3

    await eventually(are_there)
    listed = {job["job_id"] for job in (await served.get("/jobs"))["items"]}
    assert listed == {"nightly", "call-1"}, "the program of another one is no job, so nothing else shows it"
    asked = (await served.get("/jobs", label="connect.program=%/nightly"))["items"]
    assert [job["job_id"] for job in asked] == ["call-0"]


async def test_a_mended_program_goes_on_with_the_record_of_one_that_has_failed(served):
    await hand_in(served)
    job = await served.app.jobs.fresh("nightly")
    request = pb.BeginProgramRequest(program_id="nightly", secret="5" * 32, user="ann", digest=job.graph.spec_digest)
    await served.app.programs.begin("", request, job_id="nightly")
    end = pb.EndProgramRequest(program_id="nightly", attempt=1, secret="5" * 32, exit_code=1)
    await served.app.programs.end("", end)
    await served.http.post("/api/v1/jobs/nightly/cancel")

    async def retry(**mended):
        body = json.dumps({"new_job_id": "again", "mended": mended})
        return await served.http.post("/api/v1/jobs/nightly/retry", content=body, headers=JSON)

    for mended, says in (
        ({"keep": True}, "mended.source"),
        ({"source": "SELECT 1", "file_name": "app.sql"}, "give a file of the same kind"),
        ({"source": "\ud800"}, "mended.source: this is no text"),
    ):
        answer = await retry(**mended)
        assert (answer.status_code, says in answer.text) == (400, True), answer.text
    answer = await retry(source="print(2)\n", keep=True)
    assert (answer.status_code, answer.json()["job_id"]) == (201, "again")
    program = await served.get("/programs/again")
    assert (program["program_id"], program["job_id"], program["retries"]) == ("nightly", "again", 1)
    assert not program["matching"], "it has written nothing"
    record, _ = await served.app.programs.read(ProgramKey("", "nightly"))
    assert (record.mending.keeps, record.digest) == (True, (await served.app.jobs.fresh("again")).graph.spec_digest)
