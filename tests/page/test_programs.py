"""A program on the page, in a real browser, over a cluster with Spark: it is killed, and goes on."""

import re
from collections.abc import Iterator

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from onager.client.program import ProgramHandle
from tests.support.browser import watched_page
from tests.support.processes.children import free_port
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S, until

TEXT = """
import os, sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE TABLE paged(n INT)")
for n in range(3):
    spark.sql(f"INSERT INTO paged VALUES ({n})")
    print("done", n)
print("watch out", file=sys.stderr)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
try:
    spark.table("nothing").count()
except Exception:
    print("rows", spark.table("paged").count())
sys.exit(4)
"""


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("programs"))
    made.environment["ONAGER_SCHEDULER_HTTP_LISTEN"] = f"127.0.0.1:{free_port()}"
    made.environment["ONAGER_EXECUTOR_PROGRAM_SLOTS"] = "2"
    try:
        made.start_scheduler()
        made.start_executor("e-1")
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def program_page(browser, spark_cluster) -> Iterator[Page]:
    origin = f"http://{spark_cluster.environment['ONAGER_SCHEDULER_HTTP_LISTEN']}"
    with watched_page(browser, origin) as (opened, watched):
        yield opened
        watched.check()


def call_at(page: Page, line: str):
    return page.get_by_role("list", name="Calls").get_by_role("listitem").filter(has_text=line)


def test_it_shows_attempts_calls_and_output_of_a_program_that_is_killed(program_page, spark_cluster, tmp_path):
    page, client = program_page, spark_cluster.client
    app = tmp_path / "paged.py"
    app.write_text(TEXT)
    program = client.run(app, args=[str(tmp_path / "go-on")])
    page.goto(f"/jobs/{program.id}")
    output = page.get_by_role("region", name="Output")
    standing = page.locator("dl[aria-label='The program']")
    expect(output).to_contain_text("done 2\nwatch out")
    expect(output.locator(".bad")).to_contain_text("watch out")
    expect(call_at(page, "paged.py:5").last).to_contain_text("done")
    until(spark_cluster.executors["e-1"].program, "the process of the program").kill()
    expect(standing).to_contain_text("Attempts2")
    expect(call_at(page, "paged.py:5").last).to_contain_text("attempt 1, earlier")
    (tmp_path / "go-on").touch()
    expect(standing).to_contain_text("Exit code4")
    expect(standing).to_contain_text("Last callpaged.py:15")
    expect(output).to_contain_text("rows 3")
    expect(output.locator(".next")).to_have_text("attempt 2")
    assert output.inner_text().count("done 0") == 1, "each line is shown once"
    expect(call_at(page, "paged.py:13").first).to_contain_text("TABLE_OR_VIEW_NOT_FOUND")
    expect(call_at(page, "paged.py:15").last).to_contain_text("attempt 2")
    violations = Axe().run(page).response["violations"]
    assert not [each["id"] for each in violations if each["impact"] in ("serious", "critical")]
    _a_call_leads_to_its_job_and_back(page, program)
    _rest_tells_the_same(page, program)


def _a_call_leads_to_its_job_and_back(page: Page, program: ProgramHandle) -> None:
    call_at(page, "paged.py:7").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile("/jobs/connect-"))
    page.get_by_role("link", name=program.id).click()
    expect(page.get_by_role("region", name="Output")).to_contain_text("rows 3")
    page.goto("/jobs")
    rows = page.get_by_role("region", name="Jobs").locator("tbody tr")
    expect(rows).to_have_count(1)
    page.get_by_label("Steps and calls").check()
    expect(rows).not_to_have_count(1)
    expect(page).to_have_url(re.compile("steps=true"))


def _rest_tells_the_same(page: Page, program: ProgramHandle) -> None:
    root = re.sub(r"/jobs.*", "", page.url) + f"/api/v1/programs/{program.id}"
    calls = list(program.calls())
    with httpx.Client(timeout=HANGS_S) as http:
        listed, cursor = [], ""
        while cursor is not None:
            answer = http.get(f"{root}/calls", params={"limit": 2, "cursor": cursor}).json()
            listed += answer["items"]
            cursor = answer["next"]
        assert [(c["number"], c["line"], c["job_id"]) for c in listed] == [(c.number, c.line, c.job_id) for c in calls]
        info = http.get(root).json()
        assert (info["attempt"], info["ended"], info["exit_code"], info["calls"]) == (2, True, 4, len(calls))
        printed = http.get(f"{root}/output", params={"follow": "true"}).text
    assert printed == b"".join(each.text for each in program.output()).decode()
