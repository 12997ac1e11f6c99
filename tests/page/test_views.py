"""Every view of the page, in a real browser, over a real scheduler."""

import asyncio
import json
import re
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from benchmarks.bare_executor import BareJob
from tests.page.conftest import painted
from tests.support.browser import watched_page
from tests.support.processes.tcp_proxy import proxies_of_a_thread
from tests.support.selection import some
from tests.support.waiting import HANGS_S, until

pytestmark = pytest.mark.usefixtures("done")
LONG = BareJob(8, task_ms=600_000)
SERIOUS = ("serious", "critical")


@pytest.fixture
def running(client):
    """A job that goes on for longer than any test, and is gone afterwards."""
    job = client.sql(LONG.text, name="long one")
    yield job
    job.cancel()


def tab(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Views of the job").get_by_role("link", name=name).click()


def rows_of(page: Page):
    return page.get_by_role("region", name="Jobs").locator("tbody tr")


class TestJobs:
    def test_lists_and_filters(self, page, running):
        page.goto("/")
        expect(rows_of(page).filter(has_text="nightly totals")).to_contain_text("successful")
        expect(rows_of(page).filter(has_text=running.id)).to_contain_text("running")
        page.get_by_role("button", name="successful").click()
        expect(rows_of(page).filter(has_text=running.id)).to_have_count(0)
        expect(page).to_have_url(re.compile(r"state=successful"))
        page.reload()
        expect(page.get_by_role("button", name="successful")).to_have_attribute("aria-pressed", "true")
        expect(rows_of(page).filter(has_text=running.id)).to_have_count(0)

    def test_searches(self, page):
        page.goto("/jobs")
        expect(rows_of(page).first).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("NIGHTLY")
        expect(rows_of(page)).to_have_count(1)
        page.keyboard.type(" that nobody named so")
        expect(page.get_by_role("heading", name="No job is like that")).to_be_visible()

    @pytest.mark.usefixtures("running")
    def test_keys_lead_through_it(self, page):
        page.goto("/jobs")
        expect(rows_of(page).first).to_be_visible()
        page.keyboard.press("j")
        first = page.evaluate("document.activeElement.getAttribute('href')")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.getAttribute('href')") != first
        page.keyboard.press("k")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(f"{first}$"))
        page.keyboard.press("]")
        expect(page).to_have_url(re.compile("/timeline$"))
        page.keyboard.press("u")
        expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        page.keyboard.press("Escape")
        executors = page.get_by_role("heading", name="Executors")
        # The second key counts for a moment only, which may be too short for a busy machine.
        until(lambda: page.keyboard.press("g") or page.keyboard.press("e") or executors.is_visible())

    def test_the_browser_goes_back(self, page):
        page.goto("/jobs")
        page.get_by_role("link", name="nightly totals").first.click()
        expect(page.get_by_role("heading", name="nightly totals")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()


class TestJob:
    def test_is_watched_from_submission_to_its_end(self, page, client):
        for tasks in (64, 512, 4096):  # the busier the machine is, the later the page is there
            page.goto("/jobs")
            client.sql(BareJob(tasks, task_ms=500).text, name=f"watched {tasks}")  # the page is there before the job
            page.get_by_role("link", name=f"watched {tasks}").click()
            bar = page.locator(".main > .progress")
            expect(bar).to_have_attribute("aria-valuemax", f"{tasks + 1}")
            seen = set()
            state = page.locator(".head .state")
            while state.inner_text() != "successful":
                seen.add(int(bar.get_attribute("aria-valuenow")))
            expect(bar).to_have_attribute("aria-valuenow", f"{tasks + 1}")
            if len(seen) > 1:
                break
        assert len(seen) > 1, "it moved while the page was open"
        done = f"Stage 1, nothing: successful, {tasks} of {tasks} tasks"
        expect(page.get_by_role("link", name=done)).to_be_visible()

    def test_its_timeline_follows_it_to_its_end(self, page, client):
        job = client.sql(BareJob(12, task_ms=250).text, name="followed")
        page.goto(f"/jobs/{job.id}/timeline")
        expect(page.get_by_role("cell", name="Ended", exact=True)).to_be_visible()
        expect(page.get_by_role("region", name="Timeline").locator("header")).to_contain_text("13 attempts")

    def test_timeline(self, page, done):
        page.goto(f"/jobs/{done}/timeline")
        expect(page.get_by_text("13 attempts")).to_be_visible()
        happened = page.get_by_role("region", name="What happened")
        for mark in ("Submitted", "Planned", "Ended"):
            expect(happened.get_by_role("cell", name=mark, exact=True)).to_be_visible()
        canvas = page.locator("canvas").first
        until(lambda: painted(page) == {"--good"})
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + 200, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 500, box["y"] + 60)
        page.mouse.up()
        expect(page.get_by_role("button", name="Zoom out")).to_be_enabled()
        page.keyboard.press("0")
        expect(page.get_by_role("button", name="Zoom out")).to_be_disabled()

    def test_attempts_of_a_moment_have_their_colour(self, page, done):
        def drawn_out(route):
            answer = route.fetch()
            timeline = answer.json()
            for number, bar in enumerate(timeline.get("bars", [])):  # later answers have no bars
                bar["from_ms"] = timeline["submitted_ms"] + 45_678 * (number + 1)
                bar["to_ms"] = bar["from_ms"] + 1
            timeline["to_ms"] = timeline["submitted_ms"] + 3_600_000
            route.fulfill(response=answer, json=timeline)

        page.route(re.compile(r"/timeline\?"), drawn_out)
        page.goto(f"/jobs/{done}/timeline")
        until(lambda: painted(page) == {"--good"})

    def test_stages_and_their_tasks(self, page, done):
        page.goto(f"/jobs/{done}/stages")
        page.get_by_role("button", name="1 nothing").click()
        tasks = page.get_by_role("list", name="Tasks of stage 1")
        expect(tasks.get_by_role("listitem")).to_have_count(12)
        expect(tasks.get_by_role("listitem").first).to_contain_text("executor-")
        page.get_by_role("button", name="0 plan").click()
        expect(page.get_by_role("list", name="Tasks of stage 0").get_by_role("listitem")).to_have_count(1)

    def test_a_program_leads_to_the_jobs_of_its_steps_and_back(self, page, client):
        program = client.script(name="two steps")
        program.sql(BareJob(2).text, name="last", after=[program.sql(BareJob(3).text, name="first")])
        job = program.submit()
        job.wait(HANGS_S)
        page.goto(f"/jobs/{job.id}/stages")
        page.get_by_role("link", name="The job of step 2").click()
        expect(page).to_have_url(re.compile(f"/jobs/{re.escape(job.id)}.2$"))
        expect(page.get_by_role("heading", name="last")).to_be_visible()
        page.get_by_role("link", name=job.id, exact=True).click()
        expect(page.get_by_role("heading", name="two steps")).to_be_visible()

    def test_plan_and_definition(self, page, done):
        page.goto(f"/jobs/{done}/plan")
        expect(page.get_by_role("region", name="Spark's plan")).to_contain_text("nothing")
        tab(page, "Definition")
        expect(page.get_by_role("region", name="SQL")).to_contain_text('"tasks": 12')
        settings = page.get_by_role("region", name="Settings")
        expect(settings).to_contain_text("spark.hadoop.fs.s3a.secret.key")
        expect(settings).not_to_contain_text("xyzzy")

    def test_events_are_those_of_the_log(self, page, client, done):
        page.goto(f"/jobs/{done}/events")
        rows = page.get_by_role("list", name="Events").get_by_role("listitem")
        logged = [(event.position, event.type.replace("_", " ")) for event in client.job(done).events()]
        expect(rows).to_have_count(len(logged))
        shown = rows.evaluate_all("rows => rows.map(r => [Number(r.dataset.position), r.children[3].innerText])")
        assert [tuple(row) for row in shown] == logged
        page.get_by_role("button", name="job planned").click()
        expect(page.get_by_role("region", name="Event", exact=True)).to_contain_text('"schema_json"')

    def test_is_cancelled_by_its_button(self, page, running):
        page.goto(f"/jobs/{running.id}")
        page.get_by_role("button", name=f"Cancel {running.id}").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Leave it").click()
        expect(dialog).to_have_count(0)
        page.get_by_role("button", name=f"Cancel {running.id}").click()
        dialog.get_by_role("textbox").fill("the wrong day")
        dialog.get_by_role("button", name="Cancel the job").click()
        expect(page.locator(".head .state")).to_have_text("cancelled")
        expect(page.get_by_role("button", name=f"Cancel {running.id}")).to_have_count(0)
        expect(page.get_by_text("the wrong day")).to_be_visible()
        assert running.detail().progress.failure.message.endswith("the wrong day")
        page.get_by_role("link", name="Audit").click()
        # Its submission may be there, too: everyday acts are written a moment later.
        act = page.get_by_role("row").filter(has_text=running.id).filter(has_text="the wrong day")
        expect(act).to_contain_text("done")

    def test_is_submitted_again_by_its_button(self, page, client, running):
        running.cancel()
        page.goto(f"/jobs/{running.id}")
        page.get_by_role("button", name=f"Retry {running.id}").click()
        expect(page.get_by_role("definition").get_by_role("link", name=running.id)).to_be_visible()
        again = client.job(page.url.rpartition("/")[2])
        assert again.id != running.id
        assert again.detail().progress.retry_of == running.id
        again.cancel()

    def test_logs_say_where_they_are(self, page, done):
        page.goto(f"/jobs/{done}/logs")
        expect(page.get_by_role("region").first).to_be_visible()

    def test_100_000_tasks_do_not_stall_it(self, page, client):
        job = client.sql(BareJob(100_000, task_ms=600_000).text, name="many tasks")
        try:
            page.goto(f"/jobs/{job.id}/stages?stage=1")
            region = page.get_by_role("region", name="Tasks of stage 1")
            expect(region.locator("header")).to_contain_text("100,000")
            tasks = region.get_by_role("list")
            assert tasks.get_by_role("listitem").count() < 100, "only rows in sight exist"
            tasks.evaluate("list => { list.scrollTop = list.scrollHeight; }")
            expect(tasks.get_by_text("99999", exact=True)).to_be_visible()
        finally:
            job.cancel()

    def test_where_the_time_of_an_ended_job_went_is_asked_for_until_all_of_it_is_reported(self, page, done):
        asked = []

        def late(route: Route) -> None:
            """Tell none of the time at first, as a scheduler does that still reads a long log."""
            answer = route.fetch()
            detail = answer.json()
            asked.append(detail["time_shares"])
            if len(asked) == 1:
                detail["time_shares"] = []
            route.fulfill(response=answer, json=detail)

        page.route(f"**/api/v1/jobs/{done}", late)
        page.goto(f"/jobs/{done}")
        until(lambda: page.wait_for_timeout(50) or len(asked) == 2)
        whole = sum(share["ms"] for share in asked[-1])
        region = page.get_by_role("region", name="Where every second went")
        expect(region.locator("header")).to_contain_text(f"{whole} ms" if whole < 1000 else f"{whole / 1000:.1f} s")

    def test_what_cannot_be_read_for_a_moment_is_read_again(self, browser, origin, done):
        refused = []

        def refuse_once(route: Route) -> None:
            path = urlsplit(route.request.url).path.removeprefix(f"/api/v1/jobs/{done}")
            if path in refused:
                route.fallback()
                return
            refused.append(path)
            problem = json.dumps({"detail": "the store does not answer", "retryable": True})
            route.fulfill(status=503, content_type="application/problem+json", body=problem)

        with watched_page(browser, origin) as (page, watched):
            watched.is_losing_its_scheduler = True  # the browser writes down that the answers are 503
            page.route("**/api/v1/jobs/*", refuse_once)
            page.route("**/api/v1/jobs/*/**", refuse_once)
            page.goto(f"/jobs/{done}/timeline")
            expect(page.get_by_text("13 attempts")).to_be_visible()
            tab(page, "Stages")
            page.get_by_role("button", name="1 nothing").click()
            expect(page.get_by_role("list", name="Tasks of stage 1").get_by_role("listitem")).to_have_count(12)
            tab(page, "Plan")
            expect(page.get_by_role("region", name="The plan as it ran")).to_contain_text("Stage 1 nothing")
            expect(page.get_by_role("alert")).to_have_count(0)
        assert {"", "/timeline", "/stages/1/tasks", "/plan"} <= set(refused)

    def test_that_is_not_known(self, browser, origin):
        with watched_page(browser, origin) as (page, watched):
            watched.is_losing_its_scheduler = True  # the browser writes down that the answer is 404
            page.goto("/jobs/never-was")
            expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
            expect(page.get_by_text("never-was")).to_be_visible()


class TestAnOutage:
    def test_what_was_asked_for_in_it_comes_after_it(self, browser, origin):
        with proxies_of_a_thread() as make_proxy:
            proxy, loop = make_proxy(origin.removeprefix("http://"))

            def begin() -> None:
                loop.call_soon_threadsafe(proxy.refuse)
                loop.call_soon_threadsafe(proxy.cut)
                until(lambda: not proxy.has_connections)

            def end() -> None:
                asyncio.run_coroutine_threadsafe(proxy.accept(), loop).result(HANGS_S)

            with watched_page(browser, f"http://{proxy.address}") as (page, watched):
                watched.is_losing_its_scheduler = True
                nobody_answers = page.get_by_role("alert").get_by_text("No scheduler has answered")
                page.goto("/jobs")
                link = page.get_by_role("link", name="nightly totals")
                expect(link).to_be_visible()
                begin()
                link.click()
                expect(nobody_answers).to_be_visible()
                end()
                expect(page.get_by_role("heading", name="nightly totals")).to_be_visible()
                begin()
                tab(page, "Timeline")
                expect(nobody_answers).to_be_visible()
                end()
                expect(page.get_by_text("13 attempts")).to_be_visible()
                tab(page, "Stages")
                begin()
                page.get_by_role("button", name="1 nothing").click()
                expect(nobody_answers).to_be_visible()
                end()
                expect(page.get_by_role("list", name="Tasks of stage 1").get_by_role("listitem")).to_have_count(12)
                expect(nobody_answers).to_have_count(0)


class TestTheRest:
    def test_executors(self, page):
        page.goto("/executors")
        row = page.get_by_role("row").filter(has_text="executor-0")
        expect(row).to_contain_text("alive")
        expect(row).to_contain_text("of 4 busy")

    def test_schedulers(self, page, cluster):
        page.goto("/schedulers")
        row = page.get_by_role("row").filter(has_text="bench-0")
        expect(row).to_contain_text("answers you")
        expect(row).to_contain_text(cluster.addresses[0])

    def test_cluster(self, page):
        page.goto("/cluster")
        expect(page.get_by_role("region", name="Store")).to_contain_text("leveldb:")
        expect(page.get_by_role("region", name="Executors").locator("dd")).to_have_text("2")
        page.get_by_role("region", name="Jobs").get_by_role("link", name="successful").click()
        expect(rows_of(page).filter(has_text="nightly totals")).to_have_count(1)

    def test_a_place_that_is_none(self, page):
        page.goto("/no/such/place")
        expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
        page.get_by_role("link", name="All jobs").click()
        expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()

    def test_light_and_dark_are_chosen_and_kept(self, page):
        page.goto("/jobs")
        root = page.locator("html")
        expect(root).to_have_attribute("data-theme", "light")
        page.get_by_role("button", name="Switch to dark colours").click()
        expect(root).to_have_attribute("data-theme", "dark")
        page.reload()
        expect(root).to_have_attribute("data-theme", "dark")
        page.emulate_media(color_scheme="dark")
        page.keyboard.press("t")
        expect(root).to_have_attribute("data-theme", "light")


@pytest.mark.parametrize(("scheme", "rules"), some([("light", {}), ("dark", {"runOnly": ["color-contrast"]})]))
def test_everybody_can_use_it(browser, origin, done, running, scheme, rules):
    """No serious issue that axe-core finds: contrast, names, roles, order of headings, keyboard; in dark, contrast."""
    places = ["/jobs", "/executors", "/schedulers", "/cluster", "/audit", "/login", "/nowhere"]
    places += [f"/jobs/{running.id}"]
    places += [
        f"/jobs/{done}{view}" for view in ("", "/timeline", "/stages?stage=1", "/plan", "/definition", "/events")
    ]
    found = []
    with watched_page(browser, origin, scheme=scheme) as (page, _):
        for place in places:
            page.goto(place)
            expect(page.locator("h1, h2").first).to_be_visible()
            expect(page.get_by_text("Reading…")).to_have_count(0)
            issues = Axe().run(page, options={"resultTypes": ["violations"], **rules}).response["violations"]
            found += [
                f"{place}: {issue['id']}: {issue['help']}: {[node['html'][:120] for node in issue['nodes'][:3]]}"
                for issue in issues
                if issue["impact"] in SERIOUS
            ]
    assert not found, "\n".join(found)


def test_it_is_readable_on_a_narrow_screen(browser, origin, done):
    with watched_page(browser, origin, wide=420) as (page, _):
        for place in ("/jobs", f"/jobs/{done}", "/executors"):
            page.goto(place)
            expect(page.locator("h1")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 420, place
