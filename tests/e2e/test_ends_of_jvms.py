"""What ends JVMs is found out, and fails its own job alone."""

import json

import pytest

from onager.errors import JobFailedError
from tests.e2e.conftest import JOBS, UNFUSED
from tests.support.processes.cluster import START_TIMEOUT_S, Cluster, lives
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

GREEDY = "SELECT size(collect_list(repeat(cast(id AS string), 2000))) AS n FROM range(3000000)"
"""Keeps 40 GB in one array."""


@pytest.fixture(scope="module")
def cluster(make_module_cluster) -> Cluster:
    made = make_module_cluster()
    made.start_scheduler()
    return made


def losses(cluster: Cluster, job_id: str) -> int:
    return sum(event.type == "executor_lost" for event in cluster.client.job(job_id).events())


def test_a_query_that_needs_too_much_memory_fails_by_itself_and_nothing_beside_it(cluster, gate):
    conf = {"spark.driver.memory": "600m"}
    executor = cluster.start_executor("small", slots=2, ONAGER_EXECUTOR_SPARK_CONF=json.dumps(conf))
    arguments = {"gate": str(gate.directory), "partitions": 1, "held": 0}
    beside = cluster.client.python(f"{JOBS}:gated_range", args=arguments, conf=UNFUSED)
    gate.wait()
    greedy = cluster.client.sql(GREEDY)
    until(lambda: losses(cluster, beside.id), START_TIMEOUT_S, "the end of the JVM")
    gate.open()
    with pytest.raises(JobFailedError, match="ran out of memory, though its executor ran nothing else"):
        greedy.wait()
    assert losses(cluster, greedy.id) <= 2, "the third life of the JVM is not lost any more"
    assert beside.to_arrow().num_rows == 1000
    assert {task["successes"] for task in cluster.tasks(beside.id).values()} == {1}
    executor.terminate()


def test_three_kills_of_a_jvm_fail_no_job(cluster, gate):
    executor = cluster.start_executor("one", slots=1)
    arguments = {"gate": str(gate.directory), "partitions": 1, "held": 0}
    job = cluster.client.python(f"{JOBS}:gated_range", args=arguments, conf=UNFUSED)
    for _ in range(3):
        (worker,) = gate.wait()
        executor.jvm().kill()
        until(lambda worker=worker: not lives(worker), 20, "the end of its Python worker")
        gate.forget()
    gate.wait()
    gate.open()
    assert job.to_arrow().num_rows == 1000
    assert losses(cluster, job.id) == 3
    executor.terminate()
