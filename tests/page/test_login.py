"""Logging in to the page, and what it offers to whom."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from benchmarks.bare_cluster import BareCluster
from benchmarks.bare_executor import BareJob
from tests.page.conftest import origin_of
from tests.support.browser import watched_page

_TOKENS = {"ada": ("admin", "a" * 40), "vic": ("viewer", "v" * 40), "sch": ("scheduler", "s" * 40)}


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[str]:
    """The origin of the page of a scheduler that asks for tokens."""
    directory = tmp_path_factory.mktemp("secured")
    tokens = directory / "tokens"
    tokens.write_text("".join(f"{name} {role} {token}\n" for name, (role, token) in _TOKENS.items()))
    tokens.chmod(0o600)
    cluster = BareCluster(
        f"leveldb:{directory / 'state'}",
        executor_slots=(),
        scheduler_environment={
            "ONAGER_SCHEDULER_HTTP_LISTEN": "127.0.0.1:0",
            "ONAGER_SCHEDULER_AUTH_TOKEN_FILE": str(tokens),
        },
        directory=directory,
    )
    process = cluster.schedulers[0]
    cluster.start(process)
    try:
        yield origin_of(cluster)
    finally:
        cluster.kill(process)


@pytest.fixture
def page(browser, secured) -> Iterator[Page]:
    with watched_page(browser, secured) as (opened, watched):
        watched.is_losing_its_scheduler = True  # the browser writes down that it was refused
        yield opened


def log_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def test_a_wrong_token_is_refused_and_a_right_one_leads_to_the_page(page):
    page.goto("/executors")
    log_in(page, "w" * 40)
    expect(page.get_by_role("alert")).to_be_visible()
    log_in(page, _TOKENS["ada"][1])
    expect(page.get_by_role("heading", name="Executors")).to_be_visible()
    expect(page.get_by_text("ada (admin)")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="No executor is registered")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto("/jobs")
    expect(page.get_by_label("Token")).to_be_visible()


def test_who_may_only_look_is_offered_nothing_else(page):
    page.goto("/")
    log_in(page, f"vic viewer {_TOKENS['vic'][1]}")
    expect(page.get_by_text("vic (viewer)")).to_be_visible()
    expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    expect(page.get_by_text("onager submit -e")).to_be_visible()


def test_behind_a_proxy_that_adds_a_token_nobody_logs_in_a_second_time(page):
    page.set_extra_http_headers({"Authorization": f"Bearer {_TOKENS['ada'][1]}"})
    page.goto("/audit")
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    expect(page.get_by_text("ada (admin)")).to_be_visible()
    expect(page.get_by_label("Token")).to_have_count(0)


def test_a_job_offers_its_buttons_to_whom_they_are_for_and_the_audit_names_who_cancelled(page, secured):
    page.goto("/login")
    log_in(page, _TOKENS["ada"][1])
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    spec = {"sql": {"text": BareJob(1).text}, "name": "waiting"}
    answer = page.request.post("/api/v1/jobs", data={"spec": spec}, headers={"origin": secured})
    job_id = answer.json()["job_id"]
    page.goto(f"/jobs/{job_id}")
    expect(page.get_by_role("button", name=f"Cancel {job_id}")).to_be_visible()
    expect(page.get_by_text("It waits: no executor is registered")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    log_in(page, _TOKENS["vic"][1])
    expect(page.get_by_text("It waits: no executor is registered")).to_be_visible()
    expect(page.get_by_role("button", name=f"Cancel {job_id}")).to_have_count(0)
    page.get_by_role("button", name="Log out").click()
    log_in(page, _TOKENS["ada"][1])
    page.get_by_role("button", name=f"Cancel {job_id}").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".head .state")).to_have_text("cancelled")
    # Its submission may be there, too: everyday acts are written a moment later.
    (act,) = (act for act in page.request.get("/api/v1/audit").json()["items"] if act["action"] == "cancel")
    assert (act["principal"], act["target"]) == ("ada", job_id)
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_role("row").filter(has_text=job_id).filter(has_text="cancel")).to_contain_text("ada")
    (mark,) = (
        m for m in page.request.get(f"/api/v1/jobs/{job_id}/timeline").json()["marks"] if m["kind"] == "cancelled"
    )
    assert mark["text"].endswith("by ada")
