"""What tasks log is found while they run, and after their executor died; jobs are retried, executors drained.

In this order: each test needs the executors that the one before has left. The last tests of the shared cluster, since
both of its executors end here.
"""

import json

import pytest

from onager import View
from onager.errors import InvalidRequestError, JobFailedError
from tests.e2e.conftest import JOBS, UNFUSED
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S, until

pytestmark = pytest.mark.long


@pytest.fixture
def cluster(_shared_cluster) -> Cluster:
    """The shared cluster, without the executors that have left."""
    return _shared_cluster


def text_of(job, *selected, **more) -> str:
    return "".join(log.text for log in job.logs(*selected, **more))


def test_a_drained_executor_finishes_its_task_and_leaves(shared_cluster, gate):
    cluster = shared_cluster
    job = cluster.client.python(
        f"{JOBS}:prints_in_tasks", args={"gate": str(gate.directory), "fails": False}, conf=UNFUSED
    )
    gate.wait()
    until(lambda: "task 1 begins" in text_of(job, 1, 1), "a line of a task that runs")
    running = cluster.tasks(job.id)[1, 1]["executor_id"]
    answer = cluster.cli("executors", "drain", running, "--reason", "new disk", "-o", "json")
    assert answer.returncode == 0, answer.stderr
    drained = json.loads(answer.stdout)
    assert (drained["was_leaving"], drained["running"], drained["others"]) == (False, 1, 1)
    until(lambda: "drain_requested" in cluster.executors[running].text(), "an executor that knows")
    others = [cluster.client.sql(f"SELECT {n} AS n", conf=UNFUSED) for n in range(2)]
    assert [other.to_arrow().to_pylist() for other in others] == [[{"n": 0}], [{"n": 1}]]
    assert cluster.executor_states()[running] == "draining"
    gate.open()
    assert sorted(row["p"] for row in job.to_arrow().to_pylist()) == [0, 1]
    assert {(task["successes"], task["attempts"]) for task in cluster.tasks(job.id).values()} == {(1, 1)}
    assert cluster.executors[running].popen.wait(HANGS_S) == 0
    until(lambda: cluster.executor_states()[running] == "left", "an executor that is reported to have left")
    with pytest.raises(InvalidRequestError, match="has left: there is nothing to drain"):
        cluster.client.drain_executor(running)


def test_what_each_kind_of_task_logs(cluster, gate, tmp_path):
    # A function that plans: all that it printed, and none of its secrets.
    job = cluster.client.python(f"{JOBS}:prints_and_raises")
    with pytest.raises(JobFailedError):
        job.wait()
    planned = text_of(job, 0, 0)
    assert "reading the config\n" in planned
    assert "hunter2" not in planned

    # A task of Spark in the JVM: its warnings, which standard error does not show.
    dataset = tmp_path / "csv"
    dataset.mkdir()
    for name, header in (("a", "x,y"), ("b", "x,z")):
        (dataset / f"{name}.csv").write_text(f"{header}\n1,2\n")
    views = {"t": View(str(dataset), "csv", {"header": "true"})}
    query = cluster.client.sql("SELECT * FROM t", views=views, conf=UNFUSED)
    assert query.to_arrow().num_rows == 2
    until(lambda: "CSV header does not conform to the schema" in text_of(query, 1), "a warning of Spark")
    (executor,) = cluster.living_executors().values()
    assert "CSV header does not conform" not in executor.text()

    # A task in a Python worker, and what the executor's own log says of it.
    failing = cluster.client.python(
        f"{JOBS}:prints_in_tasks", args={"gate": str(gate.directory), "fails": True}, conf=UNFUSED
    )
    gate.wait()
    until(lambda: "task 1 begins\n" in text_of(failing, 1, 1, 0), "a line of a task that runs")
    gate.open()
    with pytest.raises(JobFailedError, match="the second task gives up"):
        failing.wait()
    assert "task 0" not in text_of(failing, 1, 1)
    assert f"task 1 begins  job_id={failing.id} stage_id=1 partition=1 attempt=0" in executor.text()

    # What was kept with the failure outlives the executor.
    executor.kill()
    until(lambda: cluster.executor_states()[executor.name] == "lost", "a lost executor")
    shown = cluster.cli("logs", failing.id, "--stage", "1", "--partition", "1")
    assert shown.returncode == 0, shown.stderr
    heading, *lines = shown.stdout.splitlines()
    assert heading == f"==> stage 1, task 1, attempt 0 on {executor.name}, as kept with its failure <=="
    assert "task 1 begins" in lines
    assert f"executor {executor.name} is gone, and what tasks logged there" in shown.stderr
    assert not [log for log in query.logs() if not log.note]

    # An ended job is retried as it was.
    cluster.start_executor("e-3", slots=1)
    printed = cluster.cli("retry", query.id)
    assert printed.returncode == 0, printed.stderr
    again = cluster.client.job(printed.stdout.strip())
    assert again.to_arrow().num_rows == 2
    assert again.progress().retry_of == query.id
    top = json.loads(cluster.cli("top", "-o", "json").stdout)
    assert (top["slots"], [e["executor_id"] for e in top["executors"] if e["state"] == "alive"]) == (1, ["e-3"])
    cluster.executors.pop("e-3").kill()
