"""SIGTERM: an executor finishes what it runs, takes nothing more, and leaves with exit code 0."""

import pytest

from tests.e2e.conftest import JOBS, UNFUSED, Gate
from tests.support.processes.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)


def hold_one_task(cluster: Cluster, gate: Gate):
    arguments = {"gate": str(gate.directory), "partitions": 2, "held": 0}
    job = cluster.client.python(f"{JOBS}:gated_range", args=arguments, conf=UNFUSED)
    gate.wait()
    until(lambda: sum(s.successful for s in job.progress().stages) == 2, 30, "all others finished")
    return job


def test_what_runs_is_finished_and_nothing_more_is_taken(lone_cluster, gate):
    cluster = lone_cluster
    executor = cluster.the_executor()
    job = hold_one_task(cluster, gate)
    executor.popen.terminate()
    until(lambda: state_of(cluster, executor.name) == "draining", 10, "a draining executor")
    waiting = cluster.client.sql("SELECT 1 AS one")
    gate.open()
    assert job.to_arrow().num_rows == 1000
    assert executor.popen.wait(30) == 0
    assert {(task["successes"], task["attempts"]) for task in cluster.tasks(job.id).values()} == {(1, 1)}
    until(lambda: state_of(cluster, executor.name) == "left", 10, "an executor that is told to have left")
    assert waiting.progress().state == "queued"
    why = waiting.progress().waiting_for
    assert why.startswith(f"no executor is there any more: {executor.name} has left")

    # A task that takes longer than the grace is stopped, and runs on another executor: here, the next incarnation.
    (gate.directory / "open").unlink()
    gate.forget()
    executor = cluster.start_executor(executor.name, ONAGER_EXECUTOR_DRAIN_GRACE_MS="300")
    assert waiting.to_arrow().to_pylist() == [{"one": 1}]
    job = hold_one_task(cluster, gate)
    executor.popen.terminate()
    assert executor.popen.wait(30) == 0
    gate.forget()
    cluster.start_executor(executor.name)
    gate.wait()
    gate.open()
    assert job.to_arrow().num_rows == 1000
    tasks = cluster.tasks(job.id)
    assert {task["successes"] for task in tasks.values()} == {1}
    assert {task["failures"] for task in tasks.values()} == {0}


def state_of(cluster: Cluster, executor_id: str) -> str:
    return next((e.state for e in cluster.client.executors() if e.executor_id == executor_id), "gone")
