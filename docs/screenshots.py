"""Makes the pictures of the page in docs/pictures, of a real cluster with real jobs: ``python -m docs.screenshots``.

It starts `onager standalone` in a temporary directory, generates a little TPC-H data, runs a few jobs, and looks at
them in Chromium. It takes a few minutes, most of them to start Spark.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, expect, sync_playwright

import onager
from benchmarks.cluster import free_address
from tests.support.browser import find_chromium

PICTURES: Final = Path(__file__).with_name("pictures")
QUERIES: Final = Path(__file__).parents[1] / "benchmarks" / "tpch" / "queries"
_MAX_BYTES: Final = 150_000
_START_TIMEOUT_S: Final = 600.0
_SIZE: Final = {"width": 1180, "height": 740}
_CUT: Final = {"onager.fusion.maxBytes": 0, "spark.sql.shuffle.partitions": 8}


def main() -> int:
    """Make all pictures."""
    with tempfile.TemporaryDirectory(prefix="onager-pictures-") as name:
        directory = Path(name)
        data = directory / "tpch"
        generator = Path(sys.executable).with_name("tpcgen-cli")
        subprocess.run([generator, "tpch", "parquet", "-s", "0.05", f"--output-dir={data}"], check=True)
        address, page = free_address(), free_address()
        command = ["-m", "onager", "standalone", "--listen", address, "--http-listen", page, "--slots", "4"]
        command += ["--state-dir", str(directory / "state"), "--exchange-dir", str(directory / "exchange")]
        log = directory / "log"
        with log.open("wb") as out:
            process = subprocess.Popen([sys.executable, *command], stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        try:
            _await_ready(process, log)
            with onager.connect(address) as client:
                _take(f"http://{page}", *_run_jobs(client, data))
        finally:
            process.terminate()
            process.wait(60)
    return 0


def _await_ready(process: "subprocess.Popen[bytes]", log: Path) -> None:
    end_s = time.monotonic() + _START_TIMEOUT_S
    while "onager is ready" not in log.read_text():
        if process.poll() is not None or time.monotonic() > end_s:
            raise SystemExit(f"the cluster did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.2)


def _run_jobs(client: onager.OnagerClient, data: Path) -> tuple[str, str]:
    """Run some jobs, and return the id of the one to look at, and of one that failed."""
    views = {path.stem: path for path in data.glob("*.parquet")}

    def submit(query: int, name: str) -> onager.JobHandle:
        return client.sql((QUERIES / f"q{query}.sql").read_text(), views=views, conf=_CUT, name=name)

    client.sql("SELECT count(*) AS orders FROM orders", views=views, name="orders, counted").wait()
    submit(3, "orders not yet shipped").wait()
    broken = client.sql(
        "SELECT o_totalprice / (o_orderkey - o_orderkey) FROM orders", views=views, name="price per key"
    )
    list(broken.watch())
    client.sql("SELECT sum(id) FROM range(100000000000)", name="asked for too much").cancel("the wrong range")
    shown = submit(5, "revenue by nation")
    shown.wait()
    submit(18, "large orders")
    return shown.id, broken.id


def _take(url: str, job_id: str, failed_id: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(playwright), args=["--no-sandbox"])
        light, dark = (browser.new_page(viewport=_SIZE, color_scheme=scheme) for scheme in ("light", "dark"))
        light.goto(f"{url}/jobs")
        expect(light.get_by_role("link", name="revenue by nation")).to_be_visible()
        _save(light, "page-jobs.png")
        light.goto(f"{url}/jobs/{job_id}")
        expect(light.get_by_role("link", name=re.compile("^Stage 1, "))).to_be_visible()
        _save(light, "page-job.png")
        dark.goto(f"{url}/jobs/{job_id}/timeline")
        expect(dark.get_by_role("cell", name="Ended")).to_be_attached()
        _save(dark, "page-timeline.png")
        light.goto(f"{url}/jobs/{job_id}/plan")
        expect(light.get_by_text("BroadcastHashJoin").first).to_be_visible()
        _save(light, "page-plan.png")
        dark.goto(f"{url}/jobs/{failed_id}/logs")
        expect(dark.get_by_text("DIVIDE_BY_ZERO").first).to_be_visible()
        _save(dark, "page-logs.png")
        browser.close()


def _save(page: Page, name: str) -> None:
    expect(page.get_by_text("Reading…")).to_have_count(0)
    page.screenshot(path=PICTURES / name)
    size = (PICTURES / name).stat().st_size
    if size > _MAX_BYTES:
        raise SystemExit(f"{name} has {size:,} bytes: make it smaller")
    sys.stdout.write(f"docs/pictures/{name}  {size:,} bytes\n")


if __name__ == "__main__":
    sys.exit(main())
