"""`kill -9` of any process in the middle of a query: the right result, and no finished task runs again."""

import os
import signal
from collections.abc import Callable

import psutil
import pytest

from onager.client import JobHandle
from tests.chaos.kill_points import ADAPTIVE, FEW, FORCED, LAID_OUT, REPLANNED, Point, outcomes, ran_again
from tests.e2e.conftest import JOBS, Gate, rows
from tests.support.processes.cluster import Cluster, lives
from tests.support.selection import IS_ALL, some
from tests.support.waiting import until


@pytest.fixture
def cluster(lone_cluster) -> Cluster:
    return lone_cluster


def running(tasks: dict) -> set:
    return {at for at, task in tasks.items() if task["state"] == "running"}


def repeated(before: dict, after: dict) -> set:
    """Return the tasks that were launched again since *before*."""
    return {at for at, task in before.items() if after[at]["attempts"] > max(1, task["attempts"])}


def assert_each_succeeded_once(tasks: dict) -> None:
    assert {at: task["successes"] for at, task in tasks.items() if task["successes"] != 1} == {}


@pytest.mark.parametrize("gate_opens", some(["while the scheduler is down", "after it is back"]))
def test_scheduler_killed_in_the_middle(cluster, gated_q18, gate, right_answer, gate_opens):
    before = cluster.tasks(gated_q18.id)
    assert running(before)
    cluster.scheduler.kill()
    if gate_opens == "while the scheduler is down":
        gate.open()
    cluster.start_scheduler()
    gate.open()
    assert rows(gated_q18.to_arrow()) == right_answer
    after = cluster.tasks(gated_q18.id)
    assert_each_succeeded_once(after)
    # The executor lived on, so not even the task that was running started again.
    assert repeated(before, after) == set()


def test_executor_killed_in_the_middle(cluster, gated_q18, gate, right_answer, tmp_path):
    """Its tasks run again elsewhere; no process of a function that it ran outlives it, and that runs again, too."""
    of_function = Gate(tmp_path / "function")
    of_function.directory.mkdir()
    planned = cluster.client.python(f"{JOBS}:waits_at", args={"gate": str(of_function.directory)})
    (function,) = of_function.wait()
    before = cluster.tasks(gated_q18.id)
    was_running = running(before)
    (worker,) = gate.held()
    cluster.the_executor().kill()
    until(lambda: not any(map(lives, [worker, function, *of_function.children()])), "the end of its processes")
    gate.forget()
    of_function.open()
    another = cluster.the_executor()
    gate.wait()
    gate.open()
    assert rows(gated_q18.to_arrow()) == right_answer
    after = cluster.tasks(gated_q18.id)
    assert_each_succeeded_once(after)
    assert repeated(before, after) == was_running
    assert {after[at]["executor_id"] for at in was_running} == {another.name}
    assert planned.to_arrow().num_rows == 7


def test_kills_of_the_executors_jvm_fail_no_job_and_repeat_only_what_ran(cluster, gated_q18, gate, right_answer):
    executor = cluster.the_executor()
    before = cluster.tasks(gated_q18.id)
    were_running = set()
    kills = 3 if IS_ALL else 1  # a third one would fail the job if they counted
    for _ in range(kills):
        (worker,) = gate.held()
        were_running |= running(cluster.tasks(gated_q18.id))
        executor.jvm().kill()
        until(lambda worker=worker: not lives(worker), "the end of its Python worker")
        gate.forget()
        gate.wait()
        until(lambda: len(running(cluster.tasks(gated_q18.id))) == 1, "the end of all other tasks")
    assert executor.popen.poll() is None, "the process replaces its JVM, and keeps its process id"
    gate.open()
    assert rows(gated_q18.to_arrow()) == right_answer
    after = cluster.tasks(gated_q18.id)
    assert_each_succeeded_once(after)
    assert repeated(before, after) == were_running
    assert sum(event.type == "executor_lost" for event in gated_q18.events()) == kills


def test_python_worker_killed_in_the_middle_of_a_udf(cluster, gated_q18, gate, right_answer):
    before = cluster.tasks(gated_q18.id)
    (worker,) = gate.held()
    assert "python" in psutil.Process(worker).name()
    gate.forget()
    os.kill(worker, signal.SIGKILL)
    gate.wait()
    gate.open()
    assert rows(gated_q18.to_arrow()) == right_answer
    after = cluster.tasks(gated_q18.id)
    assert_each_succeeded_once(after)
    again = repeated(before, after)
    assert again == running(before)
    assert {after[at]["failures"] for at in again} <= {0, 1}


def follow(job: JobHandle, point: Point, kill: Callable[[], object]) -> dict[int, list[str]]:
    """Follow the log of *job* to its end, *kill* at *point*, and return what became of each re-plan."""
    events, is_done = [], False
    for event in job.events(follow=True):
        events.append(event)
        if not is_done and point.is_reached(events):
            is_done = True
            kill()
    assert is_done, [event.type for event in events]
    assert ran_again(events, job.detail().progress.stages) == []
    return outcomes(events)


@pytest.mark.parametrize(("event", "conf"), [(REPLANNED, FORCED), (LAID_OUT, ADAPTIVE)], ids=[REPLANNED, LAID_OUT])
def test_scheduler_killed_when_a_plan_has_changed(cluster, tpch, spark, event, conf):
    job = cluster.client.sql(FEW, views=tpch, conf=conf)

    def kill():
        cluster.scheduler.kill()
        cluster.start_scheduler()

    replans = follow(job, Point(event, "at"), kill)
    assert {len(outcomes) for outcomes in replans.values()} <= {1}, replans
    assert rows(job.to_arrow()) == rows(spark.sql(FEW).toArrow())
