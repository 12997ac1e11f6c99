"""How far running jobs are, within their tasks, and where the time of ended ones went: by real executors."""

import pytest

from tests.e2e.conftest import JOBS, UNFUSED, Gate
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S, until


@pytest.fixture
def cluster(shared_cluster) -> Cluster:
    return shared_cluster


def check_times(job) -> None:
    ended = job.progress()
    shares = {share.use: share.ms for share in ended.time_shares}
    assert sum(shares.values()) == ended.ended_ms - ended.submitted_ms
    assert shares["function"] > 0
    assert shares["planning"] > 0
    assert shares["running"] > 0
    assert (ended.fraction, ended.eta_ms) == (0.0, None)


def test_a_cut_job_tells_what_its_running_task_has_read(cluster, gate: Gate):
    arguments = {"gate": str(gate.directory), "partitions": 2, "held": 0}
    job = cluster.client.python(f"{JOBS}:gated_range", args=arguments, conf=UNFUSED)
    gate.wait()

    def reading():
        found = job.progress()
        return found if len(found.stages) > 1 and found.stages[1].rows_read and found.stages[1].successful else None

    found = until(reading, "what the held task has read")
    assert 0 < found.stages[1].rows_read <= 500, "of the 500 that the held task is to read"
    assert 0.5 <= found.fraction < 1
    assert found.eta_ms is not None
    assert found.eta_ms[0] <= found.eta_ms[1]
    gate.open()
    assert job.to_arrow().num_rows == 1000
    check_times(job)
    stage = job.progress().stages[1]
    assert {each.part: each.tasks for each in stage.latencies}["run"] == 2
    assert stage.executor_rss_bytes > 0


def test_a_query_that_runs_whole_tells_how_far_spark_is(cluster, gate: Gate):
    arguments = {"gate": str(gate.directory), "partitions": 2, "held": 1}
    job = cluster.client.python(f"{JOBS}:gated_range", args=arguments)
    gate.wait()
    until(lambda: job.progress().fraction == 0.5, "one of two tasks of Spark to be done")
    watched = next(progress for progress in job.watch(timeout=HANGS_S) if progress.fraction)
    assert watched.stages[0].fraction == 0.5
    gate.open()
    assert job.to_arrow().num_rows == 1000
    check_times(job)
