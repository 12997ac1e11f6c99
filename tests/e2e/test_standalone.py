"""``onager standalone`` as a user runs it, and README's lines as they are printed."""

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import expect

import onager
from tests.support.browser import TIMEOUT_MS, chromium, watched_page
from tests.support.processes.children import free_port, free_ports
from tests.support.processes.ordinary import ordinary
from tests.support.selection import some
from tests.support.waiting import HANGS_S, until

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "tests" / "e2e" / "jobs.py"
PLANTED = secrets.token_hex(16)
QUERY = "SELECT id % 3 AS k, count(*) AS n FROM range(1000) GROUP BY k ORDER BY k"

expect.set_options(timeout=TIMEOUT_MS)


class Standalone:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address, self.page_address = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.log = directory / "standalone.log"
        self.process = self.launch(self.address, directory / "state", "--http-listen", self.page_address)

    def launch(self, address: str, state_dir: Path, *more: str) -> subprocess.Popen:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [
                    *ordinary("-m", "onager", "standalone", "--listen", address),
                    *("--state-dir", str(state_dir), "--slots", "2", *more),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, "ONAGER_ETCD_PASSWORD": PLANTED, "ONAGER_PLANTED": PLANTED},
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def child(self, command: str) -> psutil.Process:
        """Return the scheduler or the executor, without their own children."""
        return next(child for child in psutil.Process(self.process.pid).children() if command in child.cmdline()[:5])

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(HANGS_S)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory) -> Iterator[Standalone]:
    running = Standalone(tmp_path_factory.mktemp("standalone"))
    try:
        until(lambda: "onager is ready" in running.text(), lambda: f"readiness, after {running.text()}")
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()
        sys.stderr.write(running.text())


def test_a_start_says_nothing_else_before_it_is_ready(standalone):
    printed, _, _ = standalone.text().partition("onager is ready")
    lines = [
        line for line in printed.splitlines() if not line.startswith("NOTE: Picked up JDK_JAVA_OPTIONS")
    ]  # of tests
    assert lines == ["onager: starting a scheduler, and an executor with Spark …"]
    assert f'SparkSession.builder.remote("sc://{standalone.address}").getOrCreate()' in standalone.text()


def test_the_page_shows_a_query_from_its_submission_to_what_its_operators_did_and_one_that_fails(standalone):
    """What a user sees who has just begun."""
    with (
        chromium() as browser,
        watched_page(browser, f"http://{standalone.page_address}") as (page, _),
        onager.connect(standalone.address) as client,
    ):
        page.goto("/")
        expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
        job = client.sql(QUERY, conf={"onager.fusion.maxBytes": 0}, name="by rest")
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
        expect(page.get_by_role("region", name="SQL")).to_contain_text(QUERY)
        expect(page.get_by_role("region", name="Columns of the result")).to_contain_text("long")
        page.get_by_role("link", name="Executors").click()
        expect(page.get_by_role("row").filter(has_text="standalone-")).to_contain_text("4.3")
        failed = client.sql("SELECT 1 / (id - id) AS ratio FROM range(9)")
        page.goto(f"/jobs/{failed.id}")
        expect(page.locator(".head .state")).to_have_text("failed")
        why = page.locator(".note.bad > :not(details)")
        expect(why.filter(has_text="Division by zero")).to_have_count(1)
        expect(why.filter(has_text="== SQL (line 1")).to_have_count(1)


def _python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.long
@pytest.mark.parametrize("block", range(len(_python_blocks())))
def test_the_python_of_the_readme_works_as_printed(standalone, block, tmp_path):
    program = _python_blocks()[block].replace("sc://127.0.0.1:50050", f"sc://{standalone.address}")
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "ONAGER_SCHEDULER": standalone.address},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()


def test_the_shell_line_of_the_readme_works_as_printed(standalone, tmp_path):
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if "`python -c" in line)
    command = line.partition("`")[2].rpartition("`")[0]
    ran = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "ONAGER_SCHEDULER": standalone.address,
        },
    )
    assert ran.returncode == 0, ran.stderr
    assert "one" in ran.stdout


@pytest.mark.parametrize("victim", some(["scheduler", "executor"]))
def test_a_child_that_is_killed_is_started_again_and_the_job_ends_right(standalone, victim):
    with onager.connect(standalone.address) as client:
        job = client.sql("SELECT id % 5 AS k, count(*) AS n FROM range(1000) GROUP BY k ORDER BY k")
        before = standalone.child(victim)
        before.kill()
        assert job.to_arrow().to_pylist() == [{"k": k, "n": 200} for k in range(5)]
        until(lambda: standalone.child(victim).pid != before.pid, f"another {victim}")
    assert f"the {victim} was killed by SIGKILL; restarting it" in standalone.text()


@pytest.mark.long
def test_a_second_one_at_the_same_address_or_state_says_so_and_ends_with_2(standalone):
    for address, state in (
        (standalone.address, standalone.directory / "other"),
        (f"127.0.0.1:{free_port()}", standalone.directory / "state"),
    ):
        second = standalone.launch(address, state)
        try:
            assert second.wait(HANGS_S) == 2
        finally:
            second.terminate()
            second.wait(HANGS_S)
        assert (address if state.name == "other" else str(state)) in standalone.text()


def test_users_code_reads_no_secret_of_the_processes_around_it(standalone):
    """It runs as their user; what it can read of any process must not contain what only they were given."""
    pids = [standalone.process.pid, standalone.child("scheduler").pid, standalone.child("executor").pid]
    with onager.connect(standalone.address) as client:
        job = client.python(f"{JOBS}:what_proc_tells", args={"pids": pids, "planted": PLANTED[::-1]})
        found = job.to_arrow().to_pylist()
    assert [row["where"] for row in found] == ["function", "udf"]
    for row in found:
        assert row["read"] > 1  # itself and, at least, the JVM
        assert row["opened"] == []
        assert row["planted"] == []


def test_an_interrupt_stops_everything(standalone):
    children = psutil.Process(standalone.process.pid).children(recursive=True)
    assert len(children) >= 2
    assert standalone.stop() == 0
    _, alive = psutil.wait_procs(children, timeout=HANGS_S)
    assert not alive
