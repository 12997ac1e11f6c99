"""Machines that share directories, one that does not, and mounts that are lost: no row is lost with them."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from onager.errors import JobFailedError
from tests.e2e.conftest import UNFUSED
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S, until

ROWS = 1000


@pytest.fixture(scope="module")
def cluster(make_module_cluster) -> Cluster:
    """Two executors that share directories, and a third one with directories of its own, as without its mount."""
    made = make_module_cluster()
    shared = made.directory / "shared"
    made.exchange_dir = shared / "exchange"
    made.exchange_dir.mkdir(parents=True)
    alone = made.directory / "alone" / "exchange"
    alone.mkdir(parents=True)
    made.start_scheduler()
    write(shared / "data", 1)
    for name in ("e-1", "e-2"):
        made.launch_executor(name, slots=1, ONAGER_EXECUTOR_ROOTS=json.dumps([str(shared / "data")]))
    made.await_executors("e-1", "e-2")
    made.launch_executor("e-3", slots=1, exchange_dir=alone)
    until(lambda: "is not the cluster's" in why(made, "e-3"), "the third executor")
    return made


def write(data: Path, times: int) -> None:
    """Make a directory of files, as its owner does."""
    (data / "t").mkdir(parents=True)
    for number in range(times):
        parquet.write_table(pa.table({"id": list(range(ROWS))}), data / "t" / f"part-{number}.parquet")


def why(cluster: Cluster, executor_id: str) -> str:
    """Return why an executor gets no work, because of its directories."""
    return next(
        (e.reason for e in cluster.client.executors() if e.executor_id == executor_id and e.state == "no_place"), ""
    )


def count(cluster: Cluster, table: str, **conf: object) -> int:
    job = cluster.client.sql(f"SELECT count(*) AS n FROM {table}", conf=conf)
    return job.to_arrow().to_pylist()[0]["n"]


def test_a_machine_without_its_mount_is_refused_by_name_and_no_row_is_lost(cluster):
    printed = why(cluster, "e-3")
    assert "is not the cluster's exchange directory" in printed
    assert "its volume is not mounted" in printed
    assert str(cluster.directory / "alone" / "exchange") in printed
    assert "place_not_seen" in cluster.processes[0].text()
    until(lambda: "place_not_seen" in cluster.executors["e-3"].text(), "an executor that logs it")
    cluster.client.sql("CREATE TABLE kept (id BIGINT) USING parquet").wait()
    for inserted in range(1, 5):
        cluster.client.sql(f"INSERT INTO kept SELECT * FROM range({ROWS})").wait()
        assert {count(cluster, "kept"), count(cluster, "kept", **UNFUSED)} == {inserted * ROWS}
    assert not list((cluster.directory / "alone").rglob("*.parquet"))
    assert not list((cluster.directory / "alone").rglob(".onager-place"))


def test_a_mount_that_is_lost_while_jobs_run_costs_a_wait_and_no_row(cluster):
    client, shared = cluster.client, cluster.directory / "shared"
    client.sql("CREATE TABLE shaken (id BIGINT) USING parquet").wait()
    client.sql(f"INSERT INTO shaken SELECT * FROM range({ROWS})").wait()
    away = shared.with_name("away")
    shared.rename(away)
    for part in ("exchange", "warehouse"):
        (shared / part).mkdir(parents=True)
    jobs = [client.sql(f"INSERT INTO shaken SELECT * FROM range({ROWS})") for _ in range(3)]
    until(
        lambda: {cluster.executor_states()[name] for name in ("e-1", "e-2")} == {"no_place"},
        "executors that have noticed",
    )
    waiting = until(lambda: waits_for(client, jobs[-1]), "a job that says what it waits for")
    assert "another directory is there now, or none" in waiting or "lacks its id" in waiting
    shutil.rmtree(shared)
    away.rename(shared)
    cluster.await_executors("e-1", "e-2")
    for job in jobs:
        job.wait()
    assert {count(cluster, "shaken"), count(cluster, "shaken", **UNFUSED)} == {4 * ROWS}


def waits_for(client, job) -> str:
    progress = next(iter(job.watch(timeout=HANGS_S)))
    return progress.waiting_for if "does not see" in progress.waiting_for else ""


@pytest.mark.long
def test_files_of_a_root_are_read_where_it_is_mounted_and_in_each_version_that_its_owner_puts_there(cluster):
    data, away = cluster.directory / "shared" / "data", cluster.directory / "shared" / "version-1"
    files = f"parquet.`{data}/*`"
    until(lambda: is_read(cluster, files), "executors that have found each other's marks")
    assert {count(cluster, files), count(cluster, files, **UNFUSED)} == {ROWS}
    data.rename(away)
    data.mkdir()  # as below a mount
    for conf in ({}, UNFUSED):
        with pytest.raises(JobFailedError, match=r"directory of files \(--root\).*no executor sees it: mount it"):
            count(cluster, files, **conf)
    data.rmdir()
    away.rename(data)
    until(lambda: is_read(cluster, files), "executors that see it again")
    assert {count(cluster, files), count(cluster, files, **UNFUSED)} == {ROWS}
    data.rename(away)
    write(data, 2)
    until(lambda: is_read(cluster, files), "executors that have noticed")
    assert {count(cluster, files), count(cluster, files, **UNFUSED)} == {2 * ROWS}
    assert "place_id_made_again" in cluster.executors["e-1"].text() + cluster.executors["e-2"].text()


def is_read(cluster: Cluster, files: str) -> bool:
    try:
        return count(cluster, files) > 0
    except JobFailedError:
        return False


def test_a_copy_of_the_directories_is_refused(cluster):
    copied = cluster.directory / "copied"
    shutil.copytree(cluster.directory / "shared", copied)
    alone = cluster.directory / "alone"
    alone.rename(cluster.directory / "was-alone")
    copied.rename(alone)
    until(lambda: "is a copy of the cluster's exchange directory" in why(cluster, "e-3"), "the third executor")


@pytest.mark.long
def test_all_processes_are_killed_and_find_their_directories_again(cluster):
    for process in [*cluster.executors.values(), cluster.scheduler]:
        process.kill()
    cluster.start_scheduler()
    cluster.launch_executor("e-4", slots=1)
    cluster.await_executors("e-4")
    assert count(cluster, "kept") == 4 * ROWS
