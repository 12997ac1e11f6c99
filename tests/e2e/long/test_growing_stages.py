"""What is read while it is still being found, `kill -9` in the middle: no file or page is lost or read twice."""

import pytest

from onager.client import JobHandle
from tests.e2e.conftest import JOBS, UNFUSED
from tests.support.processes.cluster import Cluster
from tests.support.waiting import until

FILES = 4_000
TEXT = "SELECT count(*) AS files, count(DISTINCT value) AS lines, sum(CAST(value AS BIGINT)) AS total FROM lines"
CONF = {"onager.fusion.maxBytes": 0, "onager.feed.fromFiles": 20, "spark.sql.shuffle.partitions": 2}
PAGES, PAUSE_S = 300, 0.1
FEED, SCAN = 1, 2


@pytest.fixture
def lines(tmp_path) -> str:
    made = tmp_path / "lines"
    made.mkdir()
    for n in range(FILES):
        (made / f"part-{n * 7919 % FILES:05}.txt").write_text(f"{n}\n")
    return str(made)


def test_the_scheduler_and_the_executor_that_lists_are_killed_in_the_middle(make_cluster, lines, tell):
    cluster = started(make_cluster)
    job = cluster.client.sql(TEXT, views={"lines": lines}, conf=CONF)
    tasks = killed_in_the_middle(cluster, job, FILES, tell)
    assert len([at for at in tasks if at[0] == FEED]) >= FILES // CONF["onager.feed.fromFiles"]


def test_they_are_killed_while_a_data_source_gives_its_pages(make_cluster, tell):
    cluster = started(make_cluster)
    job = cluster.client.python(f"{JOBS}:pages", args={"count": PAGES, "pause_s": PAUSE_S}, conf=UNFUSED)
    killed_in_the_middle(cluster, job, PAGES, tell)


def started(make_cluster) -> Cluster:
    cluster = make_cluster()
    cluster.start_scheduler()
    for name in ("e-1", "e-2"):
        cluster.launch_executor(name, slots=1)
    cluster.await_executors("e-1", "e-2")
    return cluster


def killed_in_the_middle(cluster: Cluster, job: JobHandle, count: int, tell) -> dict:
    """Kill the scheduler, then the executor that lists, while *job* reads; return its tasks once it has all rows."""
    until(lambda: listed_and_read(cluster, job.id) >= 3, "what is partly found, and read")
    assert any("(more tasks may come)" in stage.name for stage in job.progress().stages)
    cluster.scheduler.kill()
    cluster.start_scheduler()
    before = listed_and_read(cluster, job.id)
    until(lambda: listed_and_read(cluster, job.id) > before, "portions after the first kill")
    lister = until(lambda: who_lists(cluster, job.id), "a task that lists")
    cluster.living_executors()[lister].kill()
    tell(f"{before} portions were there at the first kill, {listed_and_read(cluster, job.id)} at the second")
    assert job.to_arrow().to_pylist() == [{"files": count, "lines": count, "total": count * (count - 1) // 2}]
    tasks = cluster.tasks(job.id)
    assert {at: task["successes"] for at, task in tasks.items() if task["successes"] != 1} == {}
    assert not any("(more tasks may come)" in stage.name for stage in job.progress().stages)
    return tasks


def listed_and_read(cluster: Cluster, job_id: str) -> int:
    """Return how many portions were found, once some of their files were read, while the listing goes on."""
    stages = {stage.stage_id: stage for stage in cluster.client.job(job_id).progress().stages}
    if SCAN not in stages or not stages[SCAN].successful:
        return 0
    assert stages[FEED].state != "successful", "the listing has ended before anything was seen of it"
    return stages[FEED].successful


def who_lists(cluster: Cluster, job_id: str) -> str | None:
    for (stage_id, _), task in cluster.tasks(job_id).items():
        if stage_id == FEED and task["state"] == "running":
            return task["executor_id"]
    return None
