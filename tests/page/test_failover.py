"""The scheduler that serves the page is killed in mid-stream, and the page goes on at another one."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from benchmarks.bare_cluster import BareCluster
from onager.protocol import onager_pb2 as pb
from onager.scheduler.policy import rendezvous
from tests.page.conftest import origin_of, painted
from tests.support.browser import watched_page
from tests.support.processes import troubled_executor
from tests.support.processes.tcp_proxy import proxies_of_a_thread
from tests.support.waiting import until

_SCROLL_PX = 400


def shown_events(page: Page) -> list[tuple[int, str]]:
    """Return position and type of all rows of the list, which exist only while they are in sight."""
    rows: dict[int, tuple[int, str]] = {}
    events = page.get_by_role("list", name="Events")
    events.evaluate("list => { list.scrollTop = 0; }")
    until(lambda: _is_drawn(events, 0))
    until(lambda: 0 in events.get_by_role("listitem").evaluate_all("rows => rows.map(r => r.offsetTop)"))
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
    """Whether the last row in sight is there: what was drawn for the place before does not reach so far."""
    tops = events.get_by_role("listitem").evaluate_all("rows => rows.map(r => r.offsetTop)")
    last = top + events.evaluate("list => list.clientHeight") - 13
    return any(abs(each - last) < 30 for each in tops)


def _cluster_in_trouble(store: str, directory: Path) -> BareCluster:
    """Return two schedulers with names of their own, and two executors of which tasks fail and wait."""
    cluster = BareCluster(
        store,
        schedulers=2,
        executor_slots=(2, 2),
        scheduler_environment={
            "ONAGER_SCHEDULER_HTTP_LISTEN": "127.0.0.1:0",
            "ONAGER_SCHEDULER_SCHEDULER_LEASE_TTL_MS": "1500",
            "ONAGER_SCHEDULER_EXECUTOR_LEASE_TTL_MS": "2000",
            "ONAGER_SCHEDULER_RETRY_PAUSES_S": "0.2",
        },
        directory=directory,
    )
    # The two have different names only by their own variables.
    for number, process in enumerate(cluster.schedulers):
        process.environment["ONAGER_SCHEDULER_SCHEDULER_ID"] = f"scheduler-{number}"
    for process in cluster.executors:
        process.command = ["-m", troubled_executor.__name__, ",".join(cluster.addresses), process.name]
    return cluster


def _check_what_went_wrong(timeline: dict[str, Any], lost: str) -> None:
    """Check that the timeline tells of the failed task, the lost executor, the stage that ran again, the take-over."""
    marks = timeline["marks"]
    assert {(mark["kind"], mark.get("stage")) for mark in marks} >= {
        ("task_retry", 1),
        ("stage_rollback", 1),
        ("stage_rollback", 2),
    }
    assert {(mark["kind"], mark.get("scheduler_id") or mark.get("executor_id")) for mark in marks} >= {
        ("take_over", "scheduler-1"),
        ("executor_lost", lost),
    }
    assert timeline["outcomes"]["failed"] == 1
    first_ran = [stage["outcome"] for stage in timeline["stages"] if stage["stage"] == 1]
    assert first_ran[:2] == ["successful", "successful"], "a stage that had ended ran again"


def test_the_page_goes_on_at_another_scheduler_and_shows_what_went_wrong(browser, etcd, tmp_path):
    """A task fails, a scheduler and an executor are killed, a stage runs again: the API and the page tell all four."""
    cluster = _cluster_in_trouble(etcd.url("page"), tmp_path)
    with cluster, cluster.connect() as client, proxies_of_a_thread() as make_proxy:
        origins = [origin_of(cluster, number).removeprefix("http://") for number in (0, 1)]
        proxy, _ = make_proxy(origins[0])
        both = ("scheduler-0", "scheduler-1")
        driven_by_first = next(f"job-{n}" for n in range(100) if rendezvous.first(f"job-{n}", both) == both[0])
        job = client.submit(pb.JobSpec(sql=pb.SqlScript(text="SELECT 1")), driven_by_first)
        with watched_page(browser, f"http://{proxy.address}") as (page, watched):

            def get_timeline() -> dict[str, Any]:
                return page.request.get(f"/api/v1/jobs/{job.id}/timeline").json()

            def first_stage() -> list[str]:
                """Return the executors that hold its outputs, each as often as there are outputs."""
                timeline = get_timeline()
                done = [bar for bar in timeline["bars"] if bar["stage"] == 1 and bar["outcome"] == "successful"]
                return [timeline["lanes"][bar.get("lane", 0)]["executor_id"] for bar in done]

            page.goto(f"/jobs/{job.id}/events")
            rows = page.get_by_role("list", name="Events")
            expect(rows.get_by_text("task succeeded").first).to_be_visible()
            until(lambda: get_timeline()["outcomes"].get("running") == troubled_executor.RESULTS)
            lost = first_stage()[0]

            watched.is_losing_its_scheduler = True
            cluster.kill(cluster.schedulers[0])
            expect(page.get_by_text("reconnecting").first).to_be_visible()
            proxy.target = origins[1]  # as a load balancer does, once its check has failed
            expect(page.get_by_text("reconnecting")).to_have_count(0)
            cluster.kill(next(process for process in cluster.executors if process.name == lost))

            expect(page.locator(".head .state")).to_have_text("successful")
            logged = list(job.events())
            expect(page.get_by_role("region", name="Events").locator("header")).to_contain_text(
                f"to {logged[-1].position:,}"
            )
            assert shown_events(page) == [(event.position, event.type.replace("_", " ")) for event in logged], (
                "nothing missed, nothing twice"
            )
            assert {event.scheduler_id for event in logged} == set(both), "both have reported"

            _check_what_went_wrong(get_timeline(), lost)
            page.get_by_role("link", name="Timeline").click()
            for title in (
                "Tasks are tried again",
                "Another scheduler took over",
                "Executor lost",
                "A stage runs again",
            ):
                expect(page.get_by_role("cell", name=title).first).to_be_visible()
            until(lambda: painted(page) >= {"--good", "--warn", "--bad"})
