"""A browser, and clusters without Spark: real schedulers, and executors whose tasks do nothing."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import onager
from benchmarks.bare_cluster import BareCluster
from benchmarks.bare_executor import BareJob
from tests.support.browser import TIMEOUT_MS, Watched, chromium, watched_page
from tests.support.waiting import HANGS_S, until

expect.set_options(timeout=TIMEOUT_MS)

NO_EXECUTOR_IS_LOST = {
    "ONAGER_SCHEDULER_EXECUTOR_LEASE_TTL_MS": "600000",
    "ONAGER_EXECUTOR_HEARTBEAT_INTERVAL_MS": "2000",
}
"""However busy the machine is: a task that ran again would be shown as one."""
_PAINTED = """canvas => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    const found = new Set();
    for (let i = 0; i < data.length; i += 4) {
        found.add('#' + [...data.slice(i, i + 3)].map(part => part.toString(16).padStart(2, '0')).join(''));
    }
    const style = getComputedStyle(document.documentElement);
    return ['--accent', '--bad', '--good', '--warn'].filter(name => found.has(style.getPropertyValue(name).trim()));
}"""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """For this package alone: while it is open, Playwright's own event loop runs in this thread."""
    with chromium() as started:
        yield started


def origin_of(cluster: BareCluster, number: int = 0) -> str:
    """Return the origin of the page that a scheduler serves, as it has printed it."""
    name = cluster.schedulers[number].name
    log = Path(cluster._directory) / f"{name}.log"
    found = until(lambda: re.search(r"page at (http://\S+)/", log.read_text()), log.read_text)
    return found[1]


def painted(page: Page) -> set[str]:
    """Return which of the page's colours are in its first canvas, by their names in its style sheet."""
    return set(page.locator("canvas").first.evaluate(_PAINTED))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[BareCluster]:
    """One scheduler on LevelDB that serves the page, and two executors of four slots each."""
    directory = tmp_path_factory.mktemp("page")
    started = BareCluster(
        f"leveldb:{directory / 'state'}",
        executor_slots=(4, 4),
        scheduler_environment={"ONAGER_SCHEDULER_HTTP_LISTEN": "127.0.0.1:0", **NO_EXECUTOR_IS_LOST},
        directory=directory,
    )
    for process in started.executors:
        process.environment |= NO_EXECUTOR_IS_LOST
    with started:
        yield started


@pytest.fixture(scope="module")
def origin(cluster) -> str:
    return origin_of(cluster)


@pytest.fixture(scope="module")
def client(cluster) -> Iterator[onager.OnagerClient]:
    with cluster.connect() as connected:
        yield connected


@pytest.fixture(scope="module")
def _watched_page(browser, origin) -> Iterator[tuple[Page, Watched]]:
    with watched_page(browser, origin) as pair:
        yield pair


@pytest.fixture
def page(_watched_page) -> Iterator[Page]:
    """A page that shows no error, fetches nothing from elsewhere, and asks for nothing that its CSP refuses.

    Tests have it one after the other, since each new one costs a process; nothing of the test before is in it.
    """
    opened, watched = _watched_page
    yield opened
    opened.unroute_all()
    opened.evaluate("localStorage.clear()")
    opened.emulate_media(color_scheme="light", reduced_motion="reduce")
    opened.goto("about:blank")
    try:
        watched.check()
    finally:
        watched.forget()


@pytest.fixture(scope="module")
def done(client) -> str:
    """The id of a job that has ended well."""
    job = client.sql(
        BareJob(12, task_ms=20, has_rows=True).text,
        name="nightly totals",
        conf={"spark.hadoop.fs.s3a.secret.key": "xyzzy"},
    )
    job.wait(HANGS_S)
    return job.id
