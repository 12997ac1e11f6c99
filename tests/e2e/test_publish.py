"""A process dies while a dataset is published: the dataset is missing or complete, never partial."""

import threading
import time

import pyarrow.parquet as pq
import pytest

from onager.client import JobState
from tests.support.processes.cluster import Cluster
from tests.support.selection import IS_ALL
from tests.support.waiting import HANGS_S

ROWS = 2_000


@pytest.fixture
def cluster(lone_cluster) -> Cluster:
    return lone_cluster


@pytest.mark.parametrize(
    ("victim", "mode"),
    [
        ("scheduler", "error"),
        ("scheduler", "overwrite"),
        ("executor", "overwrite"),
        *([("jvm", "error")] if IS_ALL else []),
    ],
)
def test_publishing_is_killed_in_the_middle(cluster, tmp_path, victim, mode):
    target = tmp_path / "out"
    if mode == "overwrite":
        cluster.client.sql("SELECT -1L AS id", output=target).wait(timeout=HANGS_S)
    seen: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.append(visible_rows(target))
            time.sleep(0.005)

    text = f"SELECT /*+ REPARTITION(40) */ id FROM range({ROWS})"
    conf = {"onager.fusion.maxBytes": 0}
    job = cluster.client.sql(text, conf=conf, output=target, mode=mode)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for progress in job.watch(timeout=HANGS_S):
            if progress.state is JobState.PUBLISHING or progress.state.is_final:
                break
        kill(cluster, victim)
        job.wait(timeout=HANGS_S)
    finally:
        stop.set()
        watcher.join()
    assert set(seen) <= {0, 1, ROWS} if mode == "overwrite" else set(seen) <= {0, ROWS}
    assert sorted(pq.read_table(target).column("id").to_pylist()) == list(range(ROWS))
    assert (target / "_SUCCESS").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def visible_rows(target) -> int:
    """Return the rows that a reader finds at *target* now; 0 while it is not there."""
    try:
        return sum(pq.ParquetFile(file).metadata.num_rows for file in sorted(target.glob("*.parquet")))
    except FileNotFoundError:
        return 0


def kill(cluster: Cluster, victim: str) -> None:
    if victim == "scheduler":
        cluster.scheduler.kill()
        cluster.start_scheduler()
    elif victim == "executor":
        executor = cluster.the_executor()
        executor.kill()
        cluster.start_executor(executor.name)
    else:
        cluster.the_executor().jvm().kill()
