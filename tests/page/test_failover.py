"""The scheduler that serves the page is killed in mid-stream, and the page goes on at another one."""

from playwright.sync_api import Page, expect

from benchmarks.bare_cluster import BareCluster
from benchmarks.bare_executor import BareJob
from onager.scheduler.policy import rendezvous
from tests.page.conftest import origin_of
from tests.support.browser import watched_page
from tests.support.processes.tcp_proxy import proxies_of_a_thread
from tests.support.waiting import until

_SCROLL_PX = 400


def shown_events(page: Page) -> list[tuple[int, str]]:
    """Return position and type of all rows of the list, which exist only while they are in sight."""
    rows: dict[int, tuple[int, str]] = {}
    events = page.get_by_role("list", name="Events")
    events.evaluate("list => { list.scrollTop = 0; }")
    while True:
        for top, position, kind in events.get_by_role("listitem").evaluate_all(
            "rows => rows.map(r => [r.offsetTop, Number(r.dataset.position), r.children[3].innerText])"
        ):
            rows[top] = (position, kind)
        before, after = events.evaluate(
            f"list => {{ const old = list.scrollTop; list.scrollTop += {_SCROLL_PX}; return [old, list.scrollTop]; }}"
        )
        if before == after:
            return [rows[top] for top in sorted(rows)]
        until(lambda at=after: _is_drawn(events, at))


def _is_drawn(events, top: float) -> bool:
    middle = top + _SCROLL_PX / 2
    tops = events.get_by_role("listitem").evaluate_all("rows => rows.map(r => r.offsetTop)")
    height = events.evaluate("list => list.scrollHeight")
    return any(abs(each - middle) < 30 for each in tops) or middle > height


def test_the_page_goes_on_at_another_scheduler(browser, etcd, tmp_path):
    cluster = BareCluster(
        etcd.url("page"),
        schedulers=2,
        executor_slots=(2, 2),
        scheduler_environment={
            "ONAGER_SCHEDULER_HTTP_LISTEN": "127.0.0.1:0",
            "ONAGER_SCHEDULER_SCHEDULER_LEASE_TTL_MS": "1500",
        },
        directory=tmp_path,
    )
    # The two have different names only by their own variables.
    for number, process in enumerate(cluster.schedulers):
        process.environment["ONAGER_SCHEDULER_SCHEDULER_ID"] = f"scheduler-{number}"
    with cluster, cluster.connect() as client, proxies_of_a_thread() as make_proxy:
        origins = [origin_of(cluster, number).removeprefix("http://") for number in (0, 1)]
        proxy, _ = make_proxy(origins[0])
        both = ("scheduler-0", "scheduler-1")
        driven_by_first = next(f"job-{n}" for n in range(100) if rendezvous.first(f"job-{n}", both) == both[0])
        job = client.submit(BareJob(60, task_ms=400, has_rows=True).spec, driven_by_first)
        with watched_page(browser, f"http://{proxy.address}") as (page, watched):
            page.goto(f"/jobs/{job.id}/events")
            events = page.get_by_role("list", name="Events")
            expect(events.get_by_text("task succeeded").first).to_be_visible()

            watched.is_losing_its_scheduler = True
            cluster.kill(cluster.schedulers[0])
            expect(page.get_by_text("reconnecting").first).to_be_visible()
            proxy.target = origins[1]  # as a load balancer does, once its check has failed

            expect(page.locator(".head .state")).to_have_text("successful", timeout=90_000)
            expect(page.get_by_text("reconnecting")).to_have_count(0)
            logged = [(event.position, event.type.replace("_", " ")) for event in job.events()]
            until(
                lambda: (
                    f"to {logged[-1][0]:,}" in page.get_by_role("region", name="Events").locator("header").inner_text()
                )
            )
            assert shown_events(page) == logged, "nothing missed, nothing twice"
            assert {event.scheduler_id for event in job.events()} == {"scheduler-0", "scheduler-1"}, "both have told"

            page.get_by_role("link", name="Timeline").click()
            took_over = page.get_by_role("cell", name="Another scheduler took over")
            expect(took_over.first).to_be_visible()
