"""`kill -9` of the JVM in the middle of a query that was not cut, and of an executor that plans one again."""

import pytest

from tests.chaos.kill_points import FEW, FORCED, REPLANNED, Point
from tests.e2e.conftest import JOBS, rows
from tests.e2e.test_kill import assert_each_succeeded_once, follow
from tests.support.processes.cluster import Cluster, lives
from tests.support.waiting import until


@pytest.fixture
def cluster(lone_cluster) -> Cluster:
    return lone_cluster


def test_jvm_killed_in_the_middle_of_a_query_that_was_not_cut(cluster, gate):
    executor = cluster.the_executor()
    arguments = {"gate": str(gate.directory), "partitions": 2, "held": 0}
    job = cluster.client.python(f"{JOBS}:gated_range", args=arguments)
    (worker,) = gate.wait()
    executor.jvm().kill()
    until(lambda: not lives(worker), "the end of its Python worker")
    gate.forget()
    gate.wait()
    gate.open()
    assert sorted(job.to_arrow().column("id").to_pylist()) == list(range(1000))
    tasks = cluster.tasks(job.id)
    assert_each_succeeded_once(tasks)
    assert tasks[(0, 0)]["attempts"] == 2, "nothing was committed, so planning and query are one task"


def test_executor_killed_while_it_plans_the_rest_again(cluster, tpch, spark):
    job = cluster.client.sql(FEW, views=tpch, conf=FORCED)

    def kill():
        cluster.the_executor().kill()
        cluster.the_executor()

    first, *others = follow(job, Point(REPLANNED, "before"), kill).values()
    assert first == [], "it is not tried again"
    assert ["taken"] in others, "when more was measured, the rest was planned again"
    assert rows(job.to_arrow()) == rows(spark.sql(FEW).toArrow())
