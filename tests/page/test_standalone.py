"""The page of `onager standalone`, with Spark: what a user sees who has just begun."""

import re
import sys

from playwright.sync_api import expect

import onager
from tests.integration.security.parts import ROOT, environment
from tests.page.conftest import NO_EXECUTOR_IS_LOST
from tests.support.browser import watched_page
from tests.support.processes.children import end, free_ports, start
from tests.support.waiting import HANGS_S, until

_QUERY = "SELECT id % 3 AS k, count(*) AS n FROM range(1000) GROUP BY k ORDER BY k"


def test_a_query_from_its_submission_to_what_its_operators_did_and_one_that_fails(browser, tmp_path):
    address, page_address = (f"127.0.0.1:{port}" for port in free_ports(2))
    command = [sys.executable, "-m", "onager", "standalone", "--listen", address, "--http-listen", page_address]
    command += ["--state-dir", str(tmp_path / "state"), "--exchange-dir", str(tmp_path / "exchange"), "--slots", "2"]
    log = tmp_path / "standalone.log"
    process = start(command, log, environment() | {"PYTHONPATH": str(ROOT)} | NO_EXECUTOR_IS_LOST)
    try:
        with watched_page(browser, f"http://{page_address}") as (page, _):

            def serves() -> bool:
                assert process.poll() is None, log.read_text()
                return "onager is ready" in log.read_text()

            until(serves, log.read_text)
            page.goto("/")
            expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
            with onager.connect(address, connect_timeout_s=HANGS_S, retry_timeout_s=HANGS_S) as client:
                job = client.sql(_QUERY, conf={"onager.fusion.maxBytes": 0}, name="by rest")
                page.get_by_role("link", name="by rest").click()  # the list finds it by itself
                expect(page.locator(".head .state")).to_have_text("successful")
                assert job.to_arrow().num_rows == 3
            expect(page.get_by_role("link", name=re.compile("^Stage 1, .*: successful"))).to_be_visible()
            expect(page.get_by_role("region", name="Where every second went")).to_contain_text("planning")
            page.get_by_role("link", name="Plan", exact=True).click()
            ran = page.get_by_role("region", name="The plan as it ran")
            expect(ran.get_by_text("Range", exact=True).first).to_be_visible()
            expect(ran).to_contain_text("output rows 1,000")
            page.get_by_role("link", name="Definition").click()
            expect(page.get_by_role("region", name="SQL")).to_contain_text(_QUERY)
            expect(page.get_by_role("region", name="Columns of the result")).to_contain_text("long")
            page.get_by_role("link", name="Executors").click()
            expect(page.get_by_role("row").filter(has_text="standalone-")).to_contain_text("4.3")
            with onager.connect(address, connect_timeout_s=HANGS_S, retry_timeout_s=HANGS_S) as client:
                failed = client.sql("SELECT 1 / (id - id) AS ratio FROM range(9)")
                page.goto(f"/jobs/{failed.id}")
                expect(page.locator(".head .state")).to_have_text("failed")
            why = page.locator(".note.bad > :not(details)")
            expect(why.filter(has_text="Division by zero")).to_have_count(1)
            expect(why.filter(has_text="== SQL (line 1")).to_have_count(1)
    finally:
        end(process)
