"""SIGTERM: a task that takes longer than the grace is stopped, and runs on another executor."""

from tests.e2e.test_drain import hold_one_task
from tests.support.waiting import HANGS_S


def test_a_task_that_takes_too_long_runs_elsewhere(make_cluster, gate):
    cluster = make_cluster()
    cluster.start_scheduler()
    executor = cluster.start_executor("e-1", ONAGER_EXECUTOR_DRAIN_GRACE_MS="300")
    job = hold_one_task(cluster, gate)
    executor.popen.terminate()
    assert executor.popen.wait(HANGS_S) == 0
    gate.forget()
    cluster.start_executor("e-1")
    gate.wait()
    gate.open()
    assert job.to_arrow().num_rows == 1000
    tasks = cluster.tasks(job.id)
    assert {task["successes"] for task in tasks.values()} == {1}
    assert {task["failures"] for task in tasks.values()} == {0}
