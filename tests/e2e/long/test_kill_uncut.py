"""`kill -9` of the JVM in the middle of a query that was not cut."""

import pytest

from tests.e2e.conftest import JOBS
from tests.e2e.test_kill import assert_each_succeeded_once
from tests.support.processes.cluster import Cluster, lives
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(lone_cluster) -> Cluster:
    return lone_cluster


def test_jvm_killed_in_the_middle_of_a_query_that_was_not_cut(cluster, gate):
    executor = cluster.the_executor()
    arguments = {"gate": str(gate.directory), "partitions": 2, "held": 0}
    job = cluster.client.python(f"{JOBS}:gated_range", args=arguments)
    (worker,) = gate.wait()
    executor.jvm().kill()
    until(lambda: not lives(worker), 20, "the end of its Python worker")
    gate.forget()
    gate.wait()
    gate.open()
    assert sorted(job.to_arrow().column("id").to_pylist()) == list(range(1000))
    tasks = cluster.tasks(job.id)
    assert_each_succeeded_once(tasks)
    assert tasks[(0, 0)]["attempts"] == 2, "nothing was committed, so planning and query are one task"
