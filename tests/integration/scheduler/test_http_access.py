"""Who may do what over HTTP: tokens, cookies and roles against a real server, with TLS and without."""

import asyncio
import ssl

import httpx
import pytest

from onager.clock import SystemClock
from onager.errors import InvalidSettingError
from onager.protocol.call_limits import STREAM_LIMITS
from onager.protocol.security import note_address
from onager.protocol.serving import counted
from onager.scheduler import timing
from onager.scheduler.http.access import COOKIE, SAFE_COOKIE, Caller
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.support.etcd.certificates import Authority
from tests.support.http import http_scheduler, stream
from tests.support.waiting import HANGS_S

TOKENS = {"ann": "admin", "olga": "operator", "cleo": "client", "vic": "viewer", "e-1": "executor", "s-1": "scheduler"}


def token_of(name):
    return f"{name}-" + "0123456789abcdef"


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("".join(f"{name} {role} {token_of(name)}\n" for name, role in TOKENS.items()))
    return path


@pytest.fixture
async def store():
    return MemoryStore(SystemClock())


@pytest.fixture
async def served(store, tmp_path, token_file):
    async with http_scheduler(MemoryBackend(store), tmp_path, auth_token_file=token_file) as one:
        yield one


def bearer(name):
    return {"authorization": f"Bearer {token_of(name)}"}


async def log_in(served, name, origin=None):
    headers = {"origin": origin} if origin else {}
    return await served.http.post("/api/v1/login", json={"token": token_of(name)}, headers=headers)


JOB = {"job_id": "job-1", "spec": {"sql": {"text": "SELECT 1"}}}
LOOKS = ("/jobs", "/jobs/job-1", "/jobs/job-1/events", "/jobs/job-1/timeline", "/jobs/job-1/plan", "/cluster")


@pytest.mark.parametrize(
    ("name", "looks", "submits", "audits"),
    [
        ("vic", 200, 403, 403),
        ("cleo", 200, 201, 403),
        ("olga", 200, 201, 403),
        ("ann", 200, 201, 200),
        ("e-1", 403, 403, 403),
    ],
)
async def test_each_role_may_do_what_it_may_over_grpc(served, name, looks, submits, audits):
    await served.http.post("/api/v1/jobs", json=JOB, headers=bearer("ann"))
    me = bearer(name)
    for path in LOOKS:
        assert (await served.http.get(f"/api/v1{path}", headers=me)).status_code == looks, path
    assert (await served.http.get("/api/v1/executors", headers=me)).status_code == 200
    assert (await served.http.get("/metrics", headers=me)).status_code == 404  # there are none here
    answer = await served.http.post("/api/v1/jobs", json={**JOB, "job_id": "job-2"}, headers=me)
    assert answer.status_code == submits
    assert (await served.http.get("/api/v1/audit", headers=me)).status_code == audits
    answer = await served.http.post("/api/v1/jobs/job-1/cancel", headers=me)
    assert answer.status_code == (200 if submits == 201 else 403)
    if submits == 403:
        assert f"the token {name} has the role {TOKENS[name]}" in answer.json()["detail"]


@pytest.mark.parametrize(("name", "status"), [("vic", 403), ("cleo", 403), ("olga", 404), ("ann", 404)])
async def test_only_operators_drain(served, name, status):
    assert (await served.http.post("/api/v1/executors/e-9/drain", headers=bearer(name))).status_code == status


async def test_whoever_shows_nothing_sees_nothing(served):
    for path in ("/jobs", "/whoami", "/executors"):
        answer = await served.http.get(f"/api/v1{path}")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="onager"')
    assert (await served.http.get("/metrics")).status_code == 401
    assert (await served.http.get("/readyz")).json()["is_ready"]
    assert (await served.http.get("/openapi.json")).status_code == 200
    assert (await served.http.get("/api/v1/jobs", headers={"authorization": "Bearer wrong"})).status_code == 401


async def test_a_login_is_good_at_every_scheduler_and_names_the_caller(store, tmp_path, token_file):
    async with (
        http_scheduler(MemoryBackend(store), tmp_path, auth_token_file=token_file) as one,
        http_scheduler(MemoryBackend(store), tmp_path, auth_token_file=token_file) as two,
    ):
        answer = await log_in(one, "cleo")
        assert answer.json()["principal"] == "cleo"
        assert answer.json()["may"] == ["look", "submit", "cancel", "retry", "fetch"]
        parts = answer.headers["set-cookie"].lower().split("; ")
        assert {"httponly", "samesite=strict", "path=/"} <= set(parts)
        assert "secure" not in parts
        two.http.cookies.set(COOKIE, one.http.cookies[COOKIE])
        origin = {"origin": two.url.rstrip("/")}
        assert (await two.http.post("/api/v1/jobs", json=JOB, headers=origin)).status_code == 201
        assert (await two.http.get("/api/v1/jobs/job-1")).json()["principal"] == "cleo"
        await two.http.post("/api/v1/jobs/job-1/cancel", headers=origin)
        (act,) = (await one.http.get("/api/v1/audit", headers=bearer("ann"))).json()["items"]
        assert (act["principal"], act["action"]) == ("cleo", "cancel")

        token_file.write_text(f"ann admin {token_of('ann')}\n")
        ended = await two.http.get("/api/v1/jobs")
        assert (ended.status_code, ended.json()["type"]) == (401, "urn:onager:error:SessionEndedError")


async def test_a_page_of_somebody_else_changes_nothing(served):
    await log_in(served, "ann")
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        answer = await served.http.post("/api/v1/jobs", json=JOB, headers={"origin": origin})
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:onager:error:OriginRefusedError")
        assert (await log_in(served, "ann", origin)).status_code == 403
    assert (await served.http.post("/api/v1/jobs", json=JOB)).status_code == 403  # with a cookie it must say where from
    assert (await served.http.get("/api/v1/jobs")).json()["items"] == []


async def test_logging_out_removes_the_cookie(served):
    await log_in(served, "ann")
    assert (await served.http.get("/api/v1/whoami")).json()["by"] == "cookie"
    answer = await served.http.delete("/api/v1/login", headers={"origin": served.url.rstrip("/")})
    assert answer.status_code == 204
    assert (await served.http.get("/api/v1/whoami")).status_code == 401


async def test_wrong_logins_are_slowed_down_and_those_who_are_in_go_on(served):
    await log_in(served, "ann")
    for _ in range(10):
        assert (await log_in(served, "nobody")).status_code == 401
    answer = await log_in(served, "ann")
    assert (answer.status_code, answer.json()["retryable"]) == (429, True)
    assert 0 < int(answer.headers["retry-after"]) <= 60
    assert (await served.http.get("/api/v1/whoami")).status_code == 200


@pytest.mark.parametrize("body", [{}, {"token": ""}, {"token": 7}, {"token": "x", "more": 1}, []])
async def test_a_login_that_is_none(served, body):
    assert (await served.http.post("/api/v1/login", json=body)).status_code == 400


async def test_without_tokens_a_rebound_name_is_not_answered(store, tmp_path):
    async with http_scheduler(MemoryBackend(store), tmp_path, http_names="onager.example.org") as served:
        for host in ("evil.example", "evil.example:50080"):
            answer = await served.http.get("/api/v1/jobs", headers={"host": host})
            assert (answer.status_code, answer.json()["fields"]) == (421, {"host": "evil.example"})
        for host in ("localhost", "onager.example.org", "127.0.0.1:9"):
            assert (await served.http.get("/api/v1/jobs", headers={"host": host})).status_code == 200
        refused = await served.http.post("/api/v1/jobs", json=JOB, headers={"origin": "http://evil.example"})
        assert refused.status_code == 403
        assert (await served.http.get("/api/v1/whoami")).json()["by"] == "nobody"


async def test_without_tokens_a_client_is_an_address(store, tmp_path):
    """It has a share of its own, and the audit has it."""
    async with (
        http_scheduler(MemoryBackend(store), tmp_path, stream_share_percent=1) as served,
        httpx.AsyncClient(
            base_url=served.url, transport=httpx.AsyncHTTPTransport(local_address="127.0.0.2"), timeout=HANGS_S
        ) as other,
    ):
        assert (await other.post("/api/v1/jobs", json=JOB)).status_code == 201
        await served.app.notes.store()
        (act,) = (await served.get("/audit"))["items"]
        assert (act["action"], act["target"], act["address"]) == ("submit", "job-1", "127.0.0.2")

        note_address(Caller("127.0.0.1"))
        with counted(served.app.service, "FetchLogs", STREAM_LIMITS["FetchLogs"]):
            refused = await served.http.get("/api/v1/jobs/job-1/logs")
            assert (refused.status_code, "of 127.0.0.1 are under way" in refused.json()["detail"]) == (503, True)
            assert (await other.get("/api/v1/jobs/job-1/logs")).status_code == 200


async def test_tls_is_that_of_grpc_and_a_renewed_certificate_is_taken(store, tmp_path, token_file):
    authority, later = Authority(tmp_path), Authority(tmp_path, "later")
    server, renewed = authority.issue("server", "127.0.0.1"), later.issue("server", "127.0.0.1")
    settings = {"auth_token_file": token_file, "tls_cert": server.cert, "tls_key": server.key}
    trust = ssl.create_default_context(cafile=authority.cacert)
    async with http_scheduler(MemoryBackend(store), tmp_path / "x", verify=trust, **settings) as served:
        assert served.url.startswith("https://")
        answer = await log_in(served, "ann")
        parts = answer.headers["set-cookie"].lower().split("; ")
        assert parts[0].startswith(f"{SAFE_COOKIE.lower()}=")
        assert "secure" in parts
        assert "strict-transport-security" in answer.headers

        server.cert.write_bytes(renewed.cert.read_bytes())
        server.key.write_bytes(renewed.key.read_bytes())
        now = ssl.create_default_context(cafile=later.cacert)
        async with httpx.AsyncClient(base_url=served.url, verify=now) as other:
            assert (await other.get("/readyz")).status_code == 200
        assert (await served.http.get("/readyz")).status_code == 200  # its connection goes on
        async with httpx.AsyncClient(base_url=served.url, verify=trust) as other:
            with pytest.raises(httpx.ConnectError):
                await other.get("/readyz")


async def test_an_address_that_others_reach_needs_tls_and_tokens(store, tmp_path):
    with pytest.raises(InvalidSettingError, match="--http-listen"):
        async with http_scheduler(MemoryBackend(store), tmp_path, http_listen="0.0.0.0:0"):
            pass


async def test_an_address_that_is_taken(served, store, tmp_path):
    taken = served.url.removeprefix("http://").rstrip("/")
    with pytest.raises(InvalidSettingError, match="--http-listen"):
        async with http_scheduler(MemoryBackend(store), tmp_path, http_listen=taken):
            pass


async def test_a_login_is_small(served):
    answer = await served.http.post("/api/v1/login", json={"token": "x" * 16 * 1024})
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:onager:error:RequestTooLargeError")


async def test_a_stream_ends_when_the_token_of_its_caller_goes(served, token_file, monkeypatch):
    monkeypatch.setattr(timing, "HEARTBEAT_S", 0.05)
    await served.http.post("/api/v1/jobs", json=JOB, headers=bearer("ann"))
    async with stream(served, "/jobs/job-1/progress", **bearer("vic")) as reported:
        assert (await anext(reported)).kind == "progress"
        token_file.write_text(f"ann admin {token_of('ann')}\n")
        async with asyncio.timeout(HANGS_S):
            (last,) = [message async for message in reported]
    assert (last.kind, last.data["retryable"]) == ("problem", False)
    assert (await served.http.get("/api/v1/jobs/job-1", headers=bearer("ann"))).status_code == 200
