"""What is killed while an executor starts: it starts again by itself, in the same process, and works."""

import os
import signal

import psutil
import pytest

from tests.e2e.cluster import Cluster, Process, until

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def executor(make_cluster) -> tuple[Cluster, Process]:
    cluster = make_cluster()
    cluster.start_scheduler()
    return cluster, cluster.launch_executor("e-1", slots=1)


def is_daemon(process: psutil.Process) -> bool:
    try:
        return "pyspark.daemon" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def other_jvm(process: Process, pid: int) -> psutil.Process | None:
    found = process.jvm()
    return found if found is not None and found.pid != pid else None


def test_the_jvm_is_killed_as_soon_as_it_is_there(executor):
    cluster, process = executor
    pid = 0
    for _ in range(2):
        pid = until(lambda pid=pid: other_jvm(process, pid), 120, "another JVM").pid
        os.kill(pid, signal.SIGKILL)
    cluster.await_executors("e-1")
    assert cluster.client.sql("SELECT 1 AS one").to_arrow().to_pylist() == [{"one": 1}]


def test_a_python_worker_is_killed_while_it_warms_up(executor):
    cluster, process = executor
    daemon = until(lambda: next(filter(is_daemon, process.descendants()), None), 120, "a Python worker")
    os.kill(daemon.pid, signal.SIGKILL)
    cluster.await_executors("e-1")
    assert "warm_up_failed" in process.text(), "it was killed too late"
