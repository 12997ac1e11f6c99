"""REST over real uvicorn: what every route answers, and what it refuses."""

import base64
import hashlib
import json
import re

import httpx
import pytest

from onager.clock import SystemClock
from onager.protocol import onager_pb2 as pb
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.integration.scheduler.test_jobs import two_stages
from tests.support.fakes.scripted_executor import Client, executor
from tests.support.http import http_scheduler, messages, stream
from tests.support.waiting import eventually

WEEK_MS = 7 * 24 * 3_600_000


@pytest.fixture
async def store():
    return MemoryStore(SystemClock())


@pytest.fixture
async def served(store, tmp_path):
    async with http_scheduler(MemoryBackend(store), tmp_path) as one:
        yield one


async def ended(served, job_id, state="successful"):
    async def is_so():
        return (await served.get(f"/jobs/{job_id}"))["state"] == state

    await eventually(is_so)


async def test_a_job_is_submitted_followed_and_looked_at(served):
    answer = await served.submit("job-1", conf={"onager.session": "nightly"})
    assert (answer.status_code, answer.headers["location"]) == (201, "/api/v1/jobs/job-1")
    assert answer.json() == {"job_id": "job-1", "existed": False}
    again = await served.submit("job-1", conf={"onager.session": "nightly"})
    assert (again.status_code, again.json()["existed"]) == (200, True)

    async with stream(served, "/jobs/job-1/progress") as reported, executor(served.address, "e1", two_stages()):
        states = [m.data["state"] async for m in reported if m.kind == "progress"]
    assert (states[0], states[-1]) == ("queued", "successful")

    job = await served.get("/jobs/job-1")
    assert (job["state"], job["spec"]["sql"]["text"], job["plan"]) == ("successful", "SELECT 1", "the plan")
    assert [stage["partitions"] for stage in job["stages"]] == [1, 4, 3]
    assert not any(stage["tasks"] for stage in job["stages"])
    listed = await served.get("/jobs", state="successful")
    assert [j["job_id"] for j in listed["items"]] == ["job-1"]
    assert (await served.get("/jobs", state="failed")) == {"items": [], "next": None}

    first = await served.get("/jobs/job-1/stages/1/tasks", limit=3)
    rest = await served.get("/jobs/job-1/stages/1/tasks", cursor=first["next"], limit=3)
    tasks = first["items"] + rest["items"]
    assert [(t["partition"], t["state"], t["executor_id"]) for t in tasks] == [
        (n, "successful", "e1") for n in range(4)
    ]
    assert rest["next"] is None

    plan = await served.get("/jobs/job-1/plan")
    assert [stage["info"]["stage_id"] for stage in plan["items"]] == [0, 1, 2]
    timeline = await served.get("/jobs/job-1/timeline")
    assert (timeline["attempts"], timeline["outcomes"]) == (8, {"successful": 8})
    assert "bars" not in await served.get("/jobs/job-1/timeline", after=timeline["position"])


async def test_events_come_as_pages_as_lines_and_as_messages_and_are_the_same(served):
    await served.submit("job-1")
    async with stream(served, "/jobs/job-1/events") as reported, executor(served.address, "e1", two_stages()):
        streamed = [message async for message in reported]
    assert streamed[-1].kind == "end"
    events = [event for message in streamed[:-1] for event in message.data]
    assert [message.id for message in streamed[:-1]] == sorted({str(e["position"]) for e in events}, key=int)
    assert {"stages_started", "tasks_launched", "task_succeeded"} <= {event["type"] for event in events}

    lines = await served.http.get("/api/v1/jobs/job-1/events", headers={"accept": "application/x-ndjson"})
    assert [json.loads(line) for line in lines.text.splitlines()] == events

    paged, after = [], 0
    while after is not None:
        page = await served.get("/jobs/job-1/events", after=after, limit=2)
        paged += page["items"]
        after = page["next"]
    assert paged == events

    over = await served.http.get(
        "/api/v1/jobs/job-1/events", headers={"accept": "text/event-stream", "last-event-id": streamed[-2].id}
    )
    assert over.status_code == 204  # a browser does not come again


async def streamed_in_turn(schedulers, path):
    """Return the events of a job, each message from the next scheduler, and the position of the last one."""
    seen, position = [], ""
    for number in range(1_000):
        headers = {"last_event_id": position} if position else {}
        async with stream(schedulers[number % len(schedulers)], path, **headers) as reported:
            message = await anext(reported)
        if message.kind == "end":
            break
        seen += message.data
        position = message.id
        if (await schedulers[0].get(path, after=position))["next"] is None:
            break
    return seen, position


async def test_three_schedulers_answer_alike_and_a_stream_goes_on_at_any_of_them(store, tmp_path):
    async with (
        http_scheduler(MemoryBackend(store), tmp_path) as one,
        http_scheduler(MemoryBackend(store), tmp_path) as two,
        http_scheduler(MemoryBackend(store), tmp_path) as three,
    ):
        await one.submit("job-1")
        async with executor(two.address, "e1", two_stages(width=6)):
            seen, position = await streamed_in_turn((one, two, three), "/jobs/job-1/events")
            await ended(one, "job-1")
        whole = []
        async with stream(three, "/jobs/job-1/events") as reported:
            async for message in reported:
                whole += message.data if message.kind == "events" else []
        later = [event for event in whole if event["position"] > int(position)]
        assert seen + later == whole
        assert len(whole) > 8

        await one.submit("job-2")
        await eventually(lambda: all(s.app.heads.get("job-2") is not None for s in (two, three)))
        for path in (
            *("/jobs", "/jobs/job-1", "/jobs/job-1/stages/1/tasks", "/jobs/job-1/events", "/jobs/job-1/timeline"),
            *("/jobs/job-1/plan", "/jobs?limit=1", "/audit"),
        ):
            # Lists are of what each scheduler watches: it learns of a change a moment later.
            async def are_alike(path=path):
                answers = [(await s.http.get(f"/api/v1{path}")).json() for s in (one, two, three)]
                return answers[0] == answers[1] == answers[2]

            await eventually(are_alike, what=path)

        async def answer_of(served, path):
            items = (await served.get(path))["items"]
            return [{k: v for k, v in item.items() if k != "answering"} for item in items]

        for path in ("/schedulers", "/executors"):

            async def are_equal(path=path):
                one_, *others = [await answer_of(s, path) for s in (one, two, three)]
                return len(one_) > 0 and all(other == one_ for other in others)

            if path == "/schedulers":
                await eventually(are_equal)

        async def clusters_are_equal():
            clusters = [await s.get("/cluster") for s in (one, two, three)]
            return clusters[0]["jobs"]["successful"] == 1 and clusters[0] == clusters[1] == clusters[2]

        await eventually(clusters_are_equal)


async def test_a_job_is_cancelled_and_the_audit_says_by_whom(served):
    await served.submit("job-1")
    answer = await served.http.post("/api/v1/jobs/job-1/cancel", json={"reason": "too slow"})
    assert answer.json() == {"cancelled": True, "state": "cancelled"}
    again = await served.http.post("/api/v1/jobs/job-1/cancel")
    assert again.json() == {"cancelled": False, "state": "cancelled"}
    (act,) = (await served.get("/audit"))["items"]
    assert (act["action"], act["target"], act["detail"], act["outcome"]) == ("cancel", "job-1", "too slow", "done")
    assert act["address"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("method", "path", "status", "error", "says"),
    [
        ("GET", "/jobs/nothing", 404, "JobNotFoundError", "job nothing is not known"),
        ("GET", "/jobs/No_Id", 404, "JobNotFoundError", "No_Id"),
        ("GET", "/jobs/nothing/events", 404, "JobNotFoundError", "nothing"),
        ("GET", "/jobs/nothing/progress", 404, "JobNotFoundError", "nothing"),
        ("GET", "/jobs/nothing/timeline", 404, "JobNotFoundError", "nothing"),
        ("GET", "/jobs/No_Id/timeline", 404, "JobNotFoundError", "No_Id"),
        ("GET", "/jobs/nothing/plan", 404, "JobNotFoundError", "nothing"),
        ("POST", "/jobs/nothing/cancel", 404, "JobNotFoundError", "nothing"),
        ("GET", "/jobs/job-1/stages/7/tasks", 404, "NotFoundError", "no stage 7"),
        ("GET", "/jobs/job-1/stages/x/tasks", 400, "InvalidRequestError", "path stage_id"),
        ("GET", "/jobs/job-1/stages/0/tasks?cursor=AAAA", 400, "InvalidRequestError", "not `next` of a page"),
        ("GET", "/jobs/job-1/stages/0/tasks?cursor=%C3%A4%00", 400, "InvalidRequestError", "not `next` of a page"),
        ("GET", "/jobs/job-1/events?after=900", 400, "InvalidRequestError", "another job, or another cluster"),
        ("GET", "/jobs/job-1/timeline?after=900", 400, "InvalidRequestError", "another job, or another cluster"),
        ("GET", "/jobs/job-1/events?after=-1", 400, "InvalidRequestError", "query after"),
        ("GET", "/jobs?stat=failed", 400, "InvalidRequestError", "no such parameter"),
        ("GET", "/jobs?state=broken", 400, "InvalidRequestError", "query state"),
        ("GET", "/jobs?limit=0", 400, "InvalidRequestError", "query limit"),
        ("GET", "/jobs?limit=1000000", 400, "InvalidRequestError", "query limit"),
        ("GET", "/audit?cursor=x", 400, "InvalidRequestError", "not `next` of a page"),
    ],
)
async def test_answers_to_bad_requests_say_what_is_wrong(served, method, path, status, error, says):
    await served.submit("job-1")
    answer = await served.http.request(method, f"/api/v1{path}")
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert (problem["type"], problem["status"]) == (f"urn:onager:error:{error}", status)
    assert says in problem["detail"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "says"),
    [
        (b"{", "application/json", 400, "not JSON"),
        (b"\xff\xfe", "application/json", 400, "not JSON"),
        (b'{"spec":{}}', "application/json", 400, "nothing to run"),
        (b'{"spec":{"sql":{"text":" "}}}', "application/json", 400, "SQL text is empty"),
        (b'{"spec":{"sql":{"txet":"SELECT 1"}}}', "application/json", 400, "txet"),
        (b'{"spec":{"sql":{"text":1}}}', "application/json", 400, "no job"),
        (b'{"spec":7}', "application/json", 400, "no job"),
        (b"[]", "application/json", 400, "no JSON object"),
        (b'{"jobid":"x"}', "application/json", 400, "body jobid"),
        (b'{"job_id":"No_Id","spec":{"sql":{"text":"SELECT 1"}}}', "application/json", 400, "not a job id"),
        (b'{"spec":{"sql":{"text":"SELECT 1"}}}', "text/plain", 400, "send JSON"),
        (b"[" * 100_000, "application/json", 400, "nested too deeply"),
        (b"[" + b"1," * 30_000 + b"1]", "application/json", 400, "more than 20,000 values"),
        (b" " * (5 * 1024 * 1024), "application/json", 413, "more than the limit"),
    ],
)
async def test_answers_to_bad_jobs_say_what_is_wrong(served, body, kind, status, says):
    answer = await served.http.post("/api/v1/jobs", content=body, headers={"content-type": kind})
    assert answer.status_code == status, answer.text
    assert says in answer.json()["detail"]
    assert (await served.get("/jobs"))["items"] == []


async def test_another_job_of_the_same_id_is_a_conflict(served):
    await served.submit("job-1")
    answer = await served.submit("job-1", name="another")
    assert (answer.status_code, answer.json()["fields"]) == (409, {"job_id": "job-1"})


async def test_a_job_without_an_id_gets_one(served):
    answer = await served.http.post("/api/v1/jobs", json={"spec": {"sql": {"text": "SELECT 1"}}})
    assert answer.status_code == 201
    assert (await served.get(f"/jobs/{answer.json()['job_id']}"))["state"] == "queued"


async def test_an_unknown_path_and_a_wrong_method(served):
    answer = await served.http.get("/api/v1/nothing")
    assert (answer.status_code, answer.json()["title"]) == (404, "Not Found")
    answer = await served.http.put("/api/v1/jobs")
    assert (answer.status_code, "PUT" in answer.json()["detail"]) == (405, True)


async def test_every_answer_has_the_headers_that_browsers_need(served):
    for path in ("/api/v1/jobs", "/api/v1/jobs/nothing", "/readyz", "/nothing"):
        headers = (await served.http.get(path)).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


async def test_metrics_are_those_of_the_registry(store, tmp_path):
    from prometheus_client import CollectorRegistry, Counter

    registry = CollectorRegistry()
    Counter("onager_things", "Things.", registry=registry).inc(3)
    async with http_scheduler(MemoryBackend(store), tmp_path, registry=registry) as served:
        assert "onager_things_total 3.0" in (await served.http.get("/metrics")).text


async def test_streams_end_when_the_scheduler_stops(store, tmp_path):
    async with httpx.AsyncClient() as browser:
        async with http_scheduler(MemoryBackend(store), tmp_path) as one:
            await one.submit("job-1")
            request = browser.build_request("GET", f"{one.url}api/v1/jobs/job-1/progress")
            events = messages(await browser.send(request, stream=True))
            assert (await anext(events)).kind == "progress"
        assert [message.kind async for message in events] == []


async def test_the_pages_of_the_audit_follow_one_another(served):
    for number in range(5):
        await served.submit(f"job-{number}")
        await served.http.post(f"/api/v1/jobs/job-{number}/cancel")
    targets, cursor = [], ""
    while cursor is not None:
        page = await served.get("/audit", limit=2, cursor=cursor)
        targets += [act["target"] for act in page["items"]]
        cursor = page["next"]
    assert targets == [f"job-{number}" for number in range(5)]


async def test_jobs_are_found_by_name_session_and_time_page_by_page(served):
    for number in range(5):
        await served.submit(f"job-{number}", name=f"Report {number}", conf={"onager.session": f"s{number % 2}"})
    names, cursor = [], ""
    while cursor is not None:
        page = await served.get("/jobs", q="report", session="s0", limit=1, cursor=cursor)
        names += [job["name"] for job in page["items"]]
        cursor = page["next"]
    assert names == ["Report 4", "Report 2", "Report 0"]
    first = (await served.get("/jobs"))["items"][-1]["submitted_ms"]
    assert (await served.get("/jobs", until=first))["items"] == []
    assert len((await served.get("/jobs", since=first))["items"]) == 5
    wrong = await served.http.get("/api/v1/jobs", params={"since": 9, "until": 5})
    assert wrong.status_code == 400


async def test_a_job_that_has_ended_is_retried_once_however_often_that_is_sent(served):
    await served.submit("job-1")
    early = await served.http.post("/api/v1/jobs/job-1/retry")
    assert (early.status_code, early.json()["type"]) == (409, "urn:onager:error:JobNotEndedError")
    await served.http.post("/api/v1/jobs/job-1/cancel")
    for status in (201, 200):
        answer = await served.http.post("/api/v1/jobs/job-1/retry", json={"new_job_id": "job-2"})
        assert (answer.status_code, answer.json()["job_id"]) == (status, "job-2")
    assert (await served.get("/jobs/job-2"))["retry_of"] == "job-1"
    drawn = await served.http.post("/api/v1/jobs/job-1/retry")
    assert (await served.get(f"/jobs/{drawn.json()['job_id']}"))["retry_of"] == "job-1"


async def test_exports_and_logs_of_a_job(served):
    await served.submit("job-1")
    async with executor(served.address, "e1", two_stages()):
        await ended(served, "job-1")
        logs = await served.get("/jobs/job-1/logs", stage=1, tail=100)
        assert logs["next"] is None
    log = await served.http.get("/api/v1/jobs/job-1/spark-event-log")
    assert all("Event" in json.loads(line) for line in log.text.splitlines())
    picture = await served.http.get("/api/v1/jobs/job-1/timeline.svg")
    assert (picture.headers["content-type"], picture.text[:4]) == ("image/svg+xml", "<svg")
    for name in ("spark-event-log", "timeline.svg", "logs"):
        assert (await served.http.get(f"/api/v1/jobs/nothing/{name}")).status_code == 404


async def test_an_executor_is_drained_and_an_unknown_one_is_not(served):
    async with executor(served.address, "e1", two_stages()):
        await eventually(lambda: served.app.executors.total_slots)
        answer = await served.http.post("/api/v1/executors/e1/drain", json={"reason": "the machine goes"})
        assert answer.json()["was_leaving"] is False
    answer = await served.http.post("/api/v1/executors/e9/drain")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:onager:error:NotFoundError")


async def test_what_is_submitted_over_http_is_seen_over_grpc(served):
    await served.submit("job-1")
    client = Client(served.address)
    assert (await client.detail("job-1")).progress.state == pb.QUEUED
    await client.close()


async def test_a_picture_names_its_own_style_and_nothing_else_as_allowed(served):
    await served.submit("job-1")
    picture = await served.http.get("/api/v1/jobs/job-1/timeline.svg")
    (style,) = re.findall("<style>(.*?)</style>", picture.text, re.DOTALL)
    found = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert picture.headers["content-security-policy"] == f"default-src 'none'; style-src 'sha256-{found}'; sandbox"
    assert picture.headers["x-content-type-options"] == "nosniff"
    other = await served.http.get("/api/v1/jobs/job-1")
    assert "sha256" not in other.headers["content-security-policy"]


async def test_a_scheduler_that_stops_says_so_at_once(served):
    assert (await served.http.head("/readyz")).status_code == 200
    assert (await served.http.get("/api/v1/login")).status_code == 405
    served.app.stopping.set()
    ready = await served.http.get("/readyz")
    assert (ready.status_code, ready.json()["is_ready"]) == (503, False)
    answer = await served.http.get("/api/v1/jobs")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:onager:error:StateUnavailableError")
    assert answer.json()["retryable"]
