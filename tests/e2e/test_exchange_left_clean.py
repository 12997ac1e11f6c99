"""The exchange directory is left clean, whatever is cancelled, killed or late; and its use is shown."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from onager.errors import JobCancelledError
from onager.place_files import FOLDER
from tests.e2e.conftest import JOBS, UNFUSED, Gate
from tests.support.processes.cluster import Cluster
from tests.support.trees import below, size_of
from tests.support.waiting import HANGS_S, until

pytestmark = pytest.mark.long

ROWS = 200_000
LOOK_MS = 300
BUSY = "SELECT count(*) AS n FROM (SELECT /*+ REPARTITION(3, id) */ id FROM range(0, 20000000000, 1, 2))"
"""Two tasks that write rows into the exchange for an hour."""


@pytest.fixture(scope="module")
def cluster(make_module_cluster) -> Cluster:
    made = make_module_cluster()
    made.environment |= {
        "ONAGER_EXECUTOR_EXCHANGE_LOOK_MS": str(LOOK_MS),
        "ONAGER_SCHEDULER_RESULT_RETENTION_S": "3600",
        "ONAGER_SCHEDULER_SWEEP_INTERVAL_MS": "500",
    }
    made.start_scheduler()
    for name in ("e-1", "e-2"):
        made.launch_executor(name, slots=1)
    made.await_executors("e-1", "e-2")
    return made


def left(cluster: Cluster) -> list[str]:
    found = [str(path.relative_to(cluster.exchange_dir)) for path in below(cluster.exchange_dir)]
    return [path for path in found if not path.startswith(FOLDER)]


def unfinished(cluster: Cluster) -> list[Path]:
    return [path for path in below(cluster.exchange_dir, "*.tmp") if size_of(path)]


def running(cluster: Cluster) -> int:
    return sum(executor.running for executor in cluster.client.executors())


def computed_s(cluster: Cluster) -> float:
    """Return for how long Spark computes within a second, all executors together."""
    jvms = [jvm for executor in cluster.executors.values() if (jvm := executor.jvm())]
    before_s = sum(jvm.cpu_times().user for jvm in jvms)
    time.sleep(1)
    return sum(jvm.cpu_times().user for jvm in jvms) - before_s


def start_exchange(cluster: Cluster, gate: Gate):
    """Start a job whose first task has written most of its rows, and waits."""
    arguments = {"gate": str(gate.directory), "rows": ROWS}
    job = cluster.client.python(f"{JOBS}:gated_exchange", args=arguments, conf=UNFUSED)
    gate.wait()
    until(lambda: any(".0-" in path.name for path in below(cluster.exchange_dir, "*.tmp")), "an unfinished file")
    return job


def test_a_job_cancelled_while_it_writes_leaves_idle_executors_and_no_file(cluster):
    job = cluster.client.sql(BUSY, conf=UNFUSED)
    until(lambda: len(unfinished(cluster)) == 2, "two tasks that write")
    until(lambda: sum(e.exchange.bytes for e in cluster.client.executors()), "bytes that people see")
    at_work_s = max(computed_s(cluster) for _ in range(2))
    job.cancel("enough")
    until(lambda: not left(cluster) and not running(cluster), "idle executors and an empty directory")
    until(lambda: computed_s(cluster) < at_work_s / 3, "Spark at rest")
    assert left(cluster) == []
    with pytest.raises(JobCancelledError):
        job.wait(timeout=HANGS_S)


def test_disk_use_is_seen_while_a_job_runs_and_after_it(cluster, gate):
    job = start_exchange(cluster, gate)
    written = until(lambda: job.progress().exchange_bytes, "the second task's bytes")
    until(lambda: all(e.exchange.bytes >= written for e in cluster.client.executors()), "a look of each executor")
    shown = json.loads(cluster.cli("executors", "-o", "json").stdout)[0]["exchange"]
    assert shown["bytes"] >= written
    assert shown["files"] >= 2
    assert 0 < shown["free_bytes"] < shown["total_bytes"]
    heading, _, *lines = cluster.cli("executors").stdout.splitlines()
    assert "EXCHANGE  FILES" in heading
    assert all("KiB" in line or "MiB" in line for line in lines)
    assert "in the exchange directory: " in cluster.cli("job", job.id).stdout
    gate.open()
    assert job.to_arrow().to_pylist() == [{"n": 2 * ROWS, "s": ROWS * (2 * ROWS - 1)}]
    until(lambda: not left(cluster), "an empty directory")
    assert job.progress().exchange_bytes == 0
    until(lambda: not any(e.exchange.files for e in cluster.client.executors()), "nothing to be seen")


def test_a_large_result_stays_for_its_retention_and_what_is_late_goes(cluster, tmp_path):
    job = cluster.client.sql("SELECT id, repeat('x', 50) AS filler FROM range(0, 40000, 1, 2)", conf=UNFUSED)
    assert job.to_arrow().num_rows == 40_000
    kept = left(cluster)
    assert [name.rpartition(".")[2] for name in kept if "." in name] == ["arrow", "arrow"]
    assert job.progress().exchange_bytes > 256 * 1024
    late = [cluster.exchange_dir / job.id / "1" / "7-late.rows", cluster.exchange_dir / "another-cluster-s" / "f"]
    for path in late:
        path.parent.mkdir(exist_ok=True)
        path.write_text("late")
    until(lambda: not late[0].exists(), "no file of a late task")
    still = [name for name in left(cluster) if name.startswith(job.id)]
    assert still == kept, "a part of the result went with what was late"
    cluster.environment["ONAGER_SCHEDULER_RESULT_RETENTION_S"] = "1"
    cluster.scheduler.kill()
    cluster.start_scheduler()
    until(lambda: not (cluster.exchange_dir / job.id).exists(), "no result")
    again = tmp_path / job.id
    (again / "1").mkdir(parents=True)
    (again / "1" / late[0].name).write_text("later")
    again.rename(cluster.exchange_dir / job.id)  # at once: executors remove empty directories, too
    until(lambda: not (cluster.exchange_dir / job.id).exists(), "no directory of an ended job")
    assert late[1].exists()
    late[1].unlink()
    late[1].parent.rmdir()


def test_a_scheduler_killed_while_a_job_is_removed_is_continued(cluster, gate):
    job = start_exchange(cluster, gate)
    job.cancel("enough")
    cluster.scheduler.kill()
    cluster.start_scheduler()
    until(lambda: not left(cluster), "an empty directory")


def test_what_a_killed_executor_did_not_finish_goes_while_its_job_goes_on(cluster, gate):
    job = start_exchange(cluster, gate)
    task = cluster.tasks(job.id)[1, 0]
    victim = cluster.executors[task["executor_id"]]
    (dead,) = below(cluster.exchange_dir, ".0-*.tmp")
    descendants = victim.descendants()
    victim.kill()
    for process in descendants:
        if process.is_running():
            os.kill(process.pid, signal.SIGKILL)
    gate.forget()
    until(lambda: not dead.exists(), "no file of the dead")
    gate.wait()
    (again,) = below(cluster.exchange_dir, ".0-*.tmp")
    time.sleep(3 * LOOK_MS / 1000)
    assert again.exists(), "the living one's file was taken away"
    gate.open()
    assert job.to_arrow().to_pylist() == [{"n": 2 * ROWS, "s": ROWS * (2 * ROWS - 1)}]
    until(lambda: not left(cluster), "an empty directory")
