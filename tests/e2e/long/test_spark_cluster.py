"""An executor whose master is a real Spark cluster: master, worker and its processes on this machine."""

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.tpch.comparison import difference
from tests.e2e.conftest import JOBS, UNFUSED, Gate, query
from tests.support.processes.cluster import Cluster
from tests.support.selection import IS_ALL
from tests.support.spark.standalone import SparkCluster
from tests.support.trees import below, size_of
from tests.support.waiting import HANGS_S, until

SLOTS = 2
QUERIES = range(1, 23) if IS_ALL else (2, 13, 15, 18)


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory, request) -> Iterator[SparkCluster]:
    made = SparkCluster(tmp_path_factory.mktemp("spark"))
    failed = request.session.testsfailed
    try:
        made.start(cores=SLOTS + 1)
        yield made
    finally:
        made.stop()
        if request.session.testsfailed > failed:
            sys.stderr.write(made.logs())


def on(spark_cluster: SparkCluster, events: Path | None = None, **environment: str) -> dict[str, str]:
    conf = {"spark.master": spark_cluster.master, "spark.executor.memory": "512m"}
    if events is not None:
        conf |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{events}"}
        conf |= {"spark.eventLog.compress": "false"}
    return {"ONAGER_EXECUTOR_SPARK_CONF": json.dumps(conf), **environment}


@pytest.fixture(scope="module")
def events(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def cluster(make_module_cluster, spark_cluster, events) -> Cluster:
    made = make_module_cluster()
    made.start_scheduler()
    # One machine, on which any directory is shared: the user's word is true.
    made.start_executor("c-1", slots=SLOTS, **on(spark_cluster, events, ONAGER_EXECUTOR_EXCHANGE_SHARED="true"))
    return made


@pytest.fixture(scope="module")
def tpch_jobs(cluster, tpch) -> dict[int, object]:
    """Queries of every kind at once, every exchange cut."""
    conf = UNFUSED | {"spark.sql.shuffle.partitions": SLOTS}
    return {number: cluster.client.sql(query(number), views=tpch, conf=conf) for number in QUERIES}


@pytest.mark.parametrize("number", QUERIES)
def test_tpch_equals_plain_spark(tpch_jobs, spark, number):
    expected = spark.sql(query(number)).toArrow()
    problem = difference(tpch_jobs[number].to_arrow(), expected, query(number))
    assert problem is None, problem
    assert len(tpch_jobs[number].progress().stages) > 2


def test_a_query_that_is_not_cut_runs_in_the_cluster(cluster, tpch, spark):
    job = cluster.client.sql(query(3), views=tpch)
    assert difference(job.to_arrow(), spark.sql(query(3)).toArrow(), query(3)) is None
    text = "SELECT id, repeat('x', 50) AS filler FROM range(0, 200000, 1, 4) ORDER BY id DESC"
    whole = cluster.client.sql(text, conf={"onager.fusion.maxBytes": 1 << 30})
    assert whole.to_arrow().column("id").to_pylist() == list(range(199_999, -1, -1))
    assert len(whole.progress().stages) == 2


def test_python_functions_run_in_the_cluster_s_processes_with_the_agent_s_interpreter(cluster, spark_cluster):
    job = cluster.client.python(f"{JOBS}:where_it_runs", args={"partitions": 4}, conf=UNFUSED)
    of_cluster = {process.pid for process in spark_cluster.executors()}
    found = [text.split() for text in job.to_arrow().column("here").to_pylist()]
    assert len(found) == 4
    for interpreter, pid in found:
        assert interpreter == sys.executable
        assert of_cluster & {parent.pid for parent in psutil.Process(int(pid)).parents()}


def test_a_dataset_is_written_by_the_cluster_and_published(cluster, tmp_path):
    target = tmp_path / "out.parquet"
    cluster.client.sql("SELECT id % 7 AS k FROM range(0, 1000, 1, 3)", conf=UNFUSED, output=target).wait(
        timeout=HANGS_S
    )
    assert (target / "_SUCCESS").exists()
    assert cluster.client.sql(f"SELECT count(*) AS n FROM parquet.`{target}`").to_arrow().to_pylist() == [{"n": 1000}]


def test_an_executor_s_share_of_a_stage_is_one_spark_job(cluster, events):
    text = "SELECT count(*) AS n FROM (SELECT /*+ REPARTITION(2, id) */ id FROM range(0, 100, 1, 60))"
    jobs = []

    def tasks_together() -> list[int]:
        """Run a job more, and return of how many tasks each Spark job of the scan was."""
        jobs.append(cluster.client.sql(text, conf=UNFUSED))
        assert jobs[-1].to_arrow().to_pylist() == [{"n": 100}]
        started = [event for event in events_of(events) if event["Event"] == "SparkListenerJobStart"]
        runs = {e["Job ID"]: e["Properties"].get("spark.jobGroup.id", "") for e in started}
        mine = Counter(run for run in runs.values() if any(f"/{job.id}/1." in run for job in jobs))
        assert set(mine.values()) == {1}
        return [e["Stage Infos"][0]["Number of Tasks"] for e in started if runs.get(e["Job ID"]) in mine]

    # Whenever both slots are free: of sixty tasks, two come to their ends together often enough.
    tasks = until(lambda: found if max(found := tasks_together()) == SLOTS else None, "a job of two tasks")
    assert sum(tasks) == 60 * len(jobs)
    ran_in = {e["Task Info"]["Executor ID"] for e in events_of(events) if e["Event"] == "SparkListenerTaskEnd"}
    assert "driver" not in ran_in
    cores = [e["Executor Info"]["Total Cores"] for e in events_of(events) if e["Event"] == "SparkListenerExecutorAdded"]
    assert sum(cores) == SLOTS


def events_of(events: Path) -> list[dict]:
    """Return the events in Spark's logs, as far as their lines are whole."""
    whole = [path.read_text().rpartition("\n")[0] for path in events.rglob("events_*")]
    return [json.loads(line) for text in whole for line in text.splitlines()]


def test_a_cancelled_job_leaves_the_cluster_free(cluster, gate: Gate):
    arguments = {"gate": str(gate.directory), "rows": 200_000}
    job = cluster.client.python(f"{JOBS}:gated_exchange", args=arguments, conf=UNFUSED)
    (worker,) = gate.wait()
    until(lambda: any(".0-" in path.name for path in below(cluster.exchange_dir, "*.tmp")), "an unfinished file")
    # Spark ends the worker of a task that waits for it; of one that has rows to write yet, it ends the task alone.
    sizes = [-1]
    while sizes[-1] != (size := sum(size_of(path) for path in below(cluster.exchange_dir, "*.tmp"))):
        sizes.append(size)
        time.sleep(1)
    job.cancel("enough")
    until(lambda: not list(cluster.exchange_dir.glob(f"*{job.id}*")), "an empty directory")
    until(lambda: not psutil.pid_exists(worker), "the end of its Python worker")
    assert cluster.client.sql("SELECT 1 AS one", conf=UNFUSED).to_arrow().num_rows == 1
    assert not list(cluster.exchange_dir.glob(f"*{job.id}*"))


def test_a_process_of_the_cluster_that_is_killed_costs_a_retry(cluster, spark_cluster, gate: Gate):
    arguments = {"gate": str(gate.directory), "rows": 100_000}
    job = cluster.client.python(f"{JOBS}:gated_exchange", args=arguments, conf=UNFUSED)
    gate.wait()
    (victim,) = spark_cluster.executors()
    victim.kill()
    gate.forget()
    gate.wait()
    gate.open()
    assert job.to_arrow().to_pylist() == [{"n": 200_000, "s": 100_000 * 199_999}]
    assert [e.executor_id for e in cluster.client.executors() if e.state == "alive"] == ["c-1"]


def test_a_directory_that_is_not_shared_is_refused(cluster, spark_cluster):
    silent = cluster.launch_executor("c-2", slots=1, **on(spark_cluster))
    assert silent.popen.wait(HANGS_S) == 2
    assert "is a directory of this machine" in silent.text()
    assert "--exchange-shared" in silent.text()
    wrong = cluster.launch_executor(
        "c-3", slots=1, on_small_disk=True, **on(spark_cluster, ONAGER_EXECUTOR_EXCHANGE_SHARED="true")
    )
    assert wrong.popen.wait(HANGS_S) == 2
    assert "it is not the same directory for this executor and the processes of" in wrong.text()
    assert "127.0.0.1 does not see the files of this machine" in wrong.text()


def test_an_executor_whose_cluster_ends_starts_over_and_waits_for_it(cluster, spark_cluster):
    executor = cluster.executors["c-1"]
    jvm = executor.jvm()
    master, worker = spark_cluster.processes[:2]
    for process in (*spark_cluster.executors(), worker, master):
        os.kill(process.pid, signal.SIGKILL)
    master.wait()
    worker.wait()
    os.kill(jvm.pid, signal.SIGKILL)  # it would wait for its cluster for a minute
    until(lambda: "cluster_away" in executor.text(), "an executor that says so")
    spark_cluster.start(cores=SLOTS)
    cluster.await_executors("c-1")
    answer = cluster.client.sql("SELECT count(*) AS n FROM range(10)", conf=UNFUSED).to_arrow()
    assert answer.to_pylist() == [{"n": 10}]
