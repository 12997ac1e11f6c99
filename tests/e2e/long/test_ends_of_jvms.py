"""What ends JVMs is found out and fails its own job alone; what does not stop costs its JVM, and no other job."""

import json
from collections.abc import Iterator

import pytest

from onager.errors import JobFailedError
from tests.e2e.conftest import JOBS, UNFUSED
from tests.support.processes.cluster import Cluster, Process
from tests.support.waiting import until

GREEDY = "SELECT size(collect_list(repeat(cast(id AS string), 200000))) AS n FROM range(0, 30000, 1, 1)"
"""Keeps 40 GB in one array, in one task: of two, the second might start before it is suspected, and cost a life."""


@pytest.fixture(scope="module")
def cluster(empty_cluster) -> Iterator[Cluster]:
    """A cluster of one executor of little memory, whose JVM each test ends."""
    conf = {"spark.driver.memory": "600m"}
    executor = empty_cluster.start_executor(
        "one", slots=3, ONAGER_EXECUTOR_SPARK_CONF=json.dumps(conf), ONAGER_EXECUTOR_CANCEL_GRACE_MS="1000"
    )
    yield empty_cluster
    executor.kill()


@pytest.fixture
def executor(cluster) -> Process:
    cluster.await_executors("one")
    return cluster.executors["one"]


def losses(cluster: Cluster, job_id: str) -> list[str]:
    return [e.fields["reason"] for e in cluster.client.job(job_id).events() if e.type == "executor_lost"]


def test_a_query_that_needs_too_much_memory_fails_by_itself_and_nothing_beside_it(cluster, executor, gate):
    arguments = {"gate": str(gate.directory), "partitions": 1, "held": 0}
    beside = cluster.client.python(f"{JOBS}:gated_range", args=arguments, conf=UNFUSED)
    gate.wait()
    greedy = cluster.client.sql(GREEDY)
    until(lambda: losses(cluster, beside.id), "the end of the JVM")
    gate.open()
    with pytest.raises(JobFailedError, match="ran out of memory, though its executor ran nothing else"):
        greedy.wait()
    assert len(losses(cluster, greedy.id)) <= 2, f"the third life is lost, too: {losses(cluster, greedy.id)}"
    assert beside.to_arrow().num_rows == 1000
    assert {task["successes"] for task in cluster.tasks(beside.id).values()} == {1}


def test_cancelled_tasks_that_do_not_stop_cost_their_jvm_and_no_other_job(cluster, executor, gate):
    arguments = {"gate": str(gate.directory), "partitions": 1, "held": 0}
    beside = cluster.client.python(f"{JOBS}:gated_range", args=arguments, conf=UNFUSED)
    gate.wait()
    deaf = cluster.client.python(f"{JOBS}:deaf", args={"gate": str(gate.directory)}, conf=UNFUSED)
    until(lambda: len(list(gate.directory.glob("begun-*"))) == 2, "two deaf tasks")
    jvm = executor.jvm()
    used_s = jvm.cpu_times().user
    until(lambda: jvm.cpu_times().user > used_s + 2, "work in the JVM")
    deaf.cancel()
    until(lambda: losses(cluster, beside.id), "the end of the JVM")
    (loss,) = (e for e in beside.events() if e.type == "executor_lost")
    assert "did not stop within 1 s of being cancelled" in loss.fields["reason"]
    assert "death" not in loss.fields, "the tasks beside it are not suspected"
    gate.open()
    assert beside.to_arrow().num_rows == 1000
    assert {task["successes"] for task in cluster.tasks(beside.id).values()} == {1}
    assert executor.popen.poll() is None, "the process replaces its JVM, and keeps its process id"
    assert cluster.client.sql("SELECT count(*) AS n FROM range(10)").to_arrow().to_pylist() == [{"n": 10}]
