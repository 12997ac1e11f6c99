"""Jobs' Python functions run in their own processes, and cannot disturb the executor or other jobs."""

import os
import signal
import time

import psutil
import pytest

from onager.errors import JobCancelledError, JobFailedError
from tests.e2e.conftest import JOBS, Gate
from tests.support.processes.cluster import ROOT, Cluster, lives
from tests.support.selection import some
from tests.support.waiting import HANGS_S, until


@pytest.fixture
def cluster(lone_cluster) -> Cluster:
    """A cluster whose only executor must still run other jobs after each test, in the same process."""
    pid = lone_cluster.the_executor().pid
    yield lone_cluster
    assert lone_cluster.the_executor().pid == pid
    assert lone_cluster.client.sql("SELECT 6 * 7 AS answer").to_arrow().to_pylist() == [{"answer": 42}]
    found = lone_cluster.client.python(f"{JOBS}:what_it_finds").to_arrow().to_pylist()
    zone = lone_cluster.client.sql("SELECT current_timezone() AS zone").to_arrow().to_pylist()[0]["zone"]
    expected = {"views": "0", "zone": zone, "hadoop": "None", "variable": "", "module": "None", "is_own": "True"}
    assert found == [expected | {"directory": str(ROOT)}]
    assert warm_process(lone_cluster).children() == []


def warm_process(cluster: Cluster) -> psutil.Process:
    found = (
        p for p in cluster.the_executor().descendants() if "onager.executor.spark.functions" in " ".join(p.cmdline())
    )
    return next(found)


def failure(job) -> JobFailedError:
    with pytest.raises(JobFailedError) as caught:
        job.wait(timeout=HANGS_S)
    return caught.value


def is_idle(cluster: Cluster) -> bool:
    (executor,) = [e for e in cluster.client.executors() if e.state == "alive"]
    return executor.running == 0


def test_a_function_that_stops_spark(cluster):
    assert cluster.client.python(f"{JOBS}:stops_spark").to_arrow().num_rows == 3


def test_what_a_function_changes_ends_with_it(cluster):
    rows = cluster.client.python(f"{JOBS}:leaves_things_behind").to_arrow().to_pylist()
    assert rows == [{"zone": "Asia/Tokyo", "views": 1}]


@pytest.mark.parametrize("function", ["waits_at", "waits_in_spark"])
def test_a_function_that_hangs_is_cancelled_at_once_and_hinders_no_other(cluster, gate, function):
    job = cluster.client.python(f"{JOBS}:{function}", args={"gate": str(gate.directory)})
    gate.wait()
    assert cluster.client.python(f"{JOBS}:stops_spark").to_arrow().num_rows == 3
    job.cancel()
    until(lambda: not lives(gate.held()[0]) or function == "waits_in_spark", "the end of the function")
    until(lambda: is_idle(cluster), "free slots")
    with pytest.raises(JobCancelledError):
        job.wait(timeout=HANGS_S)
    if function == "waits_at":
        assert not any(map(lives, gate.held() + gate.children()))
    else:
        (worker,) = gate.held()
        until(lambda: not lives(worker) or is_asleep(gate), "the end of its Spark task")


def is_asleep(gate: Gate) -> bool:
    """Whether nobody at the gate leaves marks any more."""
    gate.forget()
    time.sleep(0.3)
    return not gate.held()


def test_a_function_that_takes_too_long(cluster, gate):
    conf = {"onager.planning.timeout": "1500ms"}
    error = failure(cluster.client.python(f"{JOBS}:waits_at", args={"gate": str(gate.directory)}, conf=conf))
    assert error.error_class == "PlanningTimeoutError"
    assert "planning the job took more than 1.5 s" in str(error)
    assert "onager.planning.timeout" in str(error)
    assert not any(map(lives, gate.held() + gate.children()))


@pytest.mark.parametrize(
    ("how", "reported"),
    some(
        [
            ("exit", "the function's process ended with exit code 3 while it planned the job"),
            ("SIGABRT", "the function's process was killed by SIGABRT while it planned the job"),
            ("SIGSEGV", "the function's process was killed by SIGSEGV while it planned the job"),
        ],
        one_in=2,
    ),
)
def test_a_function_that_ends_its_process(cluster, how, reported):
    error = failure(cluster.client.python(f"{JOBS}:ends_its_process", args={"how": how}))
    assert reported in str(error)
    assert "these are my last words" in error.details


def test_a_function_whose_process_is_killed_runs_again(cluster, gate):
    job = cluster.client.python(f"{JOBS}:waits_at", args={"gate": str(gate.directory)})
    (process,) = gate.wait()
    gate.open()
    os.kill(process, signal.SIGKILL)
    assert job.to_arrow().num_rows == 7


def test_functions_go_on_when_the_process_dies_that_theirs_are_forked_from(cluster, gate):
    job = cluster.client.python(f"{JOBS}:waits_at", args={"gate": str(gate.directory)})
    (process,) = gate.wait()
    warm = warm_process(cluster)
    warm.kill()
    until(lambda: not any(map(lives, [process, *gate.children()])), "the end of what it forked")
    gate.open()
    assert job.to_arrow().num_rows == 7
    assert warm_process(cluster).pid != warm.pid


def test_what_a_function_prints_is_logged_within_bounds_and_reported_when_it_fails(cluster):
    job = cluster.client.python(f"{JOBS}:prints", args={"lines": 2000, "fails": True})
    error = failure(job)
    assert "ValueError: after all that" in str(error)
    assert error.error_class == "ValueError"
    assert "line 1999 of many" in error.details
    assert "to standard error" in error.details
    lines = [line for line in cluster.the_executor().text().splitlines() if job.id in line and "printed" in line]
    assert 200 <= len(lines) <= 202
    assert "line 0 of many" in lines[0]
    assert max(map(len, lines)) < 1_000


def test_what_spark_raises_in_a_function_keeps_its_class_and_tells_the_lines_of_the_function(cluster):
    job = cluster.client.python(f"{JOBS}:asks_spark_for_what_is_not_there")
    error = failure(job)
    assert error.error_class == "TABLE_OR_VIEW_NOT_FOUND"
    assert "`nowhere`" in str(error)
    assert 'return look("nowhere")' in str(error)
    assert "return spark.table(name)" in str(error)
    assert "pyspark" not in str(error)
    assert "executor/spark" not in str(error)
    assert 'return look("nowhere")' in cluster.cli("job", job.id).stdout


@pytest.mark.long
def test_an_executor_whose_spark_was_stopped_all_the_same_starts_anew(cluster, gate):
    jvm = cluster.the_executor().jvm().pid
    job = cluster.client.python(f"{JOBS}:stops_all_of_spark_once", args={"gate": str(gate.directory)})
    assert job.to_arrow().num_rows == 7
    assert cluster.the_executor().jvm().pid != jvm
