"""A directory that is read while it is still being listed, `kill -9` in the middle: no file is lost or read twice."""

from pathlib import Path

import pytest

from tests.support.processes.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

FILES = 4_000
TEXT = "SELECT count(*) AS files, count(DISTINCT value) AS lines, sum(CAST(value AS BIGINT)) AS total FROM lines"
CONF = {"onager.fusion.maxBytes": 0, "onager.feed.fromFiles": 40, "spark.sql.shuffle.partitions": 2}
FEED, SCAN = 1, 2


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("lines")
    for n in range(FILES):
        (made / f"part-{n * 7919 % FILES:05}.txt").write_text(f"{n}\n")
    return made


@pytest.fixture
def cluster(make_cluster) -> Cluster:
    made = make_cluster()
    made.start_scheduler()
    for name in ("e-1", "e-2"):
        made.launch_executor(name, slots=1)
    made.await_executors("e-1", "e-2")
    return made


def listing(cluster: Cluster, lines: Path):
    """Return a job that has found some of its files, and reads the first ones."""
    job = cluster.client.sql(TEXT, views={"lines": str(lines)}, conf=CONF)
    until(lambda: is_in_the_middle(cluster, job.id), 120, "a directory that is partly listed, and read")
    return job


def is_in_the_middle(cluster: Cluster, job_id: str) -> bool:
    stages = {stage.stage_id: stage for stage in cluster.client.job(job_id).progress().stages}
    if SCAN not in stages:
        return False
    assert stages[FEED].state != "successful", "the listing has ended before anything was seen of it"
    return stages[FEED].successful >= 3 and stages[SCAN].successful >= 1


def assert_all_were_read_once(cluster: Cluster, job) -> None:
    assert job.to_arrow().to_pylist() == [{"files": FILES, "lines": FILES, "total": FILES * (FILES - 1) // 2}]
    tasks = cluster.tasks(job.id)
    assert {at: task["successes"] for at, task in tasks.items() if task["successes"] != 1} == {}
    assert len([at for at in tasks if at[0] == FEED]) == FILES // CONF["onager.feed.fromFiles"]


def test_the_first_task_has_run_before_the_listing_has_ended(cluster, lines):
    job = listing(cluster, lines)
    assert any("(more tasks may come)" in stage.name for stage in job.progress().stages)
    assert_all_were_read_once(cluster, job)
    assert not any("(more tasks may come)" in stage.name for stage in job.progress().stages)


def test_the_executor_that_lists_is_killed_in_the_middle(cluster, lines):
    job = listing(cluster, lines)
    lister = until(lambda: who_lists(cluster, job.id), 60, "a task that lists")
    cluster.living_executors()[lister].kill()
    assert_all_were_read_once(cluster, job)


def who_lists(cluster: Cluster, job_id: str) -> str | None:
    for (stage_id, _), task in cluster.tasks(job_id).items():
        if stage_id == FEED and task["state"] == "running":
            return task["executor_id"]
    return None


def test_the_scheduler_is_killed_in_the_middle(cluster, lines):
    job = listing(cluster, lines)
    cluster.scheduler.kill()
    cluster.start_scheduler()
    assert_all_were_read_once(cluster, job)
