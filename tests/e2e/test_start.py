"""Processes are killed while an executor starts: it restarts in the same process, and works."""

import contextlib
import os
import signal

import psutil
import pytest

from tests.support.processes.cluster import Process
from tests.support.waiting import until

pytestmark = pytest.mark.long


def below(process: Process, what: str) -> psutil.Process | None:
    """Return what *process* has started that has *what* on its command line."""
    for child in process.descendants():
        with contextlib.suppress(psutil.NoSuchProcess):
            if what in child.cmdline():
                return child
    return None


def another(process: Process, killed: int) -> psutil.Process | None:
    """Return Spark's JVM, other than the one that was killed.

    Before it, a shell and a JVM of Spark's launcher, which have its class among their arguments, look for Java.
    """
    for child in process.descendants():
        with contextlib.suppress(psutil.NoSuchProcess):
            command = child.cmdline()
            is_spark = "org.apache.spark.deploy.SparkSubmit" in command and command[0].endswith("java")
            if is_spark and "org.apache.spark.launcher.Main" not in command and child.pid != killed:
                return child
    return None


def test_its_jvm_is_killed_as_soon_as_it_is_there_and_a_python_worker_while_it_warms_up(empty_cluster):
    """The executor stays for the tests after this one."""
    cluster = empty_cluster
    name = f"e-{len(cluster.executors) + 1}"
    process = cluster.launch_executor(name)
    killed = 0
    for _ in range(2):
        killed = until(lambda killed=killed: another(process, killed), "another JVM").pid
        os.kill(killed, signal.SIGKILL)
    daemon = until(lambda: below(process, "onager.executor.spark.worker_daemon"), "a Python worker")
    os.kill(daemon.pid, signal.SIGKILL)
    cluster.await_executors(name)
    assert process.text().count("spark_died_while_starting") == 2
    assert "warm_up_failed" in process.text(), "it was killed too late"
    assert cluster.client.sql("SELECT 1 AS one").to_arrow().to_pylist() == [{"one": 1}]
