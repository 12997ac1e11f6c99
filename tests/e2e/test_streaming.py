"""Streaming jobs on real executors: right rows, stages that overlap, kills and cancellations, and nothing left over."""

import pytest

from onager.errors import JobCancelledError, JobFailedError
from tests.e2e.conftest import JOBS, UNFUSED, Gate, query, rows
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S, until

STREAMING = {**UNFUSED, "onager.exchange": "streaming"}
ENDLESS = "(SELECT /*+ REPARTITION(3, id) */ id FROM range(0, 20000000000, 1, 1))"
"""A task that writes for hours, which leaves a slot for those that read it."""
ROWS = 200_000


@pytest.fixture
def cluster(shared_cluster) -> Cluster:
    return shared_cluster


def start_gated(cluster: Cluster, gate: Gate):
    """Start a job whose first task has given most of its rows, and waits, while the stage that reads it runs."""
    arguments = {"gate": str(gate.directory), "rows": ROWS}
    job = cluster.client.python(f"{JOBS}:gated_exchange", args=arguments, conf=STREAMING)
    gate.wait()
    until(lambda: running_stages(job) >= 2, "a reader at work beside the task that it reads")
    return job


def running_stages(job) -> int:
    return sum(stage.running > 0 for stage in job.progress().stages)


def check(job) -> None:
    assert job.to_arrow().to_pylist() == [{"n": 2 * ROWS, "s": ROWS * (2 * ROWS - 1)}]


def is_nothing_left(cluster: Cluster, job) -> bool:
    is_idle = not any(executor.running for executor in cluster.client.executors())
    return is_idle and not (cluster.exchange_dir / job.id).exists()


@pytest.mark.parametrize("number", [9, 21])
def test_queries_that_stream_give_what_plain_spark_gives(cluster, tpch, spark, number):
    job = cluster.client.sql(query(number), views=tpch, conf=STREAMING)
    assert rows(job.to_arrow()) == rows(spark.sql(query(number)).toArrow())
    progress = job.progress()
    assert (progress.exchange, progress.durable_because) == ("streaming", "")
    assert {stage.attempt for stage in progress.stages} == {0}
    assert len(progress.stages) > 2, "there was nothing to stream"


def test_readers_run_beside_the_tasks_that_they_read(cluster, gate):
    job = start_gated(cluster, gate)
    assert "exchange: streaming" in cluster.cli("job", job.id).stdout
    gate.open()
    check(job)
    assert job.progress().exchange == "streaming"


def test_a_limit_ends_a_job_whose_input_goes_on_for_hours(cluster):
    job = cluster.client.sql(f"SELECT * FROM {ENDLESS} LIMIT 5", conf=STREAMING)
    assert job.to_arrow().num_rows == 5
    assert job.progress().exchange == "streaming"
    until(lambda: is_nothing_left(cluster, job), "idle executors, and no file")


def test_a_job_cancelled_while_it_streams_leaves_idle_executors_and_no_file(cluster):
    job = cluster.client.sql(f"SELECT count(*) AS n FROM {ENDLESS}", conf=STREAMING)
    until(lambda: running_stages(job) >= 2, "stages that run together")
    job.cancel("enough")
    until(lambda: is_nothing_left(cluster, job), "idle executors, and no file")
    with pytest.raises(JobCancelledError):
        job.wait(timeout=HANGS_S)


def test_a_users_error_is_the_jobs_and_not_what_its_readers_meet(cluster):
    numbers = "SELECT /*+ REPARTITION(3, id) */ id, 1 / (id - 7) AS y FROM range(0, 10, 1, 2)"
    job = cluster.client.sql(f"SELECT count(y) AS n FROM ({numbers})", conf=STREAMING)
    with pytest.raises(JobFailedError) as caught:
        job.wait(timeout=HANGS_S)
    assert caught.value.error_class == "DIVIDE_BY_ZERO"
    # On a busy machine, a reader's report that its stream broke may come first.
    because = job.progress().durable_because
    assert not because or f"{job.id}/1." in because, because


def test_an_executor_killed_in_the_middle_costs_the_streaming_and_no_row(cluster, gate):
    """The last test, since the executor restarts, and another test would have to wait for that."""
    job = start_gated(cluster, gate)
    cluster.executors["e-2"].kill()
    until(lambda: job.progress().exchange == "durable", "the end of the streaming")
    # That it is gone, or what its dying task sent the one that reads from it.
    because = job.progress().durable_because
    assert "executor e-2" in because or f"{job.id}/1." in because, because
    gate.open()
    check(job)
    progress = job.progress()
    assert progress.state == "successful"
    assert max(stage.attempt for stage in progress.stages) == 1
    assert f"exchange: durable (streaming was given up: {because[:40]}" in cluster.cli("job", job.id).stdout
    until(lambda: is_nothing_left(cluster, job), "an idle executor, and no file")
