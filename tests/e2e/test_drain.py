"""SIGTERM: an executor finishes what it runs, takes nothing more, and leaves with exit code 0."""

from tests.e2e.conftest import JOBS, UNFUSED, Gate
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S, until


def hold_one_task(cluster: Cluster, gate: Gate):
    arguments = {"gate": str(gate.directory), "partitions": 2, "held": 0}
    job = cluster.client.python(f"{JOBS}:gated_range", args=arguments, conf=UNFUSED)
    gate.wait()
    until(lambda: sum(s.successful for s in job.progress().stages) == 2, "all others finished")
    return job


def test_what_runs_is_finished_and_nothing_more_is_taken(lone_cluster, gate):
    cluster = lone_cluster
    executor = cluster.the_executor()
    job = hold_one_task(cluster, gate)
    executor.popen.terminate()
    until(lambda: state_of(cluster, executor.name) == "draining", "a draining executor")
    waiting = cluster.client.sql("SELECT 1 AS one")
    gate.open()
    assert job.to_arrow().num_rows == 1000
    assert executor.popen.wait(HANGS_S) == 0
    assert {(task["successes"], task["attempts"]) for task in cluster.tasks(job.id).values()} == {(1, 1)}
    until(lambda: state_of(cluster, executor.name) == "left", "an executor that is reported to have left")
    assert waiting.progress().state == "queued"
    why = waiting.progress().waiting_for
    assert why.startswith(f"no executor is there any more: {executor.name} has left")


def state_of(cluster: Cluster, executor_id: str) -> str:
    return next((e.state for e in cluster.client.executors() if e.executor_id == executor_id), "gone")
